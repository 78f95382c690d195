"""Where lines go: a file that is rotated by size, and a stream (OP-31, OP-33). Used in a writer's thread alone."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path


class Sink(Protocol):
    """What a writer writes to."""

    def write(self, lines: list[bytes]) -> None:
        """Write them all, in one go where that can be. OSError: some or all are lost."""

    def reopen(self) -> None:
        """Let go of what is open; the next write opens it again."""


class RotatingFile:
    """``pair.jsonl`` in ``directory``, and behind it ``pair.1.jsonl`` …, the newest first.

    A file that was removed or moved away is noticed before the next write,
    and made anew.

    Attributes:
        path: of the file that is written.
    """

    def __init__(self, directory: Path, max_bytes: int, keep: int) -> None:
        self.path = directory / "pair.jsonl"
        self._directory = directory
        self._max_bytes = max_bytes
        self._keep = keep
        self._descriptor: int | None = None
        self._torn = False

    def open(self) -> int:
        """Open the file if it is not, and make what is missing of it.

        Returns:
            Its descriptor.

        Raises:
            OSError: It cannot be written.
        """
        if self._descriptor is not None and not self._is_in_place(self._descriptor):
            self.reopen()
        if self._descriptor is None:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Without O_NONBLOCK a pipe in its place would hold us until somebody reads it.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
            self._descriptor = os.open(self.path, flags, 0o600)
        return self._descriptor

    def write(self, lines: list[bytes]) -> None:
        """Append ``lines``; before one with which the file would be too large, a new file is begun."""
        data = b"".join(lines)
        descriptor = self.open()
        size = os.fstat(descriptor).st_size
        if size and size + len(data) > self._max_bytes:
            self._rotate()
            descriptor = self.open()
        try:
            _write_all(descriptor, b"\n" + data if self._torn else data)
        except OSError:
            self._torn = True  # half a line may stand there, when the disk is full for one
            raise
        self._torn = False

    def reopen(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _is_in_place(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def _rotate(self) -> None:
        self.reopen()
        self._torn = False
        for old in self._directory.glob("pair.*.jsonl"):
            which = old.name.split(".")[1]
            if which.isdigit() and int(which) >= self._keep:
                old.unlink(missing_ok=True)
        for number in range(self._keep - 1, 0, -1):
            with suppress(FileNotFoundError):
                (self._directory / f"pair.{number}.jsonl").rename(self._directory / f"pair.{number + 1}.jsonl")
        self.path.rename(self._directory / "pair.1.jsonl")


class Stream:
    """An open descriptor, standard output for one, that others may close, block or share."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, lines: list[bytes]) -> None:
        """Write ``lines``, however long the reader takes."""
        _write_all(self._descriptor, b"".join(lines))

    def reopen(self) -> None:
        """Nothing: it is not ours to open."""


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # someone who shares the descriptor made it non-blocking
            select.select([], [descriptor], [])
