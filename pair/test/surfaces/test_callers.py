"""Tests of pair.surfaces.callers, and of what a site tells a guard of the peer."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import msgspec
from klein import Klein
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.conditions import CONDITIONS
from pair.cluster.limits import LINE_SECONDS, Sparing
from pair.cluster.pins import PeerLeaf
from pair.cluster.statements import encode, read
from pair.errors.book import ErrorBook
from pair.errors.registry import Registry
from pair.logs import Logger
from pair.surfaces import site as site_module
from pair.surfaces.answers import json_reply, render_failures, send
from pair.surfaces.callers import CLASH_SECONDS, Callers, MemberGuard
from pair.surfaces.refusals import Refusal, error_body
from pair.surfaces.rules import Head, Peer
from pair.surfaces.site import SurfaceSite, peer_of
from pair.test.cluster.household import Trustee
from pair.test.cluster.world import A, B, C, D, World, player
from pair.test.surfaces.wire import Conversation, Secure, Transport, request

if TYPE_CHECKING:
    from twisted.web.iweb import IRequest

    from pair.test.cluster.world import Player

OWN_ADDRESS = "192.168.1.20"


def peer(who: Player, address: str = "192.168.1.30") -> Peer:
    return Peer(address, True, PeerLeaf.of(who.leaf))


class CallersTestCase(SynchronousTestCase):
    """A, whose cluster has the member B, the admitted C and the former D."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.world = World(A)
        self.statements = [self.world.root, *self.world.enter(A, B, D), self.world.admit(A, C)]
        self.statements.append(self.world.remove(A, D))
        self.trust = Trustee(self.world, A, self.statements)
        self.errors = ErrorBook(A.node, Registry(CONDITIONS), lambda: int(self.clock.seconds() * 1000))
        self.callers = Callers(self.clock, A.node, self.trust, OWN_ADDRESS.__eq__, self.errors)
        self.addCleanup(self.callers.close)

    @property
    def entries(self) -> list[str]:
        return [each.id for each in self.errors.entries()]


class CallerTests(CallersTestCase):
    def refusal(self, who: Player, address: str = "192.168.1.30") -> Refusal:
        refusal = self.callers.objection(peer(who, address))
        assert refusal is not None
        return refusal

    def test_member(self) -> None:
        """A member is served (CL-16)."""
        self.assertIsNone(self.callers.objection(peer(B)))
        self.assertEqual(self.callers.refused_total.values, {})

    def test_plain(self) -> None:
        """Without TLS nobody is (CL-21)."""
        refusal = self.callers.objection(Peer(OWN_ADDRESS))
        self.assertEqual(refusal and (refusal.status, refusal.code), (403, "mtls_required"))

    def test_no_leaf(self) -> None:
        """TLS without a leaf is a stranger's."""
        refusal = self.callers.objection(Peer("192.168.1.30", True))
        self.assertEqual(refusal and (refusal.code, refusal.evidence), ("not_member", ()))

    def test_others(self) -> None:
        """Anything but a member is 403 and the end of its connection (CL-17), and is counted by reason (CL-106)."""
        for who in (C, D, player("stranger"), player("B", "twin")):
            refusal = self.refusal(who)
            self.assertEqual((refusal.status, refusal.code), (403, "not_member"))
            self.assertIn((b"Connection", b"close"), refusal.fields)
        self.assertEqual(self.callers.refused_total.values, {("not_member",): 1, ("former",): 1, ("stranger",): 2})

    def test_evidence(self) -> None:
        """A former member is told its cut and the way to its signer, a stranger nothing (CL-17)."""
        told = read(self.refusal(D).evidence or ()).statements
        self.assertEqual([each.body.KIND for each in told], [1, 2, 3, 4])
        self.assertEqual(self.refusal(player("stranger")).evidence, ())

    def test_body(self) -> None:
        """The evidence stands beside the error, as base64, also where it is empty (CL-17)."""
        body = msgspec.json.decode(error_body(self.refusal(D), "e-1"))
        self.assertEqual(body["error"]["code"], "not_member")
        self.assertEqual(len(body["evidence"]), 4)
        self.assertEqual(msgspec.json.decode(error_body(self.refusal(player("stranger")), "e-1"))["evidence"], [])
        self.assertNotIn("evidence", msgspec.json.decode(error_body(Refusal(404, "x", "y"), "e-1")))

    def test_present_view(self) -> None:
        """Each request is checked by the view of that moment (CL-16)."""
        self.trust.say(self.world.remove(A, B))
        self.assertEqual(self.callers.check(peer(B)).relation, "former")

    def test_own_leaf_from_here(self) -> None:
        """This node, calling itself, is refused, and nothing is told (CL-20)."""
        self.assertEqual(self.refusal(A, OWN_ADDRESS).code, "is_self")
        self.assertEqual(self.entries, [])

    def test_clone(self) -> None:
        """Our own leaf from elsewhere is a clone: that is told until it was not seen for 10 min (CL-20, CL-94)."""
        refusal = self.refusal(A)
        self.assertEqual((refusal.status, refusal.code, refusal.evidence), (403, "identity_clash", None))
        self.assertEqual(self.entries, [f"cluster:identity_clash:{A.node}"])
        (entry,) = self.errors.entries()
        self.assertIn("192.168.1.30", entry.message)
        self.assertEqual(entry.subject.node, A.node)
        self.clock.advance(CLASH_SECONDS - 1)
        self.refusal(A)
        self.clock.advance(CLASH_SECONDS - 1)
        self.assertEqual(self.entries, [f"cluster:identity_clash:{A.node}"])
        self.clock.advance(1)
        self.assertEqual(self.entries, [])

    def test_close(self) -> None:
        """Closed, it leaves no timer."""
        self.callers.close()
        self.refusal(A)
        self.callers.close()
        self.assertEqual((self.clock.getDelayedCalls(), self.entries), ([], []))

    def test_guard(self) -> None:
        """The guard of a port for members asks nothing of a request but who sends it."""
        guard = MemberGuard(self.callers, 1000)
        self.assertIsNone(guard.check(Head("GET", "/x", peer=peer(B))))
        refusal = guard.check(Head("GET", "/x", peer=peer(D)))
        self.assertEqual(refusal and refusal.code, "not_member")
        self.assertEqual(guard.body_limit(Head("GET", "/x")), 1000)


