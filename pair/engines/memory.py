"""What engines leave behind for the next start: the record of a child, the last good list (EN-23, EN-79)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec
from msgspec import Struct

from pair.engines.processes import ChildRecord
from pair.records.engines import Model

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from twisted.internet.defer import Deferred

    from pair.store import Store


T = TypeVar("T")


class RememberedModels(Struct, frozen=True):
    """The models that an engine listed last; ``at`` in epoch milliseconds."""

    at: int
    models: tuple[Model, ...]


class EngineMemory(Protocol):
    """Where runners keep it. Reading is for the start and blocks; what cannot be read is None."""

    def child(self, engine: str) -> ChildRecord | None:
        """The record of the child that was started last and was not seen to end."""

    def keep_child(self, record: ChildRecord) -> Deferred[None]:
        """Fires when the record is on the disk."""

    def forget_child(self, engine: str) -> Deferred[None]:
        """The child is gone."""

    def models(self, engine: str) -> RememberedModels | None:
        """The last good list."""

    def keep_models(self, engine: str, models: Sequence[Model], at: int) -> Deferred[None]:
        """Fires when the list is on the disk."""


class StoredMemory:
    """An :class:`EngineMemory` in the tables ``engine_children`` and ``engine_models``."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def child(self, engine: str) -> ChildRecord | None:
        """See :class:`EngineMemory`."""
        row = self._store.read(
            lambda connection: connection.execute(
                "SELECT record FROM engine_children WHERE engine = ?", (engine,)
            ).fetchone()
        )
        return None if row is None else _decoded(row[0], ChildRecord)

    def keep_child(self, record: ChildRecord) -> Deferred[None]:
        """See :class:`EngineMemory`."""
        return self._write(
            "INSERT OR REPLACE INTO engine_children (engine, record) VALUES (?, ?)",
            record.engine,
            msgspec.json.encode(record),
        )

    def forget_child(self, engine: str) -> Deferred[None]:
        """See :class:`EngineMemory`."""
        return self._write("DELETE FROM engine_children WHERE engine = ?", engine)

    def models(self, engine: str) -> RememberedModels | None:
        """See :class:`EngineMemory`."""
        row = self._store.read(
            lambda connection: connection.execute(
                "SELECT at, record FROM engine_models WHERE engine = ?", (engine,)
            ).fetchone()
        )
        models = None if row is None else _decoded(row[1], tuple[Model, ...])
        return None if models is None else RememberedModels(row[0], models)

    def keep_models(self, engine: str, models: Sequence[Model], at: int) -> Deferred[None]:
        """See :class:`EngineMemory`."""
        return self._write(
            "INSERT OR REPLACE INTO engine_models (engine, at, record) VALUES (?, ?, ?)",
            engine,
            at,
            # Without the engine's own entries: they are for lists, and an engine that does not run is in none.
            msgspec.json.encode([msgspec.structs.replace(each, listed=None) for each in models]),
        )

    def _write(self, statement: str, *values: object) -> Deferred[None]:
        def work(connection: sqlite3.Connection) -> None:
            connection.execute(statement, values)

        return self._store.write(work)


def _decoded(data: bytes, type: type[T]) -> T | None:
    """None for a row of an older shape: it is as if it was never kept."""
    try:
        return msgspec.json.decode(data, type=type)
    except msgspec.MsgspecError:
        return None
