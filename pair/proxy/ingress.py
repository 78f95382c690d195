"""What members of the cluster send to a facade's port over mutual TLS (PX-86 to PX-89).

It is served by an engine of this node and never routed: a request that has
made its hop ends here. Who is a member is asked for each request; whoever is
none gets the refusal that is handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from twisted.internet.interfaces import IProtocolFactory

from pair.cluster.pins import PeerLeaf
from pair.protocols.http_server import Limits
from pair.proxy import trail
from pair.proxy.direct import home_engine
from pair.proxy.replies import refusal
from pair.proxy.request import ClientRequest
from pair.proxy.served import Served

if TYPE_CHECKING:
    from pair.protocols.http_exchange import Exchange
    from pair.proxy.plane import Plane
    from pair.proxy.replies import Refusal

DRAINED = ((b"X-Pair-Fault", b"drained"),)
"""Tells the sender that this node takes no new work, though its engine runs (PX-88)."""

LIMITS = Limits(head_bytes=17 * 1024, fields=105, held_bytes=0)
"""What a member may send: the longest head of a client has more in it when it comes here (PX-9, PX-53), and no byte of
a next request may come before the answer has ended (PX-11)."""

HOP = b"1"
"""``X-Pair-Hop`` of a request that was routed once, by the node that sends it (PX-80)."""


class NotMember(Struct, frozen=True):
    """The refusal of a caller who is no member: a whole answer, evidence included (CL-17)."""

    status: int
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Peers(Struct, frozen=True):
    """How a facade meets other nodes.

    ``secure`` puts mutual TLS before a factory. ``objection`` says why a
    caller, by its leaf and its address, is served nothing; None for a member.
    """

    secure: Callable[[IProtocolFactory], IProtocolFactory]
    objection: Callable[[PeerLeaf | None, str], NotMember | None]


class Ingress:
    """Takes the exchanges of members on one facade.

    Args:
        plane: the shared parts.
        facade: its name.
        peers: who is a member.
        next_id: gives the id of a request.

    Attributes:
        secure: puts mutual TLS before a factory.
        stopping: what comes is refused.
    """

    def __init__(self, plane: Plane, facade: str, peers: Peers, next_id: Callable[[], str]) -> None:
        self.stopping = False
        self._plane = plane
        self._facade = facade
        self.secure = peers.secure
        self._objection_to = peers.objection
        self._next_id = next_id

    def received(self, exchange: Exchange) -> None:
        """A request's head is complete."""
        stranger = self._objection_to(exchange.peer_leaf, exchange.peer)
        if stranger is not None:
            exchange.respond(stranger.status, stranger.fields, stranger.body, last=True)
            return
        request = ClientRequest(exchange, self._facade, self._next_id(), self._plane.monotonic())
        why = self._objection(request)
        engine = None if why is not None else self._engine(request)
        if why is None and engine is None:
            why = refusal("no_local_engine")
        if why is None and self._plane.engines.inventory().drained:
            request.refuse(refusal("no_local_engine"), DRAINED)
            self._ended(request)
            return
        if why is None and not self._plane.active.take(1):
            why = refusal("overloaded", retry_after=1)
        if why is not None:
            request.refuse(why)
            self._ended(request)
            return
        assert engine is not None, "without one it was refused"
        Served(self._plane, request, engine, self._served, hop=2).begin()

    def _objection(self, request: ClientRequest) -> Refusal | None:
        head = request.exchange.head
        if head.values(b"x-pair-hop") != [HOP]:
            return refusal("loop")
        # As sent: any other spelling of a path is another path.
        role = None if request.route is None or request.target != head.target else request.route.role
        version = role == "identity" and (request.method, request.path) == ("GET", "/api/version")
        if role not in ("inference", "owner") and not version:
            return refusal("peer_path")
        return refusal("stopping") if self.stopping else None

    def _engine(self, request: ClientRequest) -> str | None:
        """The engine that the sender chose, or the facade's first; None where that does not run (PX-88)."""
        named = request.exchange.head.value(b"x-pair-engine")
        if named is None:
            return home_engine(self._plane, self._facade)
        running = {each.status.id for each in self._plane.engines.inventory().engines if each.status.routable}
        engine = named.decode("latin-1")
        return engine if engine in running else None

    def _served(self, request: ClientRequest) -> None:
        self._plane.active.give(1)
        self._ended(request)

    def _ended(self, request: ClientRequest) -> None:
        self._plane.meters.request_ended(request)
        trail.request_ended(request, self._plane.monotonic)
