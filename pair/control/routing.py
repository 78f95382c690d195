"""What the API says of routing: the order of each facade, and where one request would go (UI-54, UI-56)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from pair.proxy.bodies import is_name
from pair.routing.breaker import HoldKind
from pair.routing.candidates import Request
from pair.routing.dialects import CHAT, Route, id_in_path, match, normalise_path
from pair.routing.explain import Account, Explanation
from pair.routing.planning import Answer, Head
from pair.surfaces.refusals import Refused

if TYPE_CHECKING:
    from pair.control.sources import ControlSources
    from pair.proxy.scheduling import SchedulerService


class Placed(Account, frozen=True, rename="camel", kw_only=True):
    """An engine with the load of its node, whatever the policy makes of that.

    ``telemetry_age_ms`` is the age of the sample behind the pressure; None where there is none.
    """

    pending: int
    pressure: int
    reservations: int
    telemetry_age_ms: int | None


class FacadeOrder(Struct, frozen=True, rename="camel"):
    """Where a chat that names no model would go on one facade now, as in :class:`pair.routing.explain.Explanation`.

    ``selection`` is the node that a person selected (RT-27).
    """

    facade: str
    selection: str | None
    head: Head | None
    candidates: tuple[Placed, ...]
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
    """``GET /routing`` (UI-54); ``generation`` is that of the loads by which requests are planned.

    ``policies`` are those that can be chosen.
    """

    policy: str
    policies: tuple[str, ...]
    generation: int
    facades: tuple[FacadeOrder, ...]
    penalties: tuple[Held, ...]


class ExplainBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /routing/explain``. Without ``model`` it is a request that names none, or whose path does."""

    facade: Literal["ollama", "lmstudio"]
    path: str
    model: str = ""


def routing(sources: ControlSources) -> Routing:
    """How requests are routed now."""
    scheduling, steering = sources.scheduling, sources.steering
    return Routing(
        policy=scheduling.policy,
        policies=() if steering is None else tuple(steering.policies),
        generation=scheduling.book.snapshot.generation,
        facades=tuple(_order(scheduling, each.facade) for each in sources.facades.endpoints()),
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


def _order(scheduling: SchedulerService, facade: str) -> FacadeOrder:
    explained = scheduling.explain(_request(scheduling, facade, CHAT, ""))
    return FacadeOrder(
        facade,
        scheduling.selected(facade),
        explained.head,
        tuple(_placed(scheduling, each) for each in explained.candidates),
        explained.would_answer,
    )


def _placed(scheduling: SchedulerService, account: Account) -> Placed:
    load, age = scheduling.book.load(account.node), scheduling.telemetry_age(account.node)
    return Placed(
        **{name: getattr(account, name) for name in Account.__struct_fields__},
        pending=load.pending,
        pressure=load.pressure,
        reservations=load.reservations,
        telemetry_age_ms=None if age is None else round(age * 1000),
    )


def _request(scheduling: SchedulerService, facade: str, route: Route, model: str) -> Request:
    """It, with the labels that the rules of this node ask for."""
    require, forbid = scheduling.demands(model, frozenset())
    return Request(facade, route, model, require=require, forbid=forbid)
