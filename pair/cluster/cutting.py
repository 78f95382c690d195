"""What a removal and a leave sign: whom they end, and which admissions they keep (CL-65, CL-86 to CL-88).

Pure. A cut takes from its node the power to have let others in. The keep list
gives back what others need of it, so that an honest cut ends one node and
loses nobody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pair.cluster.statements import KEEP_MAX, Leave, Remove

if TYPE_CHECKING:
    from collections.abc import Collection

    from pair.cluster.membership import Member, View
    from pair.cluster.standing import Standing


def removal(view: View, nodes: Collection[str]) -> tuple[Remove, ...]:
    """What to sign so that ``nodes`` (UUIDs) are out: one for each of their standing incarnations (CL-86)."""
    return tuple(
        Remove(each.id, keep_list(view, each.leaf, nodes))
        for each in view.standing.proven.incarnations.values()
        if each.node in nodes and view.standing.stands(each.id)
    )


def departure(view: View, member: Member) -> Leave:
    """What ``member`` signs to be out (CL-88)."""
    return Leave(keep_list(view, member.leaf, (member.node,)))


def keep_list(view: View, leaf: bytes, gone: Collection[str]) -> tuple[bytes, ...]:
    """The admissions that a cut of ``leaf`` keeps when the nodes ``gone`` (UUIDs) are put out with it.

    These are all live edges signed by any incarnation of the leaf that lead,
    over live edges, to a member that is not in ``gone``. On the way they may
    pass whoever signs a live edge: members, nodes cut before, earlier
    incarnations, and nodes that are to go now.

    Returns:
        Statement ids, sorted. At most 256: of more, as many as one path to each member needs.
    """
    standing = view.standing
    staying = [each.incarnation for each in view.members if each.node not in gone]
    needed = _leading_to(standing, staying)
    own = [
        edge
        for each in standing.proven.incarnations.values()
        if each.leaf == leaf
        for edge in standing.proven.edges.get(each.id, ())
        if edge.id not in standing.dead
    ]
    keep = {edge.id for edge in own if edge.subject in needed}
    if len(keep) > KEEP_MAX:
        keep = _enough(standing, keep, staying)
    return tuple(sorted(keep))


def _leading_to(standing: Standing, targets: list[bytes]) -> set[bytes]:
    """The incarnations from which live edges lead to one of ``targets``, and these themselves."""
    admitters: dict[bytes, list[bytes]] = {}
    for edges in standing.proven.edges.values():
        for edge in edges:
            if edge.id not in standing.dead:
                admitters.setdefault(edge.subject, []).append(edge.signer)
    found = set(targets)
    waiting = list(targets)
    while waiting:
        for signer in admitters.get(waiting.pop(), ()):
            if signer not in found:
                found.add(signer)
                waiting.append(signer)
    return found


def _enough(standing: Standing, keep: set[bytes], targets: list[bytes]) -> set[bytes]:
    """Of ``keep``, what the shortest path to each target needs, for as many targets as there is room for."""
    enough: set[bytes] = set()
    for target in targets:
        with_target = enough | keep.intersection(edge.id for edge in standing.path(target))
        if len(with_target) <= KEEP_MAX:
            enough = with_target
    return enough
