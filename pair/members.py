"""Requests to members: the way there, and which members the scheduler may choose (PX-52, PX-53, RT-15).

It knows nobody by itself: who is there and who is trusted is asked of the
directory and of the pins, at each use (DS-48).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IStreamClientEndpoint
from zope.interface import implementer

from pair.cluster.dialing import PeerUnreachable
from pair.neighbours import FACADES, SERVICES
from pair.protocols.calls import Target
from pair.protocols.http_client import DialTimeoutError, HandshakeError
from pair.protocols.pool import ClientPool
from pair.records.engines import NodeInventory
from pair.records.nodes import NodeRekeyed, PresenceChanged
from pair.routing.candidates import NodeFacts
from pair.supervision.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from twisted.internet.interfaces import IProtocol, IProtocolFactory, IReactorTime

    from pair.cluster.getting import PeerGetter
    from pair.cluster.pins import PinTable
    from pair.discovery.directory import DirectoryService
    from pair.proxy.scheduling import SchedulerService
    from pair.records.nodes import NodeEvent
    from pair.routing.dialects import Dialect

IDLE_SECONDS = 60.0
"""For which a connection with a member rests (PX-52)."""

WARM_SECONDS = 20.0
"""Between two looks whether one is ready with each member that may serve."""

SILENT_SECONDS = 12.0
"""Without a sign of life, after which a member is asked whether it lives (PX-64)."""

KNOCK_SECONDS = 2.0
"""In which it must show that."""


class Members(Service):
    """Provides :class:`pair.proxy.plane.Members`.

    Args:
        clock: for time limits.
        scheduling: is told who may serve.
        dialects: what engines speak, by their kind.
        directory: where members are, and whether they are there.
        getter: reaches them.
        pins: who is one.

    Attributes:
        pool: connections with them.
    """

    name = "members"

    def __init__(
        self,
        clock: IReactorTime,
        scheduling: SchedulerService,
        dialects: Mapping[str, Dialect],
        directory: DirectoryService,
        getter: PeerGetter,
        pins: Callable[[], PinTable],
    ) -> None:
        self.pool = ClientPool(clock, self._endpoint)
        self._directory = directory
        self._getter = getter
        self._pins = pins
        self._targets: dict[tuple[str, str], Target] = {}
        self._scheduling = scheduling
        self._dialects = dialects
        self._offers: dict[str, NodeInventory] = {}
        self._clock = clock
        self._heard_at: dict[str, float] = {}
        self._knocking: set[str] = set()
        self._dead: set[str] = set()
        self._warming = Repeating(clock, WARM_SECONDS, self._warm, "Warm connections with members")
        directory.events.subscribe(self._node_event)

    def startService(self) -> None:
        """Keep connections ready."""
        super().startService()
        self._warming.startService()

    def stopService(self) -> Deferred[None]:
        """Abort all connections; fires when no socket is left."""
        super().stopService()
        return self._warming.stopService().addCallback(lambda _: self.pool.close())

    # What the data path asks.

    def target(self, node: str, facade: str) -> Target | None:
        """See :class:`pair.proxy.plane.Members`."""
        if self._pins().pin(node) is None:
            return None
        known = self._targets.get((node, facade))
        if known is None:
            places = self._directory.places(node, FACADES[facade])
            if places:
                authority = f"{node}:{places[0].port}".encode("ascii")
                known = Target(f"{node}/{facade}", node, places[0].port, authority, idle_seconds=IDLE_SECONDS)
                self._targets[node, facade] = known
        return known

    def silence(self, node: str) -> float:
        """See :class:`pair.proxy.plane.Members`."""
        return self._clock.seconds() - self._heard_at.get(node, 0.0)

    def gone(self, node: str) -> bool:
        """See :class:`pair.proxy.plane.Members`."""
        entry = self._directory.get(node)
        if entry is None or entry.presence == "offline":
            return True
        # To discovery it lives for a minute from its last byte on, and a stream may not hang for so long.
        if node not in self._dead | self._knocking and self.silence(node) >= SILENT_SECONDS:
            self._knock(node)
        return node in self._dead

    def moved(self, node: str) -> None:
        """See :class:`pair.proxy.plane.Members`."""
        self.heard(node)
        self._directory.note(node, "inference")

    # What it is told.

    def heard(self, node: str) -> None:
        """A member has shown that it lives."""
        self._heard_at[node] = self._clock.seconds()
        self._dead.discard(node)

    # What the scheduler is told.

    def offered(self, offer: NodeInventory) -> None:
        """A member offers this from now on."""
        self._offers[offer.node] = offer
        self._renew(offer.node)

    def withdrawn(self, node: str) -> None:
        """One is no member any more."""
        self._offers.pop(node, None)
        self._heard_at.pop(node, None)
        self._dead.discard(node)
        self._renew(node)

    def _renew(self, node: str) -> None:
        """What a member offers, or its presence, or whether it is one, is another than before."""
        scheduling, entry = self._scheduling, self._directory.get(node)
        if entry is None or entry.me or not entry.member:
            scheduling.drop_peer(node)
            return
        # One that has told nothing yet is known all the same, so that people see why nothing goes there (RT-67).
        offer = self._offers.get(node) or NodeInventory(node)
        spoken = {each.status.id: self._dialects.get(each.status.kind) for each in offer.engines}
        scheduling.set_peer(
            NodeFacts(
                offer,
                {id: dialect for id, dialect in spoken.items() if dialect is not None},
                online=entry.presence != "offline",
                trusted=entry.trusted,
                compatible=all(each.code != "incompatible" for each in entry.warnings),
                suspect=entry.presence == "suspect",
            )
        )

    def trust_changed(self, _: object = None) -> None:
        """Who is a member may be another: connections to those who are none are gone already (CL-18)."""
        for node, facade in tuple(self._targets):
            if self._pins().pin(node) is None:
                self.pool.drop(self._targets.pop((node, facade)).key)

    def _node_event(self, event: NodeEvent) -> None:
        # What is rekeyed is no member yet, and another presence comes with a change of the entry.
        if isinstance(event, NodeRekeyed | PresenceChanged):
            return
        node = event.entry.uuid
        if node is not None:
            for facade in FACADES:
                self._targets.pop((node, facade), None)
            self._renew(node)

    def _knock(self, node: str) -> None:
        self._knocking.add(node)
        places = self._directory.places(node, SERVICES["inventory"])
        began = self._clock.seconds()
        self._getter.knock(node, places, True, KNOCK_SECONDS).addCallback(self._knocked, node, began)

    def _knocked(self, opened: bool, node: str, began: float) -> None:
        self._knocking.discard(node)
        if opened:
            self.heard(node)
        elif self._heard_at.get(node, 0.0) < began:
            self._dead.add(node)

    def _warm(self) -> None:
        for offer in self._offers.values():
            entry = self._directory.get(offer.node)
            if entry is not None and entry.presence == "online":
                for facade in _served(offer, self._dialects):
                    target = self.target(offer.node, facade)
                    if target is not None and FACADES[facade] in entry.services:
                        self.pool.warm(target)

    def _endpoint(self, target: Target) -> IStreamClientEndpoint:
        node, _, facade = target.key.partition("/")
        return _Endpoint(self._directory, self._getter, node, FACADES[facade])


def _served(offer: NodeInventory, dialects: Mapping[str, Dialect]) -> Iterable[str]:
    """The facades for which a node has an engine that runs."""
    running = (dialects.get(each.status.kind) for each in offer.engines if each.status.routable)
    return sorted({facade for dialect in running if dialect is not None for facade in dialect.routes})


@implementer(IStreamClientEndpoint)
class _Endpoint:
    """A service of a member, at the first of its places where it proves to be the member."""

    def __init__(self, directory: DirectoryService, getter: PeerGetter, node: str, service: str) -> None:
        self._directory = directory
        self._getter = getter
        self._node = node
        self._service = service

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """See :class:`IStreamClientEndpoint`. The handshake is done when it fires."""
        return Deferred.fromCoroutine(self._connect(protocolFactory))

    async def _connect(self, factory: IProtocolFactory) -> IProtocol:
        places = self._directory.places(self._node, self._service)
        try:
            place, protocol = await self._getter.reach(self._node, places, factory)
        except PeerUnreachable as miss:
            self._directory.doubt_place(self._node, self._service)
            if miss.reason == "timeout":
                raise DialTimeoutError from None
            raise (HandshakeError() if miss.reason == "certificate" else ConnectError()) from None
        self._directory.confirm(self._node, self._service, place)
        return protocol
