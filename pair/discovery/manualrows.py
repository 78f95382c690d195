"""The rows of manual nodes (DS-72), and what is known of each while it is probed."""

from __future__ import annotations

import sqlite3
from hashlib import sha256
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError

from pair.addresses import Place
from pair.logs import Logger
from pair.privacy import normalize_error
from pair.records.nodes import ManualNode
from pair.store import StoreClosed

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IDelayedCall
    from twisted.python.failure import Failure

    from pair.records.nodes import ProbeResult
    from pair.store import Store

RENEW_MS = 3600 * 1000
"""So old a stored time of the last answer may be before it is written anew."""

log = Logger()


class Row:
    """One manual node.

    ``uuid`` is the node that is meant, which is the first that answered until a
    person says otherwise, and is what is stored; ``answers`` is the one that
    answered last. ``probing`` is the probe under way, for whose end
    ``waiting`` wait, and ``timer`` calls for the next.
    """

    def __init__(
        self,
        id: str,
        place: Place,
        added_at: int,
        uuid: str | None = None,
        last_ok_at: int | None = None,
        static: bool = False,
    ) -> None:
        self.id = id
        self.place = place
        self.added_at = added_at
        self.uuid = uuid
        self.answers = uuid
        self.last_ok_at = last_ok_at
        self.static = static
        self.result: ProbeResult = "never"
        self.failures = 0
        self.probing: Deferred[None] | None = None
        self.waiting: list[Deferred[bool]] = []
        self.timer: IDelayedCall | None = None
        self._stored_at = last_ok_at
        self._stored_uuid = uuid

    @property
    def key(self) -> str:
        """That of the entry which it is about."""
        return self.answers or f"manual:{self.place}"

    @property
    def record(self) -> ManualNode:
        """As it is shown."""
        return ManualNode(
            self.id,
            self.place.host,
            self.place.port,
            self.added_at,
            self.answers,
            self.last_ok_at,
            self.result,
            self.static,
        )

    def succeed(self, now: int) -> bool:
        """It answered; whether there is something to store."""
        self.result, self.failures, self.last_ok_at = "ok", 0, now
        stale = self._stored_at is None or not 0 <= now - self._stored_at < RENEW_MS
        return not self.static and (stale or self.uuid != self._stored_uuid)

    def unwait(self) -> None:
        """Call for no further probe."""
        if self.timer is not None and self.timer.active():
            self.timer.cancel()
        self.timer = None

    def rest(self) -> None:
        """End the probe under way, and call for no further one."""
        self.unwait()
        if self.probing is not None:
            self.probing.cancel()

    async def store(self, store: Store, uuid: str | None = None) -> None:
        """Write it as it is, with ``uuid`` as the node that is meant, if one is given.

        Raises:
            sqlite3.Error, StoreClosed: It could not be written, and is as before.
        """
        meant = self.uuid if uuid is None else uuid
        if not self.static:
            row = (self.id, self.place.host, self.place.port, meant, self.added_at, self.last_ok_at)
            await store.write(lambda connection: _put(connection, row))
        self.uuid = self._stored_uuid = meant
        self._stored_at = self.last_ok_at

    def store_later(self, store: Store) -> None:
        """Write what was learned of it; nobody waits for that."""
        row = (self.id, self.place.host, self.place.port, self.uuid, self.added_at, self.last_ok_at)
        self._stored_at, self._stored_uuid = self.last_ok_at, self.uuid
        store.write(lambda connection: _update(connection, row)).addErrback(_tell)

    async def delete(self, store: Store) -> None:
        """Take it from the disk.

        Raises:
            sqlite3.Error, StoreClosed: It could not be, and is still there.
        """
        await store.write(lambda connection: _delete(connection, self.id))


_Values = tuple[str, str, int, str | None, int, int | None]


def load(store: Store) -> list[Row]:
    """Those that are stored. Blocks on the disk."""
    rows = store.read(_select)
    return [Row(id, Place(address, port), added_at, uuid, last) for id, address, port, uuid, added_at, last in rows]


def static_row(place: Place, now: int) -> Row:
    """One that is set, with an id that is the same after a restart. It is not stored."""
    return Row(f"static-{sha256(str(place).encode()).hexdigest()[:12]}", place, now, static=True)


def _tell(failure: Failure) -> None:
    failure.trap(sqlite3.Error, StoreClosed, CancelledError)
    assert failure.value is not None
    log.debug("What a manual node answered could not be stored: {why}.", why=normalize_error(failure.value))


def _select(connection: sqlite3.Connection) -> list[_Values]:
    return connection.execute(
        "SELECT id, address, port, uuid, added_at, last_ok_at FROM manual_node ORDER BY added_at, id"
    ).fetchall()


def _put(connection: sqlite3.Connection, row: _Values) -> None:
    connection.execute(
        "INSERT INTO manual_node (id, address, port, uuid, added_at, last_ok_at) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET uuid = excluded.uuid, last_ok_at = excluded.last_ok_at",
        row,
    )


def _update(connection: sqlite3.Connection, row: _Values) -> None:
    """Unlike :func:`_put`, nothing for one that was removed meanwhile."""
    connection.execute("UPDATE manual_node SET uuid = ?, last_ok_at = ? WHERE id = ?", (row[3], row[5], row[0]))


def _delete(connection: sqlite3.Connection, id: str) -> None:
    connection.execute("DELETE FROM manual_node WHERE id = ?", (id,))
