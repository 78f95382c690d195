"""Dials members: one of a node's addresses behind which its pinned leaf is shown (CL-12, CL-13).

It must not know where addresses come from, nor what is said over the connection.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, Protocol

from pair.cluster.membership import MEMBERS_MAX
from pair.cluster.tls import ClientSide, NotMetError, PeerTransport, client_factory
from pair.protocols.dial import CONNECT_SECONDS, DialError, dial

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from twisted.internet.interfaces import IProtocol, IProtocolFactory

    from pair.cluster.connections import PeerConnections
    from pair.cluster.pins import PinTable
    from pair.cluster.tls import Credentials

T = TypeVar("T")

UnreachableReason = Literal["no_pin", "no_address", "unresolvable", "unreachable", "timeout", "refused", "certificate"]
"""Why a peer is not reached.

``no_pin``: it is no member, and was not dialled, or ceased to be one meanwhile;
``no_address``: none is known; ``unresolvable``, ``unreachable``: the name has
no address, no way leads there; ``refused``: no connection, no handshake, or one
that was lost before the answer began (CL-19); ``timeout``: the same, for want of
time; ``certificate``: wherever a leaf was shown, it was not the pinned one.
"""

_BY_WEIGHT = get_args(UnreachableReason)


class PeerUnreachable(Exception):  # noqa: N818 - a state of affairs, and named so throughout
    """A peer was not reached.

    Attributes:
        reason: Why.
        met: Whether its pinned leaf was shown all the same, so that it was there.
    """

    def __init__(self, reason: UnreachableReason, met: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.met = met


class PinnedDial:
    """Dials members by their pins.

    Args:
        reactor: Makes the connections.
        credentials: This node's.
        pins: The present pin table.
        connections: Where connections are known while they are open.
    """

    def __init__(
        self, reactor: Any, credentials: Credentials, pins: Callable[[], PinTable], connections: PeerConnections
    ) -> None:
        self._reactor = reactor
        # To make one costs about half a handshake, and most dials are to peers that were dialled before.
        self._side = lru_cache(MEMBERS_MAX)(partial(ClientSide, credentials))
        self._pins = pins
        self._connections = connections

    def connect(
        self, node: str, service_port: int, factory: IProtocolFactory, addresses: Iterable[str]
    ) -> Deferred[IProtocol]:
        """Connect to ``node``, at the first of its addresses that it answers.

        Args:
            node: The member's UUID.
            service_port: The port of the wanted service.
            factory: Builds the protocol when the handshake is done and the
                peer still has its pin. It has the first word.
            addresses: Tried in turn: literals, an IPv6 one with a zone where it
                needs one, or names.

        Returns:
            The protocol, connected. Fails with :class:`PeerUnreachable`;
            cancelled, it gives up.
        """
        return Deferred.fromCoroutine(
            first_reached(addresses, lambda address: self.reach(node, address, service_port, factory))
        )

    async def reach(self, node: str, address: str, service_port: int, factory: IProtocolFactory) -> IProtocol:
        """As :meth:`connect`, at one address.

        Raises:
            PeerUnreachable: It was not reached there.
        """
        pin = self._pins().pin(node)
        if pin is None:
            raise PeerUnreachable("no_pin")
        tls = client_factory(self._side(pin), Factory.forProtocol(_Vacancy), self._connections, self._reactor)
        try:
            transport = await dial(self._reactor, address, service_port, tls, CONNECT_SECONDS)
            assert isinstance(transport, PeerTransport)
            leaf = await transport.met()
        except (DialError, NotMetError) as error:
            raise PeerUnreachable(error.reason) from None
        if self._pins().pin(node) != leaf.der:
            transport.abortConnection()
            raise PeerUnreachable("no_pin")
        protocol = factory.buildProtocol(transport.getPeer())
        assert protocol is not None, "whoever dials wants one"
        transport.wrappedProtocol = protocol
        protocol.makeConnection(transport)
        return protocol


class _Vacancy(Protocol):
    """Holds the place of the service's protocol, which is built when the peer is known and still has its pin."""


async def first_reached(addresses: Iterable[str], attempt: Callable[[str], Awaitable[T]]) -> T:
    """What ``attempt`` gives for the first of ``addresses`` at which a peer is reached.

    Raises:
        PeerUnreachable: It is at none of them, or has no pin any more.
    """
    misses = []
    for address in addresses:
        try:
            return await attempt(address)
        except PeerUnreachable as miss:
            if miss.reason == "no_pin":
                raise
            misses.append(miss)
    raise verdict(misses)


def verdict(misses: Iterable[PeerUnreachable]) -> PeerUnreachable:
    """The one that tells most. Another's leaf counts only if the peer was met nowhere."""
    none = PeerUnreachable("no_address")
    return max(misses, key=lambda each: (each.met, _BY_WEIGHT.index(each.reason)), default=none)
