"""Choices that people make while the node runs, kept in the store (AR-17, OP-7).

What ``pair.toml``, the environment or an option sets is locked: a choice
against it is refused, and one that is stored already stays without effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from pair.logs import Logger
from pair.privacy import clean_text
from pair.records.engines import Desired, Drain

if TYPE_CHECKING:
    import sqlite3

    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IReactorTime

    from pair.settings import Loaded, Source
    from pair.store import Store

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

log = Logger()


class SettingLocked(Exception):  # noqa: N818 - the name of the code that callers are answered with (OP-7)
    """The choice is fixed by a setting. ``source`` says where that is set."""

    code = "setting_locked"

    def __init__(self, key: str, source: Source) -> None:
        super().__init__(key, source)
        self.key = key
        self.source = source

    def __str__(self) -> str:
        return f"{self.key} is set by {self.source.where}"


class Choice(Struct, Generic[T_co], frozen=True):
    """What can be chosen: the key it is stored under, its type, and the setting that locks it, empty where none does.

    The setting locks whatever value it is given, but for those in ``free``.
    """

    key: str
    type: Any
    setting: str
    free: tuple[object, ...] = ()


def desired(engine: str) -> Choice[Desired]:
    """Whether an engine is to run (EN-14). Nothing stored: it is not started, and used if it runs."""
    return Choice(f"engines.{engine}.desired", Desired, f"engines.{engine}.mode", free=("auto",))


def facade_port(facade: str) -> Choice[int]:
    """Where a facade listens (PX-97)."""
    key = f"proxy.ports.{facade}"
    return Choice(key, int, key)


def served_facades() -> Choice[tuple[str, ...]]:
    """The facades that are on (PX-2)."""
    return Choice("proxy.facades", tuple[str, ...], "proxy.facades")


def selection(facade: str) -> Choice[str]:
    """The UUID of the node that a person selected for a facade (RT-27)."""
    return Choice(f"routing.selection.{facade}", str, "")


def routing_policy() -> Choice[str]:
    """The name of the routing policy (RT-60)."""
    return Choice("routing.policy", str, "routing.policy")


def drained() -> Choice[Drain]:
    """That this node takes no new work, and why (RT-22)."""
    return Choice("node.drained", Drain, "")


class Choices:
    """The stored choices, in memory from :meth:`load` on."""

    def __init__(self, store: Store, loaded: Loaded, clock: IReactorTime) -> None:
        self._store = store
        self._loaded = loaded
        self._clock = clock
        self._values: dict[str, bytes] = {}

    def load(self) -> None:
        """Read what is stored; the store must be open. Blocks for that read. A damaged choice is as never made."""
        self._values = {}
        for key, value in self._store.read(_select):
            try:
                msgspec.json.decode(value)
                self._values[key.decode()] = value
            except (ValueError, RecursionError):
                name = clean_text(key.decode(errors="replace"))
                log.warn("The stored choice of {key} cannot be read, and has no effect.", key=name)

    def effective(self) -> Loaded:
        """The settings, with the stored choices of keys that are settings too and that nothing locks."""
        return self._loaded.with_stored({key: msgspec.json.decode(value) for key, value in self._values.items()})

    def lock(self, choice: Choice[T]) -> Source | None:
        """Where the setting is made that fixes ``choice``; None where it is free."""
        if not choice.setting or self._loaded.value(choice.setting) in choice.free:
            return None
        return self._loaded.lock(choice.setting)

    def get(self, choice: Choice[T]) -> T | None:
        """What was chosen, or the setting that locks it. None: neither, or stored by a version that knows more."""
        if self.lock(choice) is not None:
            fixed: T = self._loaded.value(choice.setting)
            return fixed
        try:
            stored: T = msgspec.json.decode(self._values[choice.key], type=choice.type)
        except (KeyError, msgspec.ValidationError):
            return None
        return stored

    def put(self, choice: Choice[T], value: T) -> Deferred[None]:
        """Choose ``value``. It holds once the Deferred has fired: it is on the disk then.

        Raises:
            SettingLocked: A setting fixes it.
        """
        self._check(choice)
        encoded = msgspec.json.encode(value)
        at = int(self._clock.seconds() * 1000)

        def keep(_: object) -> None:
            self._values[choice.key] = encoded

        return self._store.write(lambda connection: _upsert(connection, choice.key, encoded, at)).addCallback(keep)

    def remove(self, choice: Choice[T]) -> Deferred[None]:
        """Take the choice back. None was made: nothing.

        Raises:
            SettingLocked: A setting fixes it.
        """
        self._check(choice)

        def forget(_: object) -> None:
            self._values.pop(choice.key, None)

        return self._store.write(lambda connection: _delete(connection, choice.key)).addCallback(forget)

    def _check(self, choice: Choice[T]) -> None:
        source = self.lock(choice)
        if source is not None:
            raise SettingLocked(choice.setting, source)


def _select(connection: sqlite3.Connection) -> list[tuple[bytes, bytes]]:
    # As bytes, whatever type SQLite has them in: a text that is not UTF-8 would fail the whole read.
    return connection.execute("SELECT CAST(key AS BLOB), CAST(value AS BLOB) FROM choices").fetchall()


def _upsert(connection: sqlite3.Connection, key: str, value: bytes, at: int) -> None:
    connection.execute(
        "INSERT INTO choices (key, value, at) VALUES (?, ?, ?) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value, at = excluded.at",
        (key, value, at),
    )


def _delete(connection: sqlite3.Connection, key: str) -> None:
    connection.execute("DELETE FROM choices WHERE key = ?", (key,))
