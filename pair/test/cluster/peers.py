"""What the tests of mutual TLS share: nodes with real leaves, and connections in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from OpenSSL import SSL
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.protocol import Factory
from twisted.internet.testing import AccumulatingProtocol
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.test.iosim import IOPump, connect, makeFakeClient, makeFakeServer
from zope.interface import implementer

from pair.cluster.identity import mint
from pair.cluster.pins import STRANGER, Caller, PinTable
from pair.cluster.tls import Credentials

if TYPE_CHECKING:
    from twisted.internet.interfaces import IProtocol, IProtocolFactory
    from twisted.internet.task import Clock

    from pair.cluster.identity import Identity
    from pair.cluster.pins import PeerLeaf

NOW = 1_800_000_000


def identity() -> Identity:
    """A new node."""
    return mint(NOW)


def expired(node: Identity) -> bytes:
    """A leaf for the key of ``node`` whose time is long over."""
    return issued(node, node, 2001)


def issued(node: Identity, issuer: Identity, year: int = 2026) -> bytes:
    """A certificate for the key of ``node``, good for a year, that ``issuer`` has signed."""
    return (
        x509.CertificateBuilder()
        .subject_name(_name(node))
        .issuer_name(_name(issuer))
        .public_key(node.key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(year, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(year + 1, 1, 1, tzinfo=UTC))
        .sign(issuer.key, None)
        .public_bytes(Encoding.DER)
    )


def _name(node: Identity) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, node.uuid)])


def credentials(node: Identity) -> Credentials:
    return Credentials(node.leaf, node.key)


class Pins(PinTable):
    """A pin table without a view: who is pinned, a test says."""

    def __init__(self, *members: Identity) -> None:
        self.members = {each.uuid: each.leaf for each in members}

    def check(self, peer: PeerLeaf) -> Caller:
        found = [node for node, leaf in self.members.items() if leaf == peer.der]
        return Caller("member", found[0]) if found else STRANGER

    def pin(self, node: str) -> bytes | None:
        return self.members.get(node)


class Taking(AccumulatingProtocol):
    """Keeps what it gets, and why it ended."""

    data = b""
    greeting = b""
    lost = False
    transport: Any

    def connectionMade(self) -> None:
        super().connectionMade()
        if self.greeting:
            self.transport.write(self.greeting)

    def connectionLost(self, reason: Any = None) -> None:
        self.lost = True


def taking(greeting: bytes = b"") -> Any:
    """A factory of such protocols, which write ``greeting`` as soon as they are connected. The newest is ``last``."""

    class Factories(Factory):
        noisy = False
        last: Taking

        def buildProtocol(self, addr: Any) -> Any:
            self.last = Taking()
            self.last.greeting = greeting
            return self.last

    return Factories()


@implementer(IOpenSSLClientConnectionCreator)
class Foreign:
    """A client whose TLS is not ours."""

    def __init__(self, node: Identity | None = None, highest: int | None = None) -> None:
        self.context = SSL.Context(SSL.TLS_METHOD)
        self.session: SSL.Session | None = None
        self.made: SSL.Connection | None = None
        if node is not None:
            self.context.use_certificate(x509.load_der_x509_certificate(node.leaf))
            self.context.use_privatekey(node.key)
        if highest is not None:
            self.context.set_max_proto_version(highest)

    def clientConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        self.made = SSL.Connection(self.context, None)
        if self.session is not None:
            self.made.set_session(self.session)
        return self.made


def foreign_factory(creator: Foreign, wrapped: IProtocolFactory, clock: Clock) -> TLSMemoryBIOFactory:
    return TLSMemoryBIOFactory(creator, True, wrapped, clock)


def join(
    server: IProtocolFactory, client: IProtocolFactory, clock: Clock, greet: bool = True
) -> tuple[Any, Any, IOPump]:
    """A connection in memory: its server, its client, and the pump between them."""
    here: IProtocol | None = server.buildProtocol(None)  # type: ignore[arg-type]
    there: IProtocol | None = client.buildProtocol(None)  # type: ignore[arg-type]
    pump = connect(here, makeFakeServer(here), there, makeFakeClient(there), greet=greet, clock=clock)
    return here, there, pump
