"""Who stands: steps 3 to 6 of the evaluation (cluster page, section 7).

Cuts take admissions away from those that are out, and whoever no admission
leads to any more is out with them. Nothing here looks at a clock, or asks
whether the signer of a cut stands itself. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from msgspec import Struct

from pair.cluster.closure import Incarnation, Proven
from pair.cluster.statements import Statement


class Standing(Struct, frozen=True):
    """The judgement over the statements that count. Keys are incarnation ids, but for ``dead``.

    ``ended`` has, for each incarnation with a cut, one of its cuts; ``dead``,
    for each edge (statement id) that is not live, one of the cuts that do not
    keep it. Of several, these are by a signer nearest to the root, so that
    their proof is short. ``admissions`` has, for each valid incarnation, the
    live edge by a valid signer that lets it in.
    """

    proven: Proven
    ended: Mapping[bytes, Statement]
    dead: Mapping[bytes, Statement]
    admissions: Mapping[bytes, Statement]

    def stands(self, incarnation: bytes) -> bool:
        """Whether it was let in, and neither it nor a later incarnation of its leaf was cut."""
        return incarnation in self.admissions and incarnation not in self.ended

    def path(self, incarnation: bytes) -> list[Statement]:
        """The edges that lead from the root to a known incarnation, the root's own first.

        They are those by which it is valid; where it is not, those by which it is known.
        """
        edges = self.admissions if incarnation in self.admissions else self.proven.entries
        path = [edges[incarnation]]
        while path[-1].signer != path[-1].subject:  # only the root's edge has one for both
            path.append(edges[path[-1].signer])
        return path[::-1]


def judge(proven: Proven) -> Standing:
    """Who of the known ones is cut, which edges are live, and who is valid by them."""
    ended: dict[bytes, Statement] = {}
    dead: dict[bytes, Statement] = {}
    lineages: dict[bytes, list[Incarnation]] = {}
    for each in proven.incarnations.values():
        lineages.setdefault(each.leaf, []).append(each)
    for lineage in lineages.values():
        _cut(proven, lineage, ended, dead)
    return Standing(proven, ended, dead, _admit(proven, dead))


def _cut(
    proven: Proven, lineage: list[Incarnation], ended: dict[bytes, Statement], dead: dict[bytes, Statement]
) -> None:
    """Steps 3 and 4 for the incarnations of one leaf: a cut of one that joined holds for the earlier ones too."""
    inherited: Statement | None = None
    live = {edge.id for each in lineage for edge in proven.edges.get(each.id, ())}
    for each in sorted(lineage, key=attrgetter("epoch"), reverse=True):
        cuts = proven.cuts.get(each.id, ())
        cut = cuts[0] if cuts else inherited
        if cut is not None:
            ended[each.id] = cut
        if each.id not in proven.joins:
            continue
        inherited = cut
        # `live` has the edges of this incarnation and of the earlier ones, of which a cut leaves those it keeps.
        for by in cuts:
            dead.update(dict.fromkeys(live.difference(by.keep), by))
            live.intersection_update(by.keep)
        live.difference_update(edge.id for edge in proven.edges.get(each.id, ()))


def _admit(proven: Proven, dead: Mapping[bytes, Statement]) -> dict[bytes, Statement]:
    """Step 5: who is reached from the root over live edges, and by which edge first."""
    admissions: dict[bytes, Statement] = {}
    for root in list(proven.incarnations)[:1]:
        admissions[root] = proven.entries[root]
    reached = list(admissions)
    for signer in reached:  # it grows on the way
        for edge in proven.edges.get(signer, ()):
            if edge.id not in dead and edge.subject not in admissions:
                admissions[edge.subject] = edge
                reached.append(edge.subject)
    return admissions
