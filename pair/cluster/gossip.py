"""Gossip: statements spread by syncs with each member, often, and at once where there is news (CL-83 to CL-88).

It decides when to sync with whom, and has stored what came of it. What is said
is for :mod:`~pair.cluster.dialogue`, that there is one sync at a time for
:mod:`~pair.cluster.links`, who was there for :mod:`~pair.cluster.contacts`.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults

from pair.cluster.changes import PAIRING, SELF
from pair.cluster.contacts import Contacts
from pair.cluster.dialing import PeerUnreachable
from pair.cluster.dialogue import Dialogue, line, port_of, tell
from pair.cluster.links import PeerLink
from pair.cluster.pins import Caller
from pair.cluster.posting import CallError
from pair.cluster.syncing import Trust
from pair.logs import Logger
from pair.privacy import normalize_error
from pair.protocols.pairing.messages import MalformedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.cluster.changes import Change, Leaving, Taken
    from pair.cluster.dialogue import PeerCaller
    from pair.cluster.links import Outcome
    from pair.cluster.membership import Member, View
    from pair.cluster.pins import PinTable
    from pair.events import Signal
    from pair.interfaces import IErrorBook

FIRST_SECONDS = 2.0
"""After the start."""

NEWS_SECONDS = (0.5, 2.0)
"""After news from a peer, so that those of several are passed on together."""

SYNC_SECONDS = 10.0
"""For one sync, with all that it takes to reach the peer."""

SPREAD_SECONDS = 2.0
"""So long whoever signed something waits for the others to hear it (CL-86)."""

TELL_SECONDS = 3.0
"""So long a node that leaves waits for the others to hear it (CL-88)."""

KNOCK_SECONDS = 10.0
"""Between two syncs with one member for the sake of a hello in its name, which anybody can send."""

JITTER = 0.2
"""Of the interval, up or down, so that the nodes of a cluster do not all sync in step."""

log = Logger()


class Trusted(Trust, Protocol):
    """What gossip asks of :class:`pair.cluster.trust.TrustService`."""

    @property
    def changed(self) -> Signal[Change]:
        """Emits each change of the view."""

    async def take_evidence(self, statements: Sequence[bytes], from_node: str) -> Taken:
        """Merge what a member gave as the reason for a refusal."""


class Told(Struct, frozen=True):
    """Which members (UUIDs) have heard something, and which have not yet."""

    told: tuple[str, ...]
    untold: tuple[str, ...]


class Gossip(Service):
    """Keeps this node's statements the same as those of every member that it reaches.

    Attributes:
        contacts: Who is there.
    """

    name = "gossip"

    def __init__(
        self,
        clock: IReactorTime,
        trust: Trusted,
        caller: PeerCaller,
        addresses: Callable[[str], Iterable[str]],
        errors: IErrorBook,
        instance: str,
        interval: float = 30.0,
        uniform: Callable[[float, float], float] = random.uniform,
        now: Callable[[], int] | None = None,
    ) -> None:
        """It syncs with nobody until it is started.

        Args:
            clock: For all timers.
            trust: The statements of this node.
            caller: Reaches members.
            addresses: Where a member may be besides what its note says, by its UUID, the best first.
            errors: Told of what is wrong between this node and a member.
            instance: The nonce of this run: 8 bytes in hex.
            interval: Seconds between two syncs without news, more or less.
            uniform: A random number between two.
            now: Epoch milliseconds; by default as ``clock`` has it.
        """
        self.contacts = Contacts(clock, errors, now or (lambda: int(clock.seconds() * 1000)))
        self._clock = clock
        self._trust = trust
        self._caller = caller
        self._addresses = addresses
        self._instance = instance
        self._interval = interval
        self._uniform = uniform
        self._links: dict[str, PeerLink] = {}
        self._knocked: dict[str, float] = {}
        self._round: IDelayedCall | None = None
        self._news: IDelayedCall | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self.contacts.seen_again.subscribe(lambda node: self.sync_now((node,)))

    def startService(self) -> None:
        """Begin; the first syncs are made a little later."""
        super().startService()
        self._unsubscribe = self._trust.changed.subscribe(self._changed)
        self._follow()
        self._round = self._clock.callLater(FIRST_SECONDS, self._go_round)

    def stopService(self) -> None:
        """End, and give up the syncs that are under way."""
        super().stopService()
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._round is not None:
            self._round.cancel()
            self._round = None
        self._hush()
        self._link(())

    def sync_now(self, nodes: Iterable[str] | None = None) -> None:
        """Sync with these members, by UUID, or with all; those that are none are passed over."""
        for node in tuple(self._links) if nodes is None else nodes:
            if node in self._links:
                self._links[node].sync()

    def knocked(self, node: str) -> None:
        """Somebody says hello as ``node``: if it is a member, a sync tells what has become of it (CL-91)."""
        now = self._clock.seconds()
        if node in self._links and now >= self._knocked.get(node, now - KNOCK_SECONDS) + KNOCK_SECONDS:
            self._knocked[node] = now
            self.sync_now((node,))

    def spread(self, seconds: float = SPREAD_SECONDS) -> Deferred[Told]:
        """Sync with all members; which of them have what this node has now, after so many seconds at most (CL-86)."""
        self._hush()
        hearing = {node: link.brought_up_to_date() for node, link in tuple(self._links.items())}
        return self._gather({node: each.addCallback("synced".__eq__) for node, each in hearing.items()}, seconds)

    def tell(self, leaving: Leaving, caller: PeerCaller, seconds: float = TELL_SECONDS) -> Deferred[Told]:
        """Tell all members of a cluster that this node has left it (CL-88).

        Args:
            leaving: What it was, and what to say.
            caller: Reaches them by the pins of before.
            seconds: So long at most.
        """
        hearing = {}
        for member in _others(leaving.view.members, leaving.pins):
            send = line(caller, member, self._places(member))
            hearing[member.node] = Deferred.fromCoroutine(tell(send, leaving, self._instance))
        return self._gather(hearing, seconds)

    # When.

    def _go_round(self) -> None:
        jitter = self._interval * JITTER
        self._round = self._clock.callLater(self._interval + self._uniform(-jitter, jitter), self._go_round)
        self.sync_now()

    def _changed(self, change: Change) -> None:
        self._follow()
        if change.after is None:
            self._hush()
        elif change.news_from in (SELF, PAIRING):
            self._sync_within(0.0)
        else:
            self._sync_within(self._uniform(*NEWS_SECONDS))

    def _sync_within(self, seconds: float) -> None:
        """Sync with all after ``seconds``, if not before; never in the turn of the change that is the reason."""
        if self._news is None:
            self._news = self._clock.callLater(seconds, self._pass_on)
        elif self._news.getTime() > self._clock.seconds() + seconds:
            self._news.reset(seconds)

    def _pass_on(self) -> None:
        self._news = None
        self.sync_now()

    def _hush(self) -> None:
        """What was to be passed on soon is passed on now, or never."""
        if self._news is not None:
            self._news.cancel()
            self._news = None

    def _follow(self) -> None:
        """A link to each member, and to nobody else."""
        view = self._trust.view
        members = () if view is None else _others(view.members, self._trust.pins)
        self._link([each.node for each in members])
        if view is None:
            self.contacts.disband()
        else:
            self.contacts.keep(self._links.keys())

    def _link(self, nodes: Collection[str]) -> None:
        for node in self._links.keys() - nodes:
            self._links.pop(node).stop()
            self._knocked.pop(node, None)
        for node in nodes:
            if node not in self._links:
                self._links[node] = PeerLink(partial(self._begin, node), lambda: self._trust.root)

    # With whom, and what comes of it.

    def _begin(self, node: str) -> Deferred[Outcome]:
        return Deferred.fromCoroutine(self._sync(node))

    async def _sync(self, node: str) -> Outcome:
        view = self._trust.view
        member = None if view is None else view.member(node)
        if view is None or member is None:
            return "unreachable"
        dialogue = Dialogue(self._trust, self._instance, line(self._caller, member, self._places(member)))
        outcome = await self._hold(dialogue, view, member)
        if dialogue.address is not None and node in self._links:
            self.contacts.answered(node, dialogue.address)
        if dialogue.received and self._trust.pins.pin(node) == member.leaf:
            await self._trust.take(dialogue.received, Caller("member", node, member.incarnation), node, member.leaf)
        if dialogue.evidence:
            await self._trust.take_evidence(dialogue.evidence, node)
        self.contacts.judge(outcome)
        return outcome

    async def _hold(self, dialogue: Dialogue, view: View, member: Member) -> Outcome:
        def too_late(_: object, __: float) -> Outcome:
            raise PeerUnreachable("timeout")

        began = self._clock.seconds()
        talk = Deferred.fromCoroutine(dialogue.run(view))
        talk.addTimeout(SYNC_SECONDS, self._clock, too_late)
        try:
            return await talk
        except PeerUnreachable as miss:
            log.debug("{node} was not reached for a sync: {reason}.", node=member.node, reason=miss.reason)
            if dialogue.address is None and not miss.met and member.node in self._links:
                self.contacts.missed(member, port_of(member), miss, began)
            return "unreachable"
        except (CallError, MalformedError) as error:
            log.debug("A sync with {node} failed: {error}.", node=member.node, error=normalize_error(error))
            return "failed"

    def _places(self, member: Member) -> tuple[str, ...]:
        return self.contacts.places(member.node, (*self._addresses(member.node), *member.addresses))

    def _gather(self, hearing: Mapping[str, Deferred[bool]], seconds: float) -> Deferred[Told]:
        """Who has heard, of those who may hear, when all is said or the time is over."""
        limited = [each.addTimeout(seconds, self._clock, lambda _, __: False) for each in hearing.values()]

        def told(heard: list[bool]) -> Told:
            by_node = dict(zip(hearing, heard, strict=True))
            return Told(
                tuple(node for node, one in by_node.items() if one),
                tuple(node for node, one in by_node.items() if not one),
            )

        return gatherResults(limited).addCallback(told)


def _others(members: Iterable[Member], pins: PinTable) -> Iterator[Member]:
    """Those who can be dialled: all members but this node itself."""
    return (each for each in members if pins.pin(each.node) is not None)
