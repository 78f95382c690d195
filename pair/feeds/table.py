"""The records that this node owns of one feed, with their revisions (JB-2 to JB-6, JB-8). Pure.

It must not know who follows it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Raw

from pair.feeds.wire import RECORD_MAX, Change, Del, Mode, Position, Put, is_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.feeds.codec import Codec

R = TypeVar("R")

RING = 4096
"""So many changes back a follower may resume (JB-2)."""


class OverLimitError(Exception):
    """A record, its key or the number of records is over its limit (JB-5)."""


class FeedTable(Generic[R]):
    """Key → record and revision.

    Args:
        generation: 16 hex digits, random per process.
        codec: For the records.
        most: The most of them.
        ring: How many of the last changes are remembered.

    Attributes:
        revision: Of the last change; 0 before the first.
    """

    def __init__(self, generation: str, codec: Codec[R], most: int, ring: int = RING) -> None:
        self.generation = generation
        self.revision = 0
        self._codec = codec
        self._most = most
        self._records: dict[str, R] = {}
        # Whatever changes goes to its end, so that it is in the order of revisions.
        self._puts: dict[str, Put] = {}
        # The keys of the last changes: its last one is that of the present revision.
        self._ring: deque[str] = deque(maxlen=ring)

    def __len__(self) -> int:
        return len(self._records)

    def put(self, key: str, record: R) -> bool:
        """From now on ``record`` is that of ``key``; whether that is a change (JB-3).

        It is encoded here, once for all followers (JB-6).

        Raises:
            OverLimitError: It is refused, and what there was of the key stays.
        """
        known = self._records.get(key)
        if known is not None and known == record:
            return False
        if not is_key(key) or (known is None and len(self._records) >= self._most):
            raise OverLimitError
        encoded = self._codec.encode(record)
        if len(encoded) > RECORD_MAX:
            raise OverLimitError
        self._change(key)
        self._records[key] = record
        self._puts[key] = Put(self.revision, key, Raw(encoded))
        return True

    def remove(self, key: str) -> bool:
        """There is no record of ``key`` any more; whether there was one."""
        if self._records.pop(key, None) is None:
            return False
        self._change(key)
        return True

    def _change(self, key: str) -> None:
        self.revision += 1
        self._ring.append(key)
        self._puts.pop(key, None)

    def revision_of(self, key: str) -> int | None:
        """That of the record of ``key``; None where there is none."""
        put = self._puts.get(key)
        return None if put is None else put.revision

    def reaches(self, since: int) -> bool:
        """Whether there is a delta from revision ``since`` on (JB-4)."""
        return 0 <= self.revision - since <= len(self._ring)

    def delta(self, since: int) -> list[Change] | None:
        """What has changed since a revision, each key once, in the order of revisions; None without a delta."""
        if not self.reaches(since):
            return None
        changes: list[Change] = []
        seen = set()
        for revision, key in zip(range(self.revision, since, -1), reversed(self._ring), strict=False):
            if key not in seen:
                seen.add(key)
                changes.append(self._puts.get(key) or Del(revision, key))
        changes.reverse()
        return changes

    def snapshot(self) -> list[Put]:
        """All records, in the order of revisions."""
        return list(self._puts.values())

    def opening(self, position: Position | None) -> tuple[Mode, Sequence[Change]]:
        """What a follower is told at first that has read up to ``position`` (JB-8)."""
        if position is not None and position.generation == self.generation:
            delta = self.delta(position.revision)
            if delta is not None:
                return "delta", delta
        return "snapshot", self.snapshot()
