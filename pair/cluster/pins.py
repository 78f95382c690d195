"""Who a peer is, by the leaf that it showed (CL-16 to CL-20).

Pure. A table is made of a view and is good as long as that view; asking it is
one look-up and one comparison, with no cryptography, and may be done for each
request. It answers who is there and what evidence is due to them; what is
served to whom is for the surfaces to say.
"""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from pair.cluster.proofs import EVIDENCE_BYTES_MAX, Archive, carried_size, evidence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pair.cluster.membership import View
    from pair.cluster.statements import Statement

Relation = Literal["member", "admitted", "former", "own", "stranger"]


class PeerLeaf(Struct, frozen=True):
    """The leaf (DER) that a peer showed in its handshake, with its SHA-256."""

    der: bytes
    digest: bytes

    @classmethod
    def of(cls, der: bytes) -> PeerLeaf:
        """The leaf ``der``, hashed once for all requests of its connection."""
        return cls(der, sha256(der).digest())


class Caller(Struct, frozen=True):
    """Who a leaf belongs to. A stranger has neither UUID nor incarnation.

    ``own`` is this node's own leaf: from an address of another machine it is a
    clone (CL-20).
    """

    relation: Relation
    node: str | None = None
    incarnation: bytes | None = None

    @property
    def pinned(self) -> bool:
        """Whether a connection with it may be open (CL-18)."""
        return self.relation in ("member", "admitted")


STRANGER = Caller("stranger")


class PinTable:
    """The leaves that one view knows."""

    def __init__(self, view: View | None, own: str, leaf: bytes, archives: Iterable[Archive] = ()) -> None:
        """A node's table.

        Args:
            view: Of the cluster that it is in, None where it is in none.
            own: Its UUID.
            leaf: Its leaf (DER), which is no peer's, whatever the view says.
            archives: Of clusters that it was in, the latest first.
        """
        self._view = view
        self._archives = tuple(archives)
        self._callers: dict[bytes, tuple[bytes, Caller]] = {}
        for der, caller in (*_callers(view), (leaf, Caller("own", own))):
            self._callers[sha256(der).digest()] = der, caller
        self._pins = {caller.node: der for der, caller in self._callers.values() if caller.relation == "member"}

    def check(self, peer: PeerLeaf) -> Caller:
        """Who ``peer`` is (CL-16)."""
        known = self._callers.get(peer.digest)
        return known[1] if known is not None and compare_digest(known[0], peer.der) else STRANGER

    def pin(self, node: str) -> bytes | None:
        """The leaf (DER) that a dial to ``node`` must meet; without one there is no dial (CL-12)."""
        return self._pins.get(node)

    def evidence(self, peer: PeerLeaf) -> tuple[Statement, ...]:
        """What a refusal tells ``peer``: how it ended, or how this node left their cluster (CL-17, CL-90)."""
        caller = self.check(peer)
        if caller.relation == "former" and self._view is not None and caller.incarnation is not None:
            return evidence(self._view, caller.incarnation)
        told: tuple[Statement, ...] = ()
        for archive in self._archives:
            if peer.digest in archive.members and carried_size(told + archive.evidence) <= EVIDENCE_BYTES_MAX:
                told += archive.evidence
        return told


def _callers(view: View | None) -> Iterator[tuple[bytes, Caller]]:
    """Leaves and whose they are; of one that comes twice, the last counts."""
    if view is None:
        return
    for former in view.former:
        yield former.leaf, Caller("former", former.node, former.incarnation)
    for admitted in view.admitted:
        yield admitted.leaf, Caller("admitted", admitted.node, admitted.incarnation)
    for member in view.members:
        yield member.leaf, Caller("member", member.node, member.incarnation)
