"""Learned speeds, kept over a restart: table ``learned_speed`` (RT-61)."""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed

from pair.logs import Logger
from pair.privacy import normalize_error
from pair.routing.policies.speeds import Speed
from pair.store import StoreClosed
from pair.supervision.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from twisted.internet.interfaces import IReactorTime
    from twisted.python.failure import Failure

    from pair.routing.policies.speeds import Speeds
    from pair.store import Store

WRITE_SECONDS = 60.0
"""Between two writes, if there is something new."""

_FIELDS = ("node", "engine", "model", "rate", "samples")

log = Logger()


class KeptSpeeds(Service):
    """Reads the speeds at its start, and writes them each minute and at its stop.

    What cannot be read or written is learned anew.

    Args:
        clock: for the writes.
        store: where the table is; open while this runs.
        speeds: those that are learned.
    """

    name = "speeds"

    def __init__(self, clock: IReactorTime, store: Store, speeds: Speeds) -> None:
        self._store = store
        self._speeds = speeds
        self._written: tuple[Speed, ...] = ()
        self._writing = Repeating(clock, WRITE_SECONDS, self._write, "The writing of learned speeds")

    def startService(self) -> None:
        """Go on from what was learned before."""
        super().startService()
        try:
            self._speeds.restore(_speeds(self._store.read(_select)))
        except sqlite3.Error as error:
            log.warn("The learned speeds could not be read: {error}.", error=normalize_error(error))
        self._written = self._speeds.snapshot()
        self._writing.startService()

    def stopService(self) -> Deferred[None]:
        """Write what was learned last; fires when that is done, well or badly."""
        super().stopService()
        return self._writing.stopService().addCallback(lambda _: self._write())

    def _write(self) -> Deferred[None]:
        known = self._speeds.snapshot()
        if known == self._written:
            return succeed(None)

        def written(_: None) -> None:
            self._written = known

        return self._store.write(partial(_replace, speeds=known)).addCallbacks(written, _not_written)


def _not_written(failure: Failure) -> None:
    error = failure.trap(sqlite3.Error, StoreClosed)
    log.debug("The learned speeds could not be written: {error}.", error=error.__name__)


def _speeds(rows: Iterable[tuple[Any, ...]]) -> Iterator[Speed]:
    """Those that are whole."""
    for row in rows:
        try:
            yield msgspec.convert(dict(zip(_FIELDS, row, strict=True)), Speed)
        except msgspec.ValidationError:
            log.warn("A learned speed in the store is damaged, and left out.")


def _select(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return connection.execute("SELECT node, engine, model, rate, samples FROM learned_speed ORDER BY place").fetchall()


def _replace(connection: sqlite3.Connection, speeds: tuple[Speed, ...]) -> None:
    connection.execute("DELETE FROM learned_speed")
    connection.executemany(
        "INSERT INTO learned_speed (place, node, engine, model, rate, samples) VALUES (?, ?, ?, ?, ?, ?)",
        [(place, *(getattr(each, name) for name in _FIELDS)) for place, each in enumerate(speeds)],
    )
