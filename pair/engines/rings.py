"""The last output of an engine, in memory only: it may hold prompts (EN-77)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

LINES = 2000
RING_BYTES = 1 << 20
LINE_BYTES = 8 << 10

Stream = Literal["stdout", "stderr", "pair"]


class Line(Struct, frozen=True):
    """One line; ``seq`` counts from 1 and never falls, ``at`` is in epoch milliseconds."""

    seq: int
    at: int
    stream: Stream
    text: str


class OutputRing:
    """At most 2,000 lines and 1 MiB, each line cut at 8 KiB.

    Args:
        now: epoch milliseconds.
        home: the home folder, which is ``~`` in any text that leaves the ring (EN-75).
    """

    def __init__(self, now: Callable[[], int], home: str = "") -> None:
        self._now = now
        self._home = home.rstrip("/")
        self._lines: deque[Line] = deque()
        self._bytes = 0
        self._seq = 0
        self._open: dict[Stream, bytes] = {}

    def feed(self, stream: Stream, data: bytes) -> None:
        """Output as it was read; a line that is not ended yet is kept back."""
        *ended, rest = (self._open.get(stream, b"") + data).split(b"\n")
        for line in ended:
            self._add(stream, line)
        self._open[stream] = rest[:LINE_BYTES]

    def ended(self) -> None:
        """There will be no more output: what was kept back are lines too."""
        for stream, rest in self._open.items():
            if rest:
                self._add(stream, rest)
        self._open.clear()

    def note(self, text: str) -> None:
        """A line of our own."""
        self._add("pair", text.encode())

    def lines(self, after: int = 0) -> tuple[Line, ...]:
        """The lines with a higher ``seq`` than ``after``, fit to be shown."""
        return tuple(
            Line(each.seq, each.at, each.stream, self._redacted(each.text)) for each in self._lines if each.seq > after
        )

    def end(self, limit: int = 400) -> str:
        """The last output, on one line of at most ``limit`` characters, fit to be shown."""
        text = " / ".join(each.text for each in self.lines() if each.stream != "pair" and each.text)
        return text[-limit:]

    def _add(self, stream: Stream, line: bytes) -> None:
        self._seq += 1
        text = line[:LINE_BYTES].decode(errors="replace").rstrip("\r")
        self._lines.append(Line(self._seq, self._now(), stream, text))
        self._bytes += len(text)
        while len(self._lines) > LINES or self._bytes > RING_BYTES:
            self._bytes -= len(self._lines.popleft().text)

    def _redacted(self, text: str) -> str:
        return text.replace(self._home, "~") if self._home else text
