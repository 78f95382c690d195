"""The watchdog, without its thread (OP-48, OP-49, OP-53)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.application.service import IService
from twisted.internet.task import Clock
from twisted.internet.testing import EventLoggingObserver
from twisted.logger import globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from pair.supervision.stalls import PERIOD, Limits
from pair.supervision.watchdog import StallWatchdog, boot_time
from pair.test.supervision.doubles import Entries

if TYPE_CHECKING:
    from collections.abc import Callable


class WatchdogTests(SynchronousTestCase):
    """The test plays the thread: it looks when it wants to."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.now = 1000.0
        self.errors = Entries()
        self.ends: list[str] = []
        self.threads: list[Callable[[], None]] = []
        self.watchdog = StallWatchdog(
            self.clock,
            lambda call, *args, **kw: call(*args, **kw),
            self.errors,
            Limits(stall=2.0),
            self.ends.append,
            lambda: self.now,
            self.threads.append,
        )
        self.events = EventLoggingObserver()
        globalLogPublisher.addObserver(self.events)
        self.addCleanup(globalLogPublisher.removeObserver, self.events)

    def pass_time(self, seconds: float, turning: bool = True) -> None:
        for _ in range(round(seconds / PERIOD)):
            self.now += PERIOD
            if turning:
                self.clock.advance(PERIOD)
            self.watchdog.look()

    def texts(self) -> list[str]:
        return [str(event["log_format"]) for event in self.events]

    def test_provides_interface(self) -> None:
        """It is a service; its one thread is begun with it."""
        verifyObject(IService, self.watchdog)
        self.watchdog.startService()
        self.assertEqual(len(self.threads), 1)

    def test_quiet_while_the_reactor_turns(self) -> None:
        """Nothing is logged, shown or counted."""
        self.watchdog.startService()
        self.pass_time(30)
        self.assertEqual((self.texts(), self.errors.calls, self.watchdog.stalls), ([], [], 0))

    def test_stall_names_the_place(self) -> None:
        """The stack of the reactor's thread is logged once for each stall, from the looking thread (OP-48)."""
        self.watchdog.startService()
        self.pass_time(1)
        self.pass_time(4, turning=False)
        (event,) = self.events
        self.assertIn("test_stall_names_the_place", event["stack"])
        self.assertEqual(self.errors.calls, [])
        self.pass_time(1)
        self.assertEqual((self.watchdog.stalls, self.watchdog.longest), (1, 4.0))
        self.assertIsNotNone(self.watchdog.last_at)

    def test_long_stall_is_shown(self) -> None:
        """Above 5 s it is an entry (OP-48)."""
        self.watchdog.startService()
        self.pass_time(1)
        self.pass_time(6, turning=False)
        self.assertEqual(self.errors.held, {"supervision:reactor_stall": {"seconds": "5"}})

    def test_longest(self) -> None:
        """The longest stall is kept."""
        self.watchdog.startService()
        for seconds in (3, 4, 2.5):
            self.pass_time(1)
            self.pass_time(seconds, turning=False)
        self.pass_time(1)
        self.assertEqual((self.watchdog.stalls, self.watchdog.longest), (3, 4.0))

    def test_a_minute_is_fatal(self) -> None:
        """After 60 s all stacks are written and the process exits with 70 (OP-48)."""
        self.watchdog.startService()
        self.pass_time(1)
        self.pass_time(60, turning=False)
        self.assertEqual(self.ends, ["the service stood still for 60 s; start it again"])
        self.assertIn("Thread {thread} is here:\n{stack}", self.texts())

    def test_wake(self) -> None:
        """After a sleep of the process the parts are told, and no stall is (OP-49)."""
        gaps: list[float] = []
        self.watchdog.woke.subscribe(gaps.append)
        self.watchdog.startService()
        self.pass_time(1)
        self.now += 30
        self.watchdog.look()
        self.assertEqual(gaps, [30.0])
        self.assertEqual((self.errors.calls, self.watchdog.stalls), ([], 0))

    def test_stop(self) -> None:
        """After the stop no timer is left, and a reactor that does not turn is no matter."""
        self.watchdog.startService()
        self.watchdog.stopService()
        self.pass_time(100, turning=False)
        self.assertEqual(self.ends, [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_thread_ends_with_the_stop(self) -> None:
        """The thread's work ends by itself once the service is stopped."""
        self.watchdog.startService()
        self.watchdog.stopService()
        (work,) = self.threads
        work()

    def test_stop_that_never_ends(self) -> None:
        """A process that still lives after the time it was given for its stop is ended with 70 (OP-53)."""
        self.watchdog.startService()
        self.watchdog.end_within(12.0)
        self.watchdog.stopService()
        self.pass_time(11.75, turning=False)
        self.assertEqual(self.ends, [])
        self.pass_time(0.25, turning=False)
        self.assertEqual(len(self.ends), 1)

    def test_clock_goes_forward(self) -> None:
        """The clock it uses by itself never goes back."""
        self.assertLessEqual(boot_time(), boot_time())
