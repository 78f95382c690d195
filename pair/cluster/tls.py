"""Mutual TLS between nodes, by pinned leaves (CL-9 to CL-15).

A leaf is compared and never judged: no authority, no name and no date has a
part in it. A server takes any single leaf and leaves it to each request what
its owner may do; a client takes exactly one. It must not know who is a member.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import TYPE_CHECKING, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509 import load_der_x509_certificate
from msgspec import Struct
from OpenSSL import SSL
from OpenSSL.crypto import FILETYPE_ASN1, X509, dump_certificate
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator
from twisted.internet.protocol import connectionDone
from twisted.protocols.tls import BufferingTLSTransport, TLSMemoryBIOFactory
from zope.interface import implementer

from pair.cluster.pins import PeerLeaf
from pair.logs import Logger
from pair.protocols.pairing.messages import Silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import (
        IAddress,
        IDelayedCall,
        IProtocol,
        IProtocolFactory,
        IReactorTime,
        ITCPTransport,
        ITransport,
    )
    from twisted.protocols.tls import TLSMemoryBIOProtocol
    from twisted.python.failure import Failure

    from pair.cluster.connections import PeerConnections

    Verify = Callable[[SSL.Connection, X509, int, int, int], bool]
    """OpenSSL's: connection, certificate, error number, depth, and its own opinion."""

HANDSHAKE_SECONDS = 10.0

HANDSHAKES_MAX = 256
"""That may be under way at once, at all ports of this node together."""

NotMetReason = Literal["refused", "timeout", "certificate"]
"""Why there was no handshake: ``certificate`` means that the peer showed another leaf than the pinned one."""

log = Logger()


class NotMetError(Exception):
    """A connection was lost before its handshake was done."""

    def __init__(self, reason: NotMetReason) -> None:
        super().__init__(reason)
        self.reason = reason


class Credentials(Silent, Struct, frozen=True):
    """What this node shows and proves: its leaf, in DER, and the key of it."""

    leaf: bytes
    key: Ed25519PrivateKey


class PeerTransport(BufferingTLSTransport):
    """The TLS of one connection, with a limit to its handshake.

    Attributes:
        peerLeaf: The leaf that the peer showed, once the handshake is done (CL-15).
    """

    peerLeaf: PeerLeaf | None = None  # noqa: N815 - named by CL-15
    factory: PeerTLS
    transport: ITCPTransport
    _limit: IDelayedCall | None = None
    _waiting: Deferred[PeerLeaf] | None = None
    _lost = False
    _reason_not_met: NotMetReason = "refused"

    def makeConnection(self, transport: ITransport) -> None:
        """Begin the handshake, and wait no longer for its end than the limit."""
        self.factory.connections.add(self, incoming=not self.factory.is_client)
        self._limit = self.factory.clock.callLater(HANDSHAKE_SECONDS, self._give_up)
        super().makeConnection(transport)

    def met(self) -> Deferred[PeerLeaf]:
        """The peer's leaf, when the handshake is done. To be asked once; cancelled, it aborts the connection.

        It fails with :class:`NotMetError` if the connection is lost before.
        """
        if self.peerLeaf is not None:
            return succeed(self.peerLeaf)
        if self._lost:
            return fail(NotMetError(self._reason_not_met))
        self._waiting = Deferred(self._forget)
        return self._waiting

    def dataReceived(self, data: bytes) -> None:
        """Feed TLS with ``data``; the end of the handshake is told when OpenSSL has returned from it."""
        super().dataReceived(data)
        if self.peerLeaf is not None and self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            waiting.callback(self.peerLeaf)
        self._close_if_said()

    def loseConnection(self) -> None:
        """Say that nothing follows, and close without waiting for the peer to say the same."""
        super().loseConnection()
        self._close_if_said()

    def unregisterProducer(self) -> None:
        """What a producer writes after :meth:`loseConnection` still belongs to the connection."""
        super().unregisterProducer()
        self._close_if_said()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Forget the connection."""
        self._lost = True
        self._stop_limit()
        self.factory.connections.remove(self)
        if self.peerLeaf is None:
            log.debug("A connection with a peer was lost in its handshake ({reason}).", reason=self._reason_not_met)
        super().connectionLost(reason)
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            waiting.errback(NotMetError(self._reason_not_met))

    def handshake_done(self, connection: SSL.Connection) -> None:
        """Keep the peer's leaf. Called from within OpenSSL, and again for every ticket that it sends."""
        if self.peerLeaf is not None:
            return
        certificate = connection.get_peer_certificate()
        assert certificate is not None, "both sides demand one"
        self.peerLeaf = PeerLeaf.of(_der(certificate))
        self._stop_limit()

    def showed_another(self) -> None:
        """The peer's leaf is not the pinned one. Called from within OpenSSL, which fails the handshake."""
        self._reason_not_met = "certificate"

    def _close_if_said(self) -> None:
        # Twisted would wait for the peer's close_notify, and so for ever where that wishes it.
        if self.disconnecting and self.connected and self.getHandle().get_shutdown() & SSL.SENT_SHUTDOWN:
            self.transport.loseConnection()

    def _give_up(self) -> None:
        self._limit = None
        self._reason_not_met = "timeout"
        self.abortConnection()

    def _stop_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _forget(self, waiting: Deferred[PeerLeaf]) -> None:
        self._waiting = None
        self.abortConnection()


