"""Ended jobs on the disk (JB-63 to JB-69).

Only what has ended for good is kept: never an active job, never a guess. Jobs
are written in batches by the store's one thread; they are read, for a person
who asks, in the thread that asks.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredLock

from pair.logs import Logger
from pair.privacy import normalize_error
from pair.records.jobs import Job
from pair.store import Store, StoreClosed
from pair.supervision.deadline import settled
from pair.supervision.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from twisted.internet.interfaces import IReactorTime

    from pair.interfaces import IErrorBook

BATCH = 500
"""Jobs written in one transaction, at most."""

WAITING = 5000
"""Jobs that wait for the disk, at most; beyond that the oldest are lost (JB-65)."""

FLUSH_EVERY = 1.0
"""Seconds between two looks at what waits."""

PRUNE_EVERY = 600.0
"""Seconds between two prunings (JB-64)."""

LAST_FLUSH = 5.0
"""Seconds that a stop gives to what still waits (JB-68)."""

_SLOWEST = 60.0
_DAY_MS = 24 * 3600 * 1000

log = Logger()
_decode = msgspec.json.Decoder(Job).decode


class Place(Struct, frozen=True):
    """Where an ended job stands in the history: newest first, equals by origin and id."""

    completed_at: int
    origin: str
    id: str


_FRONT = Place(2**63 - 1, "", "")
"""The place before the newest."""


class HistoryService(Service):
    """Writes ended jobs, keeps their number and age within the caps, and reads them.

    Args:
        clock: for the batches and the waits.
        store: where the table ``job_history`` is.
        now: epoch milliseconds.
        rows: the most that are kept; 0 keeps none and deletes what there is.
        days: the age at which they go.
        errors: is told of those that were lost.
    """

    def __init__(
        self,
        clock: IReactorTime,
        store: Store,
        now: Callable[[], int],
        rows: int,
        days: int,
        errors: IErrorBook,
    ) -> None:
        self._clock = clock
        self._store = store
        self._now = now
        self._rows = rows
        self._days = days
        self._errors = errors
        self._waiting: deque[tuple[Job, int]] = deque()
        self._dropped = self._told = 0
        self._writing = DeferredLock()
        self._wait = 0.0
        self._retry_at = 0.0
        self._flushing = Repeating(clock, FLUSH_EVERY, self._look, "The writing of the job history")
        self._pruning = Repeating(clock, PRUNE_EVERY, self._prune, "The pruning of the job history")

    def startService(self) -> None:
        """Begin to write and to prune."""
        super().startService()
        self._flushing.startService()
        self._pruning.startService()

    def stopService(self) -> Deferred[None]:
        """Write what waits; fires when that is done, well or badly, or has had its time (JB-68)."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self._pruning.stopService()
        await self._flushing.stopService()
        in_time = await settled(self._clock, Deferred.fromCoroutine(self._write_all()), LAST_FLUSH)
        if self._waiting or not in_time:
            log.warn("The last jobs that ended could not be written to the history.")

    def keep(self, job: Job) -> None:
        """Write ``job`` with the next batch if it has ended; any other version of it is nothing to keep."""
        if not (job.terminal and self._rows):
            return
        self._waiting.append((job, self._now()))
        if len(self._waiting) >= BATCH:
            if self.running and not self._writing.locked:
                self._flush()
            self._drop_excess()

    def clear(self) -> Deferred[None]:
        """Delete all that is kept, and what waits (UI-46). Fires when it is gone; fails as the store's write does."""
        return Deferred.fromCoroutine(self._clear())

    async def _clear(self) -> None:
        await self._writing.acquire()
        waiting, self._waiting = self._waiting, deque()  # It would come after it.
        try:
            await self._store.write(_delete_all)
        except BaseException:
            self._put_back(waiting)
            raise
        finally:
            self._writing.release()

    def before(self, place: Place | None, wanted: Callable[[Job], bool], number: int) -> list[Job]:
        """The next jobs that are wanted, newest first. Blocks on the disk; may look at every row.

        Args:
            place: where the one stood behind which they begin; None: before the newest.
            wanted: which jobs.
            number: how many at most.
        """

        def read(connection: sqlite3.Connection) -> list[Job]:
            return list(islice(filter(wanted, _select(connection, place or _FRONT)), number))

        return self._store.read(read)

    def keys(self) -> set[tuple[str, str]]:
        """Origin and id of all that is kept. Blocks on the disk: for the start."""
        return self._store.read(lambda connection: set(connection.execute("SELECT origin, id FROM job_history")))

    def since(self, origin: str, at: int, number: int) -> list[Job]:
        """The last jobs of an origin that ended at ``at`` or later, newest first. Blocks on the disk: for the start.

        Args:
            origin: its UUID.
            at: epoch milliseconds.
            number: how many at most.
        """

        def read(connection: sqlite3.Connection) -> list[Job]:
            query = (
                "SELECT record FROM job_history WHERE origin = ? AND completed_at >= ?"
                " ORDER BY completed_at DESC, id LIMIT ?"
            )
            return [_decode(record) for (record,) in connection.execute(query, (origin, at, number))]

        return self._store.read(read)

    def find(self, origin: str, id: str) -> Job | None:
        """One job, or None where it is not kept. Blocks on the disk."""

        def read(connection: sqlite3.Connection) -> Job | None:
            query = "SELECT record FROM job_history WHERE origin = ? AND id = ?"
            row = connection.execute(query, (origin, id)).fetchone()
            return _decode(row[0]) if row else None

        return self._store.read(read)

    def _look(self) -> Deferred[None] | None:
        self._tell_dropped()
        return self._flush()

    def _flush(self) -> Deferred[None] | None:
        if self._waiting and self._clock.seconds() >= self._retry_at:
            return Deferred.fromCoroutine(self._write_all())
        return None

    async def _write_all(self) -> None:
        """Write what waits, by :meth:`_write_batches`; one such work at a time."""
        await self._writing.acquire()
        try:
            await self._write_batches()
        finally:
            self._writing.release()

    async def _write_batches(self) -> None:
        """Write what waits, batch after batch, until one fails. What comes meanwhile makes the next batches full."""
        left = len(self._waiting)
        while left > 0 and self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, left, len(self._waiting)))]
            left -= len(batch)
            try:
                await self._store.write(partial(_insert, batch=batch))
            except CancelledError:
                self._put_back(batch)
                raise
            except (sqlite3.Error, StoreClosed) as error:
                self._put_back(batch)
                if not self._wait:
                    log.warn("The job history cannot be written: {why}.", why=normalize_error(error))
                self._wait = min(2 * self._wait or 1.0, _SLOWEST)
                self._retry_at = self._clock.seconds() + self._wait
                return
            self._wait = 0.0

    def _put_back(self, batch: Sequence[tuple[Job, int]]) -> None:
        self._waiting.extendleft(reversed(batch))
        self._drop_excess()

    def _drop_excess(self) -> None:
        """Lose the oldest of those that are too many. That is said later, for all at once: there may be thousands."""
        while len(self._waiting) > WAITING:
            self._waiting.popleft()
            self._dropped += 1

    def _tell_dropped(self) -> None:
        if self._dropped > self._told:
            self._told = self._dropped
            self._errors.raise_entry("jobs:history_dropped", count=self._dropped)

    def _prune(self) -> Deferred[None]:
        return self._store.write(partial(_delete, now=self._now(), days=self._days, rows=self._rows))


