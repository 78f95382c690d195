"""Mutual TLS on real sockets: against another TLS than ours, and the way from a dial to an answer."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import load_der_x509_certificate
from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import deferLater
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import TestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from pair.cluster.calls import PeerAnswer, PeerCaller, PlainCaller
from pair.cluster.connections import PeerConnections
from pair.cluster.dialing import PeerUnreachable, PinnedDial
from pair.cluster.tls import server_factory
from pair.protocols.dial import DialError, dial
from pair.protocols.eager import listen_eager
from pair.protocols.firstbyte import FirstByteFactory
from pair.test.cluster.peers import Pins, credentials, identity, taking

if TYPE_CHECKING:
    from twisted.web.server import Request

    from pair.cluster.identity import Identity

reactor: Any = global_reactor
OPENSSL = shutil.which("openssl")
REQUEST = b"POST / HTTP/1.1\r\nHost: pair\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
DESK, RACK, OTHER = identity(), identity(), identity()


class Leaf(Resource):
    """Answers with the digest of the leaf that the request came with; ``POST /held`` is held until a test ends it."""

    isLeaf = True
    held: Deferred[None]

    def render_POST(self, request: Request) -> bytes | int:
        peer = getattr(request.channel.transport, "peerLeaf", None)
        if request.path == b"/held":
            self.held.callback(None)
            return NOT_DONE_YET
        return b"plain" if peer is None else peer.digest.hex().encode()


class MutualTLSTests(TestCase):
    timeout = 20

    def setUp(self) -> None:
        self.resource = Leaf()
        self.resource.held = Deferred()
        site = Site(self.resource, reactor=reactor)
        self.inbound, self.outbound = PeerConnections(), PeerConnections()
        tls = server_factory(credentials(DESK), site, self.inbound, reactor)
        self.listening = listen_eager(reactor, 0, FirstByteFactory(reactor, site, tls), "127.0.0.1")
        self.port: int = self.listening.getHost().port  # type: ignore[attr-defined]
        self.pins = Pins(DESK)
        self.dialling = PinnedDial(reactor, credentials(RACK), lambda: self.pins, self.outbound)
        self.caller = PeerCaller(reactor, self.dialling)

    async def tear_down(self) -> None:
        await maybeDeferred(self.listening.stopListening)
        self.inbound.abort_all()
        self.outbound.abort_all()
        await deferLater(reactor, 0, lambda: None)  # In this turn the sockets close.

    def tearDown(self) -> Deferred[None]:  # type: ignore[override]
        return Deferred.fromCoroutine(self.tear_down())

    def post(self, path: str = "/") -> Deferred[PeerAnswer]:
        return self.caller.post(DESK.uuid, path, b"{}", 1000, ["127.0.0.2", "127.0.0.1"], port=self.port)

    async def s_client(self, *options: str) -> str:
        """What ``openssl s_client`` has to say of the port, and what it was answered."""
        address = f"127.0.0.1:{self.port}"
        out, err, _ = await getProcessOutputAndValue(
            str(OPENSSL),
            ["s_client", "-connect", address, "-brief", "-ign_eof", *options],
            reactor=reactor,
            stdinBytes=REQUEST,
        )
        return str(out + err, "utf-8")

    def files(self, node: Identity) -> tuple[str, ...]:
        """Options that make ``s_client`` a node."""
        folder = Path(self.mktemp())
        folder.mkdir()
        leaf, key = folder / "node.crt", folder / "node.key"
        leaf.write_bytes(load_der_x509_certificate(node.leaf).public_bytes(Encoding.PEM))
        key.write_bytes(node.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return "-cert", str(leaf), "-key", str(key)

    async def test_openssl(self) -> None:
        """Another TLS is served in version 1.3 and without ALPN, if it shows a leaf (CL-9 to CL-11)."""
        said = await self.s_client(*self.files(OTHER), "-alpn", "h2,http/1.1")
        self.assertIn("TLSv1.3", said)
        self.assertIn(DESK.uuid, said)
        self.assertIn(sha256(OTHER.leaf).hexdigest(), said)
        self.assertNotIn("ALPN protocol", said)

    async def test_openssl_old_version(self) -> None:
        """TLS 1.2 is answered with an alert (CL-11)."""
        said = await self.s_client(*self.files(OTHER), "-tls1_2")
        self.assertIn("alert protocol version", said)
        self.assertNotIn("HTTP/1.1", said)

    async def test_openssl_without_certificate(self) -> None:
        """A client without a leaf is answered with an alert, which in TLS 1.3 it reads late (CL-11, CL-19)."""
        said = await self.s_client()
        self.assertIn("certificate required", said)
        self.assertNotIn("HTTP/1.1", said)

    if OPENSSL is None:
        for each in (test_openssl, test_openssl_old_version, test_openssl_without_certificate):
            each.skip = "there is no openssl here"  # type: ignore[attr-defined]

    async def test_call(self) -> None:
        """A call tries one address after the other, and is answered as who it is; the connection does not stay."""
        answer = await self.post()
        self.assertEqual((answer.status, answer.address), (200, "127.0.0.1"))
        self.assertEqual(answer.body.decode(), sha256(RACK.leaf).hexdigest())
        while self.inbound or self.outbound:
            await deferLater(reactor, 0, lambda: None)

    async def test_plain_call(self) -> None:
        """The same port takes a plain call, which has no leaf."""
        reply = await PlainCaller(reactor).post("127.0.0.1", self.port, "/", b"{}", {}, 5)
        self.assertEqual((reply.status, reply.body), (200, b"plain"))

    async def test_another_leaf(self) -> None:
        """A port that shows another leaf than the pinned one is not spoken to (CL-12)."""
        self.pins = Pins()
        self.pins.members[DESK.uuid] = OTHER.leaf
        with self.assertRaises(PeerUnreachable) as caught:
            await self.post()
        self.assertEqual(caught.exception.reason, "certificate")

    async def test_cut(self) -> None:
        """A request under way is aborted by the side that no longer has the peer (CL-18)."""
        call = self.post("/held")
        await self.resource.held
        self.assertEqual(self.inbound.cut(Pins(OTHER)), 1)
        with self.assertRaises(PeerUnreachable) as caught:
            await call
        self.assertEqual((caught.exception.reason, caught.exception.met), ("refused", True))

    async def test_no_such_zone(self) -> None:
        """An address whose zone this machine has not is one where nobody is (CL-58)."""
        for address in ("fe80::1%nosuchzone", "fe80::1%", "fe80::1"):
            with self.assertRaises(DialError):
                await dial(reactor, address, self.port, taking())
