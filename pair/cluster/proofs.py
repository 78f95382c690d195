"""What convinces another node: proofs, evidence, and what is kept of clusters that are over (CL-17, CL-39, CL-90).

Pure. A proof is a set of statements that counts by itself, in a store that has
none of them; it takes the joins of those on the way, not their admissions
alone, since without its join a signer's statements have no effect.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import Struct

from pair.cluster.statements import Statement, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pair.cluster.membership import View
    from pair.cluster.standing import Standing

EVIDENCE_BYTES_MAX = 64 * 1024
"""Of evidence, as base64 (CL-17)."""


class Archive(Struct, frozen=True):
    """What is kept of a cluster that this node is no longer in: evidence, and the leaf digests to whom it is due."""

    cluster: str
    evidence: tuple[Statement, ...]
    members: frozenset[bytes]


def proof(view: View, incarnation: bytes) -> tuple[Statement, ...]:
    """That a known incarnation is one: edges and joins from the root to it, in an order in which they can be taken."""
    return tuple(_proof(view.standing, incarnation))


def evidence(view: View, incarnation: bytes) -> tuple[Statement, ...]:
    """Why an incarnation does not stand: a cut of it, else of each of its admitters, and their proofs (CL-17).

    Whoever adds it to what it knows itself comes to the same judgement.

    Returns:
        Empty for one that stands or is not known, and where it would be longer than :data:`EVIDENCE_BYTES_MAX`.
    """
    standing = view.standing
    if incarnation not in standing.proven.incarnations or standing.stands(incarnation):
        return ()
    own = standing.ended.get(incarnation)
    cuts = [own] if own is not None else list(_cut_off_by(standing, incarnation))
    told = {
        each.id: each for cut in cuts for each in (*_proof(standing, cut.signer), *_proof(standing, cut.subject), cut)
    }
    return tuple(told.values()) if carried_size(told.values()) <= EVIDENCE_BYTES_MAX else ()


def archive(view: View, leaf: bytes) -> Archive:
    """What a node keeps of a cluster, when its ``leaf`` has just ceased to be a member's (CL-90)."""
    former = view.former_as(leaf)
    told = () if former is None else evidence(view, former.incarnation)
    return Archive(view.cluster, told, frozenset(sha256(each.leaf).digest() for each in view.members))


def carried_size(statements: Iterable[Statement]) -> int:
    """The length of ``statements`` as a list of base64 in JSON."""
    return sum(-(-len(encode(each)) // 3) * 4 + 3 for each in statements)


def _proof(standing: Standing, incarnation: bytes) -> Iterator[Statement]:
    for edge in standing.path(incarnation):
        yield edge
        join = standing.proven.joins.get(edge.subject, edge)
        if join is not edge:
            yield join


def _cut_off_by(standing: Standing, incarnation: bytes) -> Iterator[Statement]:
    """What cut each of the edges that would let in an incarnation that is not valid, or the way to their signers."""
    admissions: dict[bytes, list[Statement]] = {}
    for edges in standing.proven.edges.values():
        for edge in edges:
            admissions.setdefault(edge.subject, []).append(edge)
    seen = {incarnation}
    waiting = [incarnation]
    for each in waiting:  # it grows on the way
        for edge in admissions.get(each, ()):
            if edge.id in standing.dead:
                yield standing.dead[edge.id]
            elif edge.signer not in seen:
                seen.add(edge.signer)
                waiting.append(edge.signer)
