"""Tests of signals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.trial.unittest import SynchronousTestCase

from pair.events import Signal

if TYPE_CHECKING:
    from collections.abc import Callable


class SignalTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.signal: Signal[int] = Signal()
        self.heard: list[tuple[str, int]] = []

    def hear(self, name: str) -> Callable[[int], None]:
        return lambda value: self.heard.append((name, value))

    def test_nobody(self) -> None:
        """A signal without subscribers may emit."""
        self.signal.emit(1)

    def test_order(self) -> None:
        """All hear each value, in the order in which they subscribed."""
        for name in "cab":
            self.signal.subscribe(self.hear(name))
        self.signal.emit(1)
        self.signal.emit(2)
        self.assertEqual(self.heard, [(name, value) for value in (1, 2) for name in "cab"])

    def test_from_now_on(self) -> None:
        """Who subscribes hears nothing of what was emitted before."""
        self.signal.emit(1)
        self.signal.subscribe(self.hear("a"))
        self.assertEqual(self.heard, [])

    def test_unsubscribed(self) -> None:
        """Who unsubscribed hears no more; doing it again does nothing to the others."""
        leave = self.signal.subscribe(self.hear("a"))
        self.signal.subscribe(self.hear("b"))
        leave()
        leave()
        self.signal.emit(1)
        self.assertEqual(self.heard, [("b", 1)])

    def test_same_subscriber_twice(self) -> None:
        """Who subscribes twice hears each value twice, and each subscription ends by itself."""
        same = self.hear("a")
        first, second = self.signal.subscribe(same), self.signal.subscribe(same)
        self.signal.emit(1)
        first()
        first()
        self.signal.emit(2)
        second()
        self.signal.emit(3)
        self.assertEqual(self.heard, [("a", 1), ("a", 1), ("a", 2)])

    def test_subscriber_that_fails(self) -> None:
        """A subscriber that raises is logged; the others and the emitter see nothing of it."""

        def fail(value: int) -> None:
            raise ZeroDivisionError

        self.signal.subscribe(fail)
        self.signal.subscribe(self.hear("b"))
        self.signal.emit(1)
        self.signal.emit(2)
        self.assertEqual(self.heard, [("b", 1), ("b", 2)])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_changes_during_an_emission(self) -> None:
        """A value goes to those who were subscribed when it was emitted, whatever they do then."""

        def replace(value: int) -> None:
            leave()
            self.signal.subscribe(self.hear("new"))

        self.signal.subscribe(replace)
        leave = self.signal.subscribe(self.hear("old"))
        self.signal.emit(1)
        self.assertEqual(self.heard, [("old", 1)])
        self.signal.emit(2)
        self.assertEqual(self.heard, [("old", 1), ("new", 2)])
