"""How sets of statements grow and become equal: merge, bounds, introductions, differences (CL-79 to CL-82).

Pure. A store here is any collection of statements that :func:`merge` has made,
and so one in which each counts. Who may hand in a batch is for the caller to
ask; what may get in is decided here.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import Struct

from pair.cluster.closure import prove
from pair.cluster.membership import evaluate
from pair.cluster.proofs import carried_size
from pair.cluster.statements import Admit, Found, Join, Note, Statement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from pair.cluster.signing import Verify

CUTS_MAX = 2048
OTHERS_MAX = 2048

INTRODUCTION_STATEMENTS_MAX = 64
INTRODUCTION_BYTES_MAX = 128 * 1024

MESSAGE_STATEMENTS_MAX = 512
MESSAGE_BYTES_MAX = 1024 * 1024 - 4096
"""Of statements in one message of a sync; what is left of 1 MiB is for the JSON around them."""


class Merged(Struct, frozen=True):
    """A store after a merge, and what became of the batch.

    ``kept`` is the store, in an order in which it can be taken in; ``added``
    is what is new in it, ``pruned`` the ids of what is in it no more.
    ``discarded`` counts what proves nothing yet, or was outdone by a later
    note, ``surplus`` what the bounds refused.
    """

    kept: tuple[Statement, ...]
    added: tuple[Statement, ...]
    pruned: tuple[bytes, ...]
    known: int
    foreign: int
    discarded: int
    surplus: int


class Difference(Struct, frozen=True):
    """What two stores lack of each other: ids that only theirs has, statements that only ours has."""

    want: tuple[bytes, ...]
    give: tuple[Statement, ...]


def merge(
    store: Collection[Statement], batch: Iterable[Statement], cluster: str, verify: Verify, *, bounded: bool = True
) -> Merged:
    """``store`` with all of ``batch`` that counts for both together (CL-79).

    Below the bounds, what is kept depends on the union of the two alone. What
    is discarded comes again with the next difference, when it may count.

    Args:
        store: What is kept so far.
        batch: From anyone whose statements are taken.
        cluster: The cluster's id; other clusters' statements are foreign.
        verify: Whether a signature is good.
        bounded: False for what this node signed itself: its own leave must not fail because others filled the set.
    """
    held = {each.id: each for each in store}
    rooted = any(isinstance(each.body, Found) for each in held.values())
    news: dict[tuple[bytes, bytes], Statement] = {}
    known = foreign = 0
    for each in batch:
        if each.id in held:
            known += 1
        elif each.cluster != cluster or (rooted and isinstance(each.body, Found)):
            foreign += 1
        else:
            news[each.id, each.signature] = each
    proven = prove((*held.values(), *news.values()), cluster, verify)
    surplus = 0
    if bounded:
        room = _within_bounds(held.values(), proven.in_order())
        surplus = sum(1 for each in proven.in_order() if each.id not in room)
        if surplus:
            # Proven once more, since what was refused may have been the ground of what was not.
            proven = prove((*held.values(), *room.values()), cluster, verify)
    kept = {each.id: each for each in proven.in_order()}
    added = tuple(each for each in kept.values() if each.id not in held)
    lacking = {each.id for each in news.values()}.difference(kept)
    return Merged(
        tuple(kept.values()),
        added,
        tuple(each for each in held if each not in kept),
        known,
        foreign,
        len(lacking) - surplus,
        surplus,
    )


def introduction(
    store: Collection[Statement], batch: Collection[Statement], cluster: str, leaf: bytes, verify: Verify
) -> Merged | None:
    """``store`` with all of ``batch``, if that makes its sender, whose ``leaf`` this is, a member or admitted (CL-80).

    Returns:
        None where it does not, or the batch is too large for one who is not a member: then nothing may be stored.
    """
    if len(batch) > INTRODUCTION_STATEMENTS_MAX or carried_size(batch) > INTRODUCTION_BYTES_MAX:
        return None
    merged = merge(store, batch, cluster, verify)
    view = evaluate(merged.kept, cluster, verify)
    leaves = {each.leaf for each in view.members}.union(each.leaf for each in view.admitted)
    return merged if leaf in leaves else None


def busiest(store: Iterable[Statement]) -> bytes | None:
    """The incarnation that signed the most of ``store``, which is whom to look at when it is full (CL-81)."""
    counts: dict[bytes, int] = {}
    for each in store:
        counts[each.signer] = counts.get(each.signer, 0) + 1
    return max(counts, key=lambda signer: (counts[signer], signer), default=None)


def set_root(ids: Iterable[bytes]) -> bytes:
    """The hash that two stores have in common exactly if they have the same statements."""
    return sha256(b"".join(sorted(ids))).digest()


def difference(store: Iterable[Statement], have: Collection[bytes]) -> Difference:
    """What is to be asked and told when the other side's store has the ids ``have``."""
    ours = {each.id: each for each in store}
    theirs = frozenset(have)
    return Difference(tuple(sorted(theirs.difference(ours))), tuple(ours[each] for each in ours if each not in theirs))


def messages(statements: Iterable[Statement]) -> Iterator[tuple[Statement, ...]]:
    """``statements``, in their order, in messages none of which is too large for a sync (CL-82)."""
    message: list[Statement] = []
    size = 0
    for each in statements:
        more = carried_size((each,))
        if len(message) == MESSAGE_STATEMENTS_MAX or size + more > MESSAGE_BYTES_MAX:
            yield tuple(message)
            message, size = [], 0
        message.append(each)
        size += more
    if message:
        yield tuple(message)


def _within_bounds(held: Collection[Statement], proven: Iterable[Statement]) -> dict[bytes, Statement]:
    """What of ``proven`` has room beside ``held``; a later note or a lower join takes the place of the one before.

    The first cut of each incarnation that is known always has: else a member
    could shield itself from all others' removals by filling the set with cuts.
    """
    ids = {each.id for each in held}
    places = {_place(each) for each in held}
    uncut = {each.subject for each in held if isinstance(each.body, Found | Admit)}
    uncut.difference_update(each.subject for each in held if each.is_cut)
    cuts = sum(1 for each in held if each.is_cut)
    room = {True: CUTS_MAX - cuts, False: OTHERS_MAX - (len(ids) - cuts)}
    within: dict[bytes, Statement] = {}
    for each in proven:
        if each.id in ids or _place(each) in places:
            within[each.id] = each
        elif room[each.is_cut] > 0 or (each.is_cut and each.subject in uncut):
            within[each.id] = each
            room[each.is_cut] -= 1
            uncut.discard(each.subject)
    return within


def _place(statement: Statement) -> tuple[bytes, int]:
    """What only one statement of a store can have: of a signer, one note and one join count."""
    if isinstance(statement.body, Join | Note):
        return statement.signer, statement.body.KIND
    return statement.id, 0
