"""From a request to the engines that may serve it, best first, or to the reason why none may (RT-21, RT-24)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from pair.routing.candidates import Catalogue, ExcludedBy, Owner, Rejected, Request, Sifted, sift
from pair.routing.dialects import alternative
from pair.routing.policies import Ranked, Ranking, SpeedOf, View, ranked_or_default, unlearnt
from pair.routing.policies.pressure import PressurePolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.interfaces import IRoutingPolicy
    from pair.routing.breaker import Breaker
    from pair.routing.reservations import ReservationBook

Answer = Literal[
    "route_unsupported",
    "owners_excluded",
    "model_not_loaded",
    "engine_stopped",
    "owners_offline",
    "model_unknown",
    "no_engine",
]
"""What a client is told when no engine may serve (RT-21); codes of PX-84."""

Head = Literal["selection", "selection_ineligible"]
"""What became of the node that a person selected: it stands in front, or it may not serve this request (RT-27)."""

_DEFAULT = PressurePolicy()


class Plan(Struct, frozen=True):
    """The order in which a request is offered to engines.

    ``policy`` made the order; where it is not the one asked for, ``flaw`` says
    why that one was replaced (RT-58). ``answer`` is None when there is a
    candidate, and when the only ones left have been tried: then what they
    answered decides. ``instead`` goes with the answer ``route_unsupported``:
    the path of the same work that an owner has (PX-24). ``head`` is None where
    no node was selected by hand.
    """

    ranked: tuple[Ranked, ...]
    rejected: tuple[Rejected, ...]
    policy: str
    flaw: str | None = None
    answer: Answer | None = None
    instead: str | None = None
    head: Head | None = None


_NO_START_HELPS: frozenset[ExcludedBy] = frozenset({"route_unsupported", "drained", "label_rule"})


def plan(
    request: Request,
    catalogue: Catalogue,
    book: ReservationBook,
    breaker: Breaker,
    policy: IRoutingPolicy,
    now: float,
    speed: SpeedOf = unlearnt,
    selected: str | None = None,
) -> Plan:
    """The candidates for ``request``, best first, by the present facts and loads. Changes nothing (RT-4).

    Args:
        request: what is asked for, and what has been tried.
        catalogue: who advertises what.
        book: the loads.
        breaker: the holds and stale marks.
        policy: puts the eligible in order.
        now: monotonic seconds.
        speed: the learned rates.
        selected: the node that a person selected for this facade, if any (RT-27).
    """
    head: Head | None = None if selected is None else "selection_ineligible"
    sifted = _sifted(request, catalogue, breaker, now)
    eligible = sifted.eligible
    if not eligible:
        owners = catalogue.owners(request.facade, request.model)
        failed = [frozenset(owner.objections(request, breaker, now)) for owner in owners]
        answer = _answer(request, failed)
        instead = _instead(request, owners, failed) if answer == "route_unsupported" else None
        return Plan((), sifted.rejected, policy.name, answer=answer, instead=instead, head=head)
    candidates = [each.candidate for each in eligible]
    view = View(now, book.snapshot, book.load, speed)
    ranking = ranked_or_default(policy, _DEFAULT, request, candidates, view)
    ranked = ranking.ranked
    if len(ranked) > 1:
        ranked = _held_last(_arranged(request, ranking, eligible), breaker, now)
    if selected is not None and any(each.candidate.node == selected for each in ranked):
        # Held or not: the request may pay for it (RT-24). The sort keeps the order among the engines of a node.
        ranked, head = tuple(sorted(ranked, key=lambda each: each.candidate.node != selected)), "selection"
    return Plan(ranked, sifted.rejected, ranking.policy, ranking.flaw, head=head)


def free_elsewhere(made: Plan, node: str, breaker: Breaker, now: float) -> bool:
    """Whether a plan has an engine of some other node than ``node``, and nothing is held against it."""
    return any(each.candidate.node != node and breaker.held(each.candidate, now) is None for each in made.ranked)


def _sifted(request: Request, catalogue: Catalogue, breaker: Breaker, now: float) -> Sifted:
    """The owners of the request; as long as no attempt failed anywhere, the facts alone decide who is eligible."""
    if not request.tried and not len(breaker):
        return catalogue.sifted(request)
    owners = catalogue.owners(request.facade, request.model)
    return sift(owners, lambda owner: owner.objections(request, breaker, now))


def _arranged(request: Request, ranking: Ranking, eligible: Sequence[Owner]) -> tuple[Ranked, ...]:
    """The ranking with the engines of one node side by side, in the order of EN-82 (RT-26).

    An unload goes to this node first (PX-36).
    """
    if request.intent != "unload" and len({each.node.id for each in eligible}) == len(eligible):
        return ranking.ranked
    place: dict[str, tuple[bool, int]] = {}
    for index, each in enumerate(ranking.ranked):
        away = request.intent == "unload" and not each.candidate.local
        place.setdefault(each.candidate.node, (away, index))
    order = {(each.candidate.node, each.candidate.engine): each.order for each in eligible}
    return tuple(
        sorted(
            ranking.ranked,
            key=lambda each: (place[each.candidate.node], order[each.candidate.node, each.candidate.engine]),
        )
    )


def _held_last(ranked: tuple[Ranked, ...], breaker: Breaker, now: float) -> tuple[Ranked, ...]:
    """Those that are held behind the others, the one whose hold ends first before the rest of them (RT-24)."""
    ends = {}
    for index, each in enumerate(ranked):
        hold = breaker.held(each.candidate, now)
        if hold is not None:
            ends[index] = hold.until
    if not ends:
        return ranked
    free = [each for index, each in enumerate(ranked) if index not in ends]
    return (*free, *(ranked[index] for index in sorted(ends, key=lambda index: (ends[index], index))))


def _answer(request: Request, failed: Sequence[frozenset[ExcludedBy]]) -> Answer | None:
    """Why no owner may serve, by all the checks that each of them ``failed`` (RT-21)."""
    if any("tried" in each for each in failed):
        return None
    # Who denied having the model is no owner, whatever it lists (M16).
    failed = [each for each in failed if "model_stale" not in each]
    if frozenset({"route_unsupported"}) in failed:
        return "route_unsupported"
    if any(each <= {"drained", "label_rule"} for each in failed):
        return "owners_excluded"
    if frozenset({"not_loaded"}) in failed:
        return "model_not_loaded"
    away = frozenset({"offline", "not_trusted", "incompatible"})
    # Only where a start would help is it the stop that is told.
    if any("engine_stopped" in each and not each & (away | _NO_START_HELPS) for each in failed):
        return "engine_stopped"
    if any(each & away for each in failed):
        return "owners_offline"
    if failed:
        # Known and at hand, but with two things in its way: the first is told, never "unknown".
        return "owners_excluded" if any(each & {"drained", "label_rule"} for each in failed) else "route_unsupported"
    return "model_unknown" if request.model else "no_engine"


def _instead(request: Request, owners: Sequence[Owner], failed: Sequence[frozenset[ExcludedBy]]) -> str | None:
    apart = {"route_unsupported", "not_loaded"}
    offered = {each for owner, why in zip(owners, failed, strict=True) if why <= apart for each in owner.routes}
    return alternative(request.route, offered)
