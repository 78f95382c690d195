"""The vectors of :mod:`pair.protocols.pairing`, made again by the exchange and by a second reckoning."""

from __future__ import annotations

import hmac
from base64 import b32encode, b64decode, b64encode
from hashlib import sha256
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from spake2.ed25519_group import Ed25519Group
from twisted.trial.unittest import SynchronousTestCase

from pair.test.protocols import vectors


class VectorTests(SynchronousTestCase):
    def test_reproduced(self) -> None:
        """The same inputs give the messages and values in the file, to the byte (CL-24 to CL-41)."""
        cases = vectors.cases()
        self.assertEqual([case["inputs"]["codeKind"] for case in cases], ["pin", "long"])
        for case in cases:
            messages, values = vectors.run(case)
            self.assertEqual(messages, case["messages"])
            self.assertEqual(values, case["values"])

    def test_recomputed(self) -> None:
        """Hashes, keys, MACs, PAKE and seals follow from the inputs by the specification alone (CL-25 to CL-40)."""
        for case in vectors.cases():
            self._recompute(case["inputs"], case["values"], case["messages"])

    def _recompute(self, given: dict[str, Any], values: dict[str, str], messages: list[dict[str, str]]) -> None:
        desk, rack = given["inviter"], given["joiner"]
        invite, nonce_i, private_i, scalar_i = map(bytes.fromhex, desk["draws"])
        nonce_j, private_j, scalar_j = map(bytes.fromhex, rack["draws"])
        ours = X25519PrivateKey.from_private_bytes(private_i)
        theirs = X25519PrivateKey.from_private_bytes(private_j)
        shares = [each.public_key().public_bytes_raw() for each in (ours, theirs)]
        leaves = [b64decode(each["leaf"]) for each in (desk, rack)]

        t0 = _h(
            b"pair/pairing/1 hello",
            b"\x01",
            b"\x01",
            invite,
            given["codeKind"].encode(),
            *(bytes.fromhex(each["uuid"].replace("-", "")) for each in (desk, rack)),
            *(sha256(leaf).digest() for leaf in leaves),
            nonce_i,
            nonce_j,
            *shares,
            *(each["name"].encode() for each in (desk, rack)),
        )
        self.assertEqual(t0.hex(), values["t0"])
        z = ours.exchange(X25519PublicKey.from_public_bytes(shares[1]))
        self.assertEqual(z.hex(), values["z"])
        gates = _hkdf(z, t0, b"pair/pairing/1 gate", 64)
        self.assertEqual(gates.hex(), values["gateInviter"] + values["gateJoiner"])
        self.assertEqual(b32encode(_hkdf(z, t0, b"pair/pairing/1 tag", 5))[:4].decode(), values["tag"])

        bodies = [each["body"].encode() for each in messages]
        self.assertEqual([each["mac"] for each in messages[:2]], [None, None])
        for at, message in enumerate(messages[2:]):
            gate = gates[32:] if at % 2 else gates[:32]
            signed = _lp(b"pair/pairing/1 message", (1 + at // 2).to_bytes(8, "big"), bodies[2 + at])
            self.assertEqual(b64decode(message["mac"]), hmac.digest(gate, signed, "sha256"))
        read_bodies = [msgspec.json.decode(body) for body in bodies]

        password = f"{given['codeKind']}:{given['code']}".encode()
        pakes, k = _spake2(password, b"pair-inviter:" + t0, b"pair-joiner:" + t0, scalar_i, scalar_j)
        self.assertEqual(b64decode(read_bodies[2]["pake"]), pakes[0])
        self.assertEqual(b64decode(read_bodies[5]["pake"]), pakes[1])
        t1 = _h(b"pair/pairing/1 pake", t0, *pakes)
        self.assertEqual(t1.hex(), values["t1"])
        keys = _hkdf(_lp(k, z), t1, b"pair/pairing/1 keys", 160)
        names = ("confirmKeyJoiner", "confirmKeyInviter", "sealKeyJoiner", "sealKeyInviter", "sealKeyAck")
        self.assertEqual(keys.hex(), "".join(values[name] for name in names))
        confirm_j, confirm_i, seal_j, seal_i, seal_ack = (keys[at : at + 32] for at in range(0, 160, 32))

        proof, prove, paired = read_bodies[5], read_bodies[6], read_bodies[7]
        self.assertEqual(b64decode(proof["confirm"]), hmac.digest(confirm_j, t1, "sha256"))
        t2 = _h(b"pair/pairing/1 proof", t1, b64decode(proof["confirm"]), b64decode(proof["sealed"]))
        self.assertEqual(t2.hex(), values["t2"])
        self.assertEqual(b64decode(prove["confirm"]), hmac.digest(confirm_i, t2, "sha256"))
        self.assertEqual(
            _unseal(seal_j, proof["sealed"], t1),
            {
                "leaf": rack["leaf"],
                "epoch": given["epoch"],
                "signature": _signature(rack, b"pair/pairing/1 joiner\x00" + t1),
            },
        )
        self.assertEqual(
            _unseal(seal_i, prove["sealed"], t2),
            {
                "leaf": desk["leaf"],
                "signature": _signature(desk, b"pair/pairing/1 inviter\x00" + t2),
                "cluster": given["cluster"],
                "statements": given["offered"],
            },
        )
        self.assertEqual(_unseal(seal_ack, paired["sealed"], t2), {"statements": given["returned"]})


def _lp(*items: bytes) -> bytes:
    return b"".join(len(item).to_bytes(4, "big") + item for item in items)


def _h(*items: bytes) -> bytes:
    return sha256(_lp(*items)).digest()


def _hkdf(secret: bytes, salt: bytes, info: bytes, size: int) -> bytes:
    """RFC 5869, by its words."""
    key, block, made, count = hmac.digest(salt, secret, "sha256"), b"", b"", 0
    while len(made) < size:
        count += 1
        block = hmac.digest(key, block + info + bytes([count]), "sha256")
        made += block
    return made[:size]


def _spake2(
    password: bytes, id_a: bytes, id_b: bytes, entropy_a: bytes, entropy_b: bytes
) -> tuple[list[bytes], bytes]:
    """Both messages and the key of SPAKE2 as the package has it: from both scalars, not by exchange."""
    group = Ed25519Group
    order = group.order()
    w = int.from_bytes(_hkdf(password, b"", b"SPAKE2 pw", 48), "big") % order
    x, y = (int.from_bytes(each, "big") % order for each in (entropy_a, entropy_b))
    a = group.Base.scalarmult(x).add(group.arbitrary_element(b"M").scalarmult(w)).to_bytes()
    b = group.Base.scalarmult(y).add(group.arbitrary_element(b"N").scalarmult(w)).to_bytes()
    shared = group.Base.scalarmult(x * y % order).to_bytes()
    hashes = [sha256(each).digest() for each in (password, id_a, id_b)]
    return [b"A" + a, b"B" + b], sha256(b"".join([*hashes, a, b, shared])).digest()


def _unseal(key: bytes, sealed: str, associated: bytes) -> object:
    plain = ChaCha20Poly1305(key).decrypt(bytes(12), b64decode(sealed), associated)
    found: object = msgspec.json.decode(plain)
    return found


def _signature(node: dict[str, str], message: bytes) -> str:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(node["key"]))
    return b64encode(key.sign(message)).decode()
