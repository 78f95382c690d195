"""When the record is announced."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.discovery.bursts import Bursts, Settling
from pair.discovery.liveness import Clocks, woke


def announced(changes: list[float], until: float) -> list[float]:
    """The instants of announcements, with changes at these instants."""
    bursts = Bursts(0.0)
    sent = []
    for at in [*sorted(changes), until]:
        while bursts.due <= at:
            sent.append(bursts.due)
            bursts.sent(bursts.due)
        bursts.changed(at)
    return sent


def settled(changes: list[float]) -> list[float]:
    """The instants at which changes of interfaces are acted on."""
    settling = Settling()
    acted = []
    for at in [*sorted(changes), math.inf]:
        while settling.due is not None and settling.due <= at:
            acted.append(settling.due)
            settling.settled()
        settling.changed(at)
    return acted


class BurstTests(SynchronousTestCase):
    """Announcements (DS-7, DS-23, DS-26)."""

    def test_regular(self) -> None:
        """At the start, and every 60 s (DS-23)."""
        self.assertEqual(announced([], 130.0), [0.0, 60.0, 120.0])

    def test_gathered(self) -> None:
        """Changes within 200 ms are one (DS-7)."""
        self.assertEqual(announced([10.0, 10.1, 10.15], 20.0), [0.0, 10.2])

    def test_flapping(self) -> None:
        """Five changes in 3 s give at most two bursts, and the last is told of within 5 s (D10)."""
        sent = announced(settled([10.0, 10.6, 11.2, 11.8, 12.4]), 30.0)[1:]
        self.assertEqual(len(sent), 2)
        self.assertLessEqual(sent[-1], 12.4 + 5.0)

    def test_interface(self) -> None:
        """An interface that goes and comes is one announcement within 5 s (DS-26)."""
        sent = announced(settled([100.0, 100.8]), 110.0)
        self.assertEqual(sent, [0.0, 60.0, 102.0])

    @given(st.lists(st.floats(0, 100), max_size=60))
    def test_never_more(self, changes: list[float]) -> None:
        """Whatever changes: never three bursts within 3 s, and no change waits for more than 3.2 s (DS-23)."""
        sent = announced(changes, 200.0)
        self.assertTrue(all(later - first >= 2.999 for first, later in zip(sent, sent[2:], strict=False)))
        for at in changes:
            self.assertTrue(any(at <= each <= at + 3.201 for each in sent))

    @given(st.lists(st.floats(0, 100), max_size=60))
    def test_all_settle(self, changes: list[float]) -> None:
        """Every change of an interface is acted on within 2 s, and rarely more than once a second (DS-26)."""
        acted = settled(changes)
        self.assertTrue(all(later - first >= 0.999 for first, later in itertools.pairwise(acted)))
        for at in changes:
            self.assertTrue(any(at <= each <= at + 2.001 for each in acted))


class WakeTests(SynchronousTestCase):
    """Sleep shows in clocks that disagree (DS-27)."""

    def test_awake(self) -> None:
        """A busy second, and even a minute's stall, is no sleep."""
        self.assertFalse(woke(Clocks(1000, 10, 20), Clocks(1001, 11, 21)))
        self.assertFalse(woke(Clocks(1000, 10, 20), Clocks(1060, 70, 80)))
        self.assertFalse(woke(Clocks(1000, 10), Clocks(1005.5, 11)))

    def test_slept(self) -> None:
        """One clock that went on for more than 5 s without another."""
        self.assertTrue(woke(Clocks(1000, 10, 20), Clocks(1100, 11, 120)))
        self.assertTrue(woke(Clocks(1000, 10, 20), Clocks(1001, 11, 120)))
        self.assertTrue(woke(Clocks(1000, 10), Clocks(1006.5, 11)))
