"""The transcript of a pairing and the keys that come of it (CL-25 to CL-39).

Pure. Every name and label stands as in the specification: ``t0``, ``t1`` and
``t2`` are the hashes of all that was said so far, ``z`` the secret of the key
exchange, ``k`` that of the PAKE. No key is used for two things.
"""

from __future__ import annotations

import hmac
from base64 import b32encode, b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.x509 import load_der_x509_certificate
from msgspec import Struct
from spake2 import SPAKE2_A, SPAKE2_B, SPAKEError
from spake2.ed25519_basic import NotOnCurve, Q

from pair.protocols.pairing.messages import Silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from pair.protocols.pairing.messages import Hello, HelloReply

SIGNED_BY_JOINER = b"pair/pairing/1 joiner\x00"
SIGNED_BY_INVITER = b"pair/pairing/1 inviter\x00"
"""What a leaf's key signs begins so; T1 follows the joiner's, T2 the inviter's."""

CONFIRM_BYTES = 32

_PAKE_BYTES = 33
_NONCE = bytes(12)


class ShareError(ValueError):
    """A public key that gives an all-zero secret (CL-26)."""


class PakeError(ValueError):
    """A PAKE message that cannot be one (CL-34)."""


class ProofError(ValueError):
    """What was sealed or signed is not so, or not by the one it should be."""


def lp(*items: bytes) -> bytes:
    """The items, each behind its length in four bytes: no two lists give the same bytes."""
    return b"".join(len(each).to_bytes(4, "big") + each for each in items)


def hello_digest(hello: Hello, reply: HelloReply) -> bytes:
    """T0: both hellos, so that whoever changes one byte of them has other keys than either side (CL-25)."""
    return _hash(
        b"pair/pairing/1 hello",
        bytes(hello.versions),
        bytes([reply.version]),
        bytes.fromhex(hello.invite),
        hello.code_kind.encode("ascii"),
        hello.node.bytes,
        reply.node.bytes,
        bytes.fromhex(hello.leaf),
        bytes.fromhex(reply.leaf),
        hello.nonce,
        reply.nonce,
        hello.share,
        reply.share,
        hello.name.encode(),
        reply.name.encode(),
    )


def proof_digest(t1: bytes, confirm: bytes, sealed: bytes) -> bytes:
    """T2: all up to the joiner's proof (CL-37)."""
    return _hash(b"pair/pairing/1 proof", t1, confirm, sealed)


def agree(private: X25519PrivateKey, share: bytes) -> bytes:
    """Z.

    Raises:
        ShareError: It would be all zero, whatever our own key: the share is of small order.
    """
    try:
        return private.exchange(X25519PublicKey.from_public_bytes(share))
    except ValueError:
        raise ShareError("the shared secret is zero") from None


class Channel:
    """What the two ends of one hello have in common before any code: enough to tell each other from bystanders.

    Attributes:
        t0: The hash of the hellos.
        z: The secret of the key exchange.
        tag: Four characters for people, to tell one prompt from another (CL-45). They prove nothing.
    """

    def __init__(self, t0: bytes, z: bytes) -> None:
        self.t0 = t0
        self.z = z
        gates = _derive(z, t0, b"pair/pairing/1 gate", 64)
        self._inviter, self._joiner = gates[:32], gates[32:]
        self.tag = b32encode(_derive(z, t0, b"pair/pairing/1 tag", 5))[:4].decode("ascii")

    def request_mac(self, n: int, body: bytes) -> bytes:
        """What ``X-Pair-Mac`` of the inviter's request ``n`` is (CL-27)."""
        return self._mac(self._inviter, n, body)

    def reply_mac(self, n: int, body: bytes) -> bytes:
        """What ``X-Pair-Mac`` of the reply to it is."""
        return self._mac(self._joiner, n, body)

    @staticmethod
    def _mac(key: bytes, n: int, body: bytes) -> bytes:
        return b64encode(authenticate(key, lp(b"pair/pairing/1 message", n.to_bytes(8, "big"), body)))


