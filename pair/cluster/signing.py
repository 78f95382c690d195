"""Signatures of statements: Ed25519 by the key of a leaf (CL-62). Pure.

The signed bytes begin with a context of their own, so that no signature made
for pairing or for TLS is one of a statement.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Verify: TypeAlias = Callable[[bytes, bytes, bytes], bool]
"""Whether the signature (third) over a payload (second) is good for the key of a leaf (first)."""

_CONTEXT = b"pair/statement/1\x00"

# All of a full set, and one message more.
_REMEMBERED = 2 * 2048 + 512


def sign(key: Ed25519PrivateKey, payload: bytes) -> bytes:
    """The signature over the payload of a statement."""
    return key.sign(_CONTEXT + payload)


def verify(leaf: bytes, payload: bytes, signature: bytes) -> bool:
    """Whether the key of ``leaf`` (DER, passed by ``check_leaf``) made ``signature`` over ``payload``."""
    try:
        _key(leaf).verify(signature, _CONTEXT + payload)
    except InvalidSignature:
        return False
    return True


def remembering(verify: Verify) -> Verify:
    """``verify`` with a memory of its verdicts, good and bad; it may be called from any thread (CL-78).

    A verdict is remembered for the whole of leaf, payload and signature. By
    statement id alone it must not be: a copy with a bad signature has the same
    id, and would either shut the good one out or get in by its name.
    """
    return lru_cache(maxsize=_REMEMBERED)(verify)


@lru_cache(maxsize=256)
def _key(leaf: bytes) -> Ed25519PublicKey:
    key = x509.load_der_x509_certificate(leaf).public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise TypeError("a leaf without an Ed25519 key")
    return key
