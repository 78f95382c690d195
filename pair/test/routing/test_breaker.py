"""Tests of holds, stale marks and the busy gate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pair.routing.breaker import MEMORY, Breaker, Hold, Sent
from pair.test.routing.holding import B, BreakerCase, M, N

if TYPE_CHECKING:
    from pair.routing.candidates import Candidate


class BusyTests(BreakerCase):
    """The first row of the table of section 7."""

    def test_grows_by_answers_in_a_row(self) -> None:
        """1, 2, 4, 8, 16, 30 and 30 s, each by the trial of the one before."""
        for number, seconds in enumerate([1, 2, 4, 8, 16, 30, 30], 1):
            self.busy()
            self.assertEqual(self.held(), ("busy", seconds, number))
            self.now += seconds - 0.5
            self.assertIsNotNone(self.held())
            self.now += 0.5
            self.assertIsNone(self.held())

    def test_retry_after(self) -> None:
        """What the engine says is taken, between 1 and 30 s."""
        for said, seconds in [(0, 1), (1, 1), (7, 7), (30, 30), (3600, 30), (math.inf, 30)]:
            self.setUp()
            self.busy(retry_after=said)
            self.assertEqual(self.held(), ("busy", seconds, 1))

    def test_whole_engine(self) -> None:
        """Every model of that engine, and no other engine."""
        self.busy()
        self.assertIsNotNone(self.held(N))
        self.assertIsNone(self.held(B))

    def test_many_at_once_are_one(self) -> None:
        """Fifty that were under way together arm the first hold and not the last."""
        burst = [self.send() for _ in range(50)]
        self.now = 0.05
        for sent in burst:
            self.breaker.busy(sent, None, self.now)
        self.assertEqual(self.held(), ("busy", 1, 1))

    def test_sole_owner(self) -> None:
        """Asked during its hold, it is held for longer if it is busy still."""
        self.busy()
        self.now = 0.25
        self.busy()
        self.assertEqual(self.held(), ("busy", 2, 2))

    def test_first_byte(self) -> None:
        """It clears the hold and the count, whoever's it is."""
        early = self.send(N)
        self.busy()
        self.breaker.first_byte(early, self.now)
        self.assertIsNone(self.held())
        self.busy()
        self.assertEqual(self.held(), ("busy", 1, 1))


class FaultTests(BreakerCase):
    """RT-48 and the second row."""

    def test_three_in_a_row(self) -> None:
        """The third within 60 s arms 30 s; the call tells of it."""
        self.assertIsNone(self.fault(times=2))
        self.assertIsNone(self.held())
        self.now = 60.0
        self.assertEqual(self.fault(), Hold("fault", 90.0, 3))
        self.assertEqual(self.held(), ("fault", 30, 3))
        self.assertTrue(self.breaker.failing("a"))

    def test_too_slow(self) -> None:
        """Three within more than 60 s arm nothing; the last two of them count for a next one."""
        self.fault()
        self.now = 30.0
        self.fault()
        self.now = 60.1
        self.assertIsNone(self.fault())
        self.now = 90.0
        self.assertIsNotNone(self.fault())

    def test_in_a_row(self) -> None:
        """A first byte in between sets the count to nothing; a busy answer does not."""
        self.fault(times=2)
        self.breaker.first_byte(self.send(), self.now)
        self.assertIsNone(self.fault(times=2))
        self.busy()
        self.assertIsNotNone(self.fault())

    def test_statuses_count_for_the_model(self) -> None:
        """An HTTP status says nothing of the engine's other models, and their answers nothing of this one."""
        self.fault(times=2, of_model=True)
        self.breaker.first_byte(self.send(N), self.now)
        self.fault(of_model=True)
        self.assertEqual(self.held(M), ("fault", 30, 3))
        self.assertIsNone(self.held(N))

    def test_connections_count_for_the_engine(self) -> None:
        """Whatever was asked of it."""
        self.fault(M, 2)
        self.fault(N)
        self.assertEqual((self.held(M), self.held(N)), (("fault", 30, 3), ("fault", 30, 3)))

    def test_doubled_by_each_trial_that_fails(self) -> None:
        """30, 60, 120, 240, 300, 300 s; then a success ends it all."""
        self.fault(times=3)
        for seconds in (30, 60, 120, 240, 300, 300):
            hold = self.held()
            assert hold is not None
            self.assertEqual(hold[:2], ("fault", seconds))
            self.now += seconds
            self.assertIsNone(self.held())
            self.fault()
        self.now += 300
        self.breaker.first_byte(self.send(), self.now)
        self.assertFalse(self.breaker.failing("a"))
        self.fault(times=3)
        self.assertEqual(self.held(), ("fault", 30, 3))

    def test_only_the_trial_doubles(self) -> None:
        """What left before the hold, or during it to a sole owner, fails without consequence."""
        burst = [self.send() for _ in range(50)]
        self.now = 1.0
        for sent in burst:
            self.breaker.fault(sent, False, self.now)
        self.assertEqual(self.held(), ("fault", 30, 3))
        self.now = 20.0
        late = self.send()
        self.now = 31.0
        self.assertIsNone(self.breaker.fault(late, False, self.now))
        self.assertIsNone(self.held())


