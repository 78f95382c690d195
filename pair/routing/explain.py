"""Why a request goes where it goes: one line for a header, and the whole account for a person (RT-66, RT-67)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from pair.routing.breaker import HoldKind
from pair.routing.candidates import Catalogue, ExcludedBy, Request
from pair.routing.planning import Answer, Head, Plan, plan
from pair.routing.policies import SpeedOf, unlearnt

if TYPE_CHECKING:
    from pair.interfaces import IRoutingPolicy
    from pair.records.jobs import Outcome
    from pair.routing.breaker import Breaker, Hold
    from pair.routing.reservations import ReservationBook

_WHY_LIMIT = 200


class Penalty(Struct, frozen=True, rename="camel"):
    """A hold as it is shown (RT-54); ``until`` is in epoch milliseconds."""

    kind: HoldKind
    until: int
    count: int


class Account(Struct, frozen=True, rename="camel", kw_only=True):
    """One engine in an explanation; of a node without engines, ``engine`` is None.

    What does not apply is left out of the JSON: score, terms and hold of one
    that is excluded, ``excluded_by`` of one that is not.
    """

    node: str
    engine: str | None
    rank: int | None = None
    eligible: bool
    score: float | UnsetType = UNSET
    terms: Mapping[str, float] | UnsetType = UNSET
    hold: Penalty | UnsetType | None = UNSET
    excluded_by: ExcludedBy | UnsetType = UNSET


class Explanation(Struct, frozen=True, rename="camel"):
    """A plan with every known node in it; ``would_answer`` is the code of RT-21 when nothing may serve."""

    policy: str
    generation: int
    head: Head | None
    candidates: tuple[Account, ...]
    would_answer: Answer | None


def why(plan: Plan, rank: int, after: Iterable[tuple[Outcome, int | None]] = ()) -> str:
    """Why the candidate at ``rank`` (from 1) is the one, in at most 200 ASCII characters (RT-66).

    Args:
        plan: that it is from.
        rank: its place in it.
        after: outcome and status of the attempts before, oldest first; the
            newest are left out where there is no room for all.
    """
    chosen = plan.ranked[rank - 1]
    selected = plan.head == "selection" and chosen.candidate.node == plan.ranked[0].candidate.node
    text = _place(plan.policy, chosen.score, tuple(chosen.terms), rank, len(plan.ranked), selected)
    separator = "; after="
    for outcome, status in after:
        word = f"{separator}{outcome}{status if outcome == 'status' and status is not None else ''}"
        if len(text) + len(word) > _WHY_LIMIT:
            break
        text += word
        separator = ","
    return text


# The same few places are given to request after request.
@lru_cache(maxsize=256)
def _place(
    policy: str, score: float, terms: tuple[tuple[str, float], ...], rank: int, number: int, selected: bool
) -> str:
    """That it is at ``rank`` of ``number``, by the ``policy`` for this ``score``, or as a person ``selected`` it."""
    parts = [
        f"policy={policy}",
        f"load={score:g}",
        *(f"{name}={each:g}" for name, each in terms),
        f"rank={rank}/{number}",
        *(("head=selection",) if selected else ()),
    ]
    return "; ".join(parts).encode("ascii", "replace").decode("ascii")[:_WHY_LIMIT]


def penalty(hold: Hold, now: float, epoch_ms: int) -> Penalty:
    """``hold`` as it is shown at ``now``, in monotonic seconds, which is ``epoch_ms`` by the wall clock."""
    return Penalty(hold.kind, epoch_ms + round((hold.until - now) * 1000), hold.count)


def explain(
    request: Request,
    catalogue: Catalogue,
    book: ReservationBook,
    breaker: Breaker,
    policy: IRoutingPolicy,
    now: float,
    epoch_ms: int,
    speed: SpeedOf = unlearnt,
    selected: str | None = None,
) -> Explanation:
    """What :func:`pair.routing.planning.plan` would do, with a reason for each engine that is left out (RT-67).

    Reserves nothing.

    Args:
        request: what is asked for.
        catalogue: who advertises what.
        book: the loads.
        breaker: the holds and stale marks.
        policy: puts the eligible in order.
        now: monotonic seconds.
        epoch_ms: the same instant by the wall clock, in which ends of holds are shown.
        speed: the learned rates.
        selected: the node that a person selected for this facade, if any.
    """
    made = plan(request, catalogue, book, breaker, policy, now, speed, selected)
    holds = [breaker.held(each.candidate, now) for each in made.ranked]
    accounts = [
        Account(
            node=each.candidate.node,
            engine=each.candidate.engine,
            rank=rank,
            eligible=True,
            score=each.score,
            terms=dict(each.terms),
            hold=None if hold is None else penalty(hold, now, epoch_ms),
        )
        for rank, (each, hold) in enumerate(zip(made.ranked, holds, strict=True), 1)
    ]
    return Explanation(
        policy=made.policy,
        generation=book.snapshot.generation,
        head=made.head,
        candidates=(*accounts, *_excluded(request, catalogue, breaker, made, now)),
        would_answer=made.answer,
    )


def _excluded(request: Request, catalogue: Catalogue, breaker: Breaker, made: Plan, now: float) -> Iterable[Account]:
    ranked = {(each.candidate.node, each.candidate.engine) for each in made.ranked}
    rejected: dict[tuple[str, str], ExcludedBy] = {
        (each.node, each.engine): each.excluded_by for each in made.rejected
    }
    for node in catalogue.nodes():
        engines = catalogue.engines(node.id, request.facade)
        if not engines:
            # No engine there has the route.
            reasons: tuple[ExcludedBy, ...] = (*node.objections(request), "route_unsupported")
            yield Account(node=node.id, engine=None, eligible=False, excluded_by=reasons[0])
        for owner in engines:
            place = (owner.candidate.node, owner.candidate.engine)
            if place in ranked:
                continue
            reason = rejected[place] if place in rejected else next(owner.objections(request, breaker, now))
            yield Account(node=node.id, engine=place[1], eligible=False, excluded_by=reason)
