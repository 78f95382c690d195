"""Whom a node lets in, and what it lets itself in for: the judgements of a pairing (CL-48, CL-50).

Pure. Who is on the other side is proven before anything here is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pair.cluster.closure import Incarnation
from pair.cluster.membership import evaluate
from pair.cluster.merging import OTHERS_MAX, merge
from pair.cluster.proofs import proof
from pair.cluster.statements import Statement, decode, encode
from pair.protocols.pairing import Offer

if TYPE_CHECKING:
    from pair.cluster.membership import Member, View
    from pair.cluster.signing import Verify
    from pair.cluster.transitions import Held
    from pair.protocols.pairing import Peer, Reason

_ADMISSION = 3
"""An ``admit``, and the ``join`` and the ``note`` that come of it."""


class Accepted(Struct, frozen=True):
    """An offer that is good: the statements that count, and the incarnation by which it admits this node."""

    cluster: str
    statements: tuple[Statement, ...]
    incarnation: Incarnation


def objection(held: Held, peer: Peer) -> Reason | None:
    """Why ``peer`` may not be admitted (CL-48)."""
    if peer.uuid == held.uuid:
        return "identity_clash"
    view = held.view
    if view is None:
        return None
    known = view.member(peer.uuid)
    clashes = {each.node for each in view.clashes}
    if not clashes.isdisjoint((peer.uuid, held.uuid)) or (known is not None and known.leaf != peer.leaf):
        return "identity_clash"
    others = sum(1 for each in held.statements if not each.is_cut)
    if (view.full and known is None) or others + _ADMISSION > OTHERS_MAX:
        return "cluster_full"
    return None


def make_offer(view: View, me: Member, admission: Statement) -> Offer:
    """What the joiner is given: the way from the root to ``me``, our note, and its admission (CL-39)."""
    note = view.standing.proven.notes.get(me.incarnation)
    statements = (*proof(view, me.incarnation), *((note,) if note is not None else ()), admission)
    return Offer(view.cluster, view.name, tuple(map(encode, statements)))


def judge_offer(held: Held, least: int, peer: Peer, offer: Offer, verify: Verify) -> Accepted | Reason:
    """Whether ``offer`` does what it is for: ``peer`` is a member, and admits this node by ``least`` or more (CL-50).

    An earlier incarnation of this node may be on the way from the root to
    ``peer``, and then it stands by the offer: only the epoch tells them apart.
    """
    if held.view is not None:
        return "already_clustered"
    try:
        statements = tuple(map(decode, offer.statements))
    except ValueError:
        return "protocol_error"
    kept = merge((), statements, offer.cluster, verify).kept
    view = evaluate(kept, offer.cluster, verify)
    inviter = view.member(peer.uuid)
    if inviter is None or inviter.leaf != peer.leaf:
        return "protocol_error"
    if any(each.node == held.uuid and each.leaf != held.leaf for each in view.members):
        return "identity_clash"
    proven = view.standing.proven
    admitted = [
        each
        for each in proven.incarnations.values()
        if each.leaf == held.leaf
        and each.epoch >= least
        and view.standing.stands(each.id)
        and each.id not in proven.joins
    ]
    if not admitted:
        return "protocol_error"
    return Accepted(offer.cluster, kept, max(admitted, key=lambda each: each.epoch))
