"""What the event stream tells: the topics as they were read last, and what has changed since (UI-62 to UI-64).

Pure. A topic is a table of records by key. It is read as a whole, again and
again, and what differs from the last reading is what there is to tell; so that
whoever applies all changes to a snapshot has what a later snapshot would show,
but for times and figures that change all the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from pair.control.revision import Revision

RING = 4096
"""Changes that are kept for those who come back (UI-63)."""


class Reading(Struct, frozen=True):
    """A topic as it is now.

    ``ends`` are final records, in the order in which they came, that must be
    told though they may have left ``table`` again (UI-64).
    """

    table: Mapping[str, Any]
    ends: tuple[tuple[str, Any], ...] = ()


class Upsert(Struct, frozen=True):
    """From now on ``value`` is what there is under ``key``."""

    topic: str
    key: str
    value: Any
    revision: int


class Removal(Struct, frozen=True):
    """There is nothing under ``key`` any more."""

    topic: str
    key: str
    revision: int


class Row(Struct, frozen=True):
    """One record of a snapshot."""

    key: str
    value: Any


class Snapshot(Struct, frozen=True):
    """Everything at one instant."""

    generation: str
    revision: int
    topics: dict[str, tuple[Row, ...]]


class Heartbeat(Struct, frozen=True):
    """Nothing else happened up to ``revision``; ``at`` is in epoch milliseconds."""

    revision: int
    at: int


class Told(Struct, frozen=True):
    """A change as it is sent."""

    topic: str
    revision: int
    frame: bytes


def coalesce(
    before: Mapping[str, Any], reading: Reading, still: Callable[[Any], Any] | None = None
) -> Iterator[tuple[str, Any]]:
    """What to tell of a topic that was ``before``: for each key the last change alone, but all of the ends.

    Args:
        before: the last reading's table.
        reading: the topic now.
        still: a record without what changes all the time, and is not told for that alone.

    Yields:
        Key and record; None where there is none any more.
    """
    known = dict(before)
    for key, value in reading.ends:
        if known.get(key) != value:
            known[key] = value
            yield key, value
    for key in known:
        if key not in reading.table:
            yield key, None
    for key, value in reading.table.items():
        last = known.get(key)
        if last is value or last == value:
            continue
        if still is None or last is None or still(last) != still(value):
            yield key, value


def frame(event: str, id: str, data: Any) -> bytes:
    """One event of a ``text/event-stream``."""
    return b"event: %b\nid: %b\ndata: %b\n\n" % (event.encode(), id.encode(), msgspec.json.encode(data))


class Board:
    """The topics as they were read last, and a ring of their last changes.

    Args:
        revision: numbers what is told.
        passing: topics of which only what is new is worth telling: they are not kept in the ring.
        still: by topic, as for :func:`coalesce`.
    """

    def __init__(
        self,
        revision: Revision,
        passing: Collection[str] = (),
        still: Mapping[str, Callable[[Any], Any]] | None = None,
    ) -> None:
        self._revision = revision
        self._passing = passing
        self._still = still or {}
        self._tables: dict[str, Mapping[str, Any]] = {}
        self._ring: deque[Told] = deque()
        self._floor = 0

    @property
    def id(self) -> str:
        """What is told up to now."""
        return f"{self._revision.generation}:{self._revision.number}"

    def update(self, topic: str, reading: Reading) -> list[Told]:
        """Take ``reading`` for what the topic is; what is to be told of that.

        The first one of a topic is told to nobody: no stream began before it.
        """
        before = self._tables.get(topic)
        self._tables[topic] = reading.table
        if before is None:
            self._revision.bump()
            self._floor = self._revision.number
            return []
        told = [self._told(topic, key, value) for key, value in coalesce(before, reading, self._still.get(topic))]
        if topic not in self._passing:
            self._ring.extend(told)
            while len(self._ring) > RING:
                self._floor = self._ring.popleft().revision
        return told

    def since(self, id: str, topics: Collection[str]) -> list[bytes] | None:
        """The changes that came after ``id``; None where they cannot be told any more, and a snapshot has to be."""
        generation, _, number = id.partition(":")
        if generation != self._revision.generation or not (number.isascii() and number.isdecimal()):
            return None
        # One of a thousand digits is no revision of ours either, and would take long to read.
        revision = int(number) if len(number) < 19 else -1
        if not self._floor <= revision <= self._revision.number:
            return None
        return [each.frame for each in self._ring if each.revision > revision and each.topic in topics]

    def snapshot(self, topics: Iterable[str]) -> bytes:
        """The event that has all of ``topics``."""
        tables = {topic: tuple(Row(*each) for each in self._tables.get(topic, {}).items()) for topic in topics}
        revision = self._revision
        return frame("snapshot", self.id, Snapshot(revision.generation, revision.number, tables))

    def present(self, topics: Iterable[str]) -> list[bytes]:
        """All of ``topics`` as changes."""
        return [
            self._told(topic, key, value).frame
            for topic in topics
            for key, value in self._tables.get(topic, {}).items()
        ]

    def heartbeat(self, at: int) -> bytes:
        """The event that says that there was no other."""
        return frame("heartbeat", self.id, Heartbeat(self._revision.number, at))

    def _told(self, topic: str, key: str, value: Any) -> Told:
        self._revision.bump()
        number = self._revision.number
        if value is None:
            return Told(topic, number, frame("remove", self.id, Removal(topic, key, number)))
        return Told(topic, number, frame("upsert", self.id, Upsert(topic, key, value, number)))
