"""The roster: a view as people and programs see it (cluster page, section 12). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pair.cluster.leaf import leaf_digest
from pair.privacy import clean_text
from pair.records.cluster import ClusterName, Roster, RosterFormer, RosterMember

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pair.cluster.membership import View


def make_roster(
    view: View | None, own: str, last_seen: Mapping[str, int], flags: Mapping[str, Sequence[str]]
) -> Roster:
    """Who is in the cluster, and who was.

    Args:
        view: None for no cluster.
        own: UUID of this node.
        last_seen: For each UUID, when it last answered, in epoch milliseconds.
        flags: For each UUID, what is to be said of it: ``one_way``.

    Returns:
        Names are cleaned; those that were let in and never came are left out.
    """
    if view is None:
        return Roster(None, own)
    members = tuple(
        RosterMember(
            each.node,
            clean_text(each.name),
            leaf_digest(each.leaf),
            each.epoch,
            each.joined_at,
            each.admitted_by,
            last_seen.get(each.node),
            tuple(flags.get(each.node, ())),
        )
        for each in view.members
    )
    former = tuple(
        RosterFormer(each.node, clean_text(each.name), each.how, each.by, each.at)
        for each in view.former
        if each.joined
    )
    return Roster(ClusterName(view.cluster, clean_text(view.name)), own, members, former)
