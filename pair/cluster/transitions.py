"""What follows from a merge: what is in force then, and what is written for it (CL-78, CL-89, CL-90, CL-95).

Pure. A step goes from what is held to what will be; whoever carries it out
writes its transition first. It must not know where a batch came from, beyond
the word for it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pair.cluster.audit import Entry, told_by
from pair.cluster.changes import SELF
from pair.cluster.membership import Ending, Former, View, evaluate
from pair.cluster.merging import Merged, introduction, merge, set_root
from pair.cluster.proofs import Archive, evidence
from pair.cluster.statements import Leave, Note, Statement, read
from pair.cluster.trustrows import ARCHIVES_KEPT, Ended, Transition

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pair.cluster.closure import Incarnation
    from pair.cluster.membership import Member
    from pair.cluster.signing import Verify

_EMPTY_ROOT = set_root(())


class Held(Struct, frozen=True):
    """What a node goes by, all of it in its store too.

    ``uuid`` and ``leaf`` are its own. ``view`` is None and ``statements`` are
    empty while it is in no cluster. ``epoch`` and ``counter`` are the highest
    that it ever used.
    """

    uuid: str
    leaf: bytes
    epoch: int = 0
    counter: int = 0
    view: View | None = None
    statements: tuple[Statement, ...] = ()
    root: bytes = _EMPTY_ROOT
    archives: tuple[Archive, ...] = ()

    @property
    def me(self) -> Member | None:
        """This node as a member, which alone may sign (CL-78)."""
        return None if self.view is None else self.view.signs_as(self.leaf)

    def own(self) -> Incarnation | None:
        """The latest incarnation by which this node is in its cluster, be it in a clash; None: it is not."""
        return None if self.view is None else own_incarnation(self.view, self.leaf)


class Step(Struct, frozen=True):
    """From what was held to ``held``.

    ``out`` is how the node ended in the cluster, if the step puts it out and a
    cut says how. ``lost`` counts statements of its own that came back from
    others (CL-95).
    """

    held: Held
    transition: Transition
    out: Former | None = None
    lost: int = 0


class Weighed(Struct, frozen=True):
    """A store with a batch merged into it, and the view of that."""

    merged: Merged
    view: View


def own_incarnation(view: View, leaf: bytes) -> Incarnation | None:
    """The latest incarnation of ``leaf`` that stands and has joined."""
    standing = view.standing
    up = (
        each
        for each in standing.proven.incarnations.values()
        if each.leaf == leaf and each.id in standing.proven.joins and standing.stands(each.id)
    )
    return max(up, key=lambda each: each.epoch, default=None)


def weigh(
    view: View, statements: Collection[Statement], batch: Sequence[bytes], leaf: bytes | None, verify: Verify
) -> Weighed | None:
    """What a batch makes of a store. May take long at the first sight of many statements, and in any thread.

    Args:
        view: Of ``statements``.
        statements: The store.
        batch: As it came.
        leaf: Of a sender that is no member, and may do no more than introduce itself (CL-80).
        verify: Whether a signature is good.

    Returns:
        None where it is no introduction and would have to be one.
    """
    news = read(batch).statements
    if leaf is None:
        merged = merge(statements, news, view.cluster, verify)
    else:
        introduced = introduction(statements, news, view.cluster, leaf, verify)
        if introduced is None:
            return None
        merged = introduced
    return Weighed(merged, evaluate(merged.kept, view.cluster, verify) if merged.added else view)


def advance(held: Held, weighed: Weighed, at: int, source: str, mine: Collection[bytes] = ()) -> Step:
    """The step by which a merge comes into force.

    Args:
        held: From here.
        weighed: What was merged. Where a cluster was joined or founded, its own join or ``found`` is in it.
        at: Epoch milliseconds.
        source: Whom the statements came from.
        mine: Ids of those that this node has just signed.
    """
    merged, view = weighed.merged, weighed.view
    told = tuple((each, SELF if each.id in mine else source) for each in merged.added)
    returned = _returned(held, view, [each for each in merged.added if each.id not in mine])
    epoch, counter = _beyond(held, view, merged.added)
    entries = (*told_by(view, told), *_new_clashes(held.view, view))
    after = replace(held, epoch=epoch, counter=counter)
    if own_incarnation(view, held.leaf) is None:
        return _out(after, view, at, entries, len(returned))
    after = replace(
        after,
        view=view,
        statements=merged.kept,
        root=set_root(each.id for each in merged.kept),
        archives=tuple(each for each in held.archives if each.cluster != view.cluster),
    )
    transition = Transition(
        at=at,
        cluster=view.cluster,
        epoch=epoch,
        counter=counter,
        added=told,
        pruned=merged.pruned,
        begins=held.view is None,
        audit=entries,
    )
    return Step(after, transition, None, len(returned))


def resume(held: Held, weighed: Weighed) -> Held:
    """What is held after a start: ``weighed`` is all that the store has of the cluster."""
    kept = weighed.merged.kept
    return replace(held, view=weighed.view, statements=kept, root=set_root(each.id for each in kept))


def drop(held: Held, at: int, how: Ended) -> Step:
    """The step by which a node is in no cluster and tells nobody: by abandoning it, or since it was never one."""
    assert held.view is not None, "there is a cluster to drop"
    entries = (Entry(how, held.uuid, held.uuid, held.view.cluster),)
    return _without(held, held.view.cluster, at, how, entries)


def overdue(held: Held, at: int) -> Step | None:
    """The step that a node owes whose view already says that it is no member (CL-99)."""
    if held.view is None or held.own() is not None:
        return None
    return _out(held, held.view, at, (), 0)


def _out(held: Held, view: View, at: int, entries: tuple[Entry, ...], lost: int) -> Step:
    """CL-89, and the end of a leave."""
    out = _ending(view, held.leaf)
    members = frozenset(sha256(each.leaf).digest() for each in view.members)
    archive = Archive(view.cluster, () if out is None else evidence(view, out.incarnation), members)
    how: Ended = "left" if out is not None and out.how == "left" else "removed"
    by = None if out is None else out.by
    entry = Entry("out", by, held.uuid, view.cluster, {"how": how if out is None else out.how})
    step = _without(held, view.cluster, at, how, (*entries, entry), archive)
    return replace(step, out=out, lost=lost)


def _without(
    held: Held, cluster: str, at: int, how: Ended, entries: tuple[Entry, ...], archive: Archive | None = None
) -> Step:
    archives = held.archives if archive is None else (archive, *held.archives)[:ARCHIVES_KEPT]
    after = Held(held.uuid, held.leaf, held.epoch, held.counter, archives=archives)
    transition = Transition(
        at=at,
        cluster=cluster,
        epoch=held.epoch,
        counter=held.counter,
        ends=how,
        archive=archive,
        audit=entries,
    )
    return Step(after, transition)


def _ending(view: View, leaf: bytes) -> Former | None:
    """How the node with this leaf ended.

    Where somebody has let it in once more without its knowing, its leaf is not
    former: then it is told of the incarnation that it was a member by.
    """
    former = view.former_as(leaf)
    proven = view.standing.proven
    own = [each for each in proven.incarnations.values() if each.leaf == leaf and each.id in proven.joins]
    if former is not None or not own:
        return former
    was = max(own, key=lambda each: each.epoch)
    cut = next((each for each in evidence(view, was.id) if each.is_cut), None)
    if cut is None:
        return None
    how: Ending = "admitter_removed" if cut.subject != was.id else "left" if isinstance(cut.body, Leave) else "removed"
    return Former(was.node, was.id, leaf, "", True, how, proven.incarnations[cut.signer].node, cut.issued_at)


def _returned(held: Held, view: View, news: Collection[Statement]) -> list[Statement]:
    """Statements of our own that we had no record of: those of earlier incarnations we need not have."""
    own = held.own()
    if held.view is None:
        return []
    least = held.epoch if own is None else own.epoch
    later = {
        each.id
        for each in view.standing.proven.incarnations.values()
        if each.leaf == held.leaf and each.epoch >= least
    }
    return [each for each in news if each.signer in later]


def _beyond(held: Held, view: View, news: Collection[Statement]) -> tuple[int, int]:
    """The highest epoch and counter that this node is now known to have used (CL-68, CL-69)."""
    proven = view.standing.proven
    own = {each.id: each.epoch for each in proven.incarnations.values() if each.leaf == held.leaf}
    epochs = (epoch for incarnation, epoch in own.items() if incarnation in proven.joins)
    counters = (each.body.counter for each in news if isinstance(each.body, Note) and each.signer in own)
    return max(held.epoch, *epochs, 0), max(held.counter, *counters, 0)


def _new_clashes(before: View | None, after: View) -> list[Entry]:
    known = {each.node for each in before.clashes} if before is not None else set()
    return [
        Entry("clash", None, each.node, after.cluster, {"admittedBy": [side.admitted_by for side in each.sides]})
        for each in after.clashes
        if each.node not in known
    ]
