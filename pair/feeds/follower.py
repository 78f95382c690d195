"""Follows one feed of another node, and keeps its table as long as that can be reached (JB-19 to JB-29).

It must not know how a node is reached, nor what the records are for.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Generic, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import Deferred

from pair.feeds.following import Core, make_course
from pair.feeds.reader import KEYS_MAX, FeedReader
from pair.feeds.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from twisted.internet.interfaces import IReactorTime

    from pair.feeds.codec import Codec
    from pair.feeds.following import Stream
    from pair.feeds.watch import FeedFinding, FeedState

R = TypeVar("R")


class FeedFollower(Service, Generic[R]):
    """Follows while it runs. The table outlives a stop.

    Attributes:
        news: Emits each change of the table, when that has it already.
        state_changed: Emits the state when it is another than before.
        found: Emits the finding when it is another than before.
        heard: Emits the origin's UUID with each read that brought a line.
    """

    def __init__(
        self,
        clock: IReactorTime,
        connect: Callable[[str, str], Deferred[Stream]],
        origin: str,
        feed: str,
        path: str,
        codec: Codec[R],
        now: Callable[[], int],
        uniform: Callable[[float, float], float] = random.uniform,
        most: int = KEYS_MAX,
    ) -> None:
        """It knows nothing yet.

        Args:
            clock: For all limits of time.
            connect: Asks a node (UUID) for a path with its query. Fires when
                the answer has begun with 200, within limits of its own; fails
                with :class:`pair.feeds.following.NotReachedError`; cancelled,
                it gives up and closes what it has opened.
            origin: The UUID of the node.
            feed: The name of the feed.
            path: Where it is streamed.
            codec: For its records.
            now: Epoch milliseconds.
            uniform: A random number between two.
            most: The most records.
        """
        self.origin = origin
        self.feed = feed
        self._reader = FeedReader(feed, origin, codec, most)
        self._watch: Watch[R] = Watch(clock, origin, feed, now)
        self.news = self._watch.news
        self.state_changed = self._watch.state_changed
        self.found = self._watch.found
        self.heard = self._watch.heard
        self._stopped: Deferred[None] | None = None

        def ask() -> Deferred[Stream]:
            position = self._reader.position
            return connect(origin, path if position is None else f"{path}?{position.query}")

        self._core: Core[R] = Core(clock, ask, self._reader, self._watch, uniform, self._settle)
        self._course = make_course(self._core)

    @property
    def records(self) -> Mapping[str, R]:
        """The origin's table, as far as it is known. A snapshot puts another in its place."""
        return self._reader.records

    @property
    def state(self) -> FeedState:
        """How good that is."""
        return self._watch.state

    @property
    def finding(self) -> FeedFinding:
        """What is wrong with the origin."""
        return self._watch.finding

    def startService(self) -> None:
        """Follow, from this very turn on."""
        super().startService()
        self._course.follow()

    def stopService(self) -> Deferred[None]:
        """Follow no more. The Deferred fires when no connection is open any more."""
        super().stopService()
        stopped: Deferred[None] = Deferred()
        self._stopped = stopped
        self._course.rest()
        self._watch.interrupted()
        self._settle()
        return stopped

    def nudge(self) -> None:
        """Something says that the origin can be reached: do not wait for the next try (JB-21).

        The wait after a stream of another node or protocol (JB-23) is not cut short.
        """
        self._course.nudge()

    def _settle(self) -> None:
        stopped = self._stopped
        if stopped is not None and not self._core.open:
            self._stopped = None
            stopped.callback(None)
