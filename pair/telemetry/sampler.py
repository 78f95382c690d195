"""The service that reads this machine's sources and keeps what they said last (DS-84, DS-85)."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed

from pair.events import Signal
from pair.logs import Logger
from pair.privacy import normalize_error
from pair.records.telemetry import Hardware, Load, Reading
from pair.supervision.deadline import settled
from pair.supervision.repeating import Repeating
from pair.telemetry.conditions import STALLED
from pair.telemetry.reduce import Kept, hardware, load

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from twisted.internet.interfaces import IReactorTime

    from pair.interfaces import IErrorBook, ITelemetrySource

LIMIT = 3.0
"""Seconds that a tick may take before what is known counts as stale."""

_LAST_WAIT = 1.0
"""Seconds for which a stop waits for a tick under way; a thread that hangs cannot be ended."""

log = Logger()


class _Outcome(Struct, frozen=True):
    """How the reading of one source went; ``at`` in monotonic seconds."""

    source: int
    at: float
    epoch_ms: int
    reading: Reading | None
    error: str = ""


class _Worker:
    """The thread. It reads what it is told to, in order, and has no state of its own.

    Attributes:
        reading: the name of the source that is being read, None while none is.
        ended: fires when the thread has ended, its sources closed.
    """

    def __init__(
        self,
        sources: Sequence[ITelemetrySource],
        in_reactor: Callable[..., object],
        monotonic: Callable[[], float],
        now: Callable[[], int],
    ) -> None:
        self.reading: str | None = None
        self.ended: Deferred[None] = Deferred()
        self._sources = sources
        self._in_reactor = in_reactor
        self._monotonic = monotonic
        self._now = now
        self._rounds: queue.SimpleQueue[tuple[Sequence[int], Deferred[list[_Outcome]]] | None] = queue.SimpleQueue()
        # A daemon: a driver that hangs must not hold the process.
        threading.Thread(target=self._serve, name="pair-telemetry", daemon=True).start()

    def read(self, sources: Sequence[int]) -> Deferred[list[_Outcome]]:
        """Read these, by their place. The Deferred fires in the reactor thread, and does not fail by itself."""
        done: Deferred[list[_Outcome]] = Deferred()
        self._rounds.put((sources, done))
        return done

    def end(self) -> None:
        """End the thread after the round under way."""
        self._rounds.put(None)

    def _serve(self) -> None:
        for sources, done in iter(self._rounds.get, None):
            outcomes = [self._read(each) for each in sources]
            self._in_reactor(done.callback, outcomes)
        for source in self._sources:
            source.close()
        self._in_reactor(self.ended.callback, None)

    def _read(self, place: int) -> _Outcome:
        source = self._sources[place]
        self.reading = source.name
        # The instant of a sample is that before it: it is never taken for newer than it is.
        at, epoch_ms = self._monotonic(), self._now()
        try:
            return _Outcome(place, at, epoch_ms, source.read())
        except Exception as error:  # noqa: BLE001 - whatever it is, it fails this source alone (DS-85)
            return _Outcome(place, self._monotonic(), epoch_ms, None, normalize_error(error))
        finally:
            self.reading = None


class Sampler(Service):
    """Reads the sources of this machine, each tick those that are due.

    It may be started again after its stop; the sources are then made anew, and
    what was known remains.

    Args:
        in_reactor: calls a function with arguments in the reactor thread, as ``callFromThread`` does.
        make_sources: new sources, which one thread alone will use.
        interval: seconds between two ticks (``telemetry.interval``).
        unified: ids of GPUs that share the system's memory (``telemetry.unified``).
        errors: where ``telemetry:stalled`` is raised, and cleared.
        now: epoch milliseconds. It and ``monotonic`` are called in the thread too.
        monotonic: seconds.

    Attributes:
        hardware: what is known now; looking at it never waits (DS-83).
        changed: emits each new value of it.
    """

    def __init__(
        self,
        clock: IReactorTime,
        in_reactor: Callable[..., object],
        make_sources: Callable[[], Sequence[ITelemetrySource]],
        interval: float,
        unified: Collection[str],
        errors: IErrorBook,
        now: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.hardware = Hardware()
        self.changed: Signal[Hardware] = Signal()
        self._clock = clock
        self._in_reactor = in_reactor
        self._make_sources = make_sources
        self._unified = frozenset(unified)
        self._errors = errors
        self._now = now
        self._monotonic = monotonic
        self._ticking = Repeating(clock, interval, self._tick, "The sampler")
        self._worker: _Worker | None = None
        self._sources: Sequence[ITelemetrySource] = ()
        self._kept: list[Kept] = []

    def startService(self) -> None:
        """Begin, with a tick in this very turn."""
        super().startService()
        self._sources = self._make_sources()
        self._kept = [Kept()] * len(self._sources)
        self._worker = _Worker(self._sources, self._in_reactor, self._monotonic, self._now)
        self._ticking.startService()

    async def _stop(self, worker: _Worker) -> None:
        await self._ticking.stopService()
        worker.end()
        if not await settled(self._clock, worker.ended, _LAST_WAIT):
            log.warn("The stop does not wait for {source}, which hangs.", source=worker.reading or "a source")

    def stopService(self) -> Deferred[None]:
        """End. The Deferred fires when the thread has ended, or hangs."""
        super().stopService()
        worker, self._worker = self._worker, None
        return succeed(None) if worker is None else Deferred.fromCoroutine(self._stop(worker))

    def load(self) -> Load:
        """How busy the GPUs are now: what the scheduler takes of this node itself."""
        return load(self.hardware, self._monotonic())

    def _tick(self) -> Deferred[None] | None:
        now = self._monotonic()
        due = [place for place, kept in enumerate(self._kept) if kept.due <= now]
        if self._worker is None or not due:
            return None
        return Deferred.fromCoroutine(self._round(self._worker, due))

    async def _round(self, worker: _Worker, due: Sequence[int]) -> None:
        overdue = self._clock.callLater(LIMIT, self._stalled, worker)
        try:
            outcomes = await worker.read(due)
        finally:
            if overdue.active():
                overdue.cancel()
        self._take(outcomes)

    def _stalled(self, worker: _Worker) -> None:
        source = worker.reading or "a source"
        log.warn("{source} has not answered for {seconds:g} s.", source=source, seconds=LIMIT)
        self._errors.raise_entry(STALLED.id, source=source, seconds=f"{LIMIT:g}")
        self._put(replace(self.hardware, stale=True))

    def _take(self, outcomes: list[_Outcome]) -> None:
        for outcome in outcomes:
            self._note(self._sources[outcome.source], outcome)
        if self.hardware.stale:
            self._errors.clear(STALLED.id)
        self._put(hardware(self._kept, self._unified, self.hardware, self._monotonic()))

    def _note(self, source: ITelemetrySource, outcome: _Outcome) -> None:
        kept = self._kept[outcome.source]
        if outcome.reading is not None:
            if kept.failures:
                log.info("{source} can be read again.", source=source.name)
            kept = kept.renewed(outcome.reading, outcome.at, outcome.epoch_ms, source.period)
        else:
            kept = kept.failed(outcome.at)
            tell = log.warn if kept.failures == 1 else log.debug
            tell("{source} cannot be read ({error}). Its last values stay.", source=source.name, error=outcome.error)
        self._kept[outcome.source] = kept

    def _put(self, value: Hardware) -> None:
        self.hardware = value
        self.changed.emit(value)
