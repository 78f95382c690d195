"""What the API says of routing: the order of each facade, and where one request would go (UI-54, UI-56)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from pair.proxy.bodies import is_name
from pair.routing.breaker import HoldKind
from pair.routing.candidates import Request
from pair.routing.dialects import CHAT, Route, id_in_path, match, normalise_path
from pair.routing.explain import Account, Explanation
from pair.routing.planning import Answer
from pair.surfaces.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pair.proxy.scheduling import SchedulerService


class FacadeOrder(Struct, frozen=True, rename="camel"):
    """Where a chat that names no model would go on one facade now, as in :class:`pair.routing.explain.Explanation`."""

    facade: str
    candidates: tuple[Account, ...]
    would_answer: Answer | None


class Held(Struct, frozen=True):
    """A hold in force (RT-54); ``model`` is None where the whole engine is held, ``until`` in epoch milliseconds."""

    node: str
    engine: str
    model: str | None
    kind: HoldKind
    until: int
    count: int


class Routing(Struct, frozen=True):
    """``GET /routing`` (UI-54); ``generation`` is that of the loads by which requests are planned."""

    policy: str
    generation: int
    facades: tuple[FacadeOrder, ...]
    penalties: tuple[Held, ...]


class ExplainBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /routing/explain``. Without ``model`` it is a request that names none, or whose path does."""

    facade: Literal["ollama", "lmstudio"]
    path: str
    model: str = ""


def routing(scheduling: SchedulerService, facades: Iterable[str]) -> Routing:
    """How requests are routed now."""
    explained = ((each, scheduling.explain(_request(scheduling, each, CHAT, ""))) for each in facades)
    return Routing(
        policy=scheduling.policy,
        generation=scheduling.book.snapshot.generation,
        facades=tuple(FacadeOrder(facade, each.candidates, each.would_answer) for facade, each in explained),
        penalties=tuple(
            Held(node, engine, model or None, each.kind, each.until, each.count)
            for (node, engine, model), each in sorted(scheduling.penalties().items(), key=lambda held: held[0])
        ),
    )


def explanation(scheduling: SchedulerService, asked: ExplainBody) -> Explanation:
    """Where such a request would go (RT-67).

    Raises:
        Refused: Its path is none of those that are planned, or its model no name.
    """
    path = normalise_path(asked.path)
    route = match(asked.facade, "POST", path) or match(asked.facade, "GET", path)
    if route is None or route.role not in ("inference", "owner"):
        raise Refused(422, "invalid_value", "Requests for this path are not routed by model.", path="path")
    model = asked.model or (id_in_path(route, path) if route.model_from == "path" else "")
    if not is_name(model):
        raise Refused(422, "invalid_value", "No engine has a model of such a name.", path="model")
    return scheduling.explain(_request(scheduling, asked.facade, route, model))


def _request(scheduling: SchedulerService, facade: str, route: Route, model: str) -> Request:
    """It, with the labels that the rules of this node ask for."""
    require, forbid = scheduling.demands(model, frozenset())
    return Request(facade, route, model, require=require, forbid=forbid)