class StallTests(BreakerCase):
    """RT-50 and the third row."""

    def setUp(self) -> None:
        super().setUp()
        self.breaker.stall(self.send(), self.now)

    def test_sixty_seconds(self) -> None:
        """The engine is held for 60 s without evidence, then half-open."""
        self.assertEqual((self.held(M), self.held(N)), (("stall", 60, 1), ("stall", 60, 1)))
        self.now = 60.0
        self.assertIsNone(self.held())

    def test_evidence(self) -> None:
        """One silence, then none until later evidence; after it one request pays again, and no other."""
        self.breaker.evidence("a", "e", 0.0)
        self.now = 5.0
        self.assertEqual(self.held(), ("stall", 55, 1))
        self.breaker.evidence("a", "e", self.now)
        self.assertIsNone(self.held())
        trial = self.send()
        self.assertIsNotNone(self.held())
        self.now = 17.0
        self.breaker.stall(trial, self.now)
        self.assertEqual(self.held(), ("stall", 60, 2))

    def test_evidence_of_nothing(self) -> None:
        """Of an engine that is not held: nothing."""
        self.breaker.evidence("b", "e", 1.0)
        self.assertEqual(len(self.breaker), 1)

    def test_first_byte_of_another(self) -> None:
        """It is evidence; that of the trial clears."""
        self.now = 1.0
        self.breaker.first_byte(self.send(), self.now)
        self.assertIsNone(self.held())
        trial = self.send()
        self.assertIsNotNone(self.held())
        self.breaker.first_byte(trial, self.now)
        self.breaker.finished("j1")
        self.breaker.forget(self.now)
        self.assertEqual(len(self.breaker), 0)

    def test_quiet(self) -> None:
        """One that was passed by is held as long, and any later evidence ends that."""
        self.breaker = Breaker()
        self.breaker.quiet(self.send(), self.now)
        self.assertEqual((self.held(M), self.held(N)), (("quiet", 60, 1), ("quiet", 60, 1)))
        self.breaker.evidence("a", "e", 0.0)
        self.assertIsNotNone(self.held())
        self.now = 5.0
        self.breaker.evidence("a", "e", self.now)
        self.assertIsNone(self.held())
        self.send()
        self.assertIsNone(self.held())

    def test_many_at_once_are_one(self) -> None:
        """Those that waited with the first one are silenced with it."""
        self.setUp()
        waiting = [self.send() for _ in range(3)]
        for sent in waiting:
            self.breaker.stall(sent, self.now)
        self.assertEqual(self.held(), ("stall", 60, 1))


class TrialTests(BreakerCase):
    """RT-49."""

    def setUp(self) -> None:
        super().setUp()
        self.busy()
        self.now = 1.0

    def test_one_under_fifty(self) -> None:
        """Of fifty requests at once, each of which avoids who is held, one goes there."""
        went = [self.send() for _ in range(50) if self.held() is None]
        self.assertEqual(len(went), 1)
        self.assertEqual(self.held(), ("busy", 0, 1))
        self.now = 100.0
        self.assertIsNotNone(self.held())
        self.breaker.first_byte(went[0], self.now)
        self.assertIsNone(self.held())

    def test_without_a_verdict(self) -> None:
        """A trial whose client left, or that was the client's own mistake, is tried again by the next request."""
        self.breaker.undecided(self.send())
        self.assertIsNone(self.held())
        self.busy()
        self.assertEqual(self.held(), ("busy", 2, 2))

    def test_fails_by_what_armed(self) -> None:
        """An engine that was faulty and says now that it is busy has not failed its trial."""
        self.setUp()
        self.breaker = Breaker()
        self.fault(times=3)
        self.now += 30
        self.busy()
        self.assertEqual(self.held(), ("busy", 1, 1))
        self.now += 1
        self.assertIsNone(self.held())
        self.fault()
        self.assertEqual(self.held(), ("fault", 60, 4))

    def test_the_last_end_counts(self) -> None:
        """With several holds a candidate is free when all are over."""
        self.fault(times=3)
        self.busy()
        self.assertEqual(self.held(), ("fault", 30, 3))
        self.now += 29.5
        self.busy(retry_after=5)
        self.assertEqual(self.held(), ("busy", 5, 3))


