"""Restart of a failing component (OP-45)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.application.service import IService
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from pair.supervision.child import CLEARING_DEADLINE, SupervisedService
from pair.supervision.components import Component, IComponents
from pair.test.supervision.doubles import Entries, Part, PartError

if TYPE_CHECKING:
    from collections.abc import Callable

ENTRY = "supervision:down:mdns"


class SupervisedServiceTests(SynchronousTestCase):
    """One component; ``self.make_next`` says what the next try is made of."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.diary: list[str] = []
        self.errors = Entries()
        self.parts: list[Part] = []
        self.make_next: Callable[[], Part] = self.good
        self.service = SupervisedService("mdns", self.make, self.clock, self.errors)

    def make(self) -> Part:
        part = self.make_next()
        self.parts.append(part)
        return part

    def good(self) -> Part:
        return Part(str(len(self.parts)), self.diary)

    def bad(self) -> Part:
        return Part(str(len(self.parts)), self.diary, start=PartError())

    @property
    def component(self) -> Component:
        (component,) = self.service.tree()
        return component

    def test_provides_interfaces(self) -> None:
        """It is a service, and it tells of its component."""
        verifyObject(IService, self.service)
        verifyObject(IComponents, self.service)
        self.assertEqual(self.component, Component("mdns", "stopped"))

    def test_start_and_stop(self) -> None:
        """A good component is up at once, and stops with its service; no timer is left."""
        self.successResultOf(self.service.startService())
        self.assertEqual(self.component, Component("mdns", "up"))
        self.successResultOf(self.service.stopService())
        self.assertEqual(self.component, Component("mdns", "stopped"))
        self.assertEqual(self.diary, ["start 0", "stop 0"])
        self.assertEqual(self.errors.calls, [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_start_waits_for_the_first_try(self) -> None:
        """The start's Deferred fires when the first try has ended, be it badly (OP-46)."""
        starting: Deferred[None] = Deferred()
        self.make_next = lambda: Part("0", self.diary, start=starting)
        started = self.service.startService()
        self.assertNoResult(started)
        self.assertEqual(self.component.state, "starting")
        starting.errback(PartError())
        self.successResultOf(started)
        self.assertEqual(self.component.state, "backoff")
        self.flushLoggedErrors(PartError)

    def test_fails_while_up(self) -> None:
        """A component that fails is stopped, logged once with its stack, shown, and made anew after 1 s (OP-45)."""
        self.service.startService()
        self.parts[0].fail(PartError())
        self.assertEqual(self.diary, ["start 0", "stop 0"])
        self.assertEqual(
            self.component,
            Component("mdns", "backoff", failures=1, next_retry_at=1000, last_error="PartError: it failed"),
        )
        self.assertEqual(self.errors.held, {ENTRY: {"component": "mdns", "delay": "1 second"}})
        self.assertEqual(len(self.flushLoggedErrors(PartError)), 1)
        self.clock.advance(1.0)
        self.assertEqual(self.diary, ["start 0", "stop 0", "start 1"])
        self.assertEqual(self.component.state, "up")
        self.assertEqual(self.component.restarts, 1)

    def test_entry_is_cleared_after_a_minute_up(self) -> None:
        """The entry stays while the component proves itself for 60 s, and is cleared then (OP-45)."""
        self.service.startService()
        self.parts[0].fail(PartError())
        self.flushLoggedErrors(PartError)
        self.clock.advance(1.0)
        self.clock.advance(59.9)
        self.assertIn(ENTRY, self.errors.held)
        self.clock.advance(0.1)
        self.assertEqual(self.errors.held, {})
        self.assertEqual(self.component, Component("mdns", "up", restarts=1))

    def test_schedule_of_failing_starts(self) -> None:
        """Failing starts come after 1, 2, 4, 8, 16 s, then every 5 minutes, always shown (OP-45)."""
        self.make_next = self.bad
        self.service.startService()
        waits = []
        for _ in range(7):
            waits.append(self.component.next_retry_at - round(self.clock.seconds() * 1000))  # type: ignore[operator]
            self.clock.advance(waits[-1] / 1000)
        self.assertEqual(waits, [1000, 2000, 4000, 8000, 16000, 300_000, 300_000])
        self.assertEqual(self.component.state, "failed")
        self.assertEqual(self.errors.held[ENTRY]["delay"], "5 minutes")
        self.assertEqual(len(self.flushLoggedErrors(PartError)), 8)

    def test_flapping_is_not_health(self) -> None:
        """A component that falls 1.1 s after each start spends its budget, and its entry never leaves (OP-45)."""
        self.service.startService()
        for _ in range(6):
            self.clock.advance(1.1)
            self.parts[-1].fail(PartError())
            self.clock.advance(self.component.next_retry_at / 1000 - self.clock.seconds())  # type: ignore[operator]
        self.assertEqual(self.component.failures, 6)
        self.assertNotIn(f"clear {ENTRY}", self.errors.calls)
        self.flushLoggedErrors(PartError)

    def test_recovers_from_the_slow_rate(self) -> None:
        """A component whose budget was spent comes back by itself, and a later failure begins anew (OP-45)."""
        self.make_next = self.bad
        self.service.startService()
        for delay in (1, 2, 4, 8, 16):
            self.clock.advance(delay)
        self.make_next = self.good
        self.clock.advance(300)
        self.assertEqual(self.component.state, "up")
        self.clock.advance(60)
        self.assertEqual(self.errors.held, {})
        self.parts[-1].fail(PartError())
        self.assertEqual(self.component.failures, 1)
        self.flushLoggedErrors(PartError)

    def test_make_that_raises(self) -> None:
        """A component that cannot even be made has failed its start."""

        def make_next() -> Part:
            raise PartError

        self.make_next = make_next
        self.successResultOf(self.service.startService())
        self.assertEqual(self.component.state, "backoff")
        self.successResultOf(self.service.stopService())
        self.flushLoggedErrors(PartError)

    def test_failure_while_starting(self) -> None:
        """A component that tells of a failure before its start has ended is stopped and tried again."""
        starting: Deferred[None] = Deferred()
        self.make_next = lambda: Part("0", self.diary, start=starting)
        self.service.startService()
        self.parts[0].fail(PartError())
        self.assertEqual(self.diary, ["start 0", "stop 0"])
        self.assertEqual(self.component.state, "backoff")
        self.flushLoggedErrors(PartError)

    def test_only_the_first_failure_counts(self) -> None:
        """What a failed try still has to say is not heard."""
        self.service.startService()
        self.parts[0].fail(PartError())
        self.parts[0].fail(PartError())
        self.clock.advance(1.0)
        self.parts[0].fail(PartError())
        self.assertEqual(self.component.failures, 1)
        self.assertEqual(self.component.state, "up")
        self.assertEqual(len(self.flushLoggedErrors(PartError)), 1)

    def test_next_try_waits_for_the_last_ones_end(self) -> None:
        """The wait begins when what is left of the failed try is stopped, so that ports are free again."""
        stopping: Deferred[None] = Deferred()
        self.make_next = lambda: Part("0", self.diary, stop=stopping)
        self.service.startService()
        self.parts[0].fail(PartError())
        self.make_next = self.good
        self.clock.advance(5.0)
        self.assertEqual(self.diary, ["start 0", "stop 0"])
        stopping.callback(None)
        self.clock.advance(1.0)
        self.assertEqual(self.diary[2:], ["start 1"])
        self.flushLoggedErrors(PartError)

    def test_end_that_never_comes(self) -> None:
        """A failed try that does not stop is given up after 10 s."""
        self.make_next = lambda: Part("0", self.diary, stop=Deferred())
        self.service.startService()
        self.parts[0].fail(PartError())
        self.make_next = self.good
        self.clock.advance(CLEARING_DEADLINE)
        self.clock.advance(1.0)
        self.assertEqual(self.component.state, "up")
        self.flushLoggedErrors(PartError)

    def test_stop_while_starting(self) -> None:
        """A start under way is cancelled, then stopped."""
        cancelled: list[object] = []
        starting: Deferred[None] = Deferred(cancelled.append)
        self.make_next = lambda: Part("0", self.diary, start=starting)
        started = self.service.startService()
        self.successResultOf(self.service.stopService())
        self.assertEqual(cancelled, [starting])
        self.assertEqual(self.diary, ["start 0", "stop 0"])
        self.assertEqual(self.component.state, "stopped")
        self.successResultOf(started)

    def test_stop_while_waiting(self) -> None:
        """A stop in the back-off ends it: nothing is made any more."""
        self.service.startService()
        self.parts[0].fail(PartError())
        self.successResultOf(self.service.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.component.state, "stopped")
        self.flushLoggedErrors(PartError)

    def test_stop_while_clearing(self) -> None:
        """A stop that comes while a failed try is being stopped waits for that, and stops nothing twice."""
        stopping: Deferred[None] = Deferred()
        self.make_next = lambda: Part("0", self.diary, stop=stopping)
        self.service.startService()
        self.parts[0].fail(PartError())
        stopped = self.service.stopService()
        self.assertNoResult(stopped)
        stopping.callback(None)
        self.successResultOf(stopped)
        self.assertEqual(self.diary, ["start 0", "stop 0"])
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.flushLoggedErrors(PartError)

    def test_stop_error_is_logged(self) -> None:
        """A component that fails in its stop is stopped all the same, with the stack in the log."""
        self.make_next = lambda: Part("0", self.diary, stop=PartError())
        self.service.startService()
        self.successResultOf(self.service.stopService())
        self.assertEqual(len(self.flushLoggedErrors(PartError)), 1)

    def test_starts_again_after_a_stop(self) -> None:
        """A stopped component may be started again, with a new service."""
        self.service.startService()
        self.successResultOf(self.service.stopService())
        self.successResultOf(self.service.startService())
        self.assertEqual(self.diary, ["start 0", "stop 0", "start 1"])
