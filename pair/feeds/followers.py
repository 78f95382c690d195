"""Follows one feed of every other member (JB-19, JB-21, JB-26 to JB-29).

It must not know how a node is reached, who decides who is a member, nor what
the records are for.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct
from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults

from pair.events import Signal
from pair.feeds.follower import FeedFollower
from pair.feeds.reader import KEYS_MAX, News
from pair.feeds.watch import FeedFinding, FeedState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from twisted.internet.interfaces import IReactorTime

    from pair.feeds.alarms import FeedAlarms
    from pair.feeds.codec import Codec
    from pair.feeds.following import Stream
    from pair.feeds.wire import Protocols

R = TypeVar("R")


class FeedNews(Struct, Generic[R], frozen=True):
    """A change of the table of ``origin``, which has it already."""

    origin: str
    news: News[R]


@dataclass
class _Followed(Generic[R]):
    """A member that is followed. ``ends`` end what is heard of it."""

    follower: FeedFollower[R]
    ends: tuple[Callable[[], None], ...]
    incompatible: Protocols | None = None


class Followers(Service, Generic[R]):
    """A follower for each member but this node. While it does not run, nobody is dialled and the tables stay.

    Attributes:
        news: Emits each change of a table.
        state_changed: Emits the state of an origin's feed when it is another than before.
        heard: Emits the origin's UUID with each read that brought a line: evidence of the kind ``feed``.
        dropped: Emits the UUID of one that is followed no more, when its table is gone (JB-29).
        incompatible: Emits the finding when an origin turns out to speak no
            protocol of ours, or other ones than before, or one of ours again.
    """

    def __init__(
        self,
        clock: IReactorTime,
        connect: Callable[[str, str], Deferred[Stream]],
        me: str,
        feed: str,
        path: str,
        codec: Codec[R],
        alarms: FeedAlarms,
        now: Callable[[], int],
        uniform: Callable[[float, float], float] = random.uniform,
        most: int = KEYS_MAX,
    ) -> None:
        """Nobody is followed yet.

        Args:
            clock: For all limits of time.
            connect: As :class:`FeedFollower` wants it.
            me: UUID of this node.
            feed: The name of the feed.
            path: Where each node streams it.
            codec: For its records.
            alarms: Told what is wrong with an origin.
            now: Epoch milliseconds.
            uniform: A random number between two.
            most: The most records of a node.
        """
        self.news: Signal[FeedNews[R]] = Signal()
        self.state_changed: Signal[FeedState] = Signal()
        self.heard: Signal[str] = Signal()
        self.dropped: Signal[str] = Signal()
        self.incompatible: Signal[FeedFinding] = Signal()
        self.feed = feed
        self._me = me
        self._alarms = alarms
        self._make = lambda origin: FeedFollower(clock, connect, origin, feed, path, codec, now, uniform, most)
        self._followed: dict[str, _Followed[R]] = {}
        self._ending: set[Deferred[None]] = set()

    def startService(self) -> None:
        """Follow, from this very turn on."""
        super().startService()
        for each in tuple(self._followed.values()):
            each.follower.startService()

    def stopService(self) -> Deferred[None]:
        """Follow nobody. The Deferred fires when no connection is open any more."""
        super().stopService()
        for each in tuple(self._followed.values()):
            self._end(each.follower)
        return gatherResults(tuple(self._ending)).addCallback(lambda _: None)

    def members(self, uuids: Collection[str]) -> None:
        """These are the members from now on; this node may be among them or not (JB-19)."""
        wanted = set(uuids) - {self._me}
        if wanted == self._followed.keys():
            return
        for node in sorted(self._followed.keys() - wanted):
            self._drop(node)
        self.nudge(None)
        for node in sorted(wanted - self._followed.keys()):
            self._follow(node)

    def nudge(self, node: str | None) -> None:
        """Something says that ``node`` can be reached now, or that all can: do not wait for the next try (JB-21)."""
        for each in tuple(self._followed.values()):
            if node in (None, each.follower.origin):
                each.follower.nudge()

    def tables(self) -> Mapping[str, Mapping[str, R]]:
        """What is known of each member, by its UUID; nothing where it was never reached."""
        return {node: each.follower.records for node, each in self._followed.items()}

    def state(self, node: str) -> FeedState:
        """How good the table of ``node`` is."""
        followed = self._followed.get(node)
        return FeedState(node, self.feed) if followed is None else followed.follower.state

    def _follow(self, node: str) -> None:
        follower = self._make(node)
        ends = (
            follower.news.subscribe(lambda news: self.news.emit(FeedNews(node, news))),
            follower.state_changed.subscribe(self.state_changed.emit),
            follower.heard.subscribe(self.heard.emit),
            follower.found.subscribe(self._found),
        )
        self._followed[node] = _Followed(follower, ends)
        if self.running:
            follower.startService()

    def _drop(self, node: str) -> None:
        followed = self._followed.pop(node)
        for end in followed.ends:
            end()
        self._end(followed.follower)
        self._alarms.forget(node, self.feed)
        if followed.incompatible is not None:
            self.incompatible.emit(FeedFinding(node, self.feed))
        self.dropped.emit(node)

    def _end(self, follower: FeedFollower[R]) -> None:
        ended = follower.stopService()
        self._ending.add(ended)
        ended.addCallback(lambda _: self._ending.discard(ended))

    def _found(self, finding: FeedFinding) -> None:
        self._alarms.found(finding)
        followed = self._followed[finding.origin]
        if finding.incompatible != followed.incompatible:
            followed.incompatible = finding.incompatible
            self.incompatible.emit(finding)
