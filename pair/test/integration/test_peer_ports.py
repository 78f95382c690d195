"""Whoever is no member gets the refusals of CL-16 to CL-20 wherever nodes meet: at port 14321 and at both facades.

The clients are other programs than ours: Python's TLS, openssl, and octets written by hand.
"""

from __future__ import annotations

import contextlib  # a module of tests that has a name "suppress" tells trial something by it
import json
import shutil
import socket
import ssl
import subprocess
import time
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import SkipTest

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import load_der_x509_certificate, load_pem_x509_certificate
from msgspec import Struct

from pair.cluster.identity import mint
from pair.cluster.membership import evaluate
from pair.cluster.signing import verify
from pair.cluster.statements import read
from pair.test.integration.cluster import ClusterTestCase
from pair.test.integration.network import cabled
from pair.test.integration.node import LIMIT, ask

if TYPE_CHECKING:
    from pair.cluster.membership import View
    from pair.test.integration.cluster import ClusterNode

AT_ONCE = 1.0
"""Seconds in which open connections end, slow machines included (CL-18)."""

OPENSSL = shutil.which("openssl")

OLD_HELLO = bytes.fromhex("16 0301 0031 01 00002d 0303") + bytes(32) + bytes.fromhex("00 0006 c02b c02f 1301 01 00")
"""A ClientHello of TLS 1.2, without extensions."""

NO_HELLO = bytes.fromhex("16 0301 0005") + b"hello"

PROTOCOL_VERSION = 70
"""An alert (RFC 8446, section 6)."""


class Leaf(Struct, frozen=True):
    """A certificate and its key, in files (PEM)."""

    certificate: Path
    key: Path

    @property
    def der(self) -> bytes:
        """The certificate."""
        return load_pem_x509_certificate(self.certificate.read_bytes()).public_bytes(Encoding.DER)


class Refusal(Struct, frozen=True):
    """An answer behind which the connection was closed. ``evidence`` is None where it has no such field."""

    status: int
    code: str
    evidence: tuple[bytes, ...] | None


NOT_MEMBER = Refusal(403, "not_member", ())
"""What a stranger gets."""


