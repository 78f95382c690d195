"""Tells a feed of this node to its followers (JB-5, JB-7 to JB-11, JB-14 to JB-18).

It must not know how a stream is carried: each is a :class:`Writer`. Nor does it
know who may follow; a follower is a name that is given to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec
from twisted.application.service import Service

from pair.events import Signal
from pair.feeds.outflow import Batches, Outflow
from pair.feeds.table import FeedTable, OverLimitError
from pair.feeds.wire import BEAT_SECONDS, PROTOCOLS, Document, Hello
from pair.supervision.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.feeds.codec import Codec
    from pair.feeds.outflow import Writer
    from pair.feeds.wire import Position

R = TypeVar("R")

BATCH_SECONDS = 0.05
"""From a change to when it is sent, with all that came meanwhile (JB-7)."""

KEPT_SECONDS = 1.0
"""The longest that a removal waits for followers that have not been given the record yet."""

STREAMS_MAX = 64


class NoPlaceError(Exception):
    """There are as many streams as there may be, or the feed is stopped: 503, ``Retry-After: 5`` (JB-15)."""


class Feed(Service, Generic[R]):
    """One feed of this node. While it does not run it takes changes, and no followers.

    Attributes:
        over_limit: Emits True when a record is over its limit, and False when
            none is any more (JB-5).
    """

    def __init__(
        self,
        clock: IReactorTime,
        name: str,
        node: str,
        version: str,
        codec: Codec[R],
        most: int,
        generation: str,
        now: Callable[[], int],
    ) -> None:
        """An empty one.

        Args:
            clock: For batches and beats.
            name: Of the feed, on the wire.
            node: The UUID of this node.
            version: Of this software.
            codec: For the records.
            most: The most of them.
            generation: 16 hex digits, random per process.
            now: Epoch milliseconds.
        """
        self.over_limit: Signal[bool] = Signal()
        self.feed = name
        self._clock = clock
        self._node = node
        self._version = version
        self._now = now
        self._table = FeedTable(generation, codec, most)
        self._fresh: dict[str, R] = {}
        self._over: set[str] = set()
        self._streams: dict[str, Outflow] = {}
        self._leaving: dict[str, float] = {}
        self._flushing: IDelayedCall | None = None
        self._beats = Repeating(clock, BEAT_SECONDS, self._beat, f"The beat of the {name} feed")

    @property
    def revision(self) -> int:
        """Of the last change."""
        self._take_fresh()
        return self._table.revision

    @property
    def followers(self) -> tuple[str, ...]:
        """The peers that have a stream."""
        return tuple(self._streams)

    def startService(self) -> None:
        """Take followers."""
        super().startService()
        self._beats.startService()

    def stopService(self) -> Deferred[None]:
        """Take leave of all followers. Their connections are for others to wait for."""
        super().stopService()
        for stream in tuple(self._streams.values()):
            stream.close("shutdown")
        self._settle_removals()
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        return self._beats.stopService()

    def put(self, key: str, record: R) -> None:
        """From now on ``record`` is that of ``key``. One over its limit is not published, and what there was stays.

        It costs its caller next to nothing: the record is encoded when it is
        sent, and never where another takes its place before that (JB-6, JB-7).
        """
        self._leaving.pop(key, None)
        self._fresh[key] = record
        if self._over:
            self._take_fresh()  # It may end what was told of the limit.
        if self._flushing is None and self._streams:
            self._schedule()

    def remove(self, key: str) -> None:
        """There is no record of ``key`` any more.

        That is told after what was last put under it, never instead (JB-7):
        the removal waits, at most 1 s, until all followers were given that.
        """
        fresh = self._fresh.pop(key, None)
        if fresh is not None and self._streams:
            self._take(key, fresh)
        self._note_limit(key, over=False)
        revision = self._table.revision_of(key)
        if revision is None:
            return
        if revision <= self._given():
            self._table.remove(key)
        else:
            self._leaving.setdefault(key, self._clock.seconds() + KEPT_SECONDS)
        self._schedule()

    def serve(self, peer: str, writer: Writer, position: Position | None) -> Outflow:
        """Begin a stream; an older one of the same peer ends (JB-15).

        Args:
            peer: Who follows.
            writer: Takes the stream. It is given a producer before the first byte.
            position: From where on, if it can be (:func:`pair.feeds.wire.read_position`).

        Returns:
            The stream. Call its ``stopProducing`` when the connection is gone.

        Raises:
            NoPlaceError: There is no place for another one.
        """
        former = self._streams.get(peer)
        if not self.running or (former is None and len(self._streams) >= STREAMS_MAX):
            raise NoPlaceError
        if former is not None:
            former.close("replaced")
        self._take_fresh()
        mode, changes = self._table.opening(position)
        hello = Hello(
            protocol=PROTOCOLS,
            version=self._version,
            feed=self.feed,
            node=self._node,
            generation=self._table.generation,
            revision=self._table.revision,
            mode=mode,
            count=len(changes),
            heartbeat_ms=int(BEAT_SECONDS * 1000),
        )
        stream = Outflow(self._clock, self._table, writer, lambda over: self._ended(peer, over))
        self._streams[peer] = stream
        stream.open(hello, changes)
        return stream

    def document(self) -> bytes:
        """All records at this instant, as JSON (JB-11)."""
        self._take_fresh()
        records = {put.key: put.record for put in self._table.snapshot()}
        table = self._table
        return msgspec.json.encode(
            Document(PROTOCOLS, self.feed, self._node, table.generation, table.revision, records)
        )

    def _take_fresh(self) -> None:
        """Bring the table up to date."""
        if self._fresh:
            fresh, self._fresh = self._fresh, {}
            for key, record in fresh.items():
                self._take(key, record)

    def _take(self, key: str, record: R) -> None:
        try:
            self._table.put(key, record)
        except OverLimitError:
            self._note_limit(key, over=True)
        else:
            self._note_limit(key, over=False)

    def _ended(self, peer: str, stream: Outflow) -> None:
        if self._streams.get(peer) is stream:
            del self._streams[peer]

    def _given(self) -> int:
        """The revision up to which every follower was given all."""
        return min((stream.position for stream in self._streams.values()), default=self._table.revision)

    def _schedule(self) -> None:
        if self._flushing is None and (self._streams or self._leaving):
            self._flushing = self._clock.callLater(BATCH_SECONDS, self._flush)

    def _flush(self) -> None:
        self._flushing = None
        self._take_fresh()
        batches = Batches(self._table)
        for stream in tuple(self._streams.values()):
            stream.go_on(batches)
        if self._leaving:
            self._settle_removals()
            self._schedule()

    def _settle_removals(self) -> None:
        given, now = self._given(), self._clock.seconds()
        for key, until in tuple(self._leaving.items()):
            revision = self._table.revision_of(key)
            if revision is None or revision <= given or now >= until:
                del self._leaving[key]
                self._table.remove(key)

    def _beat(self) -> None:
        at = self._now()
        for stream in tuple(self._streams.values()):
            stream.beat(at)

    def _note_limit(self, key: str, over: bool) -> None:
        if over == (key in self._over):
            return
        any_before = bool(self._over)
        if over:
            self._over.add(key)
        else:
            self._over.discard(key)
        if any_before != bool(self._over):
            self.over_limit.emit(over)
