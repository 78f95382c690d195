"""One follower's stream, as far as its connection takes it (JB-8, JB-10, JB-16 to JB-18).

A follower that does not read has no queue here: it has a position, from which
it is told the rest when it reads again. Only what stands between ``hello`` and
``end`` is kept for it as it was, for that is of one instant; and no longer than
its position is within the ring, so that never more than the ring is kept that
the table has not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from pair.feeds.wire import Beat, Bye, End, write_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.feeds.table import FeedTable
    from pair.feeds.wire import ByeReason, Change, Hello, Line

PAUSED_MAX = 30.0
"""Seconds for which a follower may take nothing (JB-17)."""

PIECE = 16 * 1024
"""Octets of one write, or one line more; after each the connection may say that it has enough."""


class Writer(Protocol):
    """The body of an answer. ``twisted.web``'s request has all of it but ``abort``."""

    def registerProducer(self, producer: Outflow, streaming: bool) -> None:
        """Pause and resume ``producer`` from now on; it is a push producer."""

    def unregisterProducer(self) -> None:
        """Pause and resume it no more."""

    def write(self, data: bytes) -> None:
        """Take ``data``, and pause the producer in this very call if that is enough."""

    def finish(self) -> None:
        """The body is complete; the connection closes when all of it is sent."""

    def abort(self) -> None:
        """Close the connection at once."""


Piece = tuple[int, bytes]
"""Lines, and the revision of the last of them."""


class Batches:
    """What to send to followers of the present table, by their positions; most have the same (JB-6)."""

    def __init__(self, table: FeedTable[Any]) -> None:
        self._table = table
        self._by_position: dict[int, tuple[Piece, ...] | None] = {}

    def since(self, position: int) -> tuple[Piece, ...] | None:
        """What has changed since ``position``; None where that cannot be told any more."""
        if position not in self._by_position:
            delta = self._table.delta(position)
            self._by_position[position] = None if delta is None else tuple(_cut(delta))
        return self._by_position[position]


def _cut(changes: Iterable[Change]) -> Iterator[Piece]:
    lines: list[bytes] = []
    size = revision = 0
    for change in changes:
        line = write_line(change)
        lines.append(line)
        size += len(line)
        revision = change.revision
        if size >= PIECE:
            yield revision, b"".join(lines)
            lines.clear()
            size = 0
    if lines:
        yield revision, b"".join(lines)


@implementer(IPushProducer)
class Outflow:
    """A stream to one follower.

    Attributes:
        position: The revision up to which it was given all, or will be by the
            opening that is under way.
    """

    def __init__(
        self, clock: IReactorTime, table: FeedTable[Any], writer: Writer, ended: Callable[[Outflow], None]
    ) -> None:
        """One that has not begun.

        Args:
            clock: For the patience with a follower that does not read.
            table: What is told.
            writer: Takes the stream.
            ended: Called once, when nothing more will be written.
        """
        self.position = 0
        self._clock = clock
        self._table = table
        self._writer = writer
        self._ended = ended
        self._opening: Iterator[bytes] | None = None
        self._pause: IDelayedCall | None = None
        self._over = False

    def open(self, hello: Hello, changes: Sequence[Change]) -> None:
        """Begin, with ``hello`` and the ``changes`` that it announces."""
        self.position = hello.revision
        self._opening = _opening(hello, changes)
        self._writer.registerProducer(self, True)
        self._pour()

    def go_on(self, batches: Batches) -> None:
        """Tell what has changed, as far as the connection takes it; one that is too far behind is closed."""
        if not self._takes_lines():
            if not self._table.reaches(self.position):
                self.close("slow")
            return
        pieces = batches.since(self.position)
        if pieces is None:
            self.close("slow")
            return
        for revision, data in pieces:
            if revision > self.position:  # Else a resume within the last write has sent it.
                self.position = revision
                self._writer.write(data)
            if not self._takes_lines():
                return

    def beat(self, at: int) -> None:
        """Tell that the feed lives; ``at`` is in epoch milliseconds."""
        if self._takes_lines():
            self._writer.write(write_line(Beat(self.position, at)))

    def close(self, reason: ByeReason) -> None:
        """End the stream: with a word where that can still be written, else at once."""
        if self._over:
            return
        takes_lines = self._takes_lines()
        self.stopProducing()
        if takes_lines:
            self._writer.write(write_line(Bye(reason)))
            self._writer.unregisterProducer()
            self._writer.finish()
        else:
            self._writer.abort()

    def pauseProducing(self) -> None:
        """See :class:`IPushProducer`: the connection has enough."""
        if self._pause is None and not self._over:
            self._pause = self._clock.callLater(PAUSED_MAX, self.close, "slow")

    def resumeProducing(self) -> None:
        """See :class:`IPushProducer`: the connection takes more."""
        self._stop_waiting()
        if not self._over:
            self._pour()

    def stopProducing(self) -> None:
        """See :class:`IPushProducer`: the connection is gone."""
        if self._over:
            return
        self._over = True
        self._opening = None
        self._stop_waiting()
        self._ended(self)

    def _takes_lines(self) -> bool:
        """Whether a new line can be written now, and waits neither for the connection nor for the opening."""
        return not self._over and self._pause is None and self._opening is None

    def _pour(self) -> None:
        while self._opening is not None and self._pause is None:
            data = next(self._opening, None)
            if data is None:
                self._opening = None
            else:
                self._writer.write(data)
        if self._takes_lines():
            self.go_on(Batches(self._table))

    def _stop_waiting(self) -> None:
        if self._pause is not None:
            if self._pause.active():
                self._pause.cancel()
            self._pause = None


def _opening(hello: Hello, changes: Sequence[Change]) -> Iterator[bytes]:
    lines: list[bytes] = []
    size = 0
    messages: tuple[Line, ...] = (hello, *changes, End(hello.revision))
    for message in messages:
        line = write_line(message)
        lines.append(line)
        size += len(line)
        if size >= PIECE:
            yield b"".join(lines)
            lines.clear()
            size = 0
    if lines:
        yield b"".join(lines)
