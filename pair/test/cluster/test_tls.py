"""Mutual TLS by pinned leaves, in memory (tests that must exist, no. 16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cryptography.x509 import InvalidVersion, load_der_x509_certificate
from msgspec.structs import replace
from OpenSSL import SSL
from OpenSSL.crypto import FILETYPE_ASN1, load_certificate
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IOpenSSLServerConnectionCreator
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.protocols.tls import TLSMemoryBIOFactory
from twisted.python.failure import Failure
from twisted.test.iosim import FakeTransport, connect, makeFakeClient
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from pair.cluster.connections import PeerConnections
from pair.cluster.pins import PeerLeaf
from pair.cluster.tls import (
    HANDSHAKES_MAX,
    ClientSide,
    NotMetError,
    PeerTLS,
    PeerTransport,
    ServerSide,
    client_factory,
    only_leaf,
    server_factory,
)
from pair.protocols.firstbyte import FirstByteFactory
from pair.test.cluster.peers import (
    Foreign,
    Pins,
    Taking,
    credentials,
    expired,
    foreign_factory,
    identity,
    issued,
    join,
    taking,
)

if TYPE_CHECKING:
    from twisted.internet.interfaces import IProtocolFactory
    from twisted.test.iosim import IOPump

    from pair.cluster.identity import Identity

DESK, RACK, OTHER = identity(), identity(), identity()
PEER = IPv4Address("TCP", "192.0.2.7", 4000)


class Dribbling(FakeTransport):
    """Sends one octet at a time."""

    def getOutBuffer(self) -> bytes | None:
        data = super().getOutBuffer()
        if data and len(data) > 1:
            self.stream.insert(0, data[1:])
        return data[:1] if data else None


@implementer(IOpenSSLServerConnectionCreator)
class Resumable:
    """A server like ours, only that its sessions can be resumed."""

    def __init__(self, verify: Any) -> None:
        self.context = SSL.Context(SSL.TLS_METHOD)
        self.context.set_min_proto_version(SSL.TLS1_3_VERSION)
        self.context.set_session_id(b"resumable")
        self.context.use_certificate(load_der_x509_certificate(DESK.leaf))
        self.context.use_privatekey(DESK.key)
        self.context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, verify)

    def serverConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        return SSL.Connection(self.context, None)


class TLSCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.connections = PeerConnections()
        self.here, self.there = taking(), taking(b"a request")

    def server(self) -> PeerTLS:
        return server_factory(credentials(DESK), self.here, self.connections, self.clock)

    def client(self, pin: bytes = DESK.leaf) -> PeerTLS:
        return client_factory(ClientSide(credentials(RACK), pin), self.there, self.connections, self.clock)

    def join(self, server: IProtocolFactory, client: IProtocolFactory) -> tuple[Any, Any, IOPump]:
        return join(server, client, self.clock)

    def assert_closed(self) -> None:
        """Both sides are told, nothing is left open, and no timer runs."""
        self.assertTrue(self.here.last.lost)
        self.assertTrue(self.there.last.lost)
        self.assertEqual(len(self.connections), 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class HandshakeTests(TLSCase):
    def test_both_know_the_other(self) -> None:
        """Each side has the other's leaf on its transport, and what is written arrives (CL-15)."""
        server, client, pump = self.join(self.server(), self.client())
        self.here.last.transport.write(b"an answer")
        pump.flush()
        self.assertEqual(server.peerLeaf, PeerLeaf.of(RACK.leaf))
        self.assertEqual(client.peerLeaf, PeerLeaf.of(DESK.leaf))
        self.assertEqual((self.here.last.data, self.there.last.data), (b"a request", b"an answer"))

    def test_leaf_is_there_before_the_first_octet(self) -> None:
        """Who asks about the peer when data arrives has an answer (CL-15, CL-16)."""
        seen = []

        class Asking(Taking):
            def dataReceived(self, data: bytes) -> None:
                seen.append(self.transport.peerLeaf)

        self.here.buildProtocol = lambda _: Asking()
        self.join(self.server(), self.client())
        self.assertEqual(seen, [PeerLeaf.of(RACK.leaf)])

    def test_version_and_protocol(self) -> None:
        """TLS 1.3, no ALPN, no name of the server (CL-9, CL-10, CL-13)."""
        server, client, _ = self.join(self.server(), self.client())
        for each in (server, client):
            handle = each.getHandle()
            self.assertEqual(handle.get_protocol_version_name(), "TLSv1.3")
            self.assertEqual(handle.get_alpn_proto_negotiated(), b"")
            self.assertIsNone(handle.get_servername())

    def test_creators(self) -> None:
        """Both provide the interface of their side, and their contexts are two (CL-9)."""
        server, client = ServerSide(credentials(DESK)), ClientSide(credentials(DESK), RACK.leaf)
        verifyObject(IOpenSSLServerConnectionCreator, server)
        verifyObject(IOpenSSLClientConnectionCreator, client)
        self.assertIsNot(
            server.serverConnectionForTLS(Taking()).get_context(),  # type: ignore[arg-type]
            client.clientConnectionForTLS(Taking()).get_context(),  # type: ignore[arg-type]
        )

    def test_no_buffer_at_rest(self) -> None:
        """A connection that says nothing has no buffers of OpenSSL's, which are some 30 KB (quality page, B-mem)."""
        for side in (ServerSide(credentials(DESK)), ClientSide(credentials(DESK), RACK.leaf)):
            mode = side._context.set_mode(0)  # It adds to what is set, and returns that.
            self.assertTrue(mode & SSL.MODE_RELEASE_BUFFERS)

    def test_old_version(self) -> None:
        """A client of TLS 1.2 gets an alert, and no protocol sees a byte of it (CL-11)."""
        client = foreign_factory(Foreign(RACK, SSL.TLS1_2_VERSION), self.there, self.clock)
        reasons = self.lost_reasons()
        self.join(self.server(), client)
        self.assertIn("protocol version", str(reasons))
        self.assertEqual(self.here.last.data, b"")
        self.assert_closed()

    def test_without_certificate(self) -> None:
        """A client without one gets an alert, and no protocol sees a byte of it (CL-11)."""
        client = foreign_factory(Foreign(), self.there, self.clock)
        reasons = self.lost_reasons()
        self.join(self.server(), client)
        self.assertIn("certificate required", str(reasons))
        self.assertEqual(self.here.last.data, b"")
        self.assert_closed()

    def lost_reasons(self) -> list[object]:
        """What the client will have been told."""
        reasons: list[object] = []

        class Told(Taking):
            greeting = b"a request"

            def connectionLost(self, reason: Any = None) -> None:
                super().connectionLost(reason)
                reasons.append(reason.value)

        def build(_: object) -> Taking:
            self.there.last = Told()
            return self.there.last  # type: ignore[no-any-return]

        self.there.buildProtocol = build
        return reasons

    def test_any_leaf_may_knock(self) -> None:
        """A server takes the leaf of a stranger; what that may do, each request decides (CL-11, CL-16)."""
        server, _, _ = self.join(self.server(), foreign_factory(Foreign(OTHER), self.there, self.clock))
        self.assertEqual(server.peerLeaf, PeerLeaf.of(OTHER.leaf))

    def test_chain(self) -> None:
        """A client's certificate that another one has signed is no leaf, and is refused (CL-11)."""
        client = Foreign(replace(RACK, leaf=issued(RACK, OTHER)))
        client.context.add_extra_chain_cert(load_der_x509_certificate(OTHER.leaf))
        client.context.set_verify(SSL.VERIFY_NONE)
        server, _, _ = self.join(self.server(), foreign_factory(client, self.there, self.clock))
        self.assertIsNone(server.peerLeaf)
        self.assertEqual(self.here.last.data, b"")
        self.assert_closed()

    def test_unreadable_leaf(self) -> None:
        """What OpenSSL takes and other parsers refuse is the leaf of a stranger, or none that is pinned."""
        version = RACK.leaf.index(b"\xa0\x03\x02\x01\x02") + 4
        odd = RACK.leaf[:version] + b"\x05" + RACK.leaf[version + 1 :]
        with self.assertRaises(InvalidVersion):
            load_der_x509_certificate(odd)
        stranger = Foreign()
        stranger.context.use_certificate(load_certificate(FILETYPE_ASN1, odd))
        stranger.context.use_privatekey(RACK.key)
        server, _, _ = self.join(self.server(), foreign_factory(stranger, self.there, self.clock))
        self.assertEqual(server.peerLeaf, PeerLeaf.of(odd))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.here.last.data, b"a request")

    def test_expired(self) -> None:
        """Dates are never looked at, on either side (CL-6, CL-11, CL-12)."""
        old_desk, old_rack = (replace(each, leaf=expired(each)) for each in (DESK, RACK))
        server, client, _ = self.join(
            server_factory(credentials(old_desk), self.here, self.connections, self.clock),
            client_factory(ClientSide(credentials(old_rack), old_desk.leaf), self.there, self.connections, self.clock),
        )
        self.assertEqual((server.peerLeaf.der, client.peerLeaf.der), (old_rack.leaf, old_desk.leaf))
        self.assertEqual(self.here.last.data, b"a request")

    def test_wrong_leaf(self) -> None:
        """A server with another leaf than the pinned one learns nothing, the client's leaf included (CL-12)."""
        server, client, _ = self.join(self.server(), self.client(OTHER.leaf))
        self.failureResultOf(client.met(), NotMetError)
        self.assertIsNone(server.peerLeaf)
        self.assertEqual(self.here.last.data, b"")
        self.assert_closed()

    def test_same_key_another_leaf(self) -> None:
        """The leaf is pinned, not the key in it."""
        _, client, _ = self.join(self.server(), self.client(expired(DESK)))
        failure = self.failureResultOf(client.met(), NotMetError)
        self.assertEqual(failure.value.reason, "certificate")

    def test_nothing_is_resumed(self) -> None:
        """Each handshake asks the callback, though the client brings its session; else no pin was checked (CL-10)."""
        asked = []

        def count(*seen: Any) -> bool:
            asked.append(seen)
            return only_leaf(*seen)

        ours = PeerTLS(ServerSide(credentials(DESK), count), False, self.here, self.connections, self.clock)
        other = TLSMemoryBIOFactory(Resumable(count), False, self.here, self.clock)
        counts = []
        for server in (ours, other):
            client = Foreign(RACK)
            for _ in range(2):
                asked.clear()
                self.join(server, foreign_factory(client, self.there, self.clock))
                assert client.made is not None
                client.session = client.made.get_session()
                counts.append(len(asked))
        self.assertGreater(counts[0], 0)
        self.assertEqual(counts, [counts[0], counts[0], counts[0], 0])


