"""The lines that wait for the disk: bounded, and when full the least important goes first (OP-30). Pure."""

from __future__ import annotations

from collections import deque

LINES = 10_000
BYTES = 4 << 20


class Backlog:
    """Lines in the order in which they came, at most ``lines`` of them and ``size`` bytes.

    Attributes:
        dropped: How many were dropped since the last :meth:`take`.
    """

    def __init__(self, lines: int = LINES, size: int = BYTES, ranks: int = 5) -> None:
        self._lines = lines
        self._size = size
        self._waiting: list[deque[tuple[int, bytes]]] = [deque() for _ in range(ranks)]
        self._count = 0
        self._bytes = 0
        self._number = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._count

    def put(self, rank: int, line: bytes) -> None:
        """Add ``line``. While there is no room the oldest of the lowest rank goes, which may be this one."""
        self._number += 1
        self._waiting[rank].append((self._number, line))
        self._count += 1
        self._bytes += len(line)
        while self._count > self._lines or self._bytes > self._size:
            self._pop(next(each for each in self._waiting if each))
            self.dropped += 1

    def take(self, limit: int) -> list[bytes]:
        """The oldest lines, at most ``limit``, which are then no longer here."""
        taken: list[bytes] = []
        while self._count and len(taken) < limit:
            taken.append(self._pop(min((each for each in self._waiting if each), key=lambda each: each[0])))
        self.dropped = 0
        return taken

    def _pop(self, waiting: deque[tuple[int, bytes]]) -> bytes:
        _, line = waiting.popleft()
        self._count -= 1
        self._bytes -= len(line)
        return line
