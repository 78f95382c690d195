"""Nodes that pair with one another over a network that a test has in its hands, on one clock."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError

from pair.cluster.changes import Objection
from pair.cluster.identity import mint
from pair.cluster.invitations import Invitations
from pair.cluster.membership import Member, View, evaluate
from pair.cluster.refusing import PairingReply
from pair.protocols.pairing import Offer, Party

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from twisted.internet.task import Clock

    from pair.cluster.promptbook import Detail
    from pair.privacy import Secret
    from pair.protocols.pairing import Peer, Reason
    from pair.records.cluster import Invitation
    from pair.records.errors import Subject

LATENCY = 0.002
EPOCH_MS = 1_700_000_000_000


class FakeTrust:
    """A trust service without statements: it knows who is in which cluster, and what it was asked to store.

    Attributes:
        stored: What was stored, by the name of the call, in order.
        failing: What the next calls fail with.
        slow: While it is set, a call waits for it.
        objects: What :meth:`objection` says.
    """

    def __init__(self, uuid: str, name: str) -> None:
        self.view: View | None = None
        self.stored: list[str] = []
        self.failing: Exception | None = None
        self.slow: Deferred[None] | None = None
        self.objects: Reason | None = None
        self._uuid = uuid
        self._name = name
        self._founding = ""
        self._admitted: set[str] = set()

    def least_epoch(self) -> int:
        return EPOCH_MS

    def objection(self, peer: Peer) -> Reason | None:
        return self.objects

    def offer_objection(self, peer: Peer, offer: Offer) -> Reason | None:
        return None if self.view is None else "already_clustered"

    async def admit(self, peer: Peer, least_epoch: int, invite: str) -> Offer:
        await self._write("admit")
        if self.view is None:
            self._founding = invite
            self.enter(str(UUID(bytes=Random(invite).randbytes(16))), f"{self._name}'s cluster", self._uuid)
        assert self.view is not None
        self._admitted.add(peer.uuid)
        return Offer(self.view.cluster, self.view.name, (b"found", b"admit"))

    async def join(self, peer: Peer, offer: Offer) -> tuple[bytes, ...]:
        await self._write("join")
        if self.view is not None:
            raise Objection("already_clustered")
        self.enter(offer.cluster, offer.name, self._uuid, peer.uuid)
        return (self._uuid.encode(), b"note")

    async def keep(self, statements: Sequence[bytes], source: str) -> None:
        await self._write("keep")
        assert self.view is not None
        members = [each.node for each in self.view.members]
        self.enter(self.view.cluster, self.view.name, *members, statements[0].decode())

    async def retract(self, invite: str) -> None:
        await self._write("retract")
        if invite == self._founding and len(self._admitted) == 1 and self.view and len(self.view.members) == 1:
            self.view = None

    def enter(self, cluster: str, name: str, *members: str) -> None:
        """Be in a cluster with these."""
        view = evaluate((), cluster, lambda *_: True)
        self.view = replace(
            view, name=name, members=tuple(Member(each, b"", 1, each.encode(), None, 0) for each in members)
        )

    async def _write(self, what: str) -> None:
        if self.slow is not None:
            await self.slow
        if self.failing is not None:
            raise self.failing
        self.stored.append(what)


class Entries:
    """An error book that remembers."""

    def __init__(self) -> None:
        self.raised: list[str] = []

    def raise_entry(self, id: str, *, subject: Subject | None = None, **values: Any) -> None:
        self.raised.append(id)

    def clear(self, id: str) -> None:
        pass


class Reply(Struct, frozen=True):
    """What came back over the network."""

    status: int
    mac: bytes | None
    body: bytes


Fate = Literal["pass", "lose request", "lose reply", "hang up", "twice", "flip request", "flip reply", "flip mac"]
"""What the network does to one exchange; ``hang up`` breaks the connection when the reply is due."""


class Message(Struct):
    """A request as it was sent, and the answer to it when there is one."""

    source: str
    address: str
    body: bytes
    mac: bytes | None
    seconds: float
    sent: float
    reply: PairingReply | None = None


class Network:
    """Carries requests to the services at its addresses.

    Attributes:
        places: By address.
        down: Addresses at which nobody answers.
        fate: Asked of each message.
        sent: All messages so far.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.places: dict[str, Node] = {}
        self.down: set[str] = set()
        self.fate: Callable[[Message], Fate] = lambda _: "pass"
        self.sent: list[Message] = []

    def bodies(self, *parts: bytes) -> list[Message]:
        """The messages that have one of these in their bodies."""
        return [each for each in self.sent if any(part in each.body for part in parts)]

    def send(self, source: str, address: str, body: bytes, mac: bytes | None, seconds: float) -> Deferred[Reply]:
        """Send one."""
        message = Message(source, address, body, mac, seconds, self.clock.seconds())
        self.sent.append(message)
        return _Passage(self, message, self.fate(message)).reply

    def run(self, seconds: float) -> None:
        """Let time pass, from one event to the next."""
        end = self.clock.seconds() + seconds
        while due := [each.getTime() for each in self.clock.getDelayedCalls() if each.getTime() <= end]:
            self._turn(min(due))
        self._turn(end)

    def _turn(self, instant: float) -> None:
        """It is now so late. To advance by the difference might miss it by one rounding."""
        self.clock.rightNow = max(self.clock.rightNow, instant)
        self.clock.advance(0)


