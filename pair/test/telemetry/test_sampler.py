"""The service that reads the sources (DS-84, DS-85)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.logger import LogLevel, capturedLogs
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from pair.errors.book import ErrorBook
from pair.errors.registry import Registry
from pair.interfaces import ITelemetrySource
from pair.records.telemetry import Gpu, Hardware, Load, Memory, Reading
from pair.telemetry.conditions import CONDITIONS
from pair.telemetry.sampler import Sampler
from pair.test.turns import PATIENCE, Turns

if TYPE_CHECKING:
    from pair.records.errors import ServiceError

GPU = Gpu(id="GPU-1", index=0, vendor="nvidia", utilization_percent=62.0)


@implementer(ITelemetrySource)
class FakeSource:
    """Gives what a test says, and hangs as long as it says.

    Attributes:
        reading: what it gives; None: it fails.
        open: it hangs while this is not set.
        asked: it was read.
        threads: the thread of each reading; ``closed``: that of the close.
    """

    def __init__(self, name: str, reading: Reading | None, period: float = 0.0) -> None:
        self.name = name
        self.period = period
        self.reading = reading
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Event()
        self.threads: list[int] = []
        self.closed: int | None = None

    def read(self) -> Reading:
        self.threads.append(threading.get_ident())
        self.asked.set()
        self.open.wait(PATIENCE)
        if self.reading is None:
            raise OSError
        return self.reading

    def close(self) -> None:
        self.closed = threading.get_ident()


class SamplerTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.turns = Turns()
        self.host = FakeSource("host", Reading(memory=Memory(100, 40, 60)))
        self.gpu = FakeSource("nvml", Reading(gpus=(GPU,)))
        self.errors = ErrorBook("n1", Registry(CONDITIONS), lambda: 0)
        self.entries: list[str] = []
        self.errors.changed.subscribe(self._entered)
        self.errors.removed.subscribe(lambda entry: self.entries.append(f"-{entry}"))
        self.sampler = Sampler(
            self.turns,
            self.turns.callFromThread,
            lambda: (self.host, self.gpu),
            1.0,
            (),
            self.errors,
            lambda: int(self.turns.seconds() * 1000),
            self.turns.seconds,
        )
        self.emitted: list[Hardware] = []
        self.sampler.changed.subscribe(self._changed)
        self._next: Deferred[None] = Deferred()

    def _entered(self, entry: ServiceError) -> None:
        self.entries.append(entry.message)

    def _changed(self, value: Hardware) -> None:
        self.emitted.append(value)
        waiting, self._next = self._next, Deferred()
        waiting.callback(None)

    def start(self) -> None:
        """Start, and wait for the first tick."""
        self.sampler.startService()
        self.addCleanup(self.stop)
        self.turns.wait(self._next)

    def stop(self) -> None:
        for source in (self.host, self.gpu):
            source.open.set()
        self.turns.wait(self.sampler.stopService())

    def tick(self, times: int = 1) -> Hardware:
        """Let a second pass, and wait for what its tick gives."""
        for _ in range(times):
            waiting = self._next
            self.turns.advance(1)
            self.turns.wait(waiting)
        return self.sampler.hardware

    def test_interface(self) -> None:
        """The fake is a source."""
        verifyObject(ITelemetrySource, self.gpu)

    def test_ticks(self) -> None:
        """It reads at once and then each interval, in one thread that is not the reactor's (DS-84)."""
        self.assertEqual(self.sampler.hardware, Hardware())
        self.start()
        self.tick(3)
        self.assertEqual(len(self.emitted), 4)
        self.assertEqual(len(self.gpu.threads), 4)
        self.assertEqual(len({*self.host.threads, *self.gpu.threads}), 1)
        self.assertNotIn(threading.get_ident(), self.gpu.threads)
        self.assertEqual(self.sampler.hardware.memory, Memory(100, 40, 60))
        self.assertEqual([each.sampled_at for each in self.sampler.hardware.gpus], [3000])

    def test_load(self) -> None:
        """What it tells of the load grows old with the time, without any reading (DS-78, DS-83)."""
        self.assertEqual(self.sampler.load(), Load(None, False, None))
        self.start()
        self.assertEqual(self.sampler.load(), Load(62.0, True, 0))
        self.gpu.open.clear()
        self.turns.advance(10.5)
        self.assertEqual(self.sampler.load(), Load(62.0, False, 10500))

    def test_period(self) -> None:
        """A source that wants to be left alone for a while is."""
        self.gpu.period = 2.0
        self.start()
        self.tick(6)
        self.assertEqual((len(self.host.threads), len(self.gpu.threads)), (7, 4))

    def test_failure(self) -> None:
        """A source fails alone, keeps its last values with their time, and is tried after 1, 2, 4, 8 s (DS-85)."""
        self.start()
        self.gpu.reading = None
        with capturedLogs() as events:
            tried = []
            for second in range(1, 21):
                before = len(self.gpu.threads)
                hardware = self.tick()
                if len(self.gpu.threads) > before:
                    tried.append(second)
        self.assertEqual(tried, [1, 2, 4, 8, 16])
        self.assertEqual(len(self.host.threads), 21)
        self.assertEqual([(each.id, each.sampled_at) for each in hardware.gpus], [("GPU-1", 0)])
        self.assertIsNone(hardware.utilization_percent)
        self.assertEqual([event["log_level"] for event in events][:2], [LogLevel.warn, LogLevel.debug])
        self.gpu.reading = Reading(gpus=(GPU,))
        hardware = self.tick(12)
        self.assertEqual((hardware.gpus[0].sampled_at, hardware.utilization_percent), (32000, 62.0))

    def test_hang(self) -> None:
        """A source hangs for 30 s: the reactor goes on, after 3 s what is known is stale, and no tick is added."""
        self.start()
        self.gpu.open.clear()
        before = len(self.gpu.threads)
        for _ in range(3):
            self.turns.advance(1)
        self.assertFalse(self.sampler.hardware.stale)
        self.turns.advance(1)
        self.assertTrue(self.sampler.hardware.stale)
        self.assertEqual([each.id for each in self.sampler.hardware.gpus], ["GPU-1"])
        self.assertEqual(len(self.entries), 1)
        self.assertIn("has not answered for more than 3 s", self.entries[0])
        for _ in range(26):
            self.turns.advance(1)
        self.assertLessEqual(len(self.gpu.threads), before + 1)
        self.assertEqual(len(self.entries), 1)
        waiting = self._next
        self.gpu.open.set()
        self.turns.wait(waiting)
        self.assertFalse(self.sampler.hardware.stale)
        self.assertEqual(self.entries[1:], ["-telemetry:stalled"])
        self.tick()
        self.assertEqual(self.sampler.load(), Load(62.0, True, 0))

    def test_age_of_a_hang(self) -> None:
        """What a source gives after it hung is as old as its question (DS-78)."""
        self.gpu.open.clear()
        self.sampler.startService()
        self.addCleanup(self.stop)
        self.assertTrue(self.gpu.asked.wait(PATIENCE))
        self.turns.advance(12)
        waiting = self._next
        self.gpu.open.set()
        self.turns.wait(waiting)
        self.assertEqual(self.sampler.load(), Load(None, False, None))

    def test_stop(self) -> None:
        """A stop waits until the thread has closed the sources; then nothing is read any more."""
        self.start()
        self.turns.wait(self.sampler.stopService())
        self.assertEqual(self.gpu.closed, self.gpu.threads[0])
        before = len(self.gpu.threads)
        self.turns.advance(5)
        self.assertEqual((len(self.gpu.threads), self.turns.getDelayedCalls()), (before, []))

    def test_stop_of_a_hang(self) -> None:
        """A stop does not wait for a source that hangs; what that says at last is no matter."""
        self.start()
        self.gpu.open.clear()
        self.turns.advance(1)
        stopped = self.sampler.stopService()
        self.assertNoResult(stopped)
        self.turns.advance(1)
        self.successResultOf(stopped)
        self.assertEqual(self.turns.getDelayedCalls(), [])
        emitted = len(self.emitted)
        self.gpu.open.set()
        self.turns.advance(5)
        self.assertEqual(len(self.emitted), emitted)

    def test_start_again(self) -> None:
        """After a stop it can be started again; until the first tick it knows what it knew."""
        self.start()
        self.turns.wait(self.sampler.stopService())
        waiting = self._next
        self.sampler.startService()
        self.assertEqual([each.id for each in self.sampler.hardware.gpus], ["GPU-1"])
        self.turns.wait(waiting)
        self.assertEqual([each.sampled_at for each in self.tick().gpus], [1000])

    def test_stop_before_start(self) -> None:
        """A sampler that never ran has nothing to stop."""
        self.successResultOf(self.sampler.stopService())
