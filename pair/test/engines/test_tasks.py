"""Background work that a stop can end or wait for (AR-11)."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from pair.engines.tasks import Tasks


class TasksTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.tasks = Tasks("a test")
        self.gate: Deferred[None] = Deferred()

    async def work(self) -> None:
        await self.gate

    async def fault(self) -> None:
        raise ZeroDivisionError

    def test_finished(self) -> None:
        """It waits for all, also for what is begun meanwhile."""
        over = self.tasks.run(self.work())
        finished = self.tasks.finished()
        self.assertNoResult(finished)
        self.assertNoResult(over)
        self.gate.callback(None)
        self.successResultOf(over)
        self.successResultOf(finished)
        self.successResultOf(self.tasks.finished())

    def test_fault(self) -> None:
        """What fails is logged, and over."""
        self.successResultOf(self.tasks.run(self.fault()))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_cancel(self) -> None:
        """What is cancelled is over, and that is no fault."""
        over = self.tasks.run(self.work())
        self.tasks.cancel()
        self.successResultOf(over)
        self.successResultOf(self.tasks.finished())