class _Passage:
    """One message on its way, and its answer."""

    def __init__(self, network: Network, message: Message, fate: Fate) -> None:
        self._network = network
        self._clock = network.clock
        self._message = message
        self._fate = fate
        self._answer: Deferred[PairingReply] | None = None
        self.reply: Deferred[Reply] = Deferred(self._given_up)
        self._patience = self._clock.callLater(message.seconds, self._fail, TimeoutError())
        self._timers = [self._patience]
        if fate != "lose request":
            self._timers.append(self._clock.callLater(LATENCY, self._arrive))
        if fate == "twice":
            self._clock.callLater(3 * LATENCY, self._again)

    def _arrive(self) -> None:
        message = self._message
        node = self._network.places.get(message.address)
        if node is None or message.address in self._network.down:
            self._fail(ConnectError())
            return
        body, mac = message.body, message.mac
        if self._fate == "flip request":
            body = _flip(body)
        if self._fate == "flip mac" and mac is not None:
            mac = _flip(mac)
        self._answer = node.service.receive(body, mac, message.source)
        self._answer.addCallbacks(self._answered, lambda failure: failure.trap(Exception) and None)

    def _again(self) -> None:
        message = self._message
        node = self._network.places.get(message.address)
        if node is not None:
            node.service.receive(message.body, message.mac, message.source).addErrback(lambda _: None)

    def _answered(self, reply: PairingReply) -> None:
        self._message.reply = reply
        body = _flip(reply.body) if self._fate == "flip reply" else reply.body
        if self._fate == "hang up":
            self._timers.append(self._clock.callLater(LATENCY, self._fail, ConnectError()))
        elif self._fate != "lose reply":
            came = Reply(reply.status, reply.mac, body)
            self._timers.append(self._clock.callLater(LATENCY, self._come, came))

    def _come(self, reply: Reply) -> None:
        self._rest()
        self.reply.callback(reply)

    def _fail(self, error: Exception) -> None:
        self._rest()
        self._hang_up()
        self.reply.errback(error)

    def _given_up(self, _: Deferred[Reply]) -> None:
        self._rest()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._answer is not None:
            self._answer.cancel()

    def _rest(self) -> None:
        for timer in self._timers:
            if timer.active():
                timer.cancel()


