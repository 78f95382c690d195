"""The state directory: its modes, its lock, and files that are replaced whole (OP-12 to OP-14).

It knows nothing of what the files hold. It reads no clock but for the start
time written into the lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

SECRETS = ("node.key", "control.token")
"""Files that nobody but the owner may read (OP-13)."""

LOCK = "pair.lock"

_CURES: dict[int, tuple[str, str]] = {
    errno.ENOSPC: ("the file system is full", "free some space"),
    errno.EEXIST: ("something that is no directory is in its place", "move it away"),
    errno.EDQUOT: ("the disk quota is used up", "free some space"),
    errno.EROFS: ("the file system is read-only", "mount it writable, or choose another place with --state-dir"),
    errno.EACCES: ("access is denied", "make its parent accessible, or choose another place with --state-dir"),
    errno.ENOTDIR: ("a part of the path is not a directory", "choose another place with --state-dir"),
}


class StateError(Exception):
    """The state is unusable (exit 73): which path, what is wrong with it, and what to do."""

    def __init__(self, path: Path, fault: str, cure: str) -> None:
        super().__init__(path, fault, cure)
        self.path = path
        self.fault = fault
        self.cure = cure

    @classmethod
    def of(cls, path: Path, error: OSError) -> StateError:
        """What the operating system says of ``path``, or of the file that it names itself."""
        fault, cure = _CURES.get(
            error.errno or 0, (error.strerror or "it cannot be used", "see to it, then start again")
        )
        return cls(Path(error.filename) if isinstance(error.filename, str) else path, fault, cure)

    def __str__(self) -> str:
        return f"{self.path}: {self.fault}; {self.cure}"


class LockHolder(Struct, frozen=True, rename="camel"):
    """Who holds the lock; ``started_at`` is in epoch milliseconds."""

    pid: int
    started_at: int


class AlreadyRunning(Exception):  # noqa: N818 - it is a fact, and the start is refused in an orderly way
    """Another instance runs on this state directory (exit 75). ``holder`` is None where the lock does not tell."""

    def __init__(self, path: Path, holder: LockHolder | None) -> None:
        super().__init__(path, holder)
        self.path = path
        self.holder = holder

    def __str__(self) -> str:
        if self.holder is None:
            return f"{self.path}: another instance runs here"
        since = datetime.fromtimestamp(self.holder.started_at / 1000, UTC)
        return f"{self.path}: another instance runs here, pid {self.holder.pid}, since {since:%Y-%m-%d %H:%M:%S} UTC"


class StateDirectory:
    """One state directory, prepared and then locked for the life of the process.

    Nothing is touched before :meth:`prepare`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def prepare(self) -> None:
        """Make the directory if need be, and check owner and modes. Nothing is written: another process may hold it.

        Raises:
            StateError: The directory, or a secret in it, is not usable (OP-13).
        """
        os.umask(0o077)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_directory()
            for name in SECRETS:
                self._check_secret(self.path / name)
        except FileExistsError:
            raise StateError(self.path, "it is not a directory", "choose another place with --state-dir") from None
        except OSError as error:
            raise StateError.of(self.path, error) from error

    def _check_directory(self) -> None:
        status = self.path.stat()
        if status.st_uid != os.geteuid():
            raise StateError(
                self.path,
                f"it belongs to the user with id {status.st_uid}, and this process runs as {os.geteuid()}",
                f"run as its owner, or: chown -R {os.geteuid()} {self.path}",
            )
        if stat.S_IMODE(status.st_mode) != 0o700:
            self.path.chmod(0o700)

    def _check_secret(self, path: Path) -> None:
        try:
            status = path.stat()
        except FileNotFoundError:
            return
        if not stat.S_ISREG(status.st_mode):
            raise StateError(path, "it is no regular file", "move it away")
        if status.st_uid != os.geteuid():
            raise StateError(path, f"it belongs to the user with id {status.st_uid}", f"chown {os.geteuid()} {path}")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise StateError(
                path,
                f"others may read or write it (mode {stat.S_IMODE(status.st_mode):04o})",
                f"if nobody else has read it: chmod 600 {path}",
            )

    def lock(self) -> None:
        """Take the lock, and check that files can be written.

        The kernel lets the lock go when the process ends, however it ends.

        Raises:
            AlreadyRunning: Another process holds it (OP-14).
            StateError: The lock, or another file, cannot be written (OP-13).
        """
        path = self.path / LOCK
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateError.of(path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            holder = LockHolder(pid=os.getpid(), started_at=int(time.time() * 1000))
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, msgspec.json.encode(holder) + b"\n", 0)
            self.replace(".probe", b"", 0o600)
            (self.path / ".probe").unlink()
        except BlockingIOError:
            holder_text = os.pread(descriptor, 1024, 0)
            os.close(descriptor)
            raise AlreadyRunning(self.path, _holder(holder_text)) from None
        except OSError as error:
            os.close(descriptor)
            raise StateError.of(path, error) from error
        self._lock = descriptor

    def unlock(self) -> None:
        """Let the lock go. Not held: nothing. The file stays, so that two starts never lock two files."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def replace(self, name: str, data: bytes, mode: int) -> None:
        """Write ``name`` so that a reader, or a crash at any moment, sees the old content or the new one.

        Raises:
            OSError: It could not be written; the old content is untouched.
        """
        target = self.path / name
        temporary = self.path / f".{name}.new"
        with suppress(FileNotFoundError):
            temporary.unlink()
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            temporary.replace(target)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        self._sync()

    def remove(self, name: str) -> None:
        """Delete ``name``; one that is not there is no error."""
        with suppress(FileNotFoundError):
            (self.path / name).unlink()
            self._sync()

    def _sync(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _holder(text: bytes) -> LockHolder | None:
    try:
        return msgspec.json.decode(text, type=LockHolder)
    except msgspec.DecodeError:
        return None
