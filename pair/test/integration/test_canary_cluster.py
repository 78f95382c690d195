"""No code, private key or certificate is kept or shown where it does not belong, whatever becomes of invitations.

Certificates belong into ``node.crt`` and, within statements, into the store;
keys into ``node.key``; a code into the one answer that shows it (OP-34, CL-101,
CL-104, CL-105).
"""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
from base64 import b64encode
from contextlib import closing
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from pair.control.route import EVENTS
from pair.control.routes import ROUTES
from pair.test.integration.cluster import ClusterTestCase
from pair.test.integration.node import Answer, ask, wait_for
from pair.test.integration.test_canary import told

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pair.test.integration.cluster import ClusterNode

Places = dict[str, bytes]
"""What there is to be searched, by where it is."""


class ClusterCanaryTests(ClusterTestCase):
    def setUp(self) -> None:
        self.codes: list[str] = []
        self.said: Places = {}

    # What people do

    def ask(self, node: ClusterNode, path: str, body: object = None) -> Answer:
        """Ask a node something; what it answers is searched."""
        answer = node.call(path, body)
        self.said[f"answer {len(self.said)}, {path}"] = told(answer)
        return answer

    def invite(self, node: ClusterNode, place: str, kind: str) -> Any:
        """Invite; the answer is the one that may show the code."""
        answer = node.call("/cluster/invitations", {"address": place, "codeKind": kind})
        self.assertEqual(answer.status, 201, answer.body)
        self.codes.append(answer.value["code"])
        return answer.value

    def type(self, node: ClusterNode, invitation: Any, code: str) -> Answer:
        """Type a code, once the invitation is there."""
        known = [f"/cluster/invitations/{invitation['id']}", f"/cluster/invitations/{invitation['id']}/answer"]
        wait_for("the invitation", lambda: node.call(known[0]).status == 200)
        self.codes.append(code)
        answer = self.ask(node, known[1], {"accept": True, "code": code})
        self.ask(node, known[0])
        return answer

    def pair_by_command(self, inviter: ClusterNode, joiner: ClusterNode, place: str) -> None:
        """Invite and accept by ``pair-admin``; the one line that shows the code is not searched."""
        inviting = inviter.command("invite", place, "--code", "long", "--wait")
        code = inviting.line()["code"]
        self.codes.append(code)
        for command in (joiner.command("accept", "--wait", PAIR_CODE=code), inviting):
            exit_code, said = command.end()
            self.assertEqual(exit_code, 0, said)
            self.said[f"output {len(self.said)}"] = json.dumps(said).encode()

    # The test

    def test_everything(self) -> None:
        """A wrong code, one mistyped, two pairings, a removal and a new identity, at level debug."""
        nodes = first, second, third = self.start_peers(3, "log.level=debug")
        first_place, second_place = second.places
        wrong = self.type(second, self.invite(first, first_place, "long"), secrets.token_hex(10))
        self.assertEqual((wrong.status, wrong.value["error"]["code"]), (403, "wrong_code"))
        self.pair_by_command(first, second, second_place)
        invitation = self.invite(first, third.places[0], "pin")
        mistyped = self.type(third, invitation, f"{invitation['code']}{secrets.token_hex(8)}")
        self.assertEqual((mistyped.status, mistyped.value["error"]["code"]), (422, "invalid_value"))
        self.assertEqual(self.type(third, invitation, invitation["code"]).value["state"], "paired")
        self.assertEqual(self.type(third, invitation, invitation["code"]).status, 409)
        self.wait_until_agreed(*nodes)
        keys = {f"key {at}": key_of(each) for at, each in enumerate(nodes)}
        leaves = {f"leaf {at}": leaf_of(each) for at, each in enumerate(nodes)}
        self.search(nodes, keys, leaves)

        first.remove(third)
        wait_for("the removal to be known", lambda: third.cluster() is None)
        self.assertEqual(self.ask(third, "/cluster/identity/new", {"confirm": True}).status, 200)
        gone = keys["key 2"]
        keys["key 2"] = key_of(third)
        self.search(nodes, keys, leaves)
        self.assertEqual(found(self.places(nodes), traces(gone)), [])
        self.assert_seen(nodes)
        for each in nodes:
            each.stop()
        self.search_stores(nodes, {**keys, "gone": gone}, leaves)

    def search(self, nodes: Iterable[ClusterNode], keys: dict[str, bytes], leaves: dict[str, bytes]) -> None:
        """Each secret is where it belongs, and nowhere else."""
        places = self.places(nodes)
        for code in self.codes:
            self.assertEqual(found(places, [code_pattern(code)]), [])
        for name, key in keys.items():
            self.assertEqual(found(places, traces(key)), [f"{name[-1]} node.key"])
        for name, leaf in leaves.items():
            written = found(places, traces(leaf)[1:])
            self.assertLessEqual(set(written), {f"{name[-1]} node.crt"})
            raw = {each.partition(" ")[2].removesuffix("-wal") for each in found(places, traces(leaf)[:1])}
            self.assertEqual(raw, {"pair.sqlite3"})

    def search_stores(self, nodes: Iterable[ClusterNode], keys: dict[str, bytes], leaves: dict[str, bytes]) -> None:
        """In the stores certificates are in statements, and nothing else is anywhere (CL-104)."""
        for at, node in enumerate(nodes):
            fields = stored(node)
            self.assertIn("trust_audit.detail", fields)
            patterns = [code_pattern(each) for each in self.codes]
            self.assertEqual(found(fields, [*patterns, *(each for key in keys.values() for each in traces(key))]), [])
            of_leaves = found(fields, [each for leaf in leaves.values() for each in traces(leaf)])
            self.assertEqual(of_leaves, ["cluster_archive.evidence" if at == 2 else "statement.payload"])

    def assert_seen(self, nodes: Iterable[ClusterNode]) -> None:
        """What was searched is what there was to be seen."""
        for node in nodes:
            log = (node.state / "logs" / "pair.jsonl").read_text()
            for text in ('"level":"debug"', "An invitation ended", "The cluster "):
                self.assertIn(text, log)
            self.assertNotIn("Traceback", log)
        self.assertTrue(any(b"wrong_code" in each for each in self.said.values()))

    # What is searched

    def places(self, nodes: Iterable[ClusterNode]) -> Places:
        """All places where nodes that run could have left something, and what is there."""
        places = dict(self.said)
        for at, node in enumerate(nodes):
            files = {str(each.relative_to(node.state)): each for each in node.state.rglob("*") if each.is_file()}
            left = {name: path.read_bytes() for name, path in files.items()}
            left |= {route: self.shown(node, route) for route in shown_routes()}
            left["output"] = node.output().encode()
            left["arguments"] = "\n".join(" ".join(each.cmdline()) for each in node.processes()).encode()
            left["metrics"] = told(ask(node.control, "/metrics"))
            places |= {f"{at} {name}": content for name, content in left.items()}
        return places

    def shown(self, node: ClusterNode, path: str) -> bytes:
        """What the control API shows at ``path``."""
        answer = node.call(path)
        self.assertEqual(answer.status, 200, path)
        return told(answer)