class Pake:
    """One side of one run of SPAKE2 (CL-33). It is good for one :meth:`finish`, whatever comes of that.

    Attributes:
        message: What the other side is sent.
    """

    def __init__(self, side: Literal["A", "B"], password: bytes, t0: bytes, entropy: Callable[[int], bytes]) -> None:
        run = SPAKE2_A if side == "A" else SPAKE2_B
        self._run = run(password, idA=b"pair-inviter:" + t0, idB=b"pair-joiner:" + t0, entropy_f=entropy)
        self._from = "B" if side == "A" else "A"
        self.message: bytes = self._run.start()

    def finish(self, message: bytes) -> bytes:
        """K, 32 bytes: the same at both sides if the code was, and otherwise not.

        Raises:
            PakeError: The message is none of the other side.
        """
        check_pake(self._from, message)
        try:
            key: bytes = self._run.finish(message)
        except (SPAKEError, ValueError, NotOnCurve):
            raise PakeError("no element of the group, or our own") from None
        return key


def check_pake(side: str, message: bytes) -> None:
    """Refuse what the package would not: other lengths, and the neutral element in the spellings that pass it.

    Args:
        side: Whose message it should be, ``A`` the inviter's.
        message: As it came.

    Raises:
        PakeError: It is none of that side.
    """
    if len(message) != _PAKE_BYTES or message[:1] != side.encode("ascii"):
        raise PakeError("no message of that side")
    y = int.from_bytes(message[1:], "little") % 2**255
    if y >= Q or y == 1:
        raise PakeError("no element that anybody would choose")


class Keys(Silent, Struct, frozen=True):
    """What only those have who know the code: T1 and five keys (CL-36)."""

    t1: bytes
    confirm_joiner: bytes
    confirm_inviter: bytes
    seal_joiner: bytes
    seal_inviter: bytes
    seal_ack: bytes


def derive_keys(channel: Channel, k: bytes, pake_inviter: bytes, pake_joiner: bytes) -> Keys:
    """The keys of a finished PAKE. Z goes in too: they are as good as the better of both secrets."""
    t1 = _hash(b"pair/pairing/1 pake", channel.t0, pake_inviter, pake_joiner)
    keys = _derive(lp(k, channel.z), t1, b"pair/pairing/1 keys", 160)
    return Keys(t1, *(keys[at : at + 32] for at in range(0, 160, 32)))


def authenticate(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA256."""
    return hmac.digest(key, message, sha256)


def seal(key: bytes, plain: bytes, associated: bytes) -> bytes:
    """Encrypt the one message that ``key`` is for: hence the constant nonce (CL-37)."""
    return ChaCha20Poly1305(key).encrypt(_NONCE, plain, associated)


def unseal(key: bytes, sealed: bytes, associated: bytes) -> bytes:
    """What was sealed.

    Raises:
        ProofError: It was not, or not with this key and for these data.
    """
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, associated)
    except InvalidTag:
        raise ProofError("it is not sealed with this key") from None


def check_signature(leaf: bytes, signed: bytes, signature: bytes) -> None:
    """Check that the holder of a leaf's key has signed.

    Args:
        leaf: DER, already found to be a leaf (CL-6).
        signed: The message.
        signature: As it came.

    Raises:
        ProofError: It is not so.
    """
    key = load_der_x509_certificate(leaf).public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise ProofError("its key is not Ed25519")
    try:
        key.verify(signature, signed)
    except InvalidSignature:
        raise ProofError("it is not signed by the leaf's key") from None


def _hash(*items: bytes) -> bytes:
    return sha256(lp(*items)).digest()


def _derive(secret: bytes, salt: bytes, info: bytes, size: int) -> bytes:
    return HKDF(SHA256(), size, salt, info).derive(secret)