class Node:
    """One node with its invitations.

    Attributes:
        party: Who it is.
        trust: Its cluster.
        service: Its invitations.
        news: What :attr:`Invitations.changed` emitted.
        paired: What :attr:`Invitations.paired` emitted.
        rows: Its audit; with ``audit_fails`` none is written.
        entries: Its error book.
        known: Where it knows others to be, by UUID.
    """

    def __init__(self, network: Network, name: str, address: str, seed: int = 0) -> None:
        identity = mint(EPOCH_MS / 1000)
        self.network = network
        self.address = address
        self.party = Party(identity.uuid, name, identity.key, identity.leaf)
        self.trust = FakeTrust(identity.uuid, name)
        self.known: dict[str, list[str]] = {}
        self.entries = Entries()
        self.rows: list[tuple[str, str | None, str | None, str | None, Detail]] = []
        self.news: list[Invitation] = []
        self.paired: list[Invitation] = []
        self.enabled = True
        self.audit_fails = False
        self.zones: list[str] = []
        self._random = Random(f"{name} {seed}")
        network.places[address] = self
        self.start()

    def start(self) -> None:
        """Start, or start anew: what was in memory is gone."""
        self.service = Invitations(
            self.network.clock,
            lambda: self.party,
            self.trust,
            self,
            lambda node: self.known.get(node, []),
            lambda address: address == self.address,
            self.entries,  # type: ignore[arg-type]  # those of its calls that are made
            self.audit,
            entropy=self._random.randbytes,
            below=self._random.randrange,
            pairing_enabled=lambda: self.enabled,
            zones=lambda: self.zones,
            now=lambda: EPOCH_MS + int(self.network.clock.seconds() * 1000),
        )
        self.service.changed.subscribe(self.news.append)
        self.service.paired.subscribe(self.paired.append)
        self.service.startService()

    def post(
        self, address: str, port: int, path: str, body: bytes, headers: Mapping[bytes, bytes], seconds: float
    ) -> Deferred[Reply]:
        """See :class:`~pair.cluster.means.PlainCaller`."""
        assert (port, path) == (14321, "/v1/cluster/pairing")
        assert headers[b"Content-Type"] == b"application/json"
        return self.network.send(self.address, address, body, headers.get(b"X-Pair-Mac"), seconds)

    async def audit(
        self, event: str, actor: str | None, subject: str | None, cluster: str | None, detail: Detail
    ) -> None:
        """See :class:`~pair.cluster.promptbook.Audit`."""
        if self.audit_fails:
            raise OSError
        self.rows.append((event, actor, subject, cluster, detail))

    @property
    def cluster(self) -> str | None:
        """The cluster that it is in."""
        return None if self.trust.view is None else self.trust.view.cluster

    @property
    def states(self) -> list[tuple[str, str | None]]:
        """Where its invitations stand, the newest last."""
        return [(each.state, each.reason) for each in self.service.all()]

    def invite(self, other: Node | str, kind: Any = "pin") -> Caught:
        """Invite another; the network carries the hello at once."""
        target = other if isinstance(other, str) else other.address
        invited = Caught(self.service.invite(target, kind))
        self.network.run(0.1)
        return invited

    def accept(self, code: Secret | str, id: str | None = None) -> Caught:
        """A person types a code; nothing is carried yet."""
        return Caught(self.service.accept(id, code if isinstance(code, str) else code.reveal()))


class Caught:
    """What became of a Deferred.

    Attributes:
        error: What it failed with.
        done: Whether it fired.
    """

    def __init__(self, deferred: Deferred[Any]) -> None:
        self.deferred = deferred
        self.done = False
        self.error: Any = None
        self._value: Any = None
        deferred.addCallbacks(self._came, self._failed)

    @property
    def value(self) -> Any:
        """What it fired with."""
        assert self.done, "it has not fired"
        assert self.error is None, self.error
        return self._value

    @property
    def code(self) -> Secret:
        """The code of an invitation that was made."""
        code: Secret = self.value[1]
        return code

    @property
    def refused(self) -> tuple[int, str]:
        """Status and code of the refusal."""
        return self.error.status, self.error.code

    def _came(self, value: Any) -> None:
        self.done, self._value = True, value

    def _failed(self, failure: Any) -> None:
        self.done, self.error = True, failure.value


def wrong(code: Secret) -> str:
    """Another code than this."""
    plain = code.reveal()
    return plain[:-1] + str((int(plain[-1], 16) + 1) % 10)


def _flip(data: bytes) -> bytes:
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
