"""Tests of :mod:`pair.statedir`."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from pair.statedir import LOCK, AlreadyRunning, StateDirectory, StateError

HOLDER = """
import sys
from pathlib import Path
from pair.statedir import StateDirectory

StateDirectory(Path(sys.argv[1])).lock()
print("held", flush=True)
sys.stdin.read()
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class StateDirectoryTestCase(SynchronousTestCase):
    """A state directory in the test's own folder, and the umask put back."""

    def setUp(self) -> None:
        mask = os.umask(0o022)
        self.addCleanup(os.umask, mask)
        self.path = Path(self.mktemp()).absolute() / "state"
        self.directory = StateDirectory(self.path)


class PrepareTests(StateDirectoryTestCase):
    def refused(self) -> StateError:
        error: StateError = self.assertRaises(StateError, self.directory.prepare)
        return error

    def test_made(self) -> None:
        """It is made with its parents, for its owner alone, and nothing is left in it; the umask is 0077 (OP-12)."""
        self.directory.prepare()
        self.assertEqual((mode(self.path), list(self.path.iterdir())), (0o700, []))
        self.assertEqual(os.umask(0o077), 0o077)

    def test_again(self) -> None:
        """Preparing it again changes nothing in it, and closes it to others where it was open."""
        self.directory.prepare()
        (self.path / "node.key").write_bytes(b"key")
        self.path.chmod(0o755)
        self.directory.prepare()
        self.assertEqual((mode(self.path), (self.path / "node.key").read_bytes()), (0o700, b"key"))

    def test_readable_secret(self) -> None:
        """A key or a token that others may read stops the start, with the path, the fault and the cure (OP-13)."""
        self.directory.prepare()
        for name in ("node.key", "control.token"):
            secret = self.path / name
            secret.touch()
            for wrong in (0o640, 0o604, 0o620):
                secret.chmod(wrong)
                error = self.refused()
                self.assertEqual((error.path, error.cure), (secret, f"if nobody else has read it: chmod 600 {secret}"))
                self.assertIn(f"mode {wrong:04o}", error.fault)
            secret.chmod(0o600)
        self.directory.prepare()

    def test_secret_that_is_no_file(self) -> None:
        """A directory or a pipe in the place of a secret is told as that, whatever its mode (OP-13)."""
        self.directory.prepare()
        for make in (Path.mkdir, os.mkfifo):
            for name in ("node.key", "control.token"):
                secret = self.path / name
                make(secret)
                error = self.refused()
                self.assertEqual((error.path, error.fault), (secret, "it is no regular file"))
                secret.rename(self.path / f"old {make.__name__} {name}")

    def test_other_owner(self) -> None:
        """A directory, or a secret in it, of another user stops the start, naming both (OP-13)."""
        if os.geteuid():
            raise SkipTest("only root can make files of another user")
        self.directory.prepare()
        (self.path / "node.key").touch(0o600)
        os.chown(self.path / "node.key", 4711, -1)
        self.assertIn("belongs to the user with id 4711", str(self.refused()))
        os.chown(self.path, 4712, -1)
        error = self.refused()
        self.assertEqual(error.path, self.path)
        self.assertIn(f"id 4712, and this process runs as {os.geteuid()}", error.fault)

    def test_no_directory(self) -> None:
        """A file in its place, or above it, is told."""
        self.path.parent.mkdir()
        self.path.touch()
        self.assertIn("it is not a directory", str(self.refused()))
        self.assertIn("not a directory", str(self.assertRaises(StateError, StateDirectory(self.path / "x").prepare)))