class StaleTests(BreakerCase):
    """RT-51."""

    def stale(self, key: str = "m", revision: int = 7) -> bool:
        return self.breaker.is_stale("a", "e", key, revision, self.now)

    def test_by_time(self) -> None:
        """5 s, doubled by each further one, up to 60 s."""
        for seconds in (5, 10, 20, 40, 60, 60):
            self.breaker.stale("a", "e", "m", 7, self.now)
            self.now += seconds - 0.5
            self.assertTrue(self.stale())
            self.now += 0.5
            self.assertFalse(self.stale())

    def test_by_a_newer_revision(self) -> None:
        """What the engine lists anew it has; an older list is no news."""
        self.breaker.stale("a", "e", "m", 7, self.now)
        self.assertEqual([self.stale(revision=each) for each in (6, 7, 8)], [True, True, False])

    def test_of_one_model(self) -> None:
        """No other model, engine or node, and no hold or fault."""
        self.breaker.stale("a", "e", "m", 7, self.now)
        self.assertFalse(self.stale("n"))
        self.assertFalse(self.breaker.is_stale("a", "f", "m", 7, self.now))
        self.assertIsNone(self.held())
        self.assertIsNone(self.fault(times=2))

    def test_many_at_once_are_one(self) -> None:
        """Those that were under way together say it once."""
        for _ in range(50):
            self.breaker.stale("a", "e", "m", 7, self.now)
        self.now = 5.0
        self.assertFalse(self.stale())


class GateTests(BreakerCase):
    """RT-52."""

    def gate(self, *candidates: Candidate) -> int | None:
        return self.breaker.retry_after(candidates or (M,), self.now)

    def test_who_knows_at_first_hand(self) -> None:
        """Shut while the hold and a request that had a busy answer last; either's end opens it."""
        self.assertIsNone(self.gate())
        sent = self.busy()
        self.assertTrue(self.breaker.any_refused)
        self.assertEqual(self.gate(), 1)
        self.breaker.finished(sent.job)
        self.assertFalse(self.breaker.any_refused)
        self.assertIsNone(self.gate())
        self.now = 2.0
        self.busy()
        self.now = 4.0
        self.assertIsNone(self.gate())

    def test_every_candidate(self) -> None:
        """One that is free, or held for something else, lets it in; nobody at all is not for the gate to tell."""
        self.busy(M)
        self.assertIsNone(self.gate(M, B))
        self.fault(B, 3)
        self.assertIsNone(self.gate(M, B))
        self.busy(B, 12)
        self.assertEqual(self.gate(M, B), 1)
        self.assertIsNone(self.breaker.retry_after((), self.now))

    def test_seconds_to_the_nearest_end(self) -> None:
        """Rounded up, at least 1; during a trial 1."""
        self.busy(M, 9)
        self.busy(B, 30)
        self.now = 2.5
        self.assertEqual(self.gate(M, B), 7)
        self.assertEqual(self.gate(B), 28)
        self.now = 9.0
        self.send(M)
        self.now = 12.0
        self.assertEqual(self.gate(M, B), 1)


class MemoryTests(BreakerCase):
    """RT-54."""

    def test_dropped_with_the_engine(self) -> None:
        """A node that has the engine no more, or that is gone, has nothing held against it."""
        self.fault(M, 3)
        self.fault(B, 3)
        self.breaker.retain("a", ["e", "f"])
        self.assertTrue(self.breaker.failing("a"))
        self.breaker.retain("a", [])
        self.assertFalse(self.breaker.failing("a"))
        self.assertEqual((self.held(M), self.held(B)), (None, ("fault", 30, 3)))

    def test_forgotten_when_long_over(self) -> None:
        """An hour after its end; what is needed still is kept."""
        sent = self.busy()
        self.fault(B)
        self.breaker.stale("c", "e", "m", 1, self.now)
        self.now = 30.0 + MEMORY
        self.breaker.forget(self.now)
        self.assertEqual(len(self.breaker), 1)
        self.breaker.finished(sent.job)
        self.breaker.forget(self.now)
        self.assertEqual(len(self.breaker), 0)

    def test_a_trial_is_not_forgotten(self) -> None:
        """However long it takes."""
        self.breaker.finished(self.busy().job)
        self.now = 1.0
        self.send()
        self.now = 2 * MEMORY
        self.breaker.forget(self.now)
        self.assertIsNotNone(self.held())

    def test_told_of_what_is_not_there(self) -> None:
        """After its engine was dropped, the end of a request changes nothing."""
        sent = self.send()
        self.breaker.first_byte(sent, self.now)
        self.breaker.undecided(sent)
        self.breaker.finished(sent.job)
        self.assertEqual(len(self.breaker), 0)

    def test_shown(self) -> None:
        """All in force, in order; the one that ends last where one key has several."""
        self.fault(B, 3)
        self.fault(M, 3, of_model=True)
        self.busy(M, 2)
        self.breaker.stall(self.send(M), self.now)
        self.assertEqual(
            list(self.breaker.holds(self.now).items()),
            [
                (("a", "e", ""), Hold("stall", 60.0, 1)),
                (("a", "e", "m"), Hold("fault", 30.0, 3)),
                (("b", "e", ""), Hold("fault", 30.0, 3)),
            ],
        )
        self.assertEqual(list(self.breaker.holds(30.0)), [("a", "e", "")])

    def test_bad_values(self) -> None:
        """They are refused when made (RT-3)."""
        for make in (
            lambda: Hold("busy", 1.0, 0),
            lambda: Hold("busy", math.nan, 1),
            lambda: Sent("", "a", "e", "m", 0.0),
            lambda: Sent("j", "a", "", "m", 0.0),
            lambda: Sent("j", "a", "e", "", math.nan),
        ):
            self.assertRaises(ValueError, make)