class PeerTLS(TLSMemoryBIOFactory):
    """Puts mutual TLS under the protocols of another factory.

    Attributes:
        clock: For the limit of the handshake.
        connections: Where each of its connections is known while it is open.
        is_client: Whether it dials.
    """

    protocol = PeerTransport

    def __init__(
        self,
        creator: ServerSide | ClientSide,
        is_client: bool,
        wrapped: IProtocolFactory,
        connections: PeerConnections,
        clock: IReactorTime,
    ) -> None:
        super().__init__(creator, is_client, wrapped, clock)
        self.clock = clock
        self.connections = connections
        self.is_client = is_client

    def buildProtocol(self, addr: IAddress | None) -> PeerTransport | None:  # type: ignore[override]  # as IFactory has it
        """A connection with ``addr``; None where the other factory wants none, which Twisted's does not ask.

        Where too many that came in are in their handshake, which hold memory
        and are anybody's, the oldest of them gives way: a member needs
        milliseconds for its own, and must not be shut out by those who wait.
        """
        if not self.is_client and self.connections.handshakes >= HANDSHAKES_MAX:
            self.connections.make_room()
        wrapped = self.wrappedFactory.buildProtocol(addr)
        return None if wrapped is None else PeerTransport(self, wrapped)


def only_leaf(connection: SSL.Connection, certificate: X509, error: int, depth: int, ok: int) -> bool:
    """Whether what a client shows is one certificate without a chain, whatever OpenSSL thinks of it (CL-11)."""
    return depth == 0


@implementer(IOpenSSLServerConnectionCreator)
class ServerSide:
    """The side that listens (CL-11).

    Args:
        credentials: Shown to every client.
        verify: OpenSSL's callback.
    """

    def __init__(self, credentials: Credentials, verify: Verify = only_leaf) -> None:
        self._context = _context(credentials, SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, verify)

    def serverConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:  # noqa: N802, N803 - Twisted's
        """See :class:`IOpenSSLServerConnectionCreator`."""
        return _connection(self._context, tlsProtocol)


@implementer(IOpenSSLClientConnectionCreator)
class ClientSide:
    """The side that dials, for one pin (CL-12). It may be used for many dials.

    Args:
        credentials: Shown to the server once it has shown the pinned leaf.
        pin: That leaf, in DER.
    """

    def __init__(self, credentials: Credentials, pin: bytes) -> None:
        self._pin = pin
        self._context = _context(credentials, SSL.VERIFY_PEER, self._is_pinned)

    def clientConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:  # noqa: N802, N803 - Twisted's
        """See :class:`IOpenSSLClientConnectionCreator`. No name is sent (CL-13)."""
        return _connection(self._context, tlsProtocol)

    def _is_pinned(self, connection: SSL.Connection, certificate: X509, error: int, depth: int, ok: int) -> bool:
        pinned = depth == 0 and compare_digest(_der(certificate), self._pin)
        if not pinned:
            connection.get_app_data().showed_another()
        return pinned


def server_factory(
    credentials: Credentials, wrapped: IProtocolFactory, connections: PeerConnections, clock: IReactorTime
) -> PeerTLS:
    """Serves ``wrapped`` to whoever shows a leaf, any leaf; each request is to be checked (CL-16)."""
    return PeerTLS(ServerSide(credentials), False, wrapped, connections, clock)


def client_factory(
    side: ClientSide, wrapped: IProtocolFactory, connections: PeerConnections, clock: IReactorTime
) -> PeerTLS:
    """Speaks as a client with the one peer for whose pin ``side`` was made.

    What the protocols of ``wrapped`` write before the handshake is done is
    kept back until then.
    """
    return PeerTLS(side, True, wrapped, connections, clock)


def _context(credentials: Credentials, mode: int, verify: Verify) -> SSL.Context:
    """A context of CL-10: nothing can be resumed, for that would pass by ``verify``."""
    context = SSL.Context(SSL.TLS_METHOD)
    context.set_min_proto_version(SSL.TLS1_3_VERSION)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_options(SSL.OP_NO_TICKET)
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)  # a stream that says nothing needs none
    context.use_certificate(load_der_x509_certificate(credentials.leaf))
    context.use_privatekey(credentials.key)
    context.set_verify(mode, verify)
    context.set_info_callback(_told)
    return context


def _der(certificate: X509) -> bytes:
    """As it came. No other parser sees it, which might refuse what OpenSSL takes, in the middle of a callback."""
    return dump_certificate(FILETYPE_ASN1, certificate)


def _connection(context: SSL.Context, protocol: IProtocol) -> SSL.Connection:
    connection = SSL.Connection(context, None)
    connection.set_app_data(protocol)
    return connection


def _told(connection: SSL.Connection, where: int, value: int) -> None:
    if where & SSL.SSL_CB_HANDSHAKE_DONE:
        connection.get_app_data().handshake_done(connection)
