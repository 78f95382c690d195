"""Records, and connections in memory between a feed and its followers."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from msgspec import Struct
from twisted.internet.defer import Deferred, fail, succeed

from pair.feeds.codec import StructCodec
from pair.feeds.following import NotReachedError
from pair.feeds.publisher import Feed, NoPlaceError
from pair.feeds.wire import read_position

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.task import Clock

    from pair.feeds.following import Receiver, Stream
    from pair.feeds.outflow import Outflow

A = "aaaaaaaa-0000-4000-8000-000000000001"
B = "bbbbbbbb-0000-4000-8000-000000000002"
GENERATION = "00000000000000a1"
NEXT_GENERATION = "00000000000000a2"

HIGH = 64 * 1024
"""Unsent octets from which on a connection wants no more, as Twisted's do."""

STEP = 1 / 16
"""Seconds; a power of two, so that instants add up. A batch is sent in each."""


class Sheet(Struct, frozen=True):
    """A record. ``n`` tells one version from the next."""

    id: str
    n: int = 0
    node: str = A
    text: str = ""


CODEC = StructCodec(Sheet, "id", "node")


class Link:
    """A connection. It provides both ends: the publisher's writer and the follower's stream.

    Attributes:
        unsent: What was written and not delivered.
        most: How much of that there was at most.
        carried: How many octets were delivered.
        reading: Whether the follower's side reads.
        cut_after: It breaks when so many octets are delivered; None: never.
        bites: How many octets are delivered at once; None: all there are.
    """

    def __init__(self) -> None:
        self.unsent = bytearray()
        self.most = 0
        self.carried = 0
        self.reading = True
        self.cut_after: int | None = None
        self.bites: int | None = None
        self.ending = False
        self.aborted = False
        self.gone = False
        self._producer: Outflow | None = None
        self._receiver: Receiver | None = None
        self._paused = False

    def registerProducer(self, producer: Outflow, streaming: bool) -> None:
        assert streaming
        self._producer = producer

    def unregisterProducer(self) -> None:
        self._producer = None

    def write(self, data: bytes) -> None:
        assert not self.ending, "nothing is written after the end"
        self.unsent += data
        self.most = max(self.most, len(self.unsent))
        if len(self.unsent) > HIGH and not self._paused and self._producer is not None:
            self._paused = True
            self._producer.pauseProducing()

    def finish(self) -> None:
        assert self._producer is None, "twisted.web insists"
        self.ending = True

    def abort(self) -> None:
        """Of either end."""
        self.aborted = True
        self.cut()

    def deliver(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def cut(self) -> None:
        """It breaks. Both ends hear of it."""
        if self.gone:
            return
        self.gone = True
        if self._producer is not None:
            self._producer.stopProducing()
        if self._receiver is not None:
            self._receiver.lost()

    def pump(self) -> None:
        """Deliver what there is, as far as the other end reads."""
        while self.unsent and self.reading and self._receiver is not None and not self.gone:
            size = min(self.bites or len(self.unsent), len(self.unsent))
            if self.cut_after is not None:
                size = min(size, self.cut_after - self.carried)
            data = bytes(self.unsent[:size])
            del self.unsent[:size]
            self.carried += size
            if data:
                self._receiver.received(data)
            if self.carried == self.cut_after:
                self.cut()
            elif self._paused and not self.unsent and self._producer is not None:
                self._paused = False
                self._producer.resumeProducing()
        if self.ending and not self.unsent:
            self.cut()


class Network:
    """Connects followers to the feed of A, which can be put in another's place.

    Attributes:
        asked: What was asked for, with the instant.
        links: All connections so far, the newest last.
        fault: Why nobody is reached; None while they are.
        prepare: Called with each new connection.
    """

    def __init__(self, clock: Clock, feed: Feed[Sheet]) -> None:
        self.feed = feed
        self.asked: list[tuple[float, str]] = []
        self.links: list[Link] = []
        self.fault: str | None = None
        self.prepare: Callable[[Link], None] = lambda _: None
        self._clock = clock

    def connector(self, peer: str) -> Callable[[str, str], Deferred[Stream]]:
        """How ``peer`` connects."""

        def connect(node: str, path: str) -> Deferred[Stream]:
            self.asked.append((self._clock.seconds(), path))
            if self.fault is not None:
                return fail(NotReachedError(self.fault))
            link = Link()
            self.prepare(link)
            query = parse_qs(path.partition("?")[2].encode())
            try:
                self.feed.serve(peer, link, read_position(query))
            except NoPlaceError:
                return fail(NotReachedError("status 503"))
            self.links.append(link)
            return succeed(link)

        return connect

    def pump(self) -> None:
        """Deliver what is on the way."""
        for link in tuple(self.links):
            link.pump()
        self.links = [link for link in self.links if not link.gone]

    def run(self, seconds: float, step: float = STEP) -> None:
        """Let time pass."""
        self.pump()
        for _ in range(round(seconds / step)):
            self._clock.advance(step)
            self.pump()


def new_feed(clock: Clock, generation: str = GENERATION, most: int = 25_000) -> Feed[Sheet]:
    """A feed of A that runs."""
    feed = Feed(clock, "sheets", A, "0.0.0", CODEC, most, generation, lambda: int(clock.seconds() * 1000))
    feed.startService()
    return feed
