"""Tests of :mod:`pair.protocols.pairing`: codes, and the form of messages."""

from __future__ import annotations

import secrets
from base64 import b64encode
from typing import TYPE_CHECKING

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.leaf import check_leaf
from pair.privacy import Secret
from pair.protocols.pairing import (
    CodeError,
    JoinerExchange,
    MalformedError,
    Send,
    draw_code,
    parse_code,
    read_request,
    show_code,
)
from pair.protocols.pairing.messages import encode
from pair.test.protocols.couple import RACK, Couple, Draws

if TYPE_CHECKING:
    from pair.protocols.pairing import CodeKind


class CodeTests(SynchronousTestCase):
    def test_drawn(self) -> None:
        """A PIN is any of 000000 to 999999, a long code any 80 bits; leading zeros are part of it (CL-32)."""
        asked = []

        def below(limit: int) -> int:
            asked.append(limit)
            return 42

        self.assertEqual(draw_code("pin", below).reveal(), "000042")
        self.assertEqual(draw_code("long", below).reveal(), "0000000000000000002a")
        self.assertEqual(asked, [10**6, 2**80])
        self.assertEqual(draw_code("pin", lambda limit: limit - 1).reveal(), "999999")
        self.assertEqual(draw_code("long", lambda limit: limit - 1).reveal(), "f" * 20)

    def test_shown_and_typed(self) -> None:
        """What is drawn and shown in groups is what comes of typing it (CL-32)."""
        kinds: tuple[CodeKind, ...] = ("pin", "long")
        for kind in kinds:
            for _ in range(50):
                code = draw_code(kind, secrets.randbelow)
                self.assertEqual(parse_code(kind, show_code(kind, code)), code)
        self.assertEqual(show_code("pin", Secret("004217")), "004 217")
        self.assertEqual(show_code("long", Secret("00a1b2c3d4e5f6071829")), "00a1b 2c3d4 e5f60 71829")

    def test_any_spacing_and_case(self) -> None:
        """Spaces of every kind and capitals are no mistake (CL-32)."""
        for typed in ("004217", " 0042 17\n", "004\u00a0217", "0 0 4 2 1 7", "\t004\u2003217 "):
            self.assertEqual(parse_code("pin", typed).reveal(), "004217", typed)
        for typed in ("00A1B2C3D4E5F6071829", "00a1b 2C3d4 e5F60 71829", "00 a1\u2009b2c3d4e5f60718 29"):
            self.assertEqual(parse_code("long", typed).reveal(), "00a1b2c3d4e5f6071829", typed)

    def test_malformed(self) -> None:
        """What is not of the kind's form is refused, and not quoted (CL-46)."""
        for kind, typed in (
            ("pin", ""),
            ("pin", "42170"),
            ("pin", "0042170"),
            ("pin", "00421a"),
            ("pin", "-04217"),
            ("pin", "٠٠٤٢١٧"),
            ("pin", "00a1b2c3d4e5f6071829"),
            ("long", "004217"),
            ("long", "00a1b2c3d4e5f607182"),
            ("long", "00a1b2c3d4e5f6071829a"),
            ("long", "00a1b2c3d4e5f607182g"),
            ("long", "0xa1b2c3d4e5f6071829"),
        ):
            error = self.assertRaises(CodeError, parse_code, kind, typed)
            self.assertFalse(typed and typed in str(error), typed)


class MessageTests(SynchronousTestCase):
    def test_read_back(self) -> None:
        """What is written is what is read."""
        couple = Couple()
        couple.pair()
        for request in couple.here.all(Send):
            self.assertEqual(encode(read_request(request.body)), request.body)
        self.assertEqual(encode(read_request(couple.inviter.hello)), couple.inviter.hello)

    def test_forms(self) -> None:
        """A hello with a field that lacks, is of another type, length or spelling is none (CL-22, CL-24)."""
        good = msgspec.json.decode(Couple().inviter.hello)
        read_request(msgspec.json.encode(good))
        for field in good:
            self.assertRaises(MalformedError, read_request, msgspec.json.encode({**good, field: None}))
            lacking = {name: value for name, value in good.items() if name != field}
            self.assertRaises(MalformedError, read_request, msgspec.json.encode(lacking))
        for field, value in (
            ("invite", good["invite"].upper()[:-1] + "A"),
            ("invite", good["invite"] + "\n"),
            ("invite", good["invite"][:-2]),
            ("leaf", good["leaf"] + "\n"),
            ("leaf", "sha256:" + good["leaf"]),
            ("node", "desk"),
            ("name", ""),
            ("name", "x" * 64),
            ("name", "de\u0000sk"),
            ("name", "e\u0301"),
            ("nonce", good["nonce"][:-1]),
            ("nonce", "AAAA"),
            ("share", b64encode(bytes(33)).decode()),
            ("versions", []),
            ("versions", [0]),
            ("versions", [256]),
            ("versions", [1] * 256),
            ("codeKind", "short"),
            ("step", "hullo"),
        ):
            self.assertRaises(MalformedError, read_request, msgspec.json.encode({**good, field: value}))

    def test_more_fields(self) -> None:
        """A field that a later release adds is passed over (OP-59)."""
        more = {**msgspec.json.decode(Couple().inviter.hello), "colour": {"of": ["money"]}}
        self.assertEqual(encode(read_request(msgspec.json.encode(more))), Couple().inviter.hello)

    @given(st.binary() | st.recursive(st.none() | st.text(), st.lists).map(msgspec.json.encode))
    def test_anything(self, body: bytes) -> None:
        """Whatever comes, it is a message or malformed."""
        self.assertRaises(MalformedError, read_request, body)

    def test_nested_deeply(self) -> None:
        """Nesting that is too much for the parser is malformed too."""
        for body in (b'{"step":"wait","x":' + b"[" * 8000, b'{"x":' * 3000, b"[" * 16000):
            self.assertRaises(MalformedError, read_request, body)

    def test_versions(self) -> None:
        """The highest version of both is taken; without one the hello is none of ours (CL-42)."""
        hello = read_request(Couple().inviter.hello)
        for versions, chosen in (((1,), 1), ((7, 1, 2), 1), ((2, 3), None)):
            offered = replace(hello, versions=versions)
            self.assertEqual(read_request(encode(offered)).version, chosen)  # type: ignore[union-attr]
        body = encode(offered)
        self.assertRaises(MalformedError, JoinerExchange, RACK, body, check_leaf, lambda *_: None, Draws("x"))
