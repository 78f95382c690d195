"""The thread for calls that block."""

from __future__ import annotations

import threading

from twisted.trial.unittest import SynchronousTestCase

from pair.discovery.worker import Worker
from pair.test.turns import Turns


class WorkerTests(SynchronousTestCase):
    def test_calls(self) -> None:
        """They are made in order, in a thread of their own, and a failure is no more than that (DS-16)."""
        turns = Turns()
        worker = Worker(turns.callFromThread, "pair-test")
        first, failed, last = worker.do(threading.get_ident), worker.do(lambda: 1 // 0), worker.do(threading.get_ident)
        worker.end()
        done: list[int] = []
        turns.wait(last.addCallback(done.append))
        self.failureResultOf(failed, ZeroDivisionError)
        self.assertEqual(done, [self.successResultOf(first)])
        self.assertNotEqual(done, [threading.get_ident()])
