"""Which statements of a set count at all: steps 0 to 2 of the evaluation (cluster page, section 7).

A statement counts if a chain of admissions leads from the root to its signer,
each node of the chain wanted to be in, and all signatures are good. Whether a
node on the chain was put out later makes no difference here: this set only
grows with the statements, and :mod:`pair.cluster.standing` judges within it.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from pair.cluster.statements import Admit, Found, Join, Leave, Note, Remove, Statement

if TYPE_CHECKING:
    from pair.cluster.signing import Verify

_by_id = attrgetter("id", "signature")


class Incarnation(Struct, frozen=True):
    """One admission of one node: its UUID, the epoch that tells its admissions apart, its leaf (DER)."""

    id: bytes
    node: str
    epoch: int
    leaf: bytes


class Proven(Struct, frozen=True):
    """The statements that count, by what they do; all keys but the first are incarnation ids.

    ``incarnations`` holds the known ones, the root first and then by their
    distance from it, and ``entries`` the edge by which each is known. The
    joined ones are the keys of ``joins``; the founder joins by founding.
    ``edges`` and ``notes`` are keyed by signer, ``cuts`` by whom they end.
    """

    incarnations: Mapping[bytes, Incarnation]
    entries: Mapping[bytes, Statement]
    joins: Mapping[bytes, Statement]
    edges: Mapping[bytes, tuple[Statement, ...]]
    cuts: Mapping[bytes, tuple[Statement, ...]]
    notes: Mapping[bytes, Statement]

    def in_order(self) -> Iterator[Statement]:
        """All of them, each after those by which its signer is known and joined; notes are last."""
        for incarnation in self.incarnations:
            if incarnation in self.joins:
                yield self.joins[incarnation]
            yield from self.edges.get(incarnation, ())
        for cuts in self.cuts.values():
            yield from cuts
        yield from self.notes.values()


def prove(statements: Iterable[Statement], cluster: str, verify: Verify) -> Proven:
    """What counts of ``statements`` in ``cluster``; nothing where its root is not among them.

    Of the joins of one signer the one with the lowest id is taken, of its notes
    the one with the highest (counter, id). The order of the statements and
    their repetition make no difference.

    The work is that of sorting them, and of verifying them once; of a signer
    that has not joined only the joins are verified.
    """
    said: dict[bytes, list[Statement]] = {}
    for each in sorted((each for each in statements if each.cluster == cluster), key=_by_id):
        said.setdefault(each.signer, []).append(each)
    root = _root(said, verify)
    if root is None:
        return Proven({}, {}, {}, {}, {}, {})

    incarnations = {root.subject: _introduced(root)}
    entries = {root.subject: root}
    joins = {root.subject: root}
    edges: dict[bytes, tuple[Statement, ...]] = {}
    cuts: dict[bytes, list[Statement]] = {}
    notes: dict[bytes, Statement] = {}
    reached = [root.subject]
    for signer in reached:  # it grows on the way
        leaf = incarnations[signer].leaf
        heard = said.get(signer, ())
        if signer not in joins:
            join = next(_good((each for each in heard if isinstance(each.body, Join)), leaf, verify), None)
            if join is None:
                continue
            joins[signer] = join
        admitted = []
        for each in _good(heard, leaf, verify):
            match each.body:
                case Admit():
                    admitted.append(each)
                    if each.subject not in incarnations:
                        incarnations[each.subject] = _introduced(each)
                        entries[each.subject] = each
                        reached.append(each.subject)
                case Remove() if each.subject == signer:
                    pass  # to go is to leave
                case Remove() | Leave():
                    cuts.setdefault(each.subject, []).append(each)
                case Note():
                    notes[signer] = max(notes.get(signer, each), each, key=_by_counter)
        if admitted:
            edges[signer] = tuple(admitted)
    return Proven(incarnations, entries, joins, edges, {each: tuple(those) for each, those in cuts.items()}, notes)


def _root(said: Mapping[bytes, list[Statement]], verify: Verify) -> Statement | None:
    """The good `found`: of several, for which somebody must have broken the hash, the one with the lowest id."""
    founded = sorted((each for those in said.values() for each in those if isinstance(each.body, Found)), key=_by_id)
    return next((each for each in founded if verify(_introduced(each).leaf, each.payload, each.signature)), None)


def _good(statements: Iterable[Statement], leaf: bytes, verify: Verify) -> Iterator[Statement]:
    """Those with a good signature, each id once: a bad copy of a statement does not stand in the way of a good one."""
    last = b""
    for each in statements:
        if each.id != last and verify(leaf, each.payload, each.signature):
            last = each.id
            yield each


def _introduced(edge: Statement) -> Incarnation:
    assert isinstance(edge.body, Found | Admit)
    return Incarnation(edge.subject, edge.body.node, edge.body.epoch, edge.body.leaf)


def _by_counter(statement: Statement) -> tuple[int, bytes]:
    assert isinstance(statement.body, Note)
    return statement.body.counter, statement.id
