"""The store: one SQLite file, its schema, and the one thread that writes (AR-16).

It knows tables, not what their rows mean: who owns a table brings a function
that gets the connection. No value of a row is ever logged.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from twisted.internet.defer import Deferred, fail, succeed

import pair
from pair.events import Signal
from pair.privacy import normalize_error
from pair.statedir import StateError

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")

Work = Callable[[sqlite3.Connection], T]
"""What is done with the store: it runs inside a transaction, which it neither begins nor ends."""

BACKUPS = "backups"
BACKUPS_KEPT = 3

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        "CREATE TABLE identity (only INTEGER PRIMARY KEY CHECK (only = 1), uuid TEXT NOT NULL, digest TEXT NOT NULL)",
        "CREATE TABLE choices (key TEXT PRIMARY KEY, value BLOB NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID",
        """
        CREATE TABLE job_history (
            origin TEXT NOT NULL,
            id TEXT NOT NULL,
            seq INTEGER NOT NULL,
            completed_at INTEGER NOT NULL,
            received_at INTEGER NOT NULL,
            record BLOB NOT NULL,
            PRIMARY KEY (origin, id)
        )
        """,
        "CREATE INDEX job_history_received ON job_history (received_at)",
        "CREATE INDEX job_history_completed ON job_history (completed_at)",
        "CREATE TABLE engine_children (engine TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE engine_models (engine TEXT PRIMARY KEY, at INTEGER NOT NULL, record BLOB NOT NULL)",
    ),
    (
        "ALTER TABLE identity ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE identity ADD COLUMN counter INTEGER NOT NULL DEFAULT 0",
        """
        CREATE TABLE statement (
            id BLOB PRIMARY KEY,
            cluster TEXT NOT NULL,
            kind INTEGER NOT NULL,
            signer BLOB NOT NULL,
            payload BLOB NOT NULL,
            signature BLOB NOT NULL,
            received_at INTEGER NOT NULL,
            source TEXT NOT NULL
        )
        """,
        """
        CREATE TABLE membership (
            cluster TEXT PRIMARY KEY,
            state TEXT NOT NULL CHECK (state IN ('active', 'left', 'removed', 'abandoned')),
            since_at INTEGER NOT NULL
        ) WITHOUT ROWID
        """,
        "CREATE UNIQUE INDEX membership_active ON membership (state) WHERE state = 'active'",
        """
        CREATE TABLE cluster_archive (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            cluster TEXT NOT NULL UNIQUE,
            evidence BLOB NOT NULL,
            members BLOB NOT NULL
        )
        """,
        """
        CREATE TABLE trust_audit (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            at INTEGER NOT NULL,
            event TEXT NOT NULL,
            actor TEXT,
            subject TEXT,
            cluster TEXT,
            detail TEXT NOT NULL
        )
        """,
    ),
    (
        "CREATE TABLE manual_node (id TEXT PRIMARY KEY, address TEXT NOT NULL, port INTEGER NOT NULL, uuid TEXT,"
        " added_at INTEGER NOT NULL, last_ok_at INTEGER, UNIQUE (address, port)) WITHOUT ROWID",
        "CREATE TABLE peer_address (uuid TEXT NOT NULL, service TEXT NOT NULL, address TEXT NOT NULL,"
        " port INTEGER NOT NULL, last_ok_at INTEGER NOT NULL,"
        " PRIMARY KEY (uuid, service, address, port)) WITHOUT ROWID",
    ),
    (
        "CREATE TABLE learned_speed (place INTEGER PRIMARY KEY, node TEXT NOT NULL, engine TEXT NOT NULL,"
        " model TEXT NOT NULL, rate REAL NOT NULL, samples INTEGER NOT NULL)",
    ),
)
"""The statements that lead from schema n to n + 1, at index n. Once released they are never changed."""

_UNWRITABLE = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
    }
)
"""Primary result codes that speak of the file and not of the statement (OP-17)."""


class StoreError(StateError):
    """The store cannot be used (exit 73, OP-16)."""


class StoreClosed(Exception):  # noqa: N818 - a fact, not a fault
    """A write came after :meth:`Store.close`."""


class StoreReactor(Protocol):
    """What the store needs of a reactor: its thread and its time."""

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None:
        """Call ``callable`` in the reactor thread; may be called from any other."""

    def seconds(self) -> float:
        """The time, in seconds since the epoch."""


class Store:
    """The file ``pair.sqlite3``, read and written by this process alone.

    Every Deferred fires in the reactor thread, and in the order of the writes.

    Attributes:
        writable: False from a write that failed for the file's sake to the next good one (OP-17).
        writable_changed: Emits each new value of ``writable``.
    """

    def __init__(self, path: Path, reactor: StoreReactor, migrations: Sequence[Sequence[str]] = MIGRATIONS) -> None:
        self.path = path
        self.writable = True
        self.writable_changed: Signal[bool] = Signal()
        self._reactor = reactor
        self._migrations = migrations
        self._queue: queue.SimpleQueue[tuple[Work[Any], Deferred[Any]] | None] = queue.SimpleQueue()
        self._depth = 0
        self._busy_since: float | None = None
        self._open = False
        self._closed: Deferred[None] | None = None

    # Life

    def open(self) -> None:
        """Open or make the file, bring it to our schema, start the writer. Blocks for as long as that takes.

        Raises:
            StoreError: The file is corrupt, not ours, of a newer schema, or out of reach. It is left as it was.
        """
        connection: sqlite3.Connection | None = None
        try:
            # The file is born with its mode; SQLite gives its companions -wal and -shm the same.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            connection = self._connect("rw")
            self._settle(connection)
        except (sqlite3.Error, OSError, StoreError) as error:
            if connection is not None:
                connection.close()
            raise (error if isinstance(error, StoreError) else self._fault(error)) from None
        self._open = True
        # A daemon: a disk that hangs must not hold the process once the stop's deadline is over.
        threading.Thread(target=self._serve, args=(connection,), name="pair-store", daemon=True).start()

    def close(self) -> Deferred[None]:
        """Do what is queued, fold the log into the file, close. Fires when the file is closed."""
        if not self._open:
            return succeed(None)
        self._open = False
        self._closed = Deferred()
        self._queue.put(None)
        return self._closed

    # Use

    def read(self, work: Work[T]) -> T:
        """The result of ``work`` on one consistent view of what is committed, in the calling thread.

        For the start and for rare questions of a person: it blocks on the disk.
        """
        with closing(self._connect("ro")) as connection:
            connection.execute("BEGIN")
            return work(connection)

    def write(self, work: Work[T]) -> Deferred[T]:
        """Queue ``work`` for the writer thread, in a transaction of its own.

        Returns:
            A Deferred of its result, which fires once that is on the disk. It
            fails as ``work`` or the commit failed, and then nothing of it is
            kept; other writes are not touched by that. After :meth:`close` it
            fails with :exc:`StoreClosed`.
        """
        if not self._open:
            return fail(StoreClosed())
        done: Deferred[T] = Deferred()
        self._depth += 1
        self._queue.put((work, done))
        return done

    def flush(self) -> Deferred[None]:
        """Fires when all that was queued so far is done, well or badly."""
        return self.write(lambda connection: None)

    @property
    def depth(self) -> int:
        """How many writes are queued or under way."""
        return self._depth

    @property
    def busy_seconds(self) -> float:
        """For how long the writer has been at its present write; 0 while it is idle (OP-23)."""
        since = self._busy_since
        return 0.0 if since is None else self._reactor.seconds() - since

    # The writer thread

    def _serve(self, connection: sqlite3.Connection) -> None:
        for work, done in iter(self._queue.get, None):
            self._busy_since = self._reactor.seconds()
            changes = connection.total_changes
            fire: Callable[[], None]
            try:
                fire = partial(done.callback, _transact(connection, work))
                healthy = True if connection.total_changes != changes else None
            except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the one who waits
                fire = partial(done.errback, error)
                healthy = False if _code(error) in _UNWRITABLE else None
            self._busy_since = None
            self._reactor.callFromThread(self._deliver, fire, healthy)
        connection.close()  # as the last connection it folds the log into the file
        assert self._closed is not None
        self._reactor.callFromThread(self._closed.callback, None)

    def _deliver(self, fire: Callable[[], None], healthy: bool | None) -> None:
        self._depth -= 1
        if healthy is not None and healthy != self.writable:
            self.writable = healthy
            self.writable_changed.emit(healthy)
        fire()

    # The file and its schema

    def _connect(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=5.0,  # a backup of pair-admin may hold the file for a moment
            isolation_level=None,  # transactions are begun and ended here, in sight
            check_same_thread=False,  # opened in one thread, then used by the writer alone
        )
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _settle(self, connection: sqlite3.Connection) -> None:
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        known = len(self._migrations)
        if found > known:
            raise StoreError(
                self.path,
                f"it has schema {found}, written by PAIR {_written_by(connection)}; "
                f"this is PAIR {pair.__version__}, which knows schemas up to {known}",
                f"install a newer PAIR, or put a backup in its place{self._newest_backup()}",
            )
        if not found and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(self.path, "it is an SQLite file of another program", "move it out of the way")
        if connection.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise self._corrupt()
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        if 0 < found < known:
            self._back_up(connection, found)
        if found < known:
            self._migrate(connection, found)
        _transact(connection, _sign)

    def _migrate(self, connection: sqlite3.Connection, found: int) -> None:
        def statements(connection: sqlite3.Connection) -> None:
            for migration in self._migrations[found:]:
                for statement in migration:
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(self._migrations)}")

        try:
            _transact(connection, statements)
        except sqlite3.Error as error:
            if not found or _code(error) in _UNWRITABLE:
                raise
            raise StoreError(
                self.path,
                f"the migration from schema {found} to {len(self._migrations)} failed ({normalize_error(error)}); "
                "the file is as it was",
                f"run PAIR {_written_by(connection)} again, and report this",
            ) from error

    def _back_up(self, connection: sqlite3.Connection, found: int) -> None:
        folder = self.path.parent / BACKUPS
        folder.mkdir(mode=0o700, exist_ok=True)
        now = datetime.fromtimestamp(self._reactor.seconds(), UTC)
        target = folder / f"pair-v{found}-{now:%Y%m%dT%H%M%S%fZ}.sqlite3"
        unfinished = target.with_suffix(".new")
        os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(unfinished)) as copy:
            connection.backup(copy)
        unfinished.replace(target)
        for old in self._backups()[BACKUPS_KEPT:]:
            old.unlink()

    def _backups(self) -> list[Path]:
        """The backups, newest first."""
        found = (self.path.parent / BACKUPS).glob("pair-v*-*.sqlite3")
        return sorted(found, key=lambda path: path.stem.rpartition("-")[2], reverse=True)

    def _newest_backup(self) -> str:
        return next((f": {path}" for path in self._backups()), " (there is none in this state directory)")

    def _fault(self, error: sqlite3.Error | OSError) -> StoreError:
        if isinstance(error, OSError):
            return StoreError(self.path, error.strerror or normalize_error(error), "see to it, then start again")
        match _code(error):
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                return self._corrupt()
            case sqlite3.SQLITE_FULL:
                return StoreError(self.path, "the file system is full", "free some space")
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_IOERR:
                return StoreError(self.path, "it cannot be written", "check its owner, its mode and the disk")
            case code:
                return StoreError(self.path, f"SQLite cannot use it (code {code})", "see to it, then start again")

    def _corrupt(self) -> StoreError:
        return StoreError(self.path, "it is corrupt", f"put a backup in its place{self._newest_backup()}")


def _transact(connection: sqlite3.Connection, work: Work[T]) -> T:
    """``work`` and its commit, or nothing of it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite ends some by itself, when the disk is full for one
            connection.execute("ROLLBACK")
        raise
    return result


def _sign(connection: sqlite3.Connection) -> None:
    """Note which version of PAIR wrote last, for the message that an older one gives (OP-16)."""
    connection.execute(
        "INSERT INTO about (key, value) VALUES ('version', ?) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE value != excluded.value",
        (pair.__version__,),
    )


def _written_by(connection: sqlite3.Connection) -> str:
    try:
        row = connection.execute("SELECT value FROM about WHERE key = 'version'").fetchone()
    except sqlite3.OperationalError:
        row = None
    return str(row[0]) if row else "of an unknown version"


def _code(error: BaseException) -> int:
    """The primary result code of an SQLite error; 0 for any other."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