class Closed(Factory):
    """Takes nobody any more."""

    def buildProtocol(self, addr: object) -> None:
        return None


class LimitTests(TLSCase):
    def first_byte(self, said: bytes) -> Taking:
        """A client that says so much to a port and no more."""
        client = Taking()
        client.greeting = said
        server: Any = FirstByteFactory(self.clock, taking(), self.server()).buildProtocol(PEER)
        self.pump = connect(server, FakeTransport(server, True), client, makeFakeClient(client), clock=self.clock)
        return client

    def test_nobody_taken(self) -> None:
        """Where the factory behind TLS takes no more connections, there is none."""
        factory = server_factory(credentials(DESK), Closed(), self.connections, self.clock)
        self.assertIsNone(factory.buildProtocol(PEER))

    def test_too_many_handshakes(self) -> None:
        """Strangers who begin and never end one take no more than their share of memory, and shut nobody out."""
        factory = self.server()
        ours: Any = self.client().buildProtocol(PEER)
        ours.makeConnection(StringTransport())
        half_open: list[Any] = []
        for _ in range(HANDSHAKES_MAX + 2):
            half_open.append(factory.buildProtocol(PEER))
            half_open[-1].makeConnection(StringTransport())
        self.assertEqual([each.transport.disconnected for each in half_open[:3]], [True, True, False])
        self.assertFalse(ours.transport.disconnected)
        self.assertEqual(self.connections.handshakes, HANDSHAKES_MAX)
        self.join(factory, self.client())
        self.assertEqual(self.here.last.data, b"a request")
        self.here.last.transport.abortConnection()
        for each in (ours, *half_open):
            each.connectionLost(Failure(ConnectionDone()))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_silent(self) -> None:
        """Who says 0x16 and nothing more is cut off after 10 s (CL-14)."""
        client = self.first_byte(b"\x16")
        self.clock.advance(9.9)
        self.pump.flush()
        self.assertFalse(client.lost)
        self.clock.advance(0.1)
        self.pump.flush()
        self.assertTrue(client.lost)
        self.assertEqual(len(self.connections), 0)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_half_a_hello(self) -> None:
        """A record begun does not win time."""
        client = self.first_byte(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        self.clock.advance(10)
        self.pump.flush()
        self.assertTrue(client.lost)

    def test_hello_in_pieces(self) -> None:
        """A handshake in single octets, behind the first-byte protocol, is like any other (PX-6)."""
        server = FirstByteFactory(self.clock, taking(), self.server()).buildProtocol(PEER)
        client: Any = self.client().buildProtocol(PEER)
        ends = Dribbling(server, True), Dribbling(client, False)
        pump = connect(server, ends[0], client, ends[1], greet=False, clock=self.clock)
        while pump.pump():
            pass
        self.assertEqual(self.here.last.data, b"a request")
        self.assertEqual(self.here.last.transport.peerLeaf, PeerLeaf.of(RACK.leaf))

    def test_no_limit_after_the_handshake(self) -> None:
        """The limit is the handshake's; a connection may be silent for ever."""
        _, _, pump = self.join(self.server(), self.client())
        self.clock.advance(3600)
        pump.flush()
        self.assertFalse(self.there.last.lost)

    def test_silent_server(self) -> None:
        """The same limit holds for the side that dials, and is told as what it is."""
        here = taking()
        _, client, pump = self.join(here, self.client())
        met = client.met()
        self.clock.advance(10)
        pump.flush()
        self.assertEqual(self.failureResultOf(met, NotMetError).value.reason, "timeout")

    def test_met(self) -> None:
        """The end of the handshake is told, before it or after it; what is no TLS at all is told as refused."""
        _, client, pump = join(self.server(), self.client(), self.clock, greet=False)
        met = client.met()
        self.assertNoResult(met)
        pump.flush()
        self.assertEqual(self.successResultOf(met), PeerLeaf.of(DESK.leaf))
        self.assertEqual(self.successResultOf(client.met()), PeerLeaf.of(DESK.leaf))
        _, client, _ = self.join(taking(b"SSH-2.0-OpenSSH_9.6\r\n"), self.client())
        self.assertEqual(self.failureResultOf(client.met(), NotMetError).value.reason, "refused")

    def test_close_without_the_peer(self) -> None:
        """A peer that answers no close_notify does not keep the connection."""
        server, client, pump = self.join(self.server(), self.client())
        client.transport.protocol = Deaf()
        self.here.last.transport.write(b"the last words")
        self.here.last.transport.loseConnection()
        pump.flush()
        self.assertTrue(self.here.last.lost)
        self.assertNotIn(server, self.connections._open)

    def test_close_behind_a_producer(self) -> None:
        """A producer writes to its end, though the connection is to be closed."""
        _, _, pump = self.join(self.server(), self.client())
        transport = self.here.last.transport
        transport.registerProducer(Idle(), True)
        transport.loseConnection()
        pump.flush()
        transport.write(b"the last words")
        pump.flush()
        transport.unregisterProducer()
        pump.flush()
        self.assertEqual(self.there.last.data, b"the last words")
        self.assert_closed()


class ConnectionsTests(TLSCase):
    def test_cut(self) -> None:
        """In the turn of the new view, whoever it does not name is cut off, in and out; others stay (CL-18)."""
        rack, rack_pump = self.caller(RACK)
        other, other_pump = self.caller(OTHER)
        out = client_factory(ClientSide(credentials(DESK), OTHER.leaf), self.there, self.connections, self.clock)
        apart = server_factory(credentials(OTHER), taking(), PeerConnections(), self.clock)
        _, _, out_pump = self.join(apart, out)
        self.assertEqual(len(self.connections), 3)
        self.assertEqual(self.connections.cut(Pins(RACK, OTHER)), 0)
        self.assertEqual(self.connections.cut(Pins(RACK)), 2)
        self.assertTrue(other.transport.disconnecting)
        self.assertTrue(self.there.last.transport.disconnecting)
        for pump in (rack_pump, other_pump, out_pump):
            pump.flush()
        self.assertEqual((rack.lost, other.lost, self.there.last.lost), (False, True, True))
        self.assertEqual(len(self.connections), 1)

    def caller(self, node: Identity) -> tuple[Taking, IOPump]:
        """What serves a connection from ``node``, and its pump."""
        client = client_factory(ClientSide(credentials(node), DESK.leaf), taking(), PeerConnections(), self.clock)
        _, _, pump = self.join(self.server(), client)
        return self.here.last, pump

    def test_cut_stream(self) -> None:
        """A stream that runs ends in the middle, and nothing of the victim is delivered any more (CL-18)."""
        _, client, pump = self.join(self.server(), self.client())
        self.here.last.transport.registerProducer(Idle(), True)
        self.here.last.transport.write(b"a piece")
        client.wrappedProtocol.transport.write(b"more")
        self.assertEqual(self.connections.cut(Pins(DESK)), 1)
        pump.flush()
        self.assertEqual(self.here.last.data, b"a request")
        self.assert_closed()

    def test_handshake_under_way(self) -> None:
        """It has no peer yet, and is left; when this node stops, it is not."""
        server, client, pump = join(self.server(), self.client(), self.clock, greet=False)
        self.assertEqual(self.connections.cut(Pins()), 0)
        self.assertIsInstance(server, PeerTransport)
        met = client.met()
        self.assertEqual(self.connections.abort_all(), 2)
        pump.flush()
        self.failureResultOf(met, NotMetError)
        self.assert_closed()

    def test_silent_credentials(self) -> None:
        """The key shows itself nowhere (CL-105)."""
        self.assertEqual(repr(credentials(DESK)), "<Credentials>")


class Deaf(Protocol):
    """Reads nothing, answers nothing."""


class Idle:
    """A producer that does nothing of itself."""

    def pauseProducing(self) -> None:
        """It does nothing."""

    resumeProducing = stopProducing = pauseProducing
