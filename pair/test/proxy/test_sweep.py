"""Tests of :mod:`pair.proxy.sweep`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.proxy.sweep import PERIOD, Sweep


class Watched:
    """Notes when it is looked at; takes ``other`` out of the sweep then."""

    def __init__(self, sweep: Sweep, other: Watched | None = None) -> None:
        self.seen: list[float] = []
        self._sweep = sweep
        self._other = other
        sweep.watch(self)

    def swept(self, now: float) -> None:
        self.seen.append(now)
        if self._other is not None:
            self._sweep.leave(self._other)


class SweepTests(SynchronousTestCase):
    """PX-58: one sweep for all slow limits."""

    def setUp(self) -> None:
        """A sweep that runs."""
        self.clock = Clock()
        self.sweep = Sweep(self.clock)
        self.sweep.startService()
        self.addCleanup(self.sweep.stopService)

    def test_each_period(self) -> None:
        """All that watch are looked at each 5 s, with the time; who leaves is not."""
        watched = Watched(self.sweep)
        self.clock.pump([PERIOD, PERIOD])
        self.assertEqual(watched.seen, [5.0, 10.0])
        self.sweep.leave(watched)
        self.sweep.leave(watched)
        self.clock.advance(PERIOD)
        self.assertEqual(watched.seen, [5.0, 10.0])

    def test_one_that_ends_another(self) -> None:
        """Who left within a sweep is not looked at any more in it."""
        other = Watched(self.sweep)
        self.sweep.leave(other)
        Watched(self.sweep, other)
        self.sweep.watch(other)
        self.clock.advance(PERIOD)
        self.assertEqual(other.seen, [])
