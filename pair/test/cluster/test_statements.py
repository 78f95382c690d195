"""Tests of :mod:`pair.cluster.statements` and :mod:`pair.cluster.signing`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster import signing
from pair.cluster.statements import (
    KEEP_MAX,
    NUMBER_MAX,
    STATEMENT_BYTES_MAX,
    Admit,
    Body,
    Found,
    Join,
    Leave,
    Note,
    Remove,
    Statement,
    StatementError,
    UnknownKindError,
    cluster_id,
    decode,
    encode,
    found,
    incarnation_id,
    lp,
    make,
    read,
)
from pair.test.cluster.world import A, B, Player, World

VECTORS = json.loads(Path(__file__).with_name("vectors.json").read_text("utf-8"))
KINDS: dict[int, type[Body]] = {each.KIND: each for each in (Found, Admit, Join, Remove, Leave, Note)}

ID = st.binary(min_size=32, max_size=32)
NUMBER = st.integers(1, NUMBER_MAX)
KEEP = st.sets(ID, max_size=8).map(lambda ids: tuple(sorted(ids)))
NAME = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)
ADDRESS = st.ip_addresses().map(str)
PORTS = st.dictionaries(st.from_regex(r"[a-z]{2}", fullmatch=True), st.integers(1, 65535), max_size=8)
BODY: st.SearchStrategy[Body] = st.one_of(
    st.builds(Admit, st.just(A.node), NUMBER, st.just(A.leaf)),
    st.just(Join()),
    st.builds(Remove, ID, KEEP),
    st.builds(Leave, KEEP),
    st.builds(
        Note, NUMBER, NAME, st.lists(ADDRESS, max_size=8).map(tuple), PORTS.map(lambda ports: tuple(ports.items()))
    ),
)


def says(kind: int, fields: dict[str, Any]) -> Body:
    """The body that a vector describes."""
    kinds = KINDS[kind]
    hexes = {name for name in ("leaf", "random", "incarnation") if name in fields}
    values = fields | {name: bytes.fromhex(fields[name]) for name in hexes}
    if "keep" in values:
        values["keep"] = tuple(map(bytes.fromhex, values["keep"]))
    if kinds is Note:
        values["addresses"] = tuple(values["addresses"])
        values["ports"] = tuple(map(tuple, values["ports"]))
    return kinds(**values)


class VectorTests(SynchronousTestCase):
    """``vectors.json`` was written by another program, from the specification alone."""

    def test_statements(self) -> None:
        """Each kind is made of the same bytes, by the same key, and read back whole (CL-62)."""
        keys = {
            bytes.fromhex(each["incarnation"]): Ed25519PrivateKey.from_private_bytes(bytes.fromhex(each["privateKey"]))
            for each in VECTORS["nodes"].values()
        }
        leaves = {
            bytes.fromhex(each["incarnation"]): bytes.fromhex(each["leaf"]) for each in VECTORS["nodes"].values()
        }
        self.assertEqual({each["kind"] for each in VECTORS["statements"]}, set(KINDS))
        for each in VECTORS["statements"]:
            signer, payload, signature, id = (
                bytes.fromhex(each[name]) for name in ("signer", "payload", "signature", "id")
            )
            statement = decode(lp(payload, signature))
            body = says(each["kind"], each["says"])
            self.assertEqual(statement.body, body)
            self.assertEqual(
                (statement.id, statement.signer, statement.issued_at), (id, signer, each["issuedAt"]), each["kind"]
            )
            self.assertEqual(statement.cluster, VECTORS["cluster"])
            made = make(body, VECTORS["cluster"], signer, each["issuedAt"], partial(signing.sign, keys[signer]))
            self.assertEqual(made, statement)
            self.assertTrue(signing.verify(leaves[signer], payload, signature))

    def test_ids(self) -> None:
        """Incarnations and the cluster are called as the vectors call them (CL-63, CL-64)."""
        for each in VECTORS["nodes"].values():
            made = incarnation_id(each["node"], each["epoch"], bytes.fromhex(each["leaf"]))
            self.assertEqual(made.hex(), each["incarnation"])
        first = VECTORS["statements"][0]
        payload = bytes.fromhex(first["payload"])
        self.assertEqual(cluster_id(payload), VECTORS["cluster"])
        signer = VECTORS["nodes"]["desk"]
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(signer["privateKey"]))
        body = says(1, first["says"])
        assert isinstance(body, Found)
        self.assertEqual(found(body, first["issuedAt"], partial(signing.sign, key)).payload, payload)


class MakeTests(SynchronousTestCase):
    @given(BODY, st.integers(0, NUMBER_MAX))
    def test_round_trip(self, body: Body, issued_at: int) -> None:
        """What is made is read back, and carried as the same bytes."""
        world = World(A)
        statement = make(body, world.cluster, A.id, issued_at, A.stand_in)
        self.assertEqual(decode(encode(statement)), statement)
        again = make(statement.body, world.cluster, A.id, issued_at, A.stand_in)
        self.assertEqual(again, statement)

    def test_names_are_composed(self) -> None:
        """A name is put into NFC before it is signed; one that is not is read as it stands."""
        world = World(A)
        made = world.note(A, 1, "Bu\u0308ro")
        self.assertEqual(made.body, Note(1, "Büro", (), ()))
        payload = made.payload.replace(lp("Büro".encode()), lp("Bu\u0308ro".encode()))
        self.assertEqual(decode(lp(payload, bytes(64))).body, Note(1, "Bu\u0308ro", (), ()))

    def test_out_of_bounds(self) -> None:
        """What could not be read is not made either."""
        world = World(A)
        for body in (
            Admit(A.node, 0, A.leaf),
            Admit(A.node, NUMBER_MAX + 1, A.leaf),
            Admit(A.node, -1, A.leaf),
            Admit(A.node, 2**64, A.leaf),
            Admit(B.node, 1, A.leaf),
            Admit(A.node, 1, A.leaf + b"\0"),
            Admit(A.node, 1, b""),
            Remove(bytes(31), ()),
            Leave((bytes(32), bytes(32))),
            Note(0, "x", (), ()),
            Note(1, "", (), ()),
        ):
            with self.subTest(body=body):
                self.assertRaises(StatementError, world.say, A, body)
        self.assertRaises(StatementError, make, Join(), world.cluster, A.id, NUMBER_MAX + 1, A.stand_in)
        self.assertRaises(StatementError, make, Join(), world.cluster, A.id, -1, A.stand_in)

    def test_longest(self) -> None:
        """A full keep list fits; one more does not."""
        world = World(A)
        keep = tuple(number.to_bytes(32, "big") for number in range(KEEP_MAX + 1))
        self.assertLess(len(encode(world.say(A, Remove(B.id, keep[1:])))), STATEMENT_BYTES_MAX)
        self.assertRaises(StatementError, world.say, A, Remove(B.id, keep))


class DecodeTests(SynchronousTestCase):
    """One form, and no other (CL-66)."""

    def setUp(self) -> None:
        self.world = World(A)
        self.all = [
            self.world.root,
            self.world.admit(A, B),
            self.world.join(B),
            self.world.remove(A, B, self.world.root),
            self.world.leave(B),
            self.world.note(B, 7, "desk", ("10.0.0.1", "fe80::1")),
        ]

    def assert_malformed(self, payload: bytes) -> None:
        self.assertRaises(StatementError, decode, lp(payload, bytes(64)))

    def test_every_byte_counts(self) -> None:
        """Cut short anywhere, or with a byte more anywhere between items, it is no statement or another one."""
        for each in self.all:
            framed = encode(each)
            for at in range(len(framed)):
                self.assertRaises(StatementError, decode, framed[:at])
            self.assertRaises(StatementError, decode, framed + b"\0")
            self.assertRaises(StatementError, decode, framed + lp(b""))
            self.assert_malformed(each.payload + b"\0")
            self.assert_malformed(each.payload + lp(b""))
            self.assert_malformed(each.payload[:-1])

    @given(st.data())
    def test_flipped(self, data: st.DataObject) -> None:
        """Flipped in one bit, it is refused or is a statement with another id; the same id has the same meaning."""
        each = data.draw(st.sampled_from(self.all))
        framed = bytearray(encode(each))
        at = data.draw(st.integers(0, len(framed) - 1))
        framed[at] ^= 1 << data.draw(st.integers(0, 7))
        try:
            read_back = decode(bytes(framed))
        except StatementError:
            return
        if at < len(framed) - 64:
            self.assertNotEqual(read_back.id, each.id)
        else:
            self.assertEqual(replace(read_back, signature=each.signature), each)
        self.assertEqual(encode(read_back), bytes(framed))

    @given(st.binary(max_size=200))
    def test_noise(self, noise: bytes) -> None:
        """Anything at all is refused in the same way."""
        self.assertRaises(StatementError, decode, noise)

    def test_signature_has_64_bytes(self) -> None:
        """Shorter and longer ones are no signatures."""
        for size in (0, 63, 65):
            self.assertRaises(StatementError, decode, lp(self.all[2].payload, bytes(size)))

    def test_too_long(self) -> None:
        """More than 12 KiB are not looked at (CL-62)."""
        self.assertRaisesRegex(StatementError, "too long", decode, bytes(STATEMENT_BYTES_MAX + 1))

    def test_version(self) -> None:
        """Another magic or version is no statement of ours."""
        payload = self.all[2].payload
        self.assert_malformed(b"PAIRSTMT\x02" + payload[9:])
        self.assert_malformed(b"PAIRSTMX\x01" + payload[9:])

    def test_unknown_kind(self) -> None:
        """Kinds that the table lacks are told apart from what is malformed, the reserved ones too (CL-67)."""
        payload = self.all[2].payload
        for kind in (0, 6, 8, 9, 255):
            self.assertRaises(UnknownKindError, decode, lp(payload[:9] + bytes([kind]) + payload[10:], bytes(64)))

    def test_fields_of_another_kind(self) -> None:
        """A kind has its own number of fields."""
        for each in self.all:
            for kind in set(KINDS) - {each.body.KIND}:
                self.assert_malformed(each.payload[:9] + bytes([kind]) + each.payload[10:])

    def test_founder_signs_for_itself(self) -> None:
        """A `found` has the id that follows from it, and its signer is the incarnation that it names (CL-64)."""
        root = self.all[0]
        self.assert_malformed(root.payload[:10] + bytes(16) + root.payload[26:])
        self.assert_malformed(root.payload[:26] + B.id + root.payload[58:])
        renamed = root.payload.replace(b"home", b"Home")
        self.assert_malformed(renamed)

    def test_leaf_names_the_node(self) -> None:
        """The leaf of an admission passes CL-6 and is of the UUID that is admitted."""
        payload = self.all[1].payload
        other = World(A).say(A, Admit(A.node, 1, A.leaf)).payload
        self.assert_malformed(payload.replace(lp(B.leaf), lp(A.leaf)))
        self.assert_malformed(other.replace(lp(A.leaf), lp(A.leaf[:-1] + bytes([A.leaf[-1] ^ 1]))))

    def test_keep_is_sorted(self) -> None:
        """A list has one order, and no id twice."""
        head = self.world.leave(B).payload[:66]
        one, two = bytes(31) + b"\1", bytes(31) + b"\2"
        self.assertEqual(decode(lp(head + lp(one + two), bytes(64))).keep, (one, two))
        for keep in (two + one, one + one, one + two[:-1]):
            self.assert_malformed(head + lp(keep))

    NOTES: ClassVar = [
        (b"", b"", b""),
        (b"x" * 64, b"", b""),
        (b"a\nb", b"", b""),
        (b"\x7f", b"", b""),
        (b"\xff", b"", b""),
        (b"x", lp(*[b"10.0.0.1"] * 9), b""),
        (b"x", lp(b"fe80::1%eth0"), b""),
        (b"x", lp(b"10.0.0.01"), b""),
        (b"x", lp(b"desk.local"), b""),
        (b"x", lp(b"10.0.0.1 "), b""),
        (b"x", b"10.0.0.1", b""),
        (b"x", b"", b"cl"),
        (b"x", b"", b"cl="),
        (b"x", b"", b"cl=0"),
        (b"x", b"", b"cl=014321"),
        (b"x", b"", b"cl=65536"),
        (b"x", b"", b"cl=1,"),
        (b"x", b"", b"cl=1,cl=2"),
        (b"x", b"", b"CL=1"),
        (b"x", b"", b"cl=1\n"),
        (b"x", b"", ",".join(f"a{chr(97 + number)}=1" for number in range(17)).encode()),
    ]

    def test_notes(self) -> None:
        """Names have 1 to 63 characters without controls, addresses are IP texts without zone, ports have one form."""
        head = self.all[5].payload[:66] + lp((1).to_bytes(8, "big"))
        for name, addresses, ports in self.NOTES:
            with self.subTest(name=name, addresses=addresses, ports=ports):
                self.assert_malformed(head + lp(name, addresses, ports))
        longest = "ü" * 63
        note = decode(lp(head + lp(longest.encode(), lp(b"::1", b"10.0.0.1"), b"ni=1,cl=65535"), bytes(64)))
        self.assertEqual(note.body, Note(1, longest, ("::1", "10.0.0.1"), (("ni", 1), ("cl", 65535))))

    def test_batch(self) -> None:
        """Of a batch the sound ones are taken in order, the rest is counted (CL-67)."""
        join = self.all[2]
        new = lp(join.payload[:9] + b"\x09" + join.payload[10:], bytes(64))
        batch = read([encode(join), b"", new, encode(self.all[1]), b"x"])
        self.assertEqual(batch.statements, (join, self.all[1]))
        self.assertEqual((batch.malformed, batch.unknown), (2, 1))

    def test_quotes_nothing(self) -> None:
        """No text of an error holds a byte of what was refused."""
        for name, addresses, ports in self.NOTES:
            head = self.all[5].payload[:66] + lp((1).to_bytes(8, "big"))
            error = self.assertRaises(StatementError, decode, lp(head + lp(name, addresses, ports), bytes(64)))
            for secret in ("desk", "eth0", "65536", "014321"):
                self.assertNotIn(secret, str(error))

    def test_json(self) -> None:
        """In JSON a statement is base64, padded (CL-62)."""
        carried = msgspec.json.encode([encode(each) for each in self.all])
        self.assertEqual(read(msgspec.json.decode(carried, type=list[bytes])).statements, tuple(self.all))


class SigningTests(SynchronousTestCase):
    def statement(self, by: Player = A) -> Statement:
        return World(by, real=True).join(by)

    def test_good(self) -> None:
        """The key of the leaf signs, and no other; not another payload either."""
        each = self.statement()
        self.assertTrue(signing.verify(A.leaf, each.payload, each.signature))
        self.assertFalse(signing.verify(B.leaf, each.payload, each.signature))
        self.assertFalse(signing.verify(A.leaf, each.payload + b"\0", each.signature))
        self.assertFalse(signing.verify(A.leaf, each.payload, bytes(64)))

    def test_context(self) -> None:
        """A signature over the bare payload is none of the statement."""
        each = self.statement()
        self.assertFalse(signing.verify(A.leaf, each.payload, A.key.sign(each.payload)))
        self.assertTrue(signing.verify(A.leaf, each.payload, A.key.sign(b"pair/statement/1\0" + each.payload)))

    def test_malleable(self) -> None:
        """The other scalar of the same signature (s + L) is refused."""
        each = self.statement()
        order = 2**252 + 27742317777372353535851937790883648493
        scalar = int.from_bytes(each.signature[32:], "little") + order
        twisted = each.signature[:32] + scalar.to_bytes(32, "little")
        self.assertFalse(signing.verify(A.leaf, each.payload, twisted))

    def test_remembered(self) -> None:
        """A verdict is remembered for the signature too: a bad copy neither spoils a good one nor profits from it."""
        asked: list[bytes] = []

        def verify(leaf: bytes, payload: bytes, signature: bytes) -> bool:
            asked.append(signature)
            return signing.verify(leaf, payload, signature)

        remembered = signing.remembering(verify)
        each = self.statement()
        for _ in range(2):
            self.assertFalse(remembered(A.leaf, each.payload, bytes(64)))
            self.assertTrue(remembered(A.leaf, each.payload, each.signature))
        self.assertEqual(asked, [bytes(64), each.signature])