class PeerPortTests(ClusterTestCase):
    def test_stranger(self) -> None:
        """Whoever made its leaf itself is refused without a reason, and its connection closed (CL-16, CL-17)."""
        node, other = self.start_pair()
        stranger = self.make_leaf()
        for name, port in ports(node).items():
            self.assertEqual(refusal(stranger, port, question(name, node)), NOT_MEMBER)
            self.assertEqual(refusal(stranger, port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"), NOT_MEMBER)
            self.assertEqual(refusal(stranger, port, 2 * question(name, node)), NOT_MEMBER)
        hello = post("/v1/cluster/pairing", {"step": "hello"})
        self.assertEqual(refusal(stranger, node.port, hello), NOT_MEMBER)
        self.assertIn('pair_refused_total{reason="stranger"} 10.0', ask(node.control, "/metrics").body.decode())
        self.assertEqual(node.members(), {node.uuid, other.uuid})

    def test_openssl(self) -> None:
        """So it is with openssl; without a leaf, or in TLS 1.2, there is not even that (CL-11, CL-19)."""
        if OPENSSL is None:
            raise SkipTest("there is no openssl here")
        node, stranger = self.start_peers(1)[0], self.make_leaf()
        options = ("-cert", str(stranger.certificate), "-key", str(stranger.key))
        for name, port in ports(node).items():
            asked = question(name, node)
            said = s_client(port, asked, *options)
            self.assertIn("TLSv1.3", said)
            self.assertIn("HTTP/1.1 403", said)
            self.assertIn('"not_member"', said)
            for alert, without in (("certificate required", ()), ("protocol version", (*options, "-tls1_2"))):
                said = s_client(port, asked, *without)
                self.assertIn(f"alert {alert}", said)
                self.assertNotIn("HTTP/1.1", said)

    def test_by_hand(self) -> None:
        """What is no handshake of TLS 1.3 gets an alert, and what is no TLS gets nothing that is for members."""
        (node,) = self.start_peers(1)
        for port in ports(node).values():
            self.assertEqual(say(port, OLD_HELLO)[-2:], bytes((2, PROTOCOL_VERSION)))
            self.assertEqual(say(port, NO_HELLO)[:1], b"\x15")
        answer = ask(f"http://127.0.0.1:{node.port}", "/v1/cluster/sync", {})
        self.assertEqual((answer.status, answer.value["error"]["code"]), (403, "mtls_required"))

    def test_removed(self) -> None:
        """A removed member loses each connection at once, at every port; then it is told why (CL-16 to CL-18)."""
        node, victim = self.start_pair()
        cluster = node.cluster()
        assert cluster is not None
        leaf = leaf_of(victim)
        open_ones = []
        for name, port in ports(node).items():
            asked = question(name, node)
            idle, halfway, answered = (dial(leaf, port) for _ in range(3))
            halfway.sendall(asked[:40])
            answered.sendall(asked)
            self.assertIn(answered.recv(65536)[:12], (b"HTTP/1.1 409", b"HTTP/1.1 503"))
            open_ones += [idle, halfway, answered]
        began = time.monotonic()
        node.remove(victim)
        for each in open_ones:
            self.assertEqual(rest(each), b"")
        self.assertLess(time.monotonic() - began, AT_ONCE)

        reasons = set()
        for name, port in ports(node).items():
            refused = refusal(leaf, port, question(name, node))
            self.assertEqual((refused.status, refused.code), (403, "not_member"))
            reasons.add(refused.evidence)
        (evidence,) = reasons
        assert evidence is not None
        (former,) = judged(evidence, cluster).former
        self.assertEqual((former.leaf, former.how, former.by), (leaf.der, "removed", node.uuid))
        self.assertIn('pair_refused_total{reason="former"}', ask(node.control, "/metrics").body.decode())

    def test_clone(self) -> None:
        """Whoever has our own leaf is told of that, and from another host so are people here (CL-20)."""
        here, there = cabled(self, "uplink0", "lan7")
        with here.inside():
            (node,) = self.start_peers(1, 'node.bind=["0.0.0.0"]')
            places = ports(node)
            leaf = leaf_of(node)
            for name, port in places.items():
                self.assertEqual(refusal(leaf, port, question(name, node)), Refusal(403, "is_self", None))
            self.assertEqual(clashes(node), [])
        asked = {name: question(name, node) for name in places}
        for name, port in places.items():
            with there.inside():
                refused = refusal(leaf, port, asked[name], here.address)
            self.assertEqual(refused, Refusal(403, "identity_clash", None))
        with here.inside():
            self.assertEqual(clashes(node), [f"cluster:identity_clash:{node.uuid}"])

    # What they are made of.

    def start_pair(self) -> tuple[ClusterNode, ClusterNode]:
        """Two nodes, paired."""
        first, second = self.start_peers(2)
        self.pair(first, second)
        return first, second

    def make_leaf(self) -> Leaf:
        """One that nobody has let in."""
        folder = Path(self.mktemp())
        folder.mkdir()
        leaf, made = Leaf(folder / "certificate", folder / "key"), mint(time.time())
        leaf.certificate.write_bytes(load_der_x509_certificate(made.leaf).public_bytes(Encoding.PEM))
        leaf.key.write_bytes(made.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return leaf


def leaf_of(node: ClusterNode) -> Leaf:
    """A node's own."""
    return Leaf(node.state / "node.crt", node.state / "node.key")


def ports(node: ClusterNode) -> dict[str, int]:
    """All ports where other nodes ask it something."""
    facades = {name: int(node.facade(name).rpartition(":")[2]) for name in ("ollama", "lmstudio")}
    return {"cluster": node.port, **facades}


def question(name: str, node: ClusterNode) -> bytes:
    """What a member would ask at one of them."""
    if name == "cluster":
        cluster = "00000000-0000-8000-8000-000000000000"
        return post("/v1/cluster/sync", {"v": 1, "cluster": cluster, "instance": 16 * "0", "root": 64 * "0"})
    path = "/api/chat" if name == "ollama" else "/v1/chat/completions"
    return post(path, {"model": "any", "messages": []})


def post(path: str, body: dict[str, Any]) -> bytes:
    """A request of a node."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Pair-Hop: 1\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


def dial(leaf: Leaf, port: int, host: str = "127.0.0.1") -> ssl.SSLSocket:
    """A connection by mutual TLS, its handshake done as far as a client of TLS 1.3 can tell (CL-19)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(leaf.certificate, leaf.key)
    return context.wrap_socket(socket.create_connection((host, port), LIMIT))


def rest(connection: socket.socket) -> bytes:
    """All that comes until the other side closes the connection, or breaks it off."""
    data = b""
    with connection, contextlib.suppress(ConnectionError, ssl.SSLEOFError):
        while more := connection.recv(65536):
            data += more
    return data


def refusal(leaf: Leaf, port: int, request: bytes, host: str = "127.0.0.1") -> Refusal:
    """The one answer to ``request``, after which the connection must have been closed."""
    connection = dial(leaf, port, host)
    connection.sendall(request)
    head, _, body = rest(connection).partition(b"\r\n\r\n")
    status, *fields = head.lower().split(b"\r\n")
    assert b"connection: close" in fields, head
    value = json.loads(body)
    evidence = value.get("evidence")
    return Refusal(
        int(status.split()[1]), value["error"]["code"], None if evidence is None else tuple(map(b64decode, evidence))
    )


def say(port: int, data: bytes) -> bytes:
    """What comes of these octets, until the connection is closed."""
    connection = socket.create_connection(("127.0.0.1", port), LIMIT)
    connection.sendall(data)
    return rest(connection)


def s_client(port: int, request: bytes, *options: str) -> str:
    """What ``openssl s_client`` says of a port, and what it was answered."""
    done = subprocess.run(
        [str(OPENSSL), "s_client", "-connect", f"127.0.0.1:{port}", "-brief", "-ign_eof", *options],
        input=request,
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )
    return (done.stdout + done.stderr).decode()


def judged(evidence: tuple[bytes, ...], cluster: str) -> View:
    """What somebody sees who knows nothing but the evidence."""
    return evaluate(read(evidence).statements, cluster, verify)


def clashes(node: ClusterNode) -> list[str]:
    """The error entries about copies of a node."""
    return [each for each in node.errors() if each.startswith("cluster:identity_clash")]
