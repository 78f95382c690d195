"""The members of a cluster, as its signed statements say (cluster page, section 7).

:func:`evaluate` is a function of a set: whoever has the same statements sees
the same members, whatever the order in which they came. It is made of
:mod:`~pair.cluster.closure` (which statements count),
:mod:`~pair.cluster.standing` (who stands) and what is here: who of those is a
member, and what is shown of it. Pure; signatures are an argument.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from pair.cluster.closure import Incarnation, prove
from pair.cluster.standing import Standing, judge
from pair.cluster.statements import Found, Note, Statement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pair.cluster.signing import Verify

MEMBERS_MAX = 64

Ending = Literal["removed", "left", "admitter_removed"]


class Member(Struct, frozen=True):
    """A node of the cluster, at its latest incarnation.

    ``admitted_by`` is the UUID of the node that let it in, None for the
    founder. ``joined_at`` (epoch milliseconds) is what its own clock said.
    Name, addresses and ports are those of its last note.
    """

    node: str
    incarnation: bytes
    epoch: int
    leaf: bytes
    admitted_by: str | None
    joined_at: int
    name: str = ""
    addresses: tuple[str, ...] = ()
    ports: tuple[tuple[str, int], ...] = ()


class Admitted(Struct, frozen=True):
    """A node that was let in and whose own consent is still to come (CL-76)."""

    node: str
    incarnation: bytes
    epoch: int
    leaf: bytes
    admitted_by: str | None


class Former(Struct, frozen=True):
    """A leaf that was let in once and stands no more.

    ``by`` and ``at`` are the signer (UUID) and the instant of the cut that put
    it out, or that put out whoever had let it in. ``joined`` is false for one
    that was admitted and never came.
    """

    node: str
    incarnation: bytes
    leaf: bytes
    name: str
    joined: bool
    how: Ending
    by: str
    at: int


class Clash(Struct, frozen=True):
    """One UUID with two leaves or more, all standing and joined: none of them is a member (CL-77)."""

    node: str
    sides: tuple[Admitted, ...]


class View(Struct, frozen=True):
    """What a set of statements says of a cluster. Equal for equal sets.

    All lists are in the order of UUID and leaf. ``standing`` is the judgement
    behind them, for keep lists and proofs.
    """

    cluster: str
    name: str
    members: tuple[Member, ...]
    admitted: tuple[Admitted, ...]
    former: tuple[Former, ...]
    clashes: tuple[Clash, ...]
    standing: Standing

    @property
    def full(self) -> bool:
        """Whether no more nodes may be invited (CL-81)."""
        return len(self.members) >= MEMBERS_MAX

    def member(self, node: str) -> Member | None:
        """The member with this UUID."""
        return next((each for each in self.members if each.node == node), None)

    def signs_as(self, leaf: bytes) -> Member | None:
        """The member whose leaf this is: a node is in the cluster exactly if its own leaf has one (CL-78)."""
        return next((each for each in self.members if each.leaf == leaf), None)

    def former_as(self, leaf: bytes) -> Former | None:
        """How the node with this leaf ended; None for one that stands, be it in a clash (CL-89)."""
        return next((each for each in self.former if each.leaf == leaf), None)

    def last_note(self, node: str) -> Note | None:
        """What ``node`` said of itself last, be it a member or one that was."""
        known = [
            _note(self.standing, each.id) for each in self.standing.proven.incarnations.values() if each.node == node
        ]
        return max((each for each in known if each is not None), key=attrgetter("counter"), default=None)

    def admitted_by(self, node: str) -> tuple[str, ...]:
        """The UUIDs of other members that ``node`` has let in, by whatever incarnation (CL-87)."""
        standing = self.standing
        subjects = {
            edge.subject
            for each in standing.proven.incarnations.values()
            if each.node == node
            for edge in standing.proven.edges.get(each.id, ())
            if edge.id not in standing.dead
        }
        return tuple(each.node for each in self.members if each.incarnation in subjects and each.node != node)

    def epoch_for(self, node: str, least: int) -> int:
        """The epoch by which to admit ``node``, which accepts none below ``least`` (CL-69)."""
        proven = self.standing.proven
        joined = (each.epoch for each in proven.incarnations.values() if each.node == node and each.id in proven.joins)
        return max(least, max(joined, default=0) + 1)


def evaluate(statements: Iterable[Statement], cluster: str, verify: Verify) -> View:
    """The view of ``cluster`` by all of ``statements``.

    Args:
        statements: Any, in any order; those of other clusters and those that prove nothing have no effect.
        cluster: The cluster's id, as text.
        verify: Whether a signature is good (:func:`pair.cluster.signing.verify`).

    Returns:
        A view without members where the root of the cluster is missing.
    """
    standing = judge(prove(statements, cluster, verify))
    up: dict[str, dict[bytes, Incarnation]] = {}
    pending = []
    for incarnation in _ordered(standing):
        if standing.stands(incarnation.id):
            if incarnation.id in standing.proven.joins:
                up.setdefault(incarnation.node, {})[incarnation.leaf] = incarnation  # the highest epoch comes last
            else:
                pending.append(incarnation)
    leaves = {leaf for sides in up.values() if len(sides) == 1 for leaf in sides}
    return View(
        cluster,
        _cluster_name(standing),
        tuple(_member(standing, each) for sides in up.values() if len(sides) == 1 for each in sides.values()),
        tuple(_admitted(standing, each) for each in pending if each.leaf not in leaves),
        _former(standing),
        tuple(
            Clash(node, tuple(_admitted(standing, each) for each in sides.values()))
            for node, sides in up.items()
            if len(sides) > 1
        ),
        standing,
    )


def _ordered(standing: Standing) -> list[Incarnation]:
    return sorted(standing.proven.incarnations.values(), key=lambda each: (each.node, each.leaf, each.epoch))


def _cluster_name(standing: Standing) -> str:
    return next((each.body.name for each in standing.proven.entries.values() if isinstance(each.body, Found)), "")


def _note(standing: Standing, incarnation: bytes) -> Note | None:
    said = standing.proven.notes.get(incarnation)
    return said.body if said is not None and isinstance(said.body, Note) else None


def _member(standing: Standing, incarnation: Incarnation) -> Member:
    admitted = _admitted(standing, incarnation)
    joined_at = standing.proven.joins[incarnation.id].issued_at
    note = _note(standing, incarnation.id)
    about = () if note is None else (note.name, note.addresses, note.ports)
    return Member(
        incarnation.node, incarnation.id, incarnation.epoch, incarnation.leaf, admitted.admitted_by, joined_at, *about
    )


def _admitted(standing: Standing, incarnation: Incarnation) -> Admitted:
    edge = standing.admissions[incarnation.id]
    by = None if edge.signer == incarnation.id else standing.proven.incarnations[edge.signer].node
    return Admitted(incarnation.node, incarnation.id, incarnation.epoch, incarnation.leaf, by)


def _former(standing: Standing) -> tuple[Former, ...]:
    """One for each leaf of which no incarnation stands, by its latest incarnation, if possible one that joined."""
    proven = standing.proven
    latest: dict[bytes, Incarnation] = {}
    for each in _ordered(standing):
        known = latest.setdefault(each.leaf, each)
        if (each.id in proven.joins, each.epoch) > (known.id in proven.joins, known.epoch):
            latest[each.leaf] = each
    here = {each.leaf for each in proven.incarnations.values() if standing.stands(each.id)}
    lost = _lost_by(standing)
    former = []
    for leaf, each in latest.items():
        if leaf in here:
            continue
        own = standing.ended.get(each.id)
        cut = lost[each.id] if own is None else own
        how: Ending = "admitter_removed" if own is None else "left" if own.signer == own.subject else "removed"
        note = _note(standing, each.id)
        former.append(
            Former(
                each.node,
                each.id,
                leaf,
                "" if note is None else note.name,
                each.id in proven.joins,
                how,
                proven.incarnations[cut.signer].node,
                cut.issued_at,
            )
        )
    return tuple(former)


def _lost_by(standing: Standing) -> dict[bytes, Statement]:
    """For each incarnation that is not valid, the first cut on the way by which it is known."""
    lost: dict[bytes, Statement] = {}
    for incarnation, edge in standing.proven.entries.items():
        cut = standing.dead.get(edge.id) or lost.get(edge.signer)
        if cut is not None:
            lost[incarnation] = cut
    return lost
