"""The addresses at which members have answered, kept over restarts (DS-38): table ``peer_address``."""

from __future__ import annotations

import sqlite3
from functools import partial
from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError

from pair.addresses import Place
from pair.discovery.addresses import storable
from pair.logs import Logger
from pair.privacy import normalize_error
from pair.store import StoreClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from twisted.python.failure import Failure

    from pair.store import Store, Work

PLACES_MAX = 16
"""Those that are kept of one node."""

RENEW_MS = 3600 * 1000
"""So old the newest row may be before it is written that its address has answered again."""

SWITCH_MS = 60 * 1000
"""So old another may be: a node that answers at two addresses by turns is no reason to write all the time."""

log = Logger()


class Confirmed:
    """Where each service of each member has answered, the newest first."""

    def __init__(self, store: Store, now: Callable[[], int]) -> None:
        """Nowhere yet.

        Args:
            store: Where it is kept.
            now: Epoch milliseconds.
        """
        self._store = store
        self._now = now
        self._rows: dict[str, dict[tuple[str, Place], int]] = {}

    def load(self) -> None:
        """Read what is stored. Blocks on the disk."""
        self._rows = {}
        for uuid, service, address, port, at in self._store.read(_select):
            self._rows.setdefault(uuid, {})[service, Place(address, port)] = at

    def places(self, uuid: str, service: str) -> tuple[Place, ...]:
        """Where a service of a node has answered."""
        rows = self._rows.get(uuid, {})
        of_service = [(at, place) for (each, place), at in rows.items() if each == service]
        return tuple(place for _, place in sorted(of_service, key=lambda row: -row[0]))

    def last(self, uuid: str) -> dict[str, Place]:
        """Where each service of a node has answered last."""
        services = dict.fromkeys(service for service, _ in self._rows.get(uuid, ()))
        return {each: self.places(uuid, each)[0] for each in services}

    def keep(self, uuid: str, service: str, place: Place) -> None:
        """A service of a member has answered at ``place``. One that means nothing after a restart is not kept."""
        rows = self._rows.setdefault(uuid, {})
        newest = max((at for (each, _), at in rows.items() if each == service), default=0)
        known = rows.get((service, place), 0)
        now = self._now()
        fresh = known and now - known < (RENEW_MS if known == newest else SWITCH_MS)
        if fresh or not storable((place,)):
            return
        rows[service, place] = max(now, newest + 1)  # a clock that was set back makes nothing older than it is
        for each in sorted(rows, key=lambda row: -rows[row])[PLACES_MAX:]:
            del rows[each]
        self._write(partial(_replace, uuid=uuid, rows=dict(rows)))

    def retain(self, members: Collection[str]) -> None:
        """Forget all others."""
        for uuid in self._rows.keys() - set(members):
            del self._rows[uuid]
            self._write(partial(_replace, uuid=uuid, rows={}))

    def _write(self, work: Work[None]) -> None:
        self._store.write(work).addErrback(_tell)


def _tell(failure: Failure) -> None:
    """It is a help and no more: without it members are looked for where they say they are."""
    failure.trap(sqlite3.Error, StoreClosed, CancelledError)
    assert failure.value is not None
    log.debug("The addresses of a member could not be stored: {why}.", why=normalize_error(failure.value))


def _select(connection: sqlite3.Connection) -> list[tuple[str, str, str, int, int]]:
    return connection.execute("SELECT uuid, service, address, port, last_ok_at FROM peer_address").fetchall()


def _replace(connection: sqlite3.Connection, uuid: str, rows: dict[tuple[str, Place], int]) -> None:
    connection.execute("DELETE FROM peer_address WHERE uuid = ?", (uuid,))
    connection.executemany(
        "INSERT INTO peer_address (uuid, service, address, port, last_ok_at) VALUES (?, ?, ?, ?, ?)",
        [(uuid, service, place.host, place.port, at) for (service, place), at in rows.items()],
    )
