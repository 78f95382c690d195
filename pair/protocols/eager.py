"""Sockets that write at once (AR-8).

Twisted's own transport queues what is written and sends it a turn of the
reactor later, at the price of two ``epoll_ctl`` calls a write. For a stream of
tokens that is most of the work, so here the socket is tried first and only
what it does not take is queued. Knows nothing of HTTP.
"""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING, Any

from twisted.internet import tcp
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.posixbase import PosixReactorBase
from twisted.internet.protocol import ClientFactory
from zope.interface import Attribute, Interface, implementer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twisted.internet.interfaces import (
        IConnector,
        IListeningPort,
        IProtocol,
        IProtocolFactory,
        IReactorTCP,
    )
    from twisted.internet.protocol import Protocol, ServerFactory
    from twisted.python.failure import Failure

_BACKLOG = 511
_KEEPALIVE_IDLE, _KEEPALIVE_INTERVAL, _KEEPALIVE_PROBES = 30, 10, 3


class IUnsent(Interface):
    """A transport that can tell how much of what was written to it is still here."""

    unsent: int = Attribute("Octets written that the socket has not taken.")


@implementer(IUnsent)
class EagerWrites(tcp.Connection):
    """Mixed into a connection, makes it try its socket before it queues.

    Whatever the base class does beyond plain sending (TLS on this very
    transport, a pull producer, a connection that is closing) is left to it.
    """

    @property
    def unsent(self) -> int:
        """Octets written that the socket has not taken."""
        return len(self.dataBuffer) - self.offset + self._tempDataLen

    def write(self, data: bytes) -> None:
        """Send ``data``, or as much of it as the socket takes, and queue the rest.

        A failing socket raises nothing here and loses no connection within
        the call: the data is queued, and the reactor meets the error when it
        sends.
        """
        sent = 0
        if not (
            self.dataBuffer
            or self._tempDataBuffer
            or self.TLS
            or not self.connected
            or self.disconnecting
            or self._writeDisconnecting
            or self._aborting
            or (self.producer is not None and not self.streamingProducer)
        ):
            try:  # noqa: SIM105 - a context manager costs more than the send
                sent = self.socket.send(data)
            except OSError:
                pass  # It takes nothing now, or never will again.
        if sent < len(data):
            super().write(data[sent:])

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """Write the joined ``iovec`` (the base class would queue it)."""
        self.write(b"".join(iovec))


_NAME = "eager"
"""Of every connection to Twisted's log, which would name each by itself. Nothing here reads it."""


class EagerServer(EagerWrites, tcp.Server):
    """An accepted connection that writes at once."""

    def __init__(
        self, sock: socket.socket, protocol: Protocol, client: Any, server: Any, sessionno: int, reactor: Any
    ) -> None:
        # Many come from the same few addresses, and stay for long.
        super().__init__(sock, protocol, (sys.intern(client[0]), *client[1:]), server, sessionno, reactor)
        self.logstr = self.repstr = _NAME


class _Connected:
    """The connector of all connections that are there, in place of what was needed to make each of them."""

    def connectionLost(self, reason: Failure) -> None:
        """Its protocol has been told."""


_CONNECTED = _Connected()


class EagerClient(EagerWrites, tcp.Client):
    """A connection of ours that writes at once. Made by :class:`EagerEndpoint`, which is told when it is there."""

    def _connectDone(self) -> None:
        super()._connectDone()
        connector, self.connector = self.connector, _CONNECTED
        self.logstr = _NAME
        connector.factory.done(self.protocol)


def keep_alive(skt: socket.socket) -> None:
    """Send small writes undelayed, and notice a peer that is gone within a minute (PX-67)."""
    skt.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    skt.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    skt.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE)
    skt.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL)
    skt.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)


class EagerPort(tcp.Port):
    """A listening port whose connections are eager, undelayed and kept alive (PX-67)."""

    transport: Any = EagerServer

    def createInternetSocket(self) -> socket.socket:
        """The socket to listen on. Accepted ones inherit its TCP options, which saves four calls a connection."""
        skt: socket.socket = super().createInternetSocket()
        keep_alive(skt)
        if self.addressFamily == socket.AF_INET6:
            skt.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        return skt


def listen_eager(
    reactor: IReactorTCP, port: int, factory: ServerFactory, interface: str = "", backlog: int = _BACKLOG
) -> IListeningPort:
    """Listen on TCP ``port`` with eager connections.

    A reactor without sockets of its own, as tests use, gets an ordinary
    ``listenTCP``.

    Args:
        reactor: Where to listen.
        port: 0 for any free one.
        factory: Makes the protocols.
        interface: An IPv4 or IPv6 literal; an IPv6 one is for IPv6 only.
        backlog: How many connections the system keeps for us to accept.

    Raises:
        twisted.internet.error.CannotListenError: The address cannot be bound.
    """
    if not isinstance(reactor, PosixReactorBase):
        return reactor.listenTCP(port, factory, backlog=backlog, interface=interface)
    listening = EagerPort(port, factory, backlog, interface, reactor)
    listening.startListening()
    return listening


@implementer(IStreamClientEndpoint)
class EagerEndpoint:
    """Connects to an IPv4 or IPv6 literal: connections are eager, and nothing stands between them and their protocol.

    It sets no limit of time; whoever waits does.
    """

    def __init__(self, reactor: PosixReactorBase, host: str, port: int) -> None:
        self._reactor = reactor
        self._host = host
        self._port = port

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """See :class:`IStreamClientEndpoint`."""
        dial = _Dial(protocolFactory)
        unlimited: Any = None
        _EagerConnector(self._host, self._port, dial, unlimited, None, self._reactor).connect()
        return dial.connected


class _Dial(ClientFactory):
    """One connection in the making: to Twisted it is a factory."""

    noisy = False

    def __init__(self, behind: IProtocolFactory) -> None:
        self.connected: Deferred[IProtocol] = Deferred(self._give_up)
        self._behind = behind
        self._connector: IConnector | None = None

    def startedConnecting(self, connector: IConnector) -> None:
        self._connector = connector

    def buildProtocol(self, addr: Any) -> Any:
        return self._behind.buildProtocol(addr)

    def done(self, protocol: IProtocol) -> None:
        """There is a connection."""
        self._over().callback(protocol)

    def clientConnectionFailed(self, connector: IConnector, reason: Failure) -> None:
        if self._connector is not None:
            self._over().errback(reason)

    def _give_up(self, connected: Deferred[IProtocol]) -> None:
        connector = self._connector
        assert connector is not None, "what is over is not cancelled"
        self._over().errback(ConnectingCancelledError(connector.getDestination()))
        connector.stopConnecting()

    def _over(self) -> Deferred[IProtocol]:
        """Let go of what refers to this: a cycle for each connection would be work for the collector."""
        connected = self.connected
        del self.connected
        self._connector = None
        return connected


class _EagerConnector(tcp.Connector):
    def _makeTransport(self) -> tcp.Client:
        return EagerClient(self.host, self.port, self.bindAddress, self, self.reactor)


def eager_endpoint(reactor: IReactorTCP, host: str, port: int) -> IStreamClientEndpoint:
    """The endpoint of an address, an IPv4 or IPv6 literal, whose connections are eager.

    A reactor without sockets of its own, as tests use, connects as it always does.
    """
    if isinstance(reactor, PosixReactorBase):
        return EagerEndpoint(reactor, host, port)
    return (TCP6ClientEndpoint if ":" in host else TCP4ClientEndpoint)(reactor, host, port)