class PeerTests(SynchronousTestCase):
    def test_plain(self) -> None:
        """In the clear a peer is an address (AR-10)."""
        address = IPv4Address("TCP", "192.168.1.30", 1)
        self.assertEqual(peer_of(Transport(peerAddress=address)), Peer("192.168.1.30"))
        mapped = IPv6Address("TCP", "::ffff:192.168.1.30", 1)
        self.assertEqual(peer_of(Transport(peerAddress=mapped)), Peer("192.168.1.30"))

    def test_zone(self) -> None:
        """A link-local address has the name of the interface that it came by, or its number (CL-44, CL-58)."""
        number, name = socket.if_nameindex()[0]
        address = IPv6Address("TCP", "fe80::1", 1, scopeID=number)
        self.assertEqual(peer_of(Transport(peerAddress=address)).address, f"fe80::1%{name}")
        gone = IPv6Address("TCP", "fe80::1", 1, scopeID=2**30)
        self.assertEqual(peer_of(Transport(peerAddress=gone)).address, f"fe80::1%{2**30}")

    def test_tls(self) -> None:
        """Over TLS it is a leaf too (CL-15)."""
        leaf = PeerLeaf.of(B.leaf)
        address = IPv4Address("TCP", "192.168.1.30", 1)
        self.assertEqual(peer_of(Secure(leaf, address)), Peer("192.168.1.30", True, leaf))


class SiteTests(CallersTestCase):
    """A port for members only, behind a real site."""

    def setUp(self) -> None:
        super().setUp()
        app = Klein()

        @app.route("/x", methods=["GET", "POST"])
        def serve(request: IRequest) -> bytes:
            return send(request, json_reply({}))

        render_failures(app)
        self.site = SurfaceSite(app.resource(), MemberGuard(self.callers, 1000), self.clock, Sparing())

    def connect(self, who: Player | None, address: str = "192.168.1.30") -> Conversation:
        where = IPv4Address("TCP", address, 1)
        if who is None:
            return Conversation(self.site, Transport(peerAddress=where))
        return Conversation(self.site, Secure(PeerLeaf.of(who.leaf), where))

    def test_every_request(self) -> None:
        """A removed member is served no more, on the connection that it has, and is told why (CL-16, CL-17)."""
        conversation = self.connect(B)
        conversation.send(request("GET", "/x"))
        self.assertEqual(conversation.answer.status, 200)
        self.trust.say(self.world.remove(A, B))
        conversation.send(request("GET", "/x"))
        refused = conversation.answers[1]
        self.assertEqual((refused.status, refused.code, refused.field("connection")), (403, "not_member", "close"))
        evidence = read(msgspec.convert(refused.json["evidence"], tuple[bytes, ...])).statements
        merged = Trustee(self.world, B, [*self.statements, *evidence])
        self.assertIsNone(merged.view)
        self.assertFalse(conversation.transport.connected)

    def test_before_the_body(self) -> None:
        """A stranger is refused before its body is read, whatever it asks for (AR-19)."""
        for data in (request("POST", "/x", b"{}")[:-2], request("GET", "/nowhere"), request("PUT", "/x")):
            conversation = self.connect(player("stranger"))
            conversation.send(data)
            self.assertEqual((conversation.answer.status, conversation.answer.code), (403, "not_member"))

    def test_plain(self) -> None:
        """In the clear nothing is served, from loopback neither (CL-21)."""
        for address in ("192.168.1.30", "127.0.0.1"):
            conversation = self.connect(None, address)
            conversation.send(request("GET", "/x"))
            self.assertEqual((conversation.answer.status, conversation.answer.code), (403, "mtls_required"))
            self.assertFalse(conversation.transport.connected)

    def test_lines(self) -> None:
        """Of refusals at most one line a minute is written for each source (CL-105)."""
        lines: list[Any] = []
        self.patch(site_module, "log", Logger(observer=lines.append))  # type: ignore[arg-type]  # a list takes any
        for _ in range(3):
            for address in ("192.168.1.30", "192.168.1.31"):
                self.connect(player("stranger"), address).send(request("GET", "/x"))
        self.assertEqual(len(lines), 2)
        self.clock.advance(LINE_SECONDS)
        self.connect(player("stranger")).send(request("GET", "/x"))
        self.assertEqual(len(lines), 3)
        self.connect(B).send(request("GET", "/x") * 2)
        self.assertEqual(len(lines), 5)
        self.connect(B).send(request("GET", "/nowhere") * 3)
        self.assertEqual(len(lines), 5)

    def test_nothing_shown(self) -> None:
        """No leaf and no evidence stands in the text of a peer (CL-104)."""
        for shown in (repr(peer(D)), repr(self.callers.objection(peer(D)))):
            self.assertNotIn(repr(D.leaf)[2:-1][:40], shown)
            self.assertNotIn(repr(encode(self.statements[0]))[2:-1][:60], shown)
