"""Stalls and sleep, told apart (OP-48, OP-49)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from pair.supervision.stalls import PERIOD, Judge, Limits, News


class JudgeTests(SynchronousTestCase):
    """A counter that is looked at every quarter of a second; the test says whether it rises."""

    def setUp(self) -> None:
        self.now = 100.0
        self.turns = 0
        self.judge = Judge(Limits(stall=2.0), self.now)

    def look(self, seconds: float, turning: bool, gap: float = PERIOD) -> list[tuple[float, News]]:
        """What is told in ``seconds``, with the instant from their beginning."""
        began, news = self.now, []
        while self.now < began + seconds:
            self.now += gap
            self.turns += turning
            news += [(self.now - began, each) for each in self.judge.look(self.now, self.turns)]
        return news

    def test_a_turning_reactor(self) -> None:
        """Nothing is told of a reactor that turns."""
        self.assertEqual(self.look(600, turning=True), [])

    def test_short_pause(self) -> None:
        """Less than the limit is no stall."""
        self.look(1, turning=True)
        self.assertEqual(self.look(1.75, turning=False) + self.look(1, turning=True), [])

    def test_stall_is_told_once(self) -> None:
        """A stall is told once when it is long enough, and once when it is over (OP-48)."""
        self.look(1, turning=True)
        self.assertEqual(self.look(4, turning=False), [(2.0, News.STALLED)])
        self.assertEqual(self.judge.stalled, 4.0)
        self.assertEqual(self.look(1, turning=True), [(0.25, News.OVER)])

    def test_each_stall_is_told(self) -> None:
        """A second stall is told anew (OP-48)."""
        for _ in range(2):
            self.look(1, turning=True)
            self.assertEqual(self.look(3, turning=False), [(2.0, News.STALLED)])

    def test_long_stall(self) -> None:
        """After 5 s it is shown; after 60 s it is fatal (OP-48)."""
        self.look(1, turning=True)
        self.assertEqual(self.look(70, turning=False), [(2.0, News.STALLED), (5.0, News.SHOWN), (60.0, News.FATAL)])

    def test_limits_that_meet(self) -> None:
        """A stall limit above that of the entry shows first and is logged later; each is told once (OP-48)."""
        self.judge = Judge(Limits(stall=30.0), self.now)
        self.look(1, turning=True)
        self.assertEqual(self.look(40, turning=False), [(5.0, News.SHOWN), (30.0, News.STALLED)])

    def test_sleep_is_no_stall(self) -> None:
        """A time in which the looker did not run either is a wake and no stall (OP-49)."""
        self.look(1, turning=True)
        self.now += 30.0
        self.assertEqual(self.judge.look(self.now, self.turns), [News.WOKE])
        self.assertEqual(self.judge.gap, 30.0)
        self.assertEqual(self.look(1, turning=True), [])

    def test_short_sleep_adds_little(self) -> None:
        """A process that is held up as a whole for some seconds has not stalled (OP-49)."""
        self.look(1, turning=True)
        self.assertEqual(self.look(3, turning=False, gap=3.0), [])
        self.assertLessEqual(self.judge.stalled, 0.5)

    def test_sleep_in_a_stall(self) -> None:
        """A stall that a sleep interrupts is one stall, of the time that was seen (OP-49)."""
        self.look(1, turning=True)
        self.look(3, turning=False)
        self.now += 100.0
        self.assertEqual(self.judge.look(self.now, self.turns), [News.WOKE])
        self.assertEqual(self.judge.stalled, 3.5)
