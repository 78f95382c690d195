"""How busy each node is: heard over its feed, or else asked of it; and how busy it was (DS-91 to DS-96).

It is the only one that asks: all others are told. It must not know how a node is
reached, nor what follows from what it says.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from twisted.application.service import Service
from twisted.internet.defer import DeferredSemaphore

from pair.addresses import Place
from pair.events import Signal
from pair.records.nodes import NodeAdded, NodeChanged, NodeRemoved
from pair.records.telemetry import CompactTelemetry, GpuSample, NodeInfo, Sample
from pair.supervision.repeating import Repeating
from pair.telemetry.polling import Poller

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.feeds.watch import FeedState
    from pair.records.asking import Answer
    from pair.records.nodes import NodeEntry, NodeEvent

AT_ONCE = 8
"""Questions that are under way: so many to strangers, and as many to others, who do not wait for strangers."""

PERIOD = 2.0
STRANGERS_PERIOD = 10.0
"""Seconds between two questions, the first for members and nodes that a person has added."""

TELL_SECONDS = 2.0
"""Between two tellings of one node."""

EARLY_SECONDS = 0.25
"""By which what is told may come sooner: samples come every 2 s too, and are not to wait for the rest of a moment."""

FEED_SECONDS = 10.0
"""So old may be what came over a feed, and still counts before what was asked for (DS-95)."""

SAMPLES = 450
"""Of one node; 15 min of them."""

Source = Literal["self", "feed", "poll"]


class Told(Struct, frozen=True):
    """What a node said of itself.

    ``authenticated``: over mutual TLS with its pin, or it is this node.
    ``place`` and ``leaf``, the digest of what was shown there, are of an answer
    that was asked for.
    """

    node: str
    info: NodeInfo
    authenticated: bool
    place: Place | None = None
    leaf: str | None = None


class _Reading(Struct, frozen=True):
    """What a node said of its load, and when that was heard by both clocks; ``took`` in seconds."""

    info: NodeInfo
    at: float
    epoch_ms: int
    took: float
    source: Source


class _Node:
    """What is known of one node.

    Attributes:
        heard_at: When its feed last told something.
        samples: How busy it was, the oldest first.
    """

    def __init__(self, clock: IReactorTime, tell: Callable[[_Reading], None], poller: Poller | None) -> None:
        self.poller = poller
        self.heard_at: float | None = None
        self.samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._clock = clock
        self._tell = tell
        self._told_at: float | None = None
        self._newest: _Reading | None = None
        self._timer: IDelayedCall | None = None

    def take(self, reading: _Reading) -> None:
        """Tell of it, but not sooner than 2 s after the one told before came: then of the newest by that time."""
        self._newest = reading
        if self._timer is not None:
            return
        wait = 0.0 if self._told_at is None else self._told_at + TELL_SECONDS - reading.at
        if wait <= EARLY_SECONDS:
            self._due()
        else:
            self._timer = self._clock.callLater(wait, self._due)

    def rest(self) -> None:
        """Ask it no more, and tell no more of it."""
        if self.poller is not None:
            self.poller.rest()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        assert self._newest is not None, "something was taken"
        self._told_at = self._newest.at  # Else samples that had to wait once would all have to.
        self.samples.append(_sample(self._newest))
        self._tell(self._newest)


class Collector(Service):
    """Collects while it runs. What it is told of nodes and feeds counts before that too.

    Args:
        clock: For time limits and waits.
        me: UUID of this node.
        own: Its own node-info, in full and as of now.
        ask: Asks the node with a UUID for its node-info; cancelled, it gives
            up. Fails with :class:`pair.records.asking.AskFailed`. It needs no
            limit of time of its own.
        uniform: A random number between two.
        now: Epoch milliseconds.

    Attributes:
        told: Emits all that nodes say of themselves, this node too.
        loads: Emits how busy a node is, at most once in 2 s for each.
    """

    name = "collector"

    def __init__(
        self,
        clock: IReactorTime,
        me: str,
        own: Callable[[], NodeInfo],
        ask: Callable[[str], Deferred[Answer]],
        uniform: Callable[[float, float], float],
        now: Callable[[], int],
    ) -> None:
        self.told: Signal[Told] = Signal()
        self.loads: Signal[CompactTelemetry] = Signal()
        self._clock = clock
        self._me = me
        self._own = own
        self._ask = ask
        self._uniform = uniform
        self._now = now
        self._slots = DeferredSemaphore(AT_ONCE)
        self._strangers_slots = DeferredSemaphore(AT_ONCE)
        self._live: set[str] = set()
        self._nodes: dict[str, _Node] = {me: self._new(me, None)}
        self._looking = Repeating(clock, PERIOD, self._look, "The look at the own load")

    def startService(self) -> None:
        """Begin, with this node itself in this very turn."""
        super().startService()
        self._looking.startService()
        self.nudge()

    def stopService(self) -> Deferred[None]:
        """Ask nobody any more. What was known remains."""
        super().stopService()
        for each in tuple(self._nodes.values()):
            each.rest()
        return self._looking.stopService()

    def history(self, node: str, window_ms: int) -> Sequence[Sample]:
        """How busy the node with that UUID was in the last ``window_ms``, the oldest sample first."""
        known = self._nodes.get(node)
        since = self._now() - window_ms
        return () if known is None else tuple(each for each in known.samples if each.at > since)

    # What it is told.

    def node_event(self, event: NodeEvent) -> None:
        """The directory has changed; all its entries come first as added."""
        match event:
            case NodeAdded(entry=entry):
                self._see(entry, None)
            case NodeChanged(entry=entry, old=old):
                self._see(entry, old)
            case NodeRemoved(entry=entry):
                self._forget(entry)
            # What is rekeyed changes too, and so does what has another presence.

    def nudge(self, _: object = None) -> None:
        """This host has slept, or has other addresses: ask all anew (DS-27)."""
        for node in tuple(self._nodes):
            self._begin(node)

    def fed(self, node: str, info: NodeInfo) -> None:
        """A record ``telemetry`` has come over the inventory feed of a node (DS-92)."""
        known = self._nodes.get(node)
        if known is None or node == self._me or not self.running:
            return
        known.heard_at = self._clock.seconds()
        self._take(known, info, "feed")
        self.told.emit(Told(node, info, authenticated=True))

    def feed_state(self, state: FeedState) -> None:
        """An inventory feed is live now, or is so no more: as long as it is, its node is not asked (DS-92)."""
        if state.state == "live":
            self._live.add(state.origin)
            known = self._nodes.get(state.origin)
            if known is not None and known.poller is not None:
                known.poller.rest()
        elif state.origin in self._live:
            self._live.discard(state.origin)
            self._begin(state.origin)

    def _see(self, entry: NodeEntry, old: NodeEntry | None) -> None:
        node = entry.uuid
        if node is None or node == self._me:
            return
        known = self._nodes.get(node)
        if known is None:
            known = self._nodes[node] = self._new(node, self._poller(node))
            old = None
        assert known.poller is not None, "only this node itself has none"
        stranger = not entry.member and "manual" not in entry.claims
        known.poller.slots = self._strangers_slots if stranger else self._slots
        period = STRANGERS_PERIOD if stranger else PERIOD
        sooner, known.poller.period = period < known.poller.period, period
        if old is None or sooner or _is_news(entry, old):
            self._begin(node)

    def _forget(self, entry: NodeEntry) -> None:
        if entry.uuid is None or entry.uuid == self._me:
            return
        known = self._nodes.pop(entry.uuid, None)
        self._live.discard(entry.uuid)
        if known is not None:
            known.rest()

    # What it does.

    def _new(self, node: str, poller: Poller | None) -> _Node:
        return _Node(self._clock, lambda reading: self.loads.emit(_load(node, reading, self._clock.seconds())), poller)

    def _poller(self, node: str) -> Poller:
        def take(answer: Answer, took: float) -> None:
            known = self._nodes.get(node)
            if known is None or answer.info.host_uuid != node:
                return
            heard = known.heard_at
            if heard is None or self._clock.seconds() - heard > FEED_SECONDS:
                self._take(known, answer.info, "poll", took)
            authenticated = answer.leaf is not None
            self.told.emit(Told(node, answer.info, authenticated, answer.place, answer.leaf))

        return Poller(self._clock, self._slots, lambda: self._ask(node), take, self._uniform, STRANGERS_PERIOD)

    def _begin(self, node: str) -> None:
        known = self._nodes.get(node)
        if self.running and known is not None and known.poller is not None and node not in self._live:
            known.poller.begin()

    def _look(self) -> None:
        info = self._own()
        self._take(self._nodes[self._me], info, "self")
        self.told.emit(Told(self._me, info, authenticated=True))

    def _take(self, known: _Node, info: NodeInfo, source: Source, took: float = 0.0) -> None:
        known.take(_Reading(info, self._clock.seconds(), self._now(), took, source))


def _is_news(entry: NodeEntry, old: NodeEntry) -> bool:
    """Whether there is a reason to ask at once: it is there again, or may be somewhere else."""
    return (entry.presence == "online" and old.presence != "online") or not set(entry.ips) <= set(old.ips)


def _load(node: str, reading: _Reading, now: float) -> CompactTelemetry:
    """What the scheduler is told: the age is that at ``now``, the time that the question took included (DS-94)."""
    load = reading.info.load
    age = load.sample_age_ms
    if age is not None:
        age += round((now - reading.at + reading.took) * 1000)
    return CompactTelemetry(node, load.utilization_percent, load.valid, age, reading.epoch_ms, reading.source)


def _sample(reading: _Reading) -> Sample:
    cpu, memory = reading.info.cpu, reading.info.memory
    return Sample(
        reading.epoch_ms,
        None if cpu is None else cpu.utilization_percent,
        None if memory is None else memory.used_bytes,
        tuple(GpuSample(each.id, each.utilization_percent, each.vram_used_bytes) for each in reading.info.gpus),
    )
