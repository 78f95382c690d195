"""Ordered start and stop (AR-11, OP-46, OP-53)."""

from __future__ import annotations

from twisted.application.service import IService
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from pair.supervision.components import Component, IComponents
from pair.supervision.ordered import OrderedServices, StartFailed, StopFailed
from pair.test.supervision.doubles import Part, PartError


class OrderedServicesTests(SynchronousTestCase):
    """Sequences of parts that write what is asked of them into one diary."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.diary: list[str] = []
        self.services = OrderedServices(self.clock, stop_deadline=10.0)

    def states(self) -> dict[str, str]:
        return {component.name: component.state for component in self.services.tree()}

    def test_provides_interfaces(self) -> None:
        """It is a service, and it tells of its components."""
        verifyObject(IService, self.services)
        verifyObject(IComponents, self.services)

    def test_starts_one_after_another(self) -> None:
        """A part is started only when the start of the one before it has ended (AR-11)."""
        first: Deferred[None] = Deferred()
        self.services.add("first", Part("first", self.diary, start=first))
        self.services.add("second", Part("second", self.diary))
        started = self.services.startService()
        self.assertEqual(self.diary, ["start first"])
        self.assertEqual(self.states(), {"first": "starting", "second": "stopped"})
        first.callback(None)
        self.assertEqual(self.diary, ["start first", "start second"])
        self.successResultOf(started)
        self.assertEqual(self.states(), {"first": "up", "second": "up"})
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stops_in_reverse(self) -> None:
        """A part is stopped only when the stop of the one that was started after it has ended (AR-11)."""
        second: Deferred[None] = Deferred()
        self.services.add("first", Part("first", self.diary))
        self.services.add("second", Part("second", self.diary, stop=second))
        self.successResultOf(self.services.startService())
        del self.diary[:]
        stopped = self.services.stopService()
        self.assertEqual(self.diary, ["stop second"])
        second.callback(None)
        self.assertEqual(self.diary, ["stop second", "stop first"])
        self.successResultOf(stopped)
        self.assertEqual(self.states(), {"first": "stopped", "second": "stopped"})
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_optional_failure_does_not_hold_the_later(self) -> None:
        """An optional part that fails is logged with its stack and shown; the later ones start (OP-46)."""
        self.services.add("first", Part("first", self.diary, start=PartError("words of others")))
        self.services.add("second", Part("second", self.diary))
        self.successResultOf(self.services.startService())
        self.assertEqual(self.diary, ["start first", "start second"])
        self.assertEqual(
            self.services.tree()[0],
            Component("first", "failed", failures=1, last_error="PartError: it failed"),
        )
        self.assertEqual(len(self.flushLoggedErrors(PartError)), 1)

    def test_optional_overrun_does_not_hold_the_later(self) -> None:
        """After 10 s the next part is started; the late one may still come up by itself (OP-46)."""
        first: Deferred[None] = Deferred()
        self.services.add("first", Part("first", self.diary, start=first))
        self.services.add("second", Part("second", self.diary))
        started = self.services.startService()
        self.clock.advance(9.9)
        self.assertEqual(self.diary, ["start first"])
        self.clock.advance(0.1)
        self.successResultOf(started)
        self.assertEqual(self.states(), {"first": "starting", "second": "up"})
        first.callback(None)
        self.assertEqual(self.states(), {"first": "up", "second": "up"})

    def test_required_failure_fails_the_start(self) -> None:
        """A required part that fails ends the start; the failure names it and keeps the reason (OP-45)."""
        self.services.add("store", Part("store", self.diary, start=PartError()), required=True)
        self.services.add("second", Part("second", self.diary))
        failure = self.failureResultOf(self.services.startService(), StartFailed)
        self.assertEqual(failure.value.name, "store")
        self.assertIsInstance(failure.value.reason.value, PartError)
        self.assertEqual(str(failure.value), "the start of store failed (PartError: it failed)")
        self.assertEqual(self.diary, ["start store"])
        self.flushLoggedErrors(PartError)

    def test_required_overrun_fails_the_start(self) -> None:
        """A required part that is not up after 10 s ends the start (OP-46)."""
        self.services.add("store", Part("store", self.diary, start=Deferred()), required=True)
        started = self.services.startService()
        self.clock.advance(10.0)
        failure = self.failureResultOf(started, StartFailed)
        self.assertEqual(str(failure.value), "the start of store failed (it took more than 10 s)")

    def test_stop_after_failed_start(self) -> None:
        """All whose start was begun are stopped, the failed one too, and none that was never started."""
        self.services.add("first", Part("first", self.diary))
        self.services.add("store", Part("store", self.diary, start=PartError()), required=True)
        self.services.add("third", Part("third", self.diary))
        self.failureResultOf(self.services.startService(), StartFailed)
        del self.diary[:]
        self.successResultOf(self.services.stopService())
        self.assertEqual(self.diary, ["stop store", "stop first"])
        self.flushLoggedErrors(PartError)

    def test_stop_during_start(self) -> None:
        """A stop cancels the start that is under way: nothing more starts, what was begun is stopped."""
        cancelled: list[object] = []
        slow: Deferred[None] = Deferred(cancelled.append)
        self.services.add("first", Part("first", self.diary))
        self.services.add("slow", Part("slow", self.diary, start=slow))
        self.services.add("third", Part("third", self.diary))
        started = self.services.startService()
        self.successResultOf(self.services.stopService())
        self.failureResultOf(started, CancelledError)
        self.assertEqual(cancelled, [slow])
        self.assertEqual(self.diary, ["start first", "start slow", "stop slow", "stop first"])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_error_is_logged_and_told(self) -> None:
        """A part that fails in its stop does not hold the others, and the failure names it (OP-53)."""
        self.services.add("first", Part("first", self.diary))
        self.services.add("second", Part("second", self.diary, stop=PartError()))
        self.successResultOf(self.services.startService())
        failure = self.failureResultOf(self.services.stopService(), StopFailed)
        self.assertEqual(failure.value.names, ("second",))
        self.assertEqual(self.diary[2:], ["stop second", "stop first"])
        self.assertEqual(len(self.flushLoggedErrors(PartError)), 1)

    def test_stop_overrun_is_left_behind(self) -> None:
        """A part that does not stop by its own deadline is named and left behind (OP-53)."""
        self.services.add("first", Part("first", self.diary))
        self.services.add("deaf", Part("deaf", self.diary, stop=Deferred()), stop_deadline=4.0)
        self.successResultOf(self.services.startService())
        stopped = self.services.stopService()
        self.clock.advance(3.9)
        self.assertNotIn("stop first", self.diary)
        self.clock.advance(0.1)
        self.assertIn("stop first", self.diary)
        failure = self.failureResultOf(stopped, StopFailed)
        self.assertEqual(str(failure.value), "the stop of deaf failed")

    def test_whole_stop_is_bounded(self) -> None:
        """Whatever the parts' own deadlines add up to, the stop ends within its own; each is asked (OP-53)."""
        for name in ("a", "b", "c"):
            self.services.add(name, Part(name, self.diary, stop=Deferred()), stop_deadline=6.0)
        self.successResultOf(self.services.startService())
        stopped = self.services.stopService()
        self.clock.pump([1.0] * 10)
        self.clock.advance(0)
        self.failureResultOf(stopped, StopFailed)
        self.assertEqual(self.diary[3:], ["stop c", "stop b", "stop a"])
        self.assertEqual(self.clock.seconds(), 10.0)

    def test_nested(self) -> None:
        """A sequence may be a part of another; its components are shown in their place."""
        inner = OrderedServices(self.clock)
        inner.add("inner one", Part("inner one", self.diary))
        inner.add("inner two", Part("inner two", self.diary))
        self.services.add("first", Part("first", self.diary))
        self.services.add("inner", inner)
        self.services.add("last", Part("last", self.diary))
        self.successResultOf(self.services.startService())
        self.assertEqual(list(self.states()), ["first", "inner one", "inner two", "last"])
        self.successResultOf(self.services.stopService())
        self.assertEqual(self.diary[4:], ["stop last", "stop inner two", "stop inner one", "stop first"])
