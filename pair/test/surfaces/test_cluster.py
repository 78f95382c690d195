"""Tests of pair.surfaces.cluster: port 14321 behind its real site and guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.testing import MemoryReactorClock
from twisted.test.iosim import connect, makeFakeClient, makeFakeServer
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.conditions import CONDITIONS as CLUSTER
from pair.cluster.connections import PeerConnections
from pair.cluster.merging import set_root
from pair.cluster.pins import PeerLeaf
from pair.cluster.refusing import PairingReply, refuse
from pair.cluster.statements import encode, read
from pair.cluster.syncing import SyncReply, SyncRequest, introduction, read_reply
from pair.cluster.tls import ClientSide, Credentials, client_factory
from pair.errors.book import ErrorBook
from pair.errors.registry import Registry
from pair.protocols.pairing.messages import End, Prove
from pair.surfaces.callers import Callers
from pair.surfaces.cluster import (
    INTRODUCTION_MAX,
    INTRODUCTIONS_APART,
    PAIRING_MAX,
    PROVE_MAX,
    ClusterApi,
    Introductions,
    cluster_site,
)
from pair.surfaces.conditions import CONDITIONS
from pair.surfaces.listening import PeerSurface
from pair.test.cluster.household import INSTANCE, Trustee
from pair.test.cluster.peers import taking
from pair.test.cluster.world import A, B, C, D, World, player
from pair.test.surfaces.wire import Answer, Conversation, Secure, Transport, request

if TYPE_CHECKING:
    from pair.cluster.statements import Statement
    from pair.test.cluster.world import Player

PAIRING = "/v1/cluster/pairing"
SYNC = "/v1/cluster/sync"
OWN_ADDRESS = "192.168.1.20"


class FakePairing:
    """Invitations that answer what they are told to.

    Attributes:
        received: Each request: body, MAC, source.
        reply: The answer; None: it comes later.
        waiting: Those that come later.
    """

    def __init__(self) -> None:
        self.received: list[tuple[bytes, bytes | None, str]] = []
        self.reply: PairingReply | None = PairingReply(200, b'{"ok":1}', b"bWFj")
        self.waiting: list[Deferred[PairingReply]] = []

    def receive(self, body: bytes, mac: bytes | None, source: str) -> Deferred[PairingReply]:
        self.received.append((body, mac, source))
        if self.reply is not None:
            return succeed(self.reply)
        self.waiting.append(Deferred())
        return self.waiting[-1]


class SurfaceTestCase(SynchronousTestCase):
    """A, whose cluster has the member B, the admitted C and the former D."""

    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.world = World(A)
        self.statements = [self.world.root, *self.world.enter(A, B, D), self.world.admit(A, C)]
        self.statements.append(self.world.remove(A, D))
        self.trust = Trustee(self.world, A, self.statements)
        self.pairing = FakePairing()
        self.heard: list[str] = []
        self.errors = ErrorBook(A.node, Registry((*CLUSTER, *CONDITIONS)), lambda: 0)
        self.callers = Callers(self.reactor, A.node, self.trust, OWN_ADDRESS.__eq__, self.errors)
        self.addCleanup(self.callers.close)
        api = ClusterApi(self.reactor, self.trust, self.pairing, self.callers, self.heard.append)
        self.site = cluster_site(self.reactor, api, self.callers)

    def connect(self, who: Player | None, address: str = "192.168.1.30") -> Conversation:
        where = IPv4Address("TCP", address, 1)
        if who is None:
            return Conversation(self.site, Transport(peerAddress=where))
        return Conversation(self.site, Secure(PeerLeaf.of(who.leaf), where))

    def ask(self, who: Player | None, data: bytes, address: str = "192.168.1.30") -> Answer:
        conversation = self.connect(who, address)
        conversation.send(data)
        return conversation.answer

    def verdict(self, who: Player | None, data: bytes) -> tuple[int, str]:
        answer = self.ask(who, data)
        return answer.status, answer.code

    def request(self, want: bytes = b"", *brought: Statement) -> bytes:
        root = set_root(()).hex()
        message = SyncRequest(1, UUID(self.world.cluster), INSTANCE, root, want, tuple(map(encode, brought)))
        return request("POST", SYNC, msgspec.json.encode(message))


class PairingTests(SurfaceTestCase):
    def test_anyone(self) -> None:
        """Anyone may pair, in the clear; the MAC and the source go with the body (CL-27, CL-44)."""
        answer = self.ask(None, request("POST", PAIRING, b'{"a":1}', x_pair_mac="bWFj"))
        self.assertEqual((answer.status, answer.body), (200, b'{"ok":1}'))
        self.assertEqual((answer.field("x-pair-mac"), answer.field("content-type")), ("bWFj", "application/json"))
        self.assertEqual(self.pairing.received, [(b'{"a":1}', b"bWFj", "192.168.1.30")])

    def test_refused(self) -> None:
        """A refusal comes as it is, with its fields and without a MAC (CL-42)."""
        self.pairing.reply = refuse(429, "too_many", A.node, 10)
        answer = self.ask(None, request("POST", PAIRING, b"{}"))
        self.assertEqual((answer.status, answer.code, answer.field("retry-after")), (429, "too_many", "10"))
        self.assertIsNone(answer.field("x-pair-mac"))

    def test_no_forwarding(self) -> None:
        """The source is that of the socket, whatever a request says (CL-44)."""
        data = request("POST", PAIRING, b"{}", x_forwarded_for="10.9.9.9", forwarded="for=10.9.9.9")
        self.ask(None, data)
        self.assertEqual(self.pairing.received[0][2], "192.168.1.30")

    def test_two_macs(self) -> None:
        """Of two MACs none counts."""
        data = request("POST", PAIRING, b"{}", x_pair_mac="one").replace(b"\r\n\r\n", b"\r\nX-Pair-Mac: two\r\n\r\n")
        self.ask(None, data)
        self.assertEqual(self.pairing.received[0][1], None)

    def test_browser(self) -> None:
        """A page that asks is 403 before its body is read: by its Origin, or by a type it need not ask for (CL-22)."""
        for data in (
            request("POST", PAIRING, b"{}", origin="http://evil.example"),
            request("POST", PAIRING, b"{}", origin="null"),
            request("OPTIONS", PAIRING, origin="http://evil.example"),
            request("POST", PAIRING, b"{}", content_type="text/plain"),
            request("POST", PAIRING, b"{}", content_type=None),
            request("POST", PAIRING),
        ):
            data = data[: data.index(b"\r\n\r\n") + 4]
            self.assertEqual(self.verdict(None, data), (403, "browser"), data)
        self.assertEqual(self.pairing.received, [])

    def test_others_in_the_clear(self) -> None:
        """Anything else in the clear is 403, from loopback too (CL-21)."""
        for path in (SYNC, "/", "/v1/cluster/pairing/", "/v1/cluster"):
            for method in ("GET", "POST"):
                answer = self.ask(None, request(method, path), "127.0.0.1")
                self.assertEqual((answer.status, answer.code), (403, "mtls_required"))

    def test_methods(self) -> None:
        """Another method is 405, with the one there is (CL-21)."""
        for method in ("GET", "PUT", "DELETE"):
            answer = self.ask(None, request(method, PAIRING))
            self.assertEqual((answer.status, answer.field("allow")), (405, "POST"))

    def test_too_large(self) -> None:
        """A body of more than 16 KiB is 413 before it is read; with a MAC, one of 256 KiB (AR-19, cluster page, 4)."""
        for limit, mac in ((PAIRING_MAX, None), (PROVE_MAX, "bWFj")):
            length = str(limit + 1)
            head = request("POST", PAIRING, content_type="application/json", content_length=length, x_pair_mac=mac)
            self.assertEqual(self.verdict(None, head), (413, "too_large"))
        chunked = request("POST", PAIRING, content_type="application/json", transfer_encoding="chunked")
        conversation = self.connect(None)
        conversation.send(chunked + b"4001\r\n" + b"x" * 0x4001)
        self.assertEqual(conversation.answer.status, 413)
        self.assertEqual(self.pairing.received, [])

    def test_proof(self) -> None:
        """Of the requests with a MAC only a proof may have more than 16 KiB."""
        proof = msgspec.json.encode(Prove("0f" * 16, 2, bytes(32), bytes(30_000)))
        self.assertEqual(self.ask(None, request("POST", PAIRING, proof, x_pair_mac="bWFj")).status, 200)
        end = msgspec.json.encode(End("0f" * 16, 2, "cancelled"))[:-1] + b',"x":"' + b"x" * 30_000 + b'"}'
        for body in (end, b" " * 30_000, proof[:-1]):
            self.assertEqual(self.verdict(None, request("POST", PAIRING, body, x_pair_mac="bWFj")), (413, "too_large"))
        self.assertEqual(len(self.pairing.received), 1)

    def test_long_poll(self) -> None:
        """A poll is answered when there is an answer; if its client hangs up, it is cancelled, and no fault."""
        self.pairing.reply = None
        conversations = [self.connect(None), self.connect(None)]
        for each in conversations:
            each.send(request("POST", PAIRING, b"{}"))
        answered, left = self.pairing.waiting
        answered.callback(PairingReply(200, b"{}"))
        self.assertEqual(conversations[0].answer.status, 200)
        conversations[1].transport.loseConnection()
        self.assertTrue(left.called)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_over_tls(self) -> None:
        """Pairing over TLS: 404 for a member, and for others what they get everywhere (CL-17, CL-21)."""
        data = request("POST", PAIRING, b"{}")
        self.assertEqual(self.verdict(B, data), (404, "no_such_route"))
        self.assertEqual(self.verdict(D, data), (403, "not_member"))


class SyncTests(SurfaceTestCase):
    def synced(self, who: Player, data: bytes, address: str = "192.168.1.30") -> SyncReply:
        answer = self.ask(who, data, address)
        self.assertEqual(answer.status, 200, answer.body)
        return read_reply(answer.body)

    def test_member(self) -> None:
        """A member syncs, and that it is there is told (CL-82, CL-84)."""
        reply = self.synced(B, self.request())
        self.assertEqual(reply.have, b"".join(each.id for each in self.trust.statements))
        note = self.world.note(B, 1)
        self.synced(B, self.request(b"", note))
        self.assertIn(note, self.trust.statements)
        self.assertEqual(self.heard, [B.node, B.node])

    def test_admitted(self) -> None:
        """An admitted node may sync, and do nothing else (CL-16)."""
        self.assertIsNotNone(self.synced(C, self.request()).have)
        for data in (request("GET", SYNC), request("GET", "/"), request("POST", PAIRING, b"{}")):
            self.assertEqual(self.verdict(C, data), (403, "not_member"))
        self.synced(C, self.request(b"", self.world.join(C)))
        self.assertEqual(self.trust.pins.check(PeerLeaf.of(C.leaf)).relation, "member")

    def test_strangers(self) -> None:
        """Strangers and former members are 403 with what evidence there is, and their connection ends (CL-17)."""
        for who, count in ((D, 4), (player("stranger"), 0)):
            conversation = self.connect(who)
            conversation.send(self.request())
            answer = conversation.answer
            self.assertEqual((answer.status, answer.code, answer.field("connection")), (403, "not_member", "close"))
            self.assertEqual(len(answer.json["evidence"]), count)
            self.assertFalse(conversation.transport.connected)
        self.assertEqual(self.heard, [])

    def introduced(self, who: Player, *by: Statement) -> bytes:
        away = Trustee(self.world, who, [*self.statements, *by])
        assert away.view is not None
        assert away.me is not None
        return self.request(b"", *read(introduction(away.view, away.me)).statements)

    def test_introduction(self) -> None:
        """A member that was admitted while this node was off introduces itself, a former one too (CL-80)."""
        new, again = player("new"), D.again(2)
        self.synced(new, self.introduced(new, *self.world.enter(B, new)))
        self.synced(again, self.introduced(again, *self.world.enter(B, again)), "192.168.1.31")
        for who in (new, D):
            self.assertEqual(self.trust.pins.check(PeerLeaf.of(who.leaf)).relation, "member")

    def test_introductions_apart(self) -> None:
        """One source may introduce itself once in 5 s, members may bring what they like (CL-80)."""
        first, second = player("first"), player("second")
        data = self.introduced(second, *self.world.enter(B, second))
        self.assertEqual(self.verdict(first, self.request(b"", self.world.admit(first, first))), (403, "not_member"))
        before = self.trust.statements
        self.assertEqual(self.verdict(second, data), (403, "not_member"))
        self.assertEqual(self.trust.statements, before)
        self.synced(B, self.request(b"", self.world.note(B, 1)))
        self.reactor.advance(INTRODUCTIONS_APART)
        self.synced(second, data)

    def test_valid_looking(self) -> None:
        """64 statements of a stranger that look valid store nothing, and more are not even counted (CL-80)."""
        stranger = player("stranger")
        socks = [player(f"sock {number}") for number in range(40)]
        forged = [each for who in socks for each in self.world.enter(stranger, who)]
        before = self.trust.statements
        self.assertEqual(self.verdict(stranger, self.request(b"", *forged[:64])), (403, "not_member"))
        self.assertEqual(self.verdict(stranger, self.request(b"", *forged[:65])), (403, "not_member"))
        self.assertEqual(self.trust.statements, before)

    def test_too_large(self) -> None:
        """Over 1 MiB of a member, over 128 KiB of another, is 413 before it is read (AR-19, cluster page, 4)."""
        for who, limit in ((B, 1024 * 1024), (C, INTRODUCTION_MAX), (player("stranger"), 128 * 1024)):
            for length, status in ((limit + 1, 413), (limit, 0)):
                conversation = self.connect(who)
                head = request("POST", SYNC, content_type="application/json", content_length=str(length))
                conversation.send(head)
                self.assertEqual([each.status for each in conversation.answers], [status] if status else [])

    def test_in_no_file(self) -> None:
        """A body of a megabyte is kept in memory (AR-19)."""
        self.patch(__import__("tempfile"), "TemporaryFile", lambda *_: self.fail("a file"))
        conversation = self.connect(B)
        conversation.send(request("POST", SYNC, b"x" * 1024 * 1024))
        self.assertEqual((conversation.answer.status, conversation.answer.code), (400, "bad_request"))

    def test_malformed(self) -> None:
        """What is no JSON object, or has a wrong type, is 400 (CL-21)."""
        for body in (b"", b"[]", b"{}", b"{", b'{"v":"1"}', b"\xff", b"[" * 9999):
            self.assertEqual(self.verdict(B, request("POST", SYNC, body)), (400, "bad_request"), body)
        self.assertEqual(self.verdict(B, request("POST", SYNC, b"{}", content_type="text/plain"))[0], 415)

    def test_routes(self) -> None:
        """Other paths are 404, other methods 405 with the one there is (CL-21)."""
        self.assertEqual(self.verdict(B, request("GET", "/v1/cluster")), (404, "no_such_route"))
        answer = self.ask(B, request("GET", SYNC))
        self.assertEqual((answer.status, answer.field("allow")), (405, "POST"))

    def test_own_leaf(self) -> None:
        """Our own leaf from here is refused, from elsewhere it is a clone (CL-20)."""
        answer = self.ask(A, self.request(), OWN_ADDRESS)
        self.assertEqual((answer.status, answer.code), (403, "is_self"))
        self.assertEqual(self.errors.entries(), ())
        self.assertEqual(self.verdict(A, self.request()), (403, "identity_clash"))
        self.assertEqual([each.id for each in self.errors.entries()], [f"cluster:identity_clash:{A.node}"])

    def test_other_cluster(self) -> None:
        """A member that asks about another cluster gets 409 with the evidence there is (CL-82)."""
        message = SyncRequest(1, UUID(World(B, "other").cluster), INSTANCE, "00" * 32)
        answer = self.ask(B, request("POST", SYNC, msgspec.json.encode(message)))
        self.assertEqual((answer.status, answer.code, answer.json["evidence"]), (409, "other_cluster", []))

    def test_cut_off(self) -> None:
        """Who is cut off by what it brought, as a leaver is, has brought it all the same (CL-18, CL-88)."""
        conversation = self.connect(B)
        leave = self.world.leave(B)
        self.trust.changed.subscribe(lambda _: conversation.transport.loseConnection())
        conversation.send(self.request(b"", leave))
        self.assertIn(leave, self.trust.statements)
        self.assertEqual((conversation.answers, self.flushLoggedErrors()), ([], []))

    def test_store_fails(self) -> None:
        """If what came cannot be stored, it is our fault, and that is logged."""
        self.trust.failing = OSError("no space")
        self.assertEqual(self.verdict(B, self.request(b"", self.world.note(B, 1))), (500, "internal"))
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)

    def test_many_sources(self) -> None:
        """However many sources there are, so many are remembered; beyond these nobody is let in."""
        introductions = Introductions()
        self.assertEqual(sum(introductions.admit(str(each), 0.0) for each in range(2000)), 1024)
        self.assertTrue(introductions.admit("0", INTRODUCTIONS_APART))


class PortTests(SurfaceTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.factory: Any = None
        credentials, connections = Credentials(A.leaf, A.key), PeerConnections()
        PeerSurface(
            "cluster", self.reactor, self.listen, 14321, self.site, credentials, connections, self.errors
        ).startService()

    def listen(self, port: int, factory: Any, address: str) -> Any:
        self.factory = factory
        return self.reactor.listenTCP(port, factory, interface=address)

    def dial(self, who: Player, data: bytes) -> Any:
        """Dial the port as ``who``, over real TLS in memory, and send ``data``; the client's protocol."""
        server = self.factory.buildProtocol(IPv4Address("TCP", "192.168.1.30", 1))
        clients = taking(data)
        side = ClientSide(Credentials(who.leaf, who.key), A.leaf)
        tls = client_factory(side, clients, PeerConnections(), self.reactor)
        client = tls.buildProtocol(None)
        transport = makeFakeServer(server)
        transport.peerAddress = IPv4Address("TCP", "192.168.1.30", 1)
        # What decides by the first byte gives its place away, which a transport of the simulation has to follow.
        pump = connect(server, transport, client, makeFakeClient(client), clock=self.reactor)
        for _ in range(10):
            pump.server = transport.protocol
            pump.pump()
        return clients.last

    def test_real_tls(self) -> None:
        """Behind the first byte is mutual TLS, whose leaf the guard sees (CL-15, CL-16)."""
        for who, status in ((B, b"200"), (D, b"403"), (player("stranger"), b"403")):
            client = self.dial(who, self.request())
            self.assertTrue(client.data.startswith(b"HTTP/1.1 " + status), client.data[:80])
