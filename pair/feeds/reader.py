"""What a follower makes of a stream, wherever its reads were cut (JB-23 to JB-25). Pure.

It keeps the origin's table and the position in it from one stream to the next.
It must not know how a stream comes, nor when.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from msgspec import Struct

from pair.feeds.wire import (
    LINE_MAX,
    PROTOCOLS,
    RECORD_MAX,
    Beat,
    Bye,
    Change,
    Del,
    End,
    Hello,
    Line,
    Position,
    Protocols,
    Put,
    is_key,
    read_line,
    read_protocols,
)
from pair.protocols.ndjson import Lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pair.feeds.codec import Codec

R = TypeVar("R")

KEYS_MAX = 25_000

RECORD_MEAN = 4096
"""Octets of a record, on average, where there are as many as there may be: else some hundreds of MB would do."""

FaultReason = Literal[
    "malformed", "long_line", "order", "revision", "count", "too_many_keys", "too_large", "resumed_elsewhere"
]
"""What is wrong with a stream (JB-25).

``malformed``: no JSON, or a line, key or record that is none; ``order``: a line
of a kind that has no place there; ``revision``: one that does not rise, or not
to where it should; ``too_large``: a record, or all of them together;
``resumed_elsewhere``: a delta from where we are not.
"""


class Greeted(Struct, frozen=True):
    """The origin has said ``hello``, and is who it should be."""


class Changed(Struct, Generic[R], frozen=True):
    """``record`` took the place of ``before``, which is None where there was none. They differ."""

    key: str
    record: R
    before: R | None


class Removed(Struct, Generic[R], frozen=True):
    """The origin has ``before`` no more."""

    key: str
    before: R


class Replaced(Struct, Generic[R], frozen=True):
    """A snapshot took the place of the table, which is now that of the origin.

    ``changes`` is all that differs, removals first; ``restarted`` is whether
    the table before was that of an earlier process of the origin.
    """

    restarted: bool
    changes: tuple[Changed[R] | Removed[R], ...]


class CaughtUp(Struct, frozen=True):
    """A delta is complete: the table is that of the origin."""


class Beaten(Struct, frozen=True):
    """The origin lives; ``at`` is what its clock said, in epoch milliseconds."""

    at: int


class Left(Struct, frozen=True):
    """The origin ends the stream."""

    reason: str


class Fault(Struct, frozen=True):
    """The stream is broken. The position is forgotten, the table stays."""

    reason: FaultReason


class Foreign(Struct, frozen=True):
    """It is the stream of another node or of another feed."""


class Incompatible(Struct, frozen=True):
    """There is no protocol that the origin and this node both speak (OP-58)."""

    protocols: Protocols


News = Changed[R] | Removed[R] | Replaced[R]
Ending = Left | Fault | Foreign | Incompatible
Told = News[R] | Greeted | CaughtUp | Beaten | Ending


class _BrokenError(ValueError):
    """Says which fault a line is."""

    def __init__(self, reason: FaultReason) -> None:
        super().__init__(reason)
        self.reason = reason


class _Table(Generic[R]):
    """The records of an origin, and how many octets they came in.

    Args:
        codec: For them.
        origin: The UUID of their owner.
        most: The most of them.
    """

    def __init__(self, codec: Codec[R], origin: str, most: int) -> None:
        self.records: dict[str, R] = {}
        self._codec = codec
        self._origin = origin
        self._most = most
        self._sizes: dict[str, int] = {}
        self._size = 0

    def put(self, put: Put) -> R:
        """Take a record, whatever there was of its key."""
        key, size = put.key, len(put.record)
        if key not in self.records:
            if not is_key(key):
                raise _BrokenError("malformed")
            if len(self.records) >= self._most:
                raise _BrokenError("too_many_keys")
        whole = self._size - self._sizes.get(key, 0) + size
        if size > RECORD_MAX or whole > self._most * RECORD_MEAN:
            raise _BrokenError("too_large")
        record = self._codec.decode(self._origin, key, put.record)
        self.records[key] = record
        self._sizes[key] = size
        self._size = whole
        return record

    def apply(self, change: Change) -> R | None:
        """Take a change; the record of its key from now on."""
        if isinstance(change, Put):
            return self.put(change)
        self._size -= self._sizes.pop(change.key, 0)
        self.records.pop(change.key, None)
        return None


class FeedReader(Generic[R]):
    """Reads the streams of one feed of one origin, one after another.

    Args:
        feed: Its name.
        origin: The UUID of its owner.
        codec: For its records.
        most: The most of them.

    Attributes:
        records: The origin's table, as far as it is known: what was read last.
        position: Up to where it was read; None where only a snapshot will do.
        lines: How many lines have been read, whatever they said.
    """

    def __init__(self, feed: str, origin: str, codec: Codec[R], most: int = KEYS_MAX) -> None:
        self.position: Position | None = None
        self.lines = 0
        self._feed = feed
        self._origin = origin
        self._new = lambda: _Table(codec, origin, most)
        self._table = self._new()
        self._generation: str | None = None
        self._over = True
        self.begin()

    @property
    def records(self) -> Mapping[str, R]:
        """See above."""
        return MappingProxyType(self._table.records)

    def begin(self) -> None:
        """A new stream begins: one that was asked for from ``position`` on."""
        self._cutter = Lines(LINE_MAX)
        self._over = False
        self._hello: Hello | None = None
        self._caught_up = False
        self._count = 0
        self._last = 0
        self._collected = self._new()

    def read(self, data: bytes) -> list[Told[R]]:
        """What ``data``, the next bytes of the stream, tells; ``records`` has all of it already.

        An ``Ending`` is the last: nothing more is read before the next :meth:`begin`.
        """
        told: list[Told[R]] = []
        if self._over:
            return told
        for line in self._cutter.feed(data):
            self.lines += 1
            item = self._attempt(line)
            if item is not None:
                told.append(item)
            if isinstance(item, Ending):
                return told
        if self._cutter.overrun:
            told.append(self._fail("long_line"))
        return told

    def _attempt(self, line: bytes) -> Told[R] | None:
        try:
            if self._hello is None:
                return self._open(line)
            message = read_line(line)
            if isinstance(message, Bye):
                return self._end(Left(message.reason))
            return self._follow(message) if self._caught_up else self._catch_up(message, self._hello)
        except _BrokenError as broken:
            return self._fail(broken.reason)
        except (ValueError, RecursionError):
            return self._fail("malformed")

    def _fail(self, reason: FaultReason) -> Ending:
        self.position = None
        return self._end(Fault(reason))

    def _end(self, last: Ending) -> Ending:
        self._over = True
        self._collected = self._new()
        return last

    def _open(self, line: bytes) -> Told[R]:
        protocols = read_protocols(line)
        if not PROTOCOLS.meets(protocols):
            return self._end(Incompatible(protocols))
        hello = read_line(line)
        if not isinstance(hello, Hello):
            raise _BrokenError("order")
        if (hello.node, hello.feed) != (self._origin, self._feed):
            return self._end(Foreign())
        if hello.mode == "delta":
            here = self.position
            if here is None or here.generation != hello.generation or here.revision > hello.revision:
                raise _BrokenError("resumed_elsewhere")
            self._last = here.revision
        self._hello = hello
        return Greeted()

    def _catch_up(self, message: Line | None, hello: Hello) -> Told[R] | None:
        """A line between ``hello`` and ``end``."""
        if isinstance(message, End):
            return self._complete(message, hello)
        self._count += 1
        if self._count > hello.count:
            raise _BrokenError("count")
        if isinstance(message, Put | Del):
            if message.revision > hello.revision:
                raise _BrokenError("revision")
            if hello.mode == "delta":
                return self._apply(message, hello.generation)
            self._collect(message)
        elif isinstance(message, Hello):
            raise _BrokenError("order")
        return None

    def _follow(self, message: Line | None) -> Told[R] | None:
        """A line after ``end``."""
        assert self._generation is not None, "there was an end, of a stream that said hello"
        if isinstance(message, Put | Del):
            return self._apply(message, self._generation)
        if isinstance(message, Beat):
            # Changes are sent as they are: a beat that has seen others than we tells of a line that was lost.
            if message.revision != self._last:
                raise _BrokenError("revision")
            return Beaten(message.at)
        if message is not None:
            raise _BrokenError("order")
        return None

    def _apply(self, change: Change, generation: str) -> Changed[R] | Removed[R] | None:
        self._advance(change)
        key = change.key
        before = self._table.records.get(key)
        record = self._table.apply(change)
        self.position = Position(generation, change.revision)
        if record is not None:
            return None if record == before else Changed(key, record, before)
        return None if before is None else Removed(key, before)

    def _collect(self, change: Change) -> None:
        self._advance(change)
        if isinstance(change, Del):
            raise _BrokenError("order")
        self._collected.put(change)

    def _advance(self, change: Change) -> None:
        if change.revision <= self._last:
            raise _BrokenError("revision")
        self._last = change.revision

    def _complete(self, end: End, hello: Hello) -> Told[R]:
        if self._count != hello.count:
            raise _BrokenError("count")
        if end.revision != hello.revision or (hello.mode == "delta" and self._last != hello.revision):
            raise _BrokenError("revision")
        self._last = hello.revision
        self._caught_up = True
        self.position = Position(hello.generation, hello.revision)
        restarted = self._generation is not None and self._generation != hello.generation
        self._generation = hello.generation
        if hello.mode == "delta":
            return CaughtUp()
        before, self._table = self._table, self._collected
        self._collected = self._new()
        return Replaced(restarted, _differences(before.records, self._table.records))


def _differences(before: Mapping[str, R], after: Mapping[str, R]) -> tuple[Changed[R] | Removed[R], ...]:
    gone = [Removed(key, record) for key, record in before.items() if key not in after]
    changed = [Changed(key, record, before.get(key)) for key, record in after.items() if before.get(key) != record]
    return (*gone, *changed)
