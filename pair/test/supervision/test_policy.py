"""Back-off and budget (OP-45)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.supervision.policy import RestartPolicy, Streak


def delays(streak: Streak, failures: int) -> list[tuple[float, bool]]:
    """What ``failures`` in a row lead to, without ever coming up."""
    seen = []
    for _ in range(failures):
        streak, delay, exhausted = streak.failed(0.0)
        seen.append((delay, exhausted))
    return seen


class StreakTests(SynchronousTestCase):
    """The schedule of restarts, with values only."""

    def test_schedule(self) -> None:
        """The five failures of the budget wait 1, 2, 4, 8 and 16 s; each one after them 5 minutes (OP-45)."""
        self.assertEqual(
            delays(Streak(), 7),
            [(1, False), (2, False), (4, False), (8, False), (16, False), (300, True), (300, True)],
        )

    def test_failed_start_counts_alike(self) -> None:
        """A part that never came up goes through the same schedule as one that ran for a moment (OP-45)."""
        never_up = Streak().failed(5.0).streak.failed(6.0)
        briefly_up = Streak().failed(5.0).streak.up(5.5).failed(6.0)
        self.assertEqual(never_up, briefly_up)

    def test_a_minute_up_resets(self) -> None:
        """60 s up end the streak: the next failure waits 1 s again (OP-45)."""
        streak = Streak(failures=6).up(100.0)
        self.assertEqual(streak.failed(160.0), (Streak(failures=1), 1.0, False))

    def test_less_than_a_minute_up_does_not(self) -> None:
        """Just under 60 s up leave the streak as it was (OP-45)."""
        streak = Streak(failures=2).up(100.0)
        self.assertEqual(streak.failed(159.9), (Streak(failures=3), 4.0, False))

    def test_flapping_spends_the_budget(self) -> None:
        """A part that falls over 1.1 s after each start ends at the slow rate (OP-45)."""
        now, streak, seen = 0.0, Streak(), []
        for _ in range(6):
            streak, delay, exhausted = streak.up(now).failed(now + 1.1)
            now += 1.1 + delay
            seen.append(exhausted)
        self.assertEqual(seen, [False] * 5 + [True])

    def test_time_going_back_does_not_reset(self) -> None:
        """A clock that was set back while the part ran is not taken for health."""
        self.assertEqual(Streak(failures=1).up(1000.0).failed(10.0).streak.failures, 2)

    @given(st.lists(st.tuples(st.floats(0, 120), st.booleans()), max_size=40))
    def test_delay_follows_from_failures(self, lives: list[tuple[float, bool]]) -> None:
        """Whatever the history, the delay depends on the number of failures alone and is never zero."""
        policy, now, streak = RestartPolicy(), 0.0, Streak()
        for life, came_up in lives:
            if came_up:
                streak = streak.up(now)
            now += life
            streak, delay, exhausted = streak.failed(now)
            self.assertEqual(exhausted, streak.failures > 5)
            self.assertEqual(delay, 300.0 if exhausted else policy.delays[streak.failures - 1])
            self.assertIsNone(streak.up_since)
