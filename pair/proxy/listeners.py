"""The listening sockets of one facade: all addresses or none, and what becomes of old ones (PX-5, PX-95, PX-96)."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Callable, Sequence

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IDelayedCall, IListeningPort, IProtocolFactory, IReactorTime

from pair.engines.alias import LOOPBACK

LINGER = 60.0
"""Seconds for which sockets accept after others took their place (PX-96): a client may have learnt their port."""

Listen = Callable[[int, IProtocolFactory, str], IListeningPort]
"""``(port, factory, address)`` to a listening port; raises ``CannotListenError``."""

_NO_SUCH_FAMILY = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
_NO_SUCH_ADDRESS = _NO_SUCH_FAMILY | {errno.EINVAL, socket.EAI_NONAME}  # the last two: an IPv6 zone is wrong


class PortTaken(Exception):  # noqa: N818 - the words of PX-94
    """Another program listens on the port."""


class PortDenied(Exception):  # noqa: N818 - as above
    """The system does not let us listen there.

    The port is reserved, or needs rights that we do not have, or the address
    is not of this host.

    Attributes:
        port: that was wanted.
        address: at which it was refused.
        errno: what the system said.
    """

    def __init__(self, port: int, address: str, errno: int) -> None:
        super().__init__(port, address, errno)
        self.port = port
        self.address = address
        self.errno = errno

    @property
    def lacks_address(self) -> bool:
        """Whether it is the address that is at fault, and not the port."""
        return self.errno in _NO_SUCH_ADDRESS


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


def with_loopback(addresses: Sequence[str]) -> tuple[str, ...]:
    """``addresses``, and those of loopback where none of them includes one.

    Only clients on loopback are served in the clear, so that a facade that is
    not to be reached there could not be used at all. Pure.
    """
    found = map(ipaddress.ip_address, addresses)
    return (*addresses, *(() if any(each.is_unspecified or each.is_loopback for each in found) else LOOPBACK))


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
                number = refused.socketError.errno or 0
                if number in _NO_SUCH_FAMILY and address in ("::", "::1") and bound:
                    continue
                if number == errno.EADDRINUSE:
                    raise PortTaken(port, address) from refused
                raise PortDenied(port, address, number) from refused
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


class Sockets:
    """All sockets of one facade: those that it keeps, and those that only accept for a while yet.

    Args:
        clock: for that while.
        bind: opens sockets on a port; raises ``PortTaken`` or ``PortDenied``.

    Attributes:
        kept: the last one of them is where clients are sent.
    """

    def __init__(self, clock: IReactorTime, bind: Callable[[int], Listeners]) -> None:
        self.kept: tuple[Listeners, ...] = ()
        self._clock = clock
        self._bind = bind
        self._open: dict[Listeners, IDelayedCall | None] = {}

    @property
    def ports(self) -> frozenset[int]:
        """The port numbers of all of them."""
        return frozenset(each.port for each in self._open)

    def listen(self, port: int) -> Listeners:
        """Sockets on ``port``: those that are there, or new ones. Raises as ``bind``."""
        listeners = next((each for each in self._open if each.port == port), None) or self._bind(port)
        self._open.setdefault(listeners, None)
        return listeners

    def can_listen(self, port: int) -> bool:
        """Whether there are sockets on ``port`` now."""
        try:
            self.listen(port)
        except (PortTaken, PortDenied):
            return False
        return True

    def keep(self, *listeners: Listeners) -> None:
        """These are the ones; all others close after a while."""
        self.kept = listeners
        for each, timer in self._open.items():
            if each not in listeners and timer is None:
                self._open[each] = self._clock.callLater(LINGER, self.close, each)
            elif each in listeners and timer is not None:
                timer.cancel()
                self._open[each] = None

    def close(self, listeners: Listeners) -> Deferred[None]:
        """Accept there no more; fires when that is so."""
        timer = self._open.pop(listeners, None)
        if timer is not None and timer.active():
            timer.cancel()
        return listeners.close()

    def close_all(self) -> Deferred[None]:
        """Accept nowhere any more; fires when that is so."""
        self.kept = ()
        closing = DeferredList([self.close(each) for each in tuple(self._open)], consumeErrors=True)
        return closing.addCallback(lambda _: None)
