"""The event stream: each change of what the API shows, told to whoever follows (UI-61 to UI-66).

It must not know what the topics are, nor how a stream is carried: a topic is a
function that reads it, a stream a :class:`Writer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from pair.control.changes import Board
from pair.logs import Logger
from pair.supervision.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.control.changes import Reading, Told
    from pair.control.revision import Revision

JOIN_SECONDS = 0.1
"""Over which the changes of a key are joined (UI-64)."""

SAMPLE_SECONDS = 2.0
"""Between two readings of a topic that is another at each."""

LOOK_SECONDS = 1.0
"""Between two looks at all the others: not every change has a signal, and what grows old has none."""

BEAT_SECONDS = 5.0
SUBSCRIBERS_MAX = 64

UNSENT_MAX = 1024 * 1024
"""Octets that wait for a subscriber that does not read (UI-66)."""

log = Logger()


class NoPlaceError(Exception):
    """There are as many streams as there may be, or there are none now (UI-66)."""


class Writer(Protocol):
    """The body of an answer."""

    def registerProducer(self, producer: Subscriber, streaming: bool) -> None:
        """Pause and resume ``producer``, a push producer, from now on."""

    def unregisterProducer(self) -> None:
        """Pause and resume it no more."""

    def write(self, data: bytes) -> None:
        """Take ``data``."""

    def finish(self) -> None:
        """The body is complete."""

    def abort(self) -> None:
        """Close the connection at once."""


@implementer(IPushProducer)
class Subscriber:
    """One subscriber.

    Attributes:
        topics: what it is told of.
        key: what opened the API to it.
    """

    def __init__(
        self, writer: Writer, topics: frozenset[str], key: object, ended: Callable[[Subscriber], None]
    ) -> None:
        self.topics = topics
        self.key = key
        self._writer = writer
        self._ended = ended
        self._paused = False
        self._over = False
        self._waiting: list[bytes] = []
        self._unsent = 0

    def begin(self, data: bytes) -> None:
        """Write the first events, however long."""
        self._writer.registerProducer(self, True)
        self._writer.write(data)

    def send(self, data: bytes) -> None:
        """Write ``data`` as soon as it is taken; who lets too much wait is dropped."""
        if self._over:
            return
        if not self._paused:
            self._writer.write(data)
            return
        self._waiting.append(data)
        self._unsent += len(data)
        if self._unsent > UNSENT_MAX:
            log.debug("A subscriber of the event stream reads too slowly, and is dropped.")
            self.stopProducing()
            self._writer.abort()

    def close(self) -> None:
        """End it in good order, if it can be."""
        if self._over:
            return
        paused = self._paused
        self.stopProducing()
        if paused:
            self._writer.abort()
        else:
            self._writer.unregisterProducer()
            self._writer.finish()

    def pauseProducing(self) -> None:
        """See :class:`IPushProducer`."""
        self._paused = True

    def resumeProducing(self) -> None:
        """See :class:`IPushProducer`."""
        self._paused = False
        if self._waiting:
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._unsent = 0
            self._writer.write(data)

    def stopProducing(self) -> None:
        """See :class:`IPushProducer`: nobody reads any more."""
        if not self._over:
            self._over = True
            self._waiting.clear()
            self._ended(self)


class EventHub(Service):
    """Reads the topics while somebody follows them, and tells what has changed.

    Without a subscriber nothing is read. Who comes back is told then what has
    changed in the meantime, as the topics were never further than they were
    told.

    Args:
        clock: for all times.
        revision: which numbers the changes; the lists of the API have it too, so a stream can go on from a list.
        topics: how each is read.
        passing: those of ``topics`` that are another at each reading, such as measurements.
        still: by topic, as for :func:`pair.control.changes.coalesce`.
        now: epoch milliseconds.
        key: what opens the API now; when it is another, all streams that the former opened end (UI-15).
    """

    def __init__(
        self,
        clock: IReactorTime,
        revision: Revision,
        topics: Mapping[str, Callable[[], Reading]],
        passing: Collection[str],
        still: Mapping[str, Callable[[Any], Any]],
        now: Callable[[], int],
        key: Callable[[], object],
    ) -> None:
        self._clock = clock
        self._topics = topics
        self._passing = frozenset(passing)
        self._now = now
        self._key = key
        self._board = Board(revision, self._passing, still)
        self._subscribers: dict[Subscriber, None] = {}
        self._touched: set[str] = set()
        self._flushing: IDelayedCall | None = None
        self._repeating = (
            Repeating(clock, LOOK_SECONDS, self._look, "The look at what the event stream tells"),
            Repeating(clock, SAMPLE_SECONDS, self._sample, "The telling of measurements"),
            Repeating(clock, BEAT_SECONDS, self._beat, "The heartbeat of the event stream"),
        )

    @property
    def topics(self) -> tuple[str, ...]:
        """Those that there are."""
        return tuple(self._topics)

    @property
    def passing(self) -> frozenset[str]:
        """Those that are told to whoever asks for them by name."""
        return self._passing

    def startService(self) -> None:
        """Take subscribers."""
        super().startService()
        for each in self._repeating:
            each.startService()

    def stopService(self) -> Deferred[None]:
        """End all streams; fires when no work is under way."""
        super().stopService()
        for subscriber in tuple(self._subscribers):
            subscriber.close()
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        return gatherResults([each.stopService() for each in self._repeating]).addCallback(lambda _: None)

    def subscribe(self, writer: Writer, topics: frozenset[str], since: str = "") -> Subscriber:
        """Tell ``writer`` of ``topics`` from now on; in this very call all, or what came after ``since``.

        Args:
            writer: takes the stream.
            topics: some of :attr:`topics`.
            since: the id of an event, or nothing.

        Returns:
            The stream. Call its ``stopProducing`` when the connection is gone.

        Raises:
            NoPlaceError: There is no place for another one.
        """
        if not self.running or len(self._subscribers) >= SUBSCRIBERS_MAX:
            raise NoPlaceError
        self._tell(topics)
        board = self._board
        missed = board.since(since, topics)
        if missed is None:
            first = board.snapshot(topics)
        else:
            first = b"".join([*missed, *board.present(topics & self._passing), board.heartbeat(self._now())])
        subscriber = Subscriber(writer, topics, self._key(), self._forget)
        self._subscribers[subscriber] = None
        subscriber.begin(first)
        return subscriber

    def touch(self, topic: str) -> None:
        """Something of ``topic`` is another now, or may be. Measurements have a time of their own."""
        if not self._subscribers or topic in self._passing:
            return
        self._touched.add(topic)
        if self._flushing is None:
            self._flushing = self._clock.callLater(JOIN_SECONDS, self._flush)

    def _forget(self, subscriber: Subscriber) -> None:
        self._subscribers.pop(subscriber, None)

    def _followed(self) -> frozenset[str]:
        return frozenset().union(*(each.topics for each in self._subscribers))

    def _look(self) -> None:
        for topic in self._followed():
            self.touch(topic)

    def _flush(self) -> None:
        self._flushing = None
        touched, self._touched = self._touched, set()
        self._tell(touched & self._followed())

    def _sample(self) -> None:
        self._tell(self._followed() & self._passing)

    def _beat(self) -> None:
        if self._subscribers:
            self._end_others()
            self._send(self._board.heartbeat(self._now()))

    def _tell(self, topics: Collection[str]) -> None:
        """Read ``topics``, and tell what has changed."""
        told: list[Told] = []
        for topic in self._topics:
            if topic in topics:
                told += self._update(topic)
        if not told:
            return
        self._end_others()
        by_topics: dict[frozenset[str], bytes] = {}
        for subscriber in tuple(self._subscribers):
            data = by_topics.get(subscriber.topics)
            if data is None:
                data = by_topics[subscriber.topics] = _joined(told, subscriber.topics)
            if data:
                subscriber.send(data)

    def _update(self, topic: str) -> list[Told]:
        try:
            reading = self._topics[topic]()
        except Exception:  # noqa: BLE001 - one part's mistake must not end the stream of all others
            log.failure("What the event stream tells of {topic} could not be read.", topic=topic)
            return []
        return self._board.update(topic, reading)

    def _send(self, data: bytes) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber.send(data)

    def _end_others(self) -> None:
        key = self._key()
        for subscriber in tuple(self._subscribers):
            if subscriber.key != key:
                subscriber.close()


def _joined(told: Iterable[Told], topics: frozenset[str]) -> bytes:
    return b"".join(each.frame for each in told if each.topic in topics)