def shown_routes() -> list[str]:
    """All that the control API has to show."""
    gets = [route for route in ROUTES if route.method == "GET" and "<" not in route.path]
    paths = [each.path for each in gets if each.content != EVENTS]
    return [each.removeprefix("/api/v1") for each in paths if each.startswith("/api/v1")]


def stored(node: ClusterNode) -> Places:
    """All fields of a store, column by column."""
    fields: Places = {}
    with closing(sqlite3.connect(node.state / "pair.sqlite3")) as store:
        tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            rows = store.execute(f'SELECT * FROM "{table}"')
            columns = [each[0] for each in rows.description]
            for row in rows:
                for column, value in zip(columns, row, strict=True):
                    content = value if isinstance(value, bytes) else str(value).encode()
                    fields[f"{table}.{column}"] = fields.get(f"{table}.{column}", b"") + b"\n" + content
    return fields


def key_of(node: ClusterNode) -> bytes:
    """The private key of a node: 32 octets."""
    key = load_pem_private_key((node.state / "node.key").read_bytes(), None)
    assert isinstance(key, Ed25519PrivateKey)
    return key.private_bytes_raw()


def leaf_of(node: ClusterNode) -> bytes:
    """A part of a node's certificate that is in no other."""
    pem = (node.state / "node.crt").read_bytes()
    return load_pem_x509_certificate(pem).public_bytes(Encoding.DER)[16:76]


def traces(secret: bytes) -> list[re.Pattern[bytes]]:
    """Ways in which octets can be written: as they are first, then as hex and base64, wherever in it they begin."""
    size = (len(secret) - 2) // 3 * 3
    spelt = [b64encode(secret[at : at + size]) for at in range(3)]
    lines = rb"(?:\\?[nr]|\s)*".join
    return [
        re.compile(re.escape(secret)),
        re.compile(secret.hex().encode(), re.IGNORECASE),
        *(re.compile(lines(re.escape(each[at : at + 1]) for at in range(len(each)))) for each in spelt),
    ]


def code_pattern(code: str) -> re.Pattern[bytes]:
    """A code, grouped or not, that is no part of a longer number."""
    digits = rb"[ -]?".join(re.escape(each).encode() for each in code.replace(" ", ""))
    return re.compile(rb"(?<![0-9A-Za-z.])" + digits + rb"(?![0-9A-Za-z])", re.IGNORECASE)


def found(places: Places, patterns: Iterable[re.Pattern[bytes]]) -> list[str]:
    """The places that have any of these, in order."""
    patterns = list(patterns)
    return sorted(place for place, content in places.items() if any(each.search(content) for each in patterns))
