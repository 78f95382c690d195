"""Which conditions hold by a view, and which do no more (CL-77, CL-81, CL-89, CL-95)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pair.cluster.merging import CUTS_MAX, OTHERS_MAX, busiest
from pair.records.errors import Subject

if TYPE_CHECKING:
    from pair.cluster.membership import Clash, Former, View
    from pair.cluster.transitions import Held
    from pair.interfaces import IErrorBook

_HOW = {
    "removed": "it was removed",
    "left": "its leave was signed",
    "admitter_removed": "the node that had let it in was put out",
}


def tell(errors: IErrorBook, before: Held, after: Held) -> None:
    """Raise what holds from now on, and clear what was of a view that is over."""
    was = {each.node: each for each in _clashes(before.view)}
    for clash in _clashes(after.view):
        if was.pop(clash.node, None) != clash:
            errors.raise_entry(
                f"cluster:leaf_clash:{clash.node}",
                subject=Subject(node=clash.node),
                node=clash.node,
                admitters=" and ".join(_name(after.view, side.admitted_by) for side in clash.sides),
            )
    for node in was:
        errors.clear(f"cluster:leaf_clash:{node}")
    for node in _nodes(before.view).difference(_nodes(after.view)):
        errors.clear(f"cluster:one_way:{node}")
        errors.clear(f"cluster:certificate_changed:{node}")
    if after.view is None:
        errors.clear("cluster:refused")
    if not _full(after):
        errors.clear("cluster:statements_full")
    elif not _full(before) and after.view is not None:
        signer = after.view.standing.proven.incarnations.get(busiest(after.statements) or b"")
        name = _name(after.view, None if signer is None else signer.node)
        errors.raise_entry("cluster:statements_full", signer=name)


def tell_out(errors: IErrorBook, view: View, out: Former) -> None:
    """This node is out of the cluster of ``view``, which is the last one that it was in (CL-89)."""
    errors.raise_entry(
        f"cluster:removed:{out.by}",
        subject=Subject(node=out.by),
        cluster=view.name,
        how=_HOW[out.how],
        by=_name(view, out.by),
        at=_instant(out.at),
    )


def _instant(at: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError, OSError):  # a signer may write any number
        return "an unknown time"


def _full(held: Held) -> bool:
    cuts = sum(1 for each in held.statements if each.is_cut)
    return cuts >= CUTS_MAX or len(held.statements) - cuts >= OTHERS_MAX


def _clashes(view: View | None) -> tuple[Clash, ...]:
    return () if view is None else view.clashes


def _nodes(view: View | None) -> set[str]:
    return set() if view is None else {each.node for each in view.members}


def _name(view: View | None, node: str | None) -> str:
    """A member by its name and UUID, another by its UUID."""
    if node is None:
        return "the founder"
    member = None if view is None else view.member(node)
    return f"{member.name} ({node})" if member is not None and member.name else node
