"""The listening sockets of one facade: all addresses or none (PX-5, PX-95)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IProtocolFactory

Listen = Callable[[int, IProtocolFactory, str], IListeningPort]
"""``(port, factory, address)`` to a listening port; raises ``CannotListenError``."""

_NO_SUCH_FAMILY = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})


class PortTaken(Exception):  # noqa: N818 - the words of PX-94
    """Another program listens on the port."""


class PortDenied(Exception):  # noqa: N818 - as above
    """The system does not let us listen on the port: it is reserved, or needs rights that we do not have."""


class Listeners:
    """Open sockets on one port number."""

    def __init__(self, port: int, addresses: tuple[str, ...], ports: Sequence[IListeningPort]) -> None:
        self.port = port
        self.addresses = addresses
        self._ports = ports

    def close(self) -> Deferred[None]:
        """Accept no more; fires when the sockets are closed."""
        closing = DeferredList([maybeDeferred(each.stopListening) for each in self._ports], consumeErrors=True)
        return closing.addCallback(lambda _: None)


def open_listeners(listen: Listen, factory: IProtocolFactory, addresses: Sequence[str], port: int) -> Listeners:
    """Listen on ``port`` at every address, or at none.

    The wildcard or loopback address of a family that this host does not have
    is left out (a host without IPv6 is IPv4 only). Port 0 means the kernel's choice, the
    same for all addresses.

    Raises:
        PortTaken: somebody listens at one of the addresses.
        PortDenied: the system refuses, or an address is not of this host.
    """
    opened: list[IListeningPort] = []
    bound: list[str] = []
    try:
        for address in addresses:
            try:
                listening = listen(port, factory, address)
            except CannotListenError as refused:
                number = refused.socketError.errno
                if number in _NO_SUCH_FAMILY and address in ("::", "::1") and bound:
                    continue
                raise (PortTaken if number == errno.EADDRINUSE else PortDenied)(port, address) from refused
            opened.append(listening)
            bound.append(address)
            host = listening.getHost()
            assert isinstance(host, IPv4Address | IPv6Address), "a TCP port has an IP address"
            port = host.port
    except (PortTaken, PortDenied):
        for each in opened:
            each.stopListening()
        raise
    return Listeners(port, tuple(bound), opened)
