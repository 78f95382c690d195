"""Repeated work that survives its own mistakes (AR-14)."""

from __future__ import annotations

from twisted.application.service import IService
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from pair.supervision.repeating import Repeating
from pair.test.supervision.doubles import PartError


class RepeatingTests(SynchronousTestCase):
    """Work every 5 s; ``self.plan`` says how the next calls end."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.calls: list[float] = []
        self.plan: list[Exception | Deferred[None]] = []
        self.repeating = Repeating(self.clock, 5.0, self.work, "sampling")

    def work(self) -> Deferred[None] | None:
        self.calls.append(self.clock.seconds())
        step = self.plan.pop(0) if self.plan else None
        if isinstance(step, Exception):
            raise step
        return step

    def test_provides_interface(self) -> None:
        """It is a service."""
        verifyObject(IService, self.repeating)

    def test_interval(self) -> None:
        """The work is done at the start and every interval from then on, and not after the stop."""
        self.repeating.startService()
        self.clock.pump([5.0, 5.0])
        self.assertEqual(self.calls, [0.0, 5.0, 10.0])
        self.successResultOf(self.repeating.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_goes_on_after_a_failure(self) -> None:
        """A failing call is counted and logged with its stack, and the next one is made all the same (AR-14)."""
        self.plan = [PartError()]
        self.repeating.startService()
        self.assertEqual(len(self.flushLoggedErrors(PartError)), 1)
        self.clock.advance(5.0)
        self.assertEqual(self.calls, [0.0, 5.0])
        self.assertEqual(self.repeating.failures, 1)

    def test_a_streak_is_logged_once(self) -> None:
        """Failures in a row are one log record; the first after a good call is logged again (AR-14)."""
        self.plan = [PartError(), PartError(), PartError()]
        self.repeating.startService()
        self.clock.pump([5.0, 5.0, 5.0])
        self.assertEqual(len(self.flushLoggedErrors(PartError)), 1)
        self.assertEqual(self.repeating.failures, 3)
        self.plan = [PartError()]
        self.clock.advance(5.0)
        self.assertEqual(len(self.flushLoggedErrors(PartError)), 1)

    def test_calls_do_not_overlap(self) -> None:
        """The next call waits for the one under way, also one that fails late."""
        slow: Deferred[None] = Deferred()
        self.plan = [slow]
        self.repeating.startService()
        self.clock.advance(12.0)
        self.assertEqual(self.calls, [0.0])
        slow.errback(PartError())
        self.clock.advance(3.0)
        self.assertEqual(self.calls, [0.0, 15.0])
        self.assertEqual(len(self.flushLoggedErrors(PartError)), 1)

    def test_stop_cancels_the_call_under_way(self) -> None:
        """The stop cancels what is under way and waits for its end; that is no failure (AR-11)."""
        ended: list[object] = []
        self.plan = [Deferred(ended.append)]
        self.repeating.startService()
        self.successResultOf(self.repeating.stopService())
        self.assertEqual(len(ended), 1)
        self.assertEqual(self.repeating.failures, 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_same_instants(self) -> None:
        """Whatever repeats does so at multiples of 0.25 s, whenever it began; so the process wakes up but once."""
        self.clock.advance(0.625)
        self.repeating.startService()
        self.clock.pump([4.875, 5.0])
        self.assertEqual(self.calls, [0.625, 5.5, 10.5])

    def test_short_interval(self) -> None:
        """What repeats more often than that keeps to its own instants."""
        self.clock.advance(0.0625)
        often = Repeating(self.clock, 0.125, self.work, "looking")
        often.startService()
        self.clock.pump([0.125, 0.125])
        self.assertEqual(self.calls, [0.0625, 0.1875, 0.3125])

    def test_rounding(self) -> None:
        """Where rounding makes a call come a little early, no second one follows it for that instant."""
        often = Repeating(self.clock, 0.1, self.work, "looking")
        often.startService()
        self.clock.pump([0.1] * 30)
        gaps = [later - former for former, later in zip(self.calls, self.calls[1:], strict=False)]
        self.assertGreater(min(gaps), 0.09)

    def test_stopped_by_its_own_work(self) -> None:
        """The work itself may stop it."""
        once = Repeating(self.clock, 5.0, lambda: once.stopService() and None, "looking")
        once.startService()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_starts_again(self) -> None:
        """It may be started again after a stop."""
        self.repeating.startService()
        self.successResultOf(self.repeating.stopService())
        self.clock.advance(1.0)
        self.repeating.startService()
        self.assertEqual(self.calls, [0.0, 1.0])