class BrokenDirectory(StateDirectory):
    """A directory in which nothing can be written."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(path)
        self._error = error

    def replace(self, name: str, data: bytes, mode: int) -> None:
        raise self._error


class LockTests(StateDirectoryTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.directory.prepare()
        self.addCleanup(self.directory.unlock)

    def test_tells_who(self) -> None:
        """The lock holds pid and start time, and is the owner's alone."""
        self.directory.lock()
        held = json.loads((self.path / LOCK).read_bytes())
        self.assertEqual((held["pid"], set(held)), (os.getpid(), {"pid", "startedAt"}))
        self.assertEqual(mode(self.path / LOCK), 0o600)

    def test_second(self) -> None:
        """A second instance is refused, naming pid and start time of the first (OP-14)."""
        self.directory.lock()
        error = self.assertRaises(AlreadyRunning, StateDirectory(self.path).lock)
        assert error.holder is not None
        self.assertEqual(error.holder.pid, os.getpid())
        self.assertRegex(str(error), rf"pid {os.getpid()}, since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC")

    def test_let_go(self) -> None:
        """Let go, it can be taken by the next; letting go twice does nothing."""
        self.directory.lock()
        self.directory.unlock()
        self.directory.unlock()
        second = StateDirectory(self.path)
        second.lock()
        self.addCleanup(second.unlock)

    def test_stale(self) -> None:
        """What a dead process left in the file does not matter, however long it is."""
        (self.path / LOCK).write_text("x" * 5000)
        self.directory.lock()
        self.assertEqual(json.loads((self.path / LOCK).read_bytes())["pid"], os.getpid())

    def test_unreadable_holder(self) -> None:
        """A lock that is held and does not say by whom is refused all the same."""
        self.directory.lock()
        (self.path / LOCK).write_text("")
        error = self.assertRaises(AlreadyRunning, StateDirectory(self.path).lock)
        self.assertIn("another instance runs here", str(error))
        self.assertIsNone(error.holder)

    def test_killed_holder(self) -> None:
        """The lock of a process that was killed is free (OP-14)."""
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            error = self.assertRaises(AlreadyRunning, self.directory.lock)
            assert error.holder is not None
            self.assertEqual(error.holder.pid, child.pid)
            child.kill()
        self.directory.lock()

    def test_not_writable(self) -> None:
        """A full or read-only file system is told in words, with a cure, and the lock is free again (OP-13)."""
        for number, fault in ((errno.ENOSPC, "the file system is full"), (errno.EROFS, "read-only")):
            directory = BrokenDirectory(self.path, OSError(number, os.strerror(number)))
            error = self.assertRaises(StateError, directory.lock)
            self.assertIn(fault, error.fault)
            self.assertTrue(error.cure)
        self.directory.lock()

    def test_others_write_nothing(self) -> None:
        """Whoever does not hold the lock writes nothing: two that start at once do not meet in a file (OP-14)."""
        self.directory.lock()
        before = {path: path.stat().st_mtime_ns for path in [self.path, *self.path.iterdir()]}
        other = StateDirectory(self.path)
        other.prepare()
        self.assertRaises(AlreadyRunning, other.lock)
        self.assertEqual({path: path.stat().st_mtime_ns for path in [self.path, *self.path.iterdir()]}, before)

    def test_cannot_be_written(self) -> None:
        """A lock that cannot be made is a fault of the state."""
        (self.path / LOCK).mkdir()
        self.assertEqual(self.assertRaises(StateError, self.directory.lock).path, self.path / LOCK)


class ReplaceTests(StateDirectoryTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.directory.prepare()

    def test_new_and_again(self) -> None:
        """The content is whole, the mode is the one asked for whatever the umask, and nothing else is left."""
        os.umask(0o077)
        self.directory.replace("node.crt", b"one", 0o644)
        self.directory.replace("node.crt", b"two", 0o644)
        self.assertEqual((self.path / "node.crt").read_bytes(), b"two")
        self.assertEqual((mode(self.path / "node.crt"), len(list(self.path.iterdir()))), (0o644, 1))

    def test_left_over(self) -> None:
        """A temporary file that a crash left, or someone laid as a trap, is not written through."""
        (self.path / "trap").write_bytes(b"theirs")
        (self.path / ".node.crt.new").symlink_to(self.path / "trap")
        self.directory.replace("node.crt", b"ours", 0o600)
        self.assertEqual((self.path / "trap").read_bytes(), b"theirs")
        self.assertFalse((self.path / "node.crt").is_symlink())

    def test_failure(self) -> None:
        """If it cannot be put in place the old is untouched, and no temporary file is left."""
        (self.path / "node.crt").mkdir()
        self.assertRaises(OSError, self.directory.replace, "node.crt", b"new", 0o600)
        self.assertEqual([path.name for path in self.path.iterdir()], ["node.crt"])

    def test_remove(self) -> None:
        """A file is removed; one that is not there is no error."""
        self.directory.replace("control.json", b"{}", 0o600)
        self.directory.remove("control.json")
        self.directory.remove("control.json")
        self.assertEqual(list(self.path.iterdir()), [])
