"""Tests of :mod:`pair.store`: what is promised of each write, and what stops the start."""

from __future__ import annotations

import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.trial.unittest import SynchronousTestCase

import pair
from pair.store import BACKUPS_KEPT, MIGRATIONS, Store, StoreClosed, StoreError
from pair.test.turns import PATIENCE, Turns, open_store

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

SAMPLES = Path(__file__).parent / "samples" / "store"
NEXT = ("CREATE TABLE next (word TEXT)",)
BROKEN = ("CREATE TABLE next (word TEXT)", "CREATE TABLE next (word TEXT)")


def put(connection: sqlite3.Connection, engine: str) -> int:
    """Add a row; the number of rows that this changed."""
    return connection.execute("INSERT INTO engine_children (engine, record) VALUES (?, '{}')", (engine,)).rowcount


def engines(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT engine FROM engine_children ORDER BY engine")]


class WriteTests(SynchronousTestCase):
    """An open store."""

    def setUp(self) -> None:
        self.store, self.turns = open_store(self)

    def test_result(self) -> None:
        """A write gives the result of its work, once that can be read by others."""
        write = self.store.write(lambda connection: put(connection, "a"))
        self.turns.wait(write)
        self.assertEqual(self.successResultOf(write), 1)
        self.assertEqual(self.store.read(engines), ["a"])

    def test_fires_in_reactor_thread(self) -> None:
        """The work runs in the writer's thread, and its Deferred fires in the reactor's."""
        fired: list[int] = []
        write = self.store.write(lambda connection: threading.get_ident())
        write.addCallback(lambda ident: fired.extend([ident, threading.get_ident()]))
        self.turns.wait(write)
        self.assertNotEqual(fired[0], threading.get_ident())
        self.assertEqual(fired[1], threading.get_ident())

    def test_order(self) -> None:
        """Writes are done in the order in which they were asked for."""
        done: list[int] = []
        numbers = iter(range(20))
        for _ in range(20):
            self.store.write(lambda connection: next(numbers)).addCallback(done.append)
        self.turns.wait(self.store.flush())
        self.assertEqual(done, list(range(20)))

    def test_failure_is_whole(self) -> None:
        """Of a work that fails nothing is kept, and the writes around it are not touched."""

        def half(connection: sqlite3.Connection) -> None:
            put(connection, "half")
            raise ZeroDivisionError

        before = self.store.write(lambda connection: put(connection, "before"))
        failing = self.store.write(half)
        after = self.store.write(lambda connection: put(connection, "after"))
        self.turns.wait(after)
        self.failureResultOf(failing, ZeroDivisionError)
        self.assertEqual((self.successResultOf(before), self.successResultOf(after)), (1, 1))
        self.assertEqual(self.store.read(engines), ["after", "before"])

    def test_cancelled(self) -> None:
        """Who cancels no longer waits; the write is made all the same, and the writer goes on."""
        write = self.store.write(lambda connection: put(connection, "a"))
        write.cancel()
        self.turns.wait(self.store.flush())
        self.failureResultOf(write)
        self.assertEqual(self.store.read(engines), ["a"])

    def test_depth_and_busy(self) -> None:
        """``depth`` counts what is not done, ``busy_seconds`` the age of the present write (OP-23)."""
        begun, let_go = threading.Event(), threading.Event()

        def slow(connection: sqlite3.Connection) -> None:
            begun.set()
            let_go.wait(PATIENCE)

        self.store.write(slow)
        last = self.store.flush()
        self.assertTrue(begun.wait(PATIENCE))
        self.turns.advance(21)
        self.assertEqual((self.store.depth, self.store.busy_seconds), (2, 21))
        let_go.set()
        self.turns.wait(last)
        self.assertEqual((self.store.depth, self.store.busy_seconds), (0, 0))

    def test_read_sees_one_moment(self) -> None:
        """A read sees what was committed before it began, and no later write."""

        def twice(connection: sqlite3.Connection) -> tuple[list[str], list[str]]:
            first = engines(connection)
            self.turns.wait(self.store.write(lambda writer: put(writer, "later")))
            return first, engines(connection)

        self.assertEqual(self.store.read(twice), ([], []))

    def test_read_cannot_write(self) -> None:
        """A read has no way to change the store."""
        self.assertRaises(sqlite3.OperationalError, self.store.read, lambda connection: put(connection, "a"))

    def test_after_close(self) -> None:
        """Closing does what is queued first; a write after it fails, and closing again does nothing."""
        write = self.store.write(lambda connection: put(connection, "a"))
        self.turns.wait(self.store.close())
        self.successResultOf(write)
        self.failureResultOf(self.store.write(engines), StoreClosed)
        self.successResultOf(self.store.close())
        self.assertEqual([path.name for path in self.store.path.parent.glob("*-wal")], [])

    def test_durable(self) -> None:
        """The writer's connection is in WAL mode and syncs each commit (AR-16)."""
        modes = self.store.write(
            lambda connection: [
                connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
            ]
        )
        self.turns.wait(modes)
        self.assertEqual(self.successResultOf(modes), ["wal", 2])

    def test_modes(self) -> None:
        """The file and its companions are the owner's alone."""
        self.turns.wait(self.store.write(lambda connection: put(connection, "a")))
        files = list(self.store.path.parent.glob(f"{self.store.path.name}*"))
        self.assertEqual(len(files), 3)
        self.assertEqual({stat.S_IMODE(path.stat().st_mode) for path in files}, {0o600})


class FullDiskTests(SynchronousTestCase):
    """A disk that is full while the node runs (OP-17); a limit on the pages of the file stands for it."""

    def setUp(self) -> None:
        self.store, self.turns = open_store(self)
        self.news: list[bool] = []
        self.store.writable_changed.subscribe(self.news.append)

    def limit(self, pages: int) -> None:
        def set_limit(connection: sqlite3.Connection) -> None:
            connection.execute(f"PRAGMA max_page_count = {pages}")

        self.turns.wait(self.store.write(set_limit))

    def fill(self) -> Deferred[Any]:
        def much(connection: sqlite3.Connection) -> None:
            put(connection, "much")
            connection.execute("UPDATE engine_children SET record = zeroblob(1000000)")

        write = self.store.write(much)
        self.turns.wait(write)
        return write

    def test_told_once_and_cleared(self) -> None:
        """A write that the disk refuses is told, once; the first good write ends it. Nothing of it is kept."""
        self.limit(1)
        self.failureResultOf(self.fill(), sqlite3.OperationalError)
        self.failureResultOf(self.fill(), sqlite3.OperationalError)
        self.assertEqual((self.news, self.store.writable), ([False], False))
        self.assertEqual(self.store.read(engines), [])
        self.limit(1_000_000)
        self.turns.wait(self.store.flush())
        self.assertEqual(self.news, [False])
        self.successResultOf(self.fill())
        self.assertEqual((self.news, self.store.writable), ([False, True], True))

    def test_own_fault(self) -> None:
        """A work that is wrong in itself says nothing of the disk."""
        for work in (lambda connection: connection.execute("nonsense"), lambda connection: 1 / 0):
            write = self.store.write(work)
            self.turns.wait(write)
            self.failureResultOf(write)
        self.assertEqual(self.news, [])


class OpenTests(SynchronousTestCase):
    """What :meth:`Store.open` finds."""

    def setUp(self) -> None:
        self.turns = Turns()
        folder = Path(self.mktemp())
        folder.mkdir()
        self.path = folder / "pair.sqlite3"

    def store(self, *more: tuple[str, ...]) -> Store:
        return Store(self.path, self.turns, (*MIGRATIONS, *more))

    def make(self, *more: tuple[str, ...]) -> None:
        """A store with one child in it, of a schema with ``more`` migrations."""
        store = self.store(*more)
        store.open()
        store.write(lambda connection: connection.execute("INSERT OR IGNORE INTO engine_children VALUES ('a', '')"))
        self.turns.wait(store.close())

    def refused(self, *more: tuple[str, ...]) -> str:
        return str(self.assertRaises(StoreError, self.store(*more).open))

    def backups(self) -> list[str]:
        return sorted(path.name for path in (self.path.parent / "backups").glob("*"))

    def version(self, path: Path) -> int:
        with closing(sqlite3.connect(path)) as connection:
            version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return version

    def test_new(self) -> None:
        """A store that is not there is made, without a backup of nothing."""
        self.make()
        self.assertEqual((self.version(self.path), self.backups()), (len(MIGRATIONS), []))

    def test_again(self) -> None:
        """A store of our schema is opened as it is, without a backup."""
        self.make()
        self.make()
        self.assertEqual(self.backups(), [])

    def test_migration(self) -> None:
        """An older schema is brought forward after a backup of the old one, which nobody else can read (OP-60)."""
        self.make()
        self.make(NEXT)
        self.assertEqual(self.version(self.path), len(MIGRATIONS) + 1)
        (name,) = self.backups()
        self.assertRegex(name, rf"\Apair-v{len(MIGRATIONS)}-\d{{8}}T\d{{12}}Z\.sqlite3\Z")
        backup = self.path.parent / "backups" / name
        self.assertEqual((self.version(backup), stat.S_IMODE(backup.stat().st_mode)), (len(MIGRATIONS), 0o600))
        self.assertEqual(stat.S_IMODE(backup.parent.stat().st_mode), 0o700)

    def test_migration_fails(self) -> None:
        """A migration that fails leaves the file as it was, with the rows in it, and says so (OP-60)."""
        self.make()
        message = self.refused(BROKEN)
        self.assertIn(f"from schema {len(MIGRATIONS)} to {len(MIGRATIONS) + 1} failed", message)
        self.assertIn(f"run PAIR {pair.__version__} again", message)
        self.assertEqual(self.version(self.path), len(MIGRATIONS))
        self.make()

    def test_from_schema_1(self) -> None:
        """A stored file of schema 1 keeps its rows, and its identity has used no epoch or counter yet (AR-16)."""
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript((SAMPLES / "schema1.sql").read_text())
        store = self.store()
        store.open()
        self.addCleanup(lambda: self.turns.wait(store.close()))
        tables = ("identity", "choices", "job_history", "engine_children", "engine_models", "statement", "trust_audit")

        def rows(connection: sqlite3.Connection) -> dict[str, list[Any]]:
            return {each: connection.execute(f"SELECT * FROM {each}").fetchall() for each in tables}

        found = store.read(rows)
        self.assertEqual(found["identity"], [(1, "7b1c2f0e-4a5d-4c3b-8e2f-0123456789ab", f"sha256:{'ab' * 32}", 0, 0)])
        self.assertEqual([len(found[each]) for each in tables], [1, 1, 1, 1, 1, 0, 0])
        self.assertEqual([name.split("-")[1] for name in self.backups()], ["v1"])

    def test_from_schema_2(self) -> None:
        """A stored file of schema 2 keeps its rows, and knows of no node by address yet (AR-16)."""
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript((SAMPLES / "schema2.sql").read_text())
        store = self.store()
        store.open()
        self.addCleanup(lambda: self.turns.wait(store.close()))
        kept = ("identity", "choices", "job_history", "statement", "membership", "cluster_archive", "trust_audit")
        new = ("manual_node", "peer_address")

        def counts(connection: sqlite3.Connection) -> list[int]:
            return [connection.execute(f"SELECT count(*) FROM {each}").fetchone()[0] for each in (*kept, *new)]

        self.assertEqual(store.read(counts), [1] * len(kept) + [0] * len(new))
        self.assertEqual([name.split("-")[1] for name in self.backups()], ["v2"])

    def test_from_schema_3(self) -> None:
        """A stored file of schema 3 keeps its rows, and has learned no speed yet (AR-16)."""
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript((SAMPLES / "schema3.sql").read_text())
        store = self.store()
        store.open()
        self.addCleanup(lambda: self.turns.wait(store.close()))
        kept = ("identity", "choices", "job_history", "statement", "manual_node", "peer_address")

        def counts(connection: sqlite3.Connection) -> list[int]:
            return [
                connection.execute(f"SELECT count(*) FROM {each}").fetchone()[0] for each in (*kept, "learned_speed")
            ]

        self.assertEqual(store.read(counts), [1] * len(kept) + [0])
        self.assertEqual([name.split("-")[1] for name in self.backups()], ["v3"])

    def test_newest_backups_kept(self) -> None:
        """Of the backups the newest three are kept, by their time and not by their schema."""
        more: list[tuple[str, ...]] = []
        for number in range(12):
            self.make(*more)
            more.append((f"CREATE TABLE more{number} (word TEXT)",))
            self.turns.advance(1)
        schemas = [int(name.split("-")[1][1:]) for name in self.backups()]
        self.assertEqual(len(schemas), BACKUPS_KEPT)
        self.assertEqual(sorted(schemas), [len(MIGRATIONS) + number for number in (8, 9, 10)])

    def test_newer(self) -> None:
        """A newer schema is refused, naming both schemas and both versions (OP-16)."""
        self.make(NEXT)
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute("UPDATE about SET value = '9.9.9'")
        message = self.refused()
        self.assertIn(f"has schema {len(MIGRATIONS) + 1}, written by PAIR 9.9.9", message)
        self.assertIn(f"PAIR {pair.__version__}, which knows schemas up to {len(MIGRATIONS)}", message)

    def test_newer_and_strange(self) -> None:
        """A newer schema that does not say who wrote it is refused all the same."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute("PRAGMA user_version = 99")
        self.assertIn("of an unknown version", self.refused())

    def test_no_database(self) -> None:
        """A file that is no database is refused, naming it and the newest backup, and is not touched (OP-16)."""
        self.make()
        self.make(NEXT)
        self.path.write_bytes(b"no database" * 1000)
        message = self.refused(NEXT)
        self.assertIn(f"{self.path}: it is corrupt", message)
        self.assertIn(self.backups()[-1], message)
        self.assertEqual(self.path.read_bytes(), b"no database" * 1000)

    def test_damaged_page(self) -> None:
        """Damage inside of the file is found at the start, not by the first that reads there (OP-16)."""
        self.make()
        with closing(sqlite3.connect(self.path)) as connection:
            root, size = (
                connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'choices'").fetchone()[0],
                connection.execute("PRAGMA page_size").fetchone()[0],
            )
        data = bytearray(self.path.read_bytes())
        data[(root - 1) * size : root * size] = b"\xff" * size
        self.path.write_bytes(data)
        self.assertIn("it is corrupt", self.refused())

    def test_another_program(self) -> None:
        """A database of another program is not taken over."""
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute("CREATE TABLE theirs (word TEXT)")
        self.assertIn("of another program", self.refused())

    def test_no_folder(self) -> None:
        """A path that cannot be is told with the path and the fault (OP-13)."""
        store = Store(self.path.parent / "none" / "pair.sqlite3", self.turns)
        self.assertIn("No such file or directory", str(self.assertRaises(StoreError, store.open)))

    def test_directory(self) -> None:
        """A directory in its place is told, not tried."""
        self.path.mkdir()
        self.assertIn("Is a directory", self.refused())

    def test_full(self) -> None:
        """A full disk at the start is told as that, not as a migration that failed (OP-13)."""
        self.path.symlink_to("/dev/full")
        self.assertEqual(self.refused(), f"{self.path}: the file system is full; free some space")

    def test_not_writable(self) -> None:
        """A file that cannot be written is told with what to look at (OP-13)."""
        self.path.symlink_to("/proc/version")
        self.assertIn("check its owner", self.refused())

    def test_not_opened(self) -> None:
        """A store that was never opened takes no write, and closes at once."""
        store = self.store()
        self.failureResultOf(store.write(engines), StoreClosed)
        self.successResultOf(store.close())
