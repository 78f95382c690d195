"""Why a request goes where it goes: one line for a header, and the whole account for a person (RT-66, RT-67)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from pair.routing.candidates import Catalogue, ExcludedBy, Request
from pair.routing.planning import Answer, Plan, plan

if TYPE_CHECKING:
    from pair.interfaces import IRoutingPolicy
    from pair.records.jobs import Outcome
    from pair.routing.reservations import ReservationBook

_WHY_LIMIT = 200


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
    hold: UnsetType | None = UNSET
    excluded_by: ExcludedBy | UnsetType = UNSET


class Explanation(Struct, frozen=True, rename="camel"):
    """A plan with every known node in it; ``would_answer`` is the code of RT-21 when nothing may serve."""

    policy: str
    generation: int
    head: None
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
    parts = [
        f"policy={plan.policy}",
        f"load={chosen.score:g}",
        *(f"{name}={number:g}" for name, number in chosen.terms),
        f"rank={rank}/{len(plan.ranked)}",
    ]
    text = "; ".join(parts).encode("ascii", "replace").decode("ascii")[:_WHY_LIMIT]
    separator = "; after="
    for outcome, status in after:
        word = f"{separator}{outcome}{status if outcome == 'status' and status is not None else ''}"
        if len(text) + len(word) > _WHY_LIMIT:
            break
        text += word
        separator = ","
    return text


def explain(
    request: Request, catalogue: Catalogue, book: ReservationBook, policy: IRoutingPolicy, now: float
) -> Explanation:
    """What :func:`pair.routing.planning.plan` would do, with a reason for each engine that is left out (RT-67).

    Reserves nothing.
    """
    made = plan(request, catalogue, book, policy, now)
    accounts = [
        Account(
            node=each.candidate.node,
            engine=each.candidate.engine,
            rank=rank,
            eligible=True,
            score=each.score,
            terms=dict(each.terms),
            hold=None,
        )
        for rank, each in enumerate(made.ranked, 1)
    ]
    return Explanation(
        policy=made.policy,
        generation=book.snapshot.generation,
        head=None,
        candidates=(*accounts, *_excluded(request, catalogue, made)),
        would_answer=made.answer,
    )


def _excluded(request: Request, catalogue: Catalogue, made: Plan) -> Iterable[Account]:
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
            reason = rejected[place] if place in rejected else next(owner.objections(request))
            yield Account(node=node.id, engine=place[1], eligible=False, excluded_by=reason)
