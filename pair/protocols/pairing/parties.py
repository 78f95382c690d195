"""Who takes part: ourselves, and the other side once it has proven itself.

Pure.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from pair.protocols.pairing.keys import ProofError, check_signature
from pair.protocols.pairing.messages import Silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from pair.protocols.pairing.messages import Greeting, InviterIdentity, JoinerIdentity


class Party(Silent, Struct, frozen=True):
    """This node: its UUID, its name of now, its key, and its leaf in DER."""

    uuid: str
    name: str
    key: Ed25519PrivateKey
    leaf: bytes

    @property
    def digest(self) -> str:
        """The leaf's digest in bare hex, as a hello has it."""
        return sha256(self.leaf).hexdigest()


class Peer(Silent, Struct, frozen=True):
    """The other side, proven: it knew the code, and holds the key of this leaf. ``uuid`` is the leaf's."""

    uuid: str
    name: str
    leaf: bytes


def check_peer(
    greeting: Greeting,
    identity: JoinerIdentity | InviterIdentity,
    signed: bytes,
    check_leaf: Callable[[bytes], str],
) -> Peer:
    """The other side, if it is the one that said hello: digest, leaf, UUID and signature, in this order.

    Args:
        greeting: Its hello.
        identity: What it sealed.
        signed: What its leaf's key should have signed: its role and the transcript.
        check_leaf: Gives the UUID of a leaf, or raises a ValueError (CL-6).

    Raises:
        ProofError: It is not.
    """
    leaf = identity.leaf
    if not hmac.compare_digest(sha256(leaf).hexdigest(), greeting.leaf):
        raise ProofError("it is another leaf than the hello's")
    try:
        uuid = check_leaf(leaf)
    except ValueError:
        raise ProofError("it is no leaf") from None
    if uuid != str(greeting.node):
        raise ProofError("it is the leaf of another node")
    check_signature(leaf, signed, identity.signature)
    return Peer(uuid, greeting.name, leaf)