def _insert(connection: sqlite3.Connection, batch: Sequence[tuple[Job, int]]) -> None:
    connection.executemany(
        "INSERT INTO job_history (origin, id, seq, completed_at, received_at, record) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (origin, id) DO UPDATE SET seq = excluded.seq, completed_at = excluded.completed_at,"
        " received_at = excluded.received_at, record = excluded.record WHERE excluded.seq > job_history.seq",
        [(job.origin, job.id, job.seq, job.completed_at, at, msgspec.json.encode(job)) for job, at in batch],
    )


def _delete_all(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM job_history")


def _select(connection: sqlite3.Connection, place: Place) -> Iterator[Job]:
    at = place.completed_at
    rows = connection.execute(
        "SELECT record FROM job_history WHERE completed_at <= ? AND (completed_at < ? OR (origin, id) > (?, ?))"
        " ORDER BY completed_at DESC, origin, id",
        (at, at, place.origin, place.id),
    )
    return (_decode(record) for (record,) in rows)


def _delete(connection: sqlite3.Connection, now: int, days: int, rows: int) -> None:
    # What came while the clock was ahead counts from now on, or it would outlive all that comes after it.
    connection.execute("UPDATE job_history SET received_at = ? WHERE received_at > ?", (now, now))
    connection.execute("DELETE FROM job_history WHERE received_at < ?", (now - days * _DAY_MS,))
    # Row ids rise in the order of receipt, which no clock disturbs.
    connection.execute(
        "DELETE FROM job_history WHERE rowid <= (SELECT rowid FROM job_history ORDER BY rowid DESC LIMIT 1 OFFSET ?)",
        (rows,),
    )
