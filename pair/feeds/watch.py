"""What is known of an origin by one of its feeds: how good its table is, and what is wrong (JB-25 to JB-27, JB-85).

It must not know how a stream comes, nor what is done about a finding.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pair.events import Signal
from pair.feeds.wire import Protocols
from pair.logs import Logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IReactorTime

    from pair.feeds.reader import News

R = TypeVar("R")

FAULTS = 3
FAULT_SECONDS = 600.0
"""So many faults within so long, and the origin is a bad peer (JB-25)."""

SKEW_MS = 5 * 60 * 1000

log = Logger()


class FeedState(Struct, frozen=True, rename="camel"):
    """How good the table of an origin is (JB-26).

    ``live``: it is the origin's, but for what is under way; ``stale``: it was;
    ``none``: there never was one. ``last_line_at`` is in epoch milliseconds.
    """

    origin: str
    feed: str
    state: Literal["live", "stale", "none"] = "none"
    last_line_at: int | None = None


class FeedFinding(Struct, frozen=True, rename="camel"):
    """What is wrong with an origin, by one of its feeds.

    ``bad_peer``: what it sends is not what it should be (JB-23, JB-25);
    ``incompatible``: the protocols that it speaks, where this node speaks none
    of them (OP-58); ``skewed``: its clock is more than 5 min from ours (JB-27).
    """

    origin: str
    feed: str
    bad_peer: bool = False
    incompatible: Protocols | None = None
    skewed: bool = False


class Watch(Generic[R]):
    """Is told what happens on the streams of one feed, and tells what that means.

    Attributes:
        news: Emits each change of the table.
        state_changed: Emits the state when another begins.
        found: Emits the finding when it has become another.
        heard: Emits the origin's UUID with each read that brought a line.
        last_line_at: When that was last, in epoch milliseconds.
    """

    def __init__(self, clock: IReactorTime, origin: str, feed: str, now: Callable[[], int]) -> None:
        """Nothing is known yet.

        Args:
            clock: Measures how long ago something was.
            origin: The UUID of the node.
            feed: The name of the feed.
            now: Epoch milliseconds.
        """
        self.news: Signal[News[R]] = Signal()
        self.state_changed: Signal[FeedState] = Signal()
        self.found: Signal[FeedFinding] = Signal()
        self.heard: Signal[str] = Signal()
        self.last_line_at: int | None = None
        self.finding = FeedFinding(origin, feed)
        self._clock = clock
        self._now = now
        self._state = FeedState(origin, feed)
        self._faults: deque[float] = deque(maxlen=FAULTS)
        self._foreign = False
        self._outage = False
        self._tried = False

    @property
    def state(self) -> FeedState:
        """How good the table is."""
        return replace(self._state, last_line_at=self.last_line_at)

    def line(self) -> None:
        """The origin said something."""
        self.last_line_at = self._now()
        self.heard.emit(self._state.origin)

    def greeted(self) -> None:
        """It is the origin, and speaks our protocol."""
        self._foreign = False
        self._find(incompatible=None)

    def live(self) -> None:
        """The table is that of the origin now."""
        if self._outage:
            self._outage = False
            log.info("The {feed} feed of node {node} is live again.", feed=self._state.feed, node=self._state.origin)
        self._enter("live")
        self._find()

    def beaten(self, at: int) -> None:
        """The origin's clock says ``at``."""
        self._find(skewed=abs(at - self._now()) > SKEW_MS)

    def broken(self, reason: str) -> None:
        """There is no stream, or no more; ``reason`` is for the log."""
        state = self._state
        if not self._outage and not self._tried and state.state == "none":
            # Of two nodes that have just paired, one is known to the other a moment later.
            log.debug(
                "No {feed} feed of node {node} yet: {reason}.", feed=state.feed, node=state.origin, reason=reason
            )
        elif self._outage:
            log.debug(
                "Still no {feed} feed of node {node}: {reason}.", feed=state.feed, node=state.origin, reason=reason
            )
        else:
            self._outage = True
            log.warn("No {feed} feed of node {node}: {reason}.", feed=state.feed, node=state.origin, reason=reason)
        self._tried = True
        self.interrupted()

    def interrupted(self) -> None:
        """The table is not kept any more, for whatever reason."""
        if self._state.state == "live":
            self._enter("stale")

    def faulty(self) -> None:
        """What came was none that an origin sends."""
        self._faults.append(self._clock.seconds())
        self._find()

    def foreign(self) -> None:
        """It was another's stream."""
        self._foreign = True
        self._find()

    def incompatible(self, protocols: Protocols) -> None:
        """The origin speaks only ``protocols``."""
        self._find(incompatible=protocols)

    def _enter(self, state: Literal["live", "stale"]) -> None:
        self._state = replace(self._state, state=state)
        self.state_changed.emit(self.state)

    def _find(self, **values: bool | Protocols | None) -> None:
        faults, since = self._faults, self._clock.seconds() - FAULT_SECONDS
        bad = self._foreign or (len(faults) == FAULTS and faults[0] > since)
        finding = replace(self.finding, bad_peer=bad, **values)
        if finding != self.finding:
            self.finding = finding
            self.found.emit(finding)
