"""Who advertises what, and why one that does may still not serve a request (RT-13 to RT-20).

The :class:`Catalogue` is told of nodes as they change and is asked for the
owners of one model; what a question costs depends on those owners alone (RT-5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from pair.records.engines import EngineInventory, Model, NodeInventory
from pair.routing.dialects import Dialect, Route
from pair.routing.findings import LOADED_SECONDS, ROUTE_MISSING_SECONDS, Findings
from pair.routing.names import NAMINGS, key

if TYPE_CHECKING:
    from pair.routing.breaker import Breaker

Intent = Literal["run", "load", "unload"]
ExcludedBy = Literal[
    "offline",
    "not_trusted",
    "incompatible",
    "drained",
    "label_rule",
    "route_unsupported",
    "engine_stopped",
    "model_not_advertised",
    "not_loaded",
    "model_stale",
    "tried",
]
"""Why a node and engine may not serve a request, in the order of the checks (RT-15)."""


class NodeFacts(Struct, frozen=True):
    """What routing knows of one node.

    ``inventory`` has its engines and its labels, the automatic ones included.
    ``dialects`` has, by engine id, what each engine speaks; an engine without
    one serves nothing. The rest is presence: ``suspect`` is online still, but
    doubtful. ``loaded_only`` is its setting of that name (RT-16).

    Raises:
        ValueError: the node has no id.
    """

    inventory: NodeInventory
    dialects: Mapping[str, Dialect]
    local: bool = False
    online: bool = True
    trusted: bool = True
    compatible: bool = True
    suspect: bool = False
    loaded_only: bool = False

    def __post_init__(self) -> None:
        if not self.inventory.node:
            raise ValueError("a node without an id")

    @property
    def id(self) -> str:
        """The node's UUID."""
        return self.inventory.node

    def objections(self, request: Request) -> Iterator[ExcludedBy]:
        """Each check of the node itself that fails, in the order of RT-15."""
        if not self.online:
            yield "offline"
        if not (self.trusted or self.local):
            yield "not_trusted"
        if not self.compatible:
            yield "incompatible"
        if self.inventory.drained:
            yield "drained"
        if request.require or request.forbid:
            labels = frozenset(self.inventory.labels)
            if not request.require <= labels or request.forbid & labels:
                yield "label_rule"


class Request(Struct, frozen=True):
    """What a plan is made for.

    ``model`` is the name as sent, empty where none was. ``require`` and
    ``forbid`` are labels (RT-23). ``tried``: the node and engine of each
    candidate that this round has tried already.
    """

    facade: str
    route: Route
    model: str = ""
    intent: Intent = "run"
    require: frozenset[str] = frozenset()
    forbid: frozenset[str] = frozenset()
    tried: frozenset[tuple[str, str]] = frozenset()


class Candidate(Struct, frozen=True):
    """One engine that may serve.

    ``model`` is the name as that engine lists it, empty where the request named
    none. ``doubtful``: the node's presence is suspect or the engine's health
    degraded. ``loaded`` is None where it is not known.

    Raises:
        ValueError: empty id.
    """

    node: str
    engine: str
    kind: str
    model: str = ""
    local: bool = False
    doubtful: bool = False
    loaded: bool | None = None

    def __post_init__(self) -> None:
        if not self.node or not self.engine:
            raise ValueError(f"a candidate without an id: {self.node!r}, {self.engine!r}")


class Owner(Struct, frozen=True):
    """One engine on one facade, as the catalogue keeps it: with a model that it lists, or with none.

    ``key`` is that of the name under which it was found (RT-11), ``revision``
    that of the engine's inventory. ``loaded_only``: a model that is not loaded
    is not to be asked of it. ``answered``: it has answered with this model a
    moment ago, which its list may not tell yet. ``order`` puts owners by node and, of one node, in the order of EN-82.
    """

    candidate: Candidate
    key: str
    revision: int
    node: NodeFacts
    routes: frozenset[str]
    routable: bool
    loaded_only: bool
    answered: bool
    order: tuple[str, bool, bool, bool, str]

    def objections(self, request: Request, breaker: Breaker, now: float) -> Iterator[ExcludedBy]:
        """Each check of RT-15 that fails, in order; no model checks where the request names none (RT-19)."""
        yield from self.shortcomings(request)
        candidate = self.candidate
        if request.model and breaker.is_stale(candidate.node, candidate.engine, self.key, self.revision, now):
            yield "model_stale"
        if (candidate.node, candidate.engine) in request.tried:
            yield "tried"

    def shortcomings(self, request: Request) -> Iterator[ExcludedBy]:
        """Of these checks the ones that look at the facts alone, and not at what became of earlier attempts."""
        yield from self.node.objections(request)
        if request.route.key not in self.routes:
            yield "route_unsupported"
        if not self.routable:
            yield "engine_stopped"
        candidate = self.candidate
        if request.model:
            unload = request.intent == "unload"
            if not candidate.model:
                yield "model_not_advertised"
            elif (self.loaded_only or unload) and not (candidate.loaded or (unload and self.answered)):
                yield "not_loaded"


class Rejected(Struct, frozen=True):
    """An owner that may not serve, and the first check that it failed."""

    node: str
    engine: str
    excluded_by: ExcludedBy


class Sifted(Struct, frozen=True):
    """The owners of what a request asks for: those that may serve, and the others."""

    eligible: tuple[Owner, ...]
    rejected: tuple[Rejected, ...]


def sift(owners: Iterable[Owner], objections: Callable[[Owner], Iterator[ExcludedBy]]) -> Sifted:
    """``owners``, in their order, by whether there are ``objections`` to them."""
    eligible = []
    rejected = []
    for owner in owners:
        objection = next(objections(owner), None)
        if objection is None:
            eligible.append(owner)
        else:
            rejected.append(Rejected(owner.candidate.node, owner.candidate.engine, objection))
    return Sifted(tuple(eligible), tuple(rejected))


_Place = tuple[str, str]
_Key = tuple[str, str, str]
_ANY_MODEL = ("", "")
_REMEMBERED = 1024
"""Names whose owners are remembered, at most: clients may spell one in many ways."""

_by_order = attrgetter("order")


class Catalogue:
    """The engines of all known nodes, by facade, naming and model key.

    One for the process, used on the reactor thread only.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, NodeFacts] = {}
        self._owners: dict[_Key, dict[_Place, Owner]] = {}
        self._entries: dict[str, list[tuple[_Key, _Place]]] = {}
        self._findings: dict[_Place, Findings] = {}
        # What was asked for since the last change, by facade and name as sent, and whole.
        self._found: dict[tuple[str, str], tuple[Owner, ...]] = {}
        self._sifted: dict[Request, Sifted] = {}

    def put(self, facts: NodeFacts) -> None:
        """What is known of a node now, in place of what was."""
        if facts == self._nodes.get(facts.id):
            return
        self._nodes[facts.id] = facts
        versions = {(facts.id, each.status.id): each.status.version for each in facts.inventory.engines}
        for place in [each for each in self._findings if each[0] == facts.id]:
            if place not in versions or versions[place] != self._findings[place].version:
                del self._findings[place]
        self._index(facts)

    def dialect(self, node: str, engine: str) -> Dialect | None:
        """What an engine speaks; None where it is not known."""
        facts = self._nodes.get(node)
        return None if facts is None else facts.dialects.get(engine)

    def remove(self, node: str) -> None:
        """Forget a node; of one that is not known, nothing."""
        self._nodes.pop(node, None)
        self._unindex(node)
        self._findings = {place: each for place, each in self._findings.items() if place[0] != node}

    def note_route_answers(self, node: str, engine: str, route: Route) -> None:
        """That engine has served that route: a 404 there is about something else from now on (RT-10)."""
        known = self._findings_of(node, engine)
        if known is not None:
            known.answered.add(route)

    def note_route_missing(self, node: str, engine: str, route: Route, now: float) -> None:
        """That engine answered that it has no such route.

        If it has never served it, it counts as without for a minute, or until
        its version changes (RT-10).
        """
        known = self._findings_of(node, engine)
        if known is not None and route not in known.answered:
            known.missing[route.key] = now + ROUTE_MISSING_SECONDS
            self._index(self._nodes[node])

    def note_loaded(self, candidate: Candidate, now: float) -> None:
        """It has answered, so that its model is loaded, though its list does not say so yet (RT-20)."""
        known = self._findings_of(candidate.node, candidate.engine)
        if known is not None:
            is_new = candidate.model not in known.loaded
            known.loaded[candidate.model] = now + LOADED_SECONDS
            if is_new:
                self._index(self._nodes[candidate.node])

    def note_unloaded(self, candidate: Candidate) -> None:
        """It has unloaded its model: from now on its list says whether that is loaded."""
        known = self._findings_of(candidate.node, candidate.engine)
        if known is not None and known.loaded.pop(candidate.model, None) is not None:
            self._index(self._nodes[candidate.node])

    def forget(self, now: float) -> None:
        """Let what was found long enough ago count no more."""
        for (node, _), known in self._findings.items():
            if known.forget(now):
                self._index(self._nodes[node])

    def _findings_of(self, node: str, engine: str) -> Findings | None:
        known = self._findings.get((node, engine))
        if known is None and node in self._nodes:
            for each in self._nodes[node].inventory.engines:
                if each.status.id == engine:
                    known = self._findings[node, engine] = Findings(each.status.version, set(), {}, {})
        return known

    def owners(self, facade: str, model: str) -> tuple[Owner, ...]:
        """Those that list ``model`` on ``facade``, under either naming (RT-13), in their order.

        With an empty ``model``: all engines that have a route on the facade.
        """
        found = self._found.get((facade, model))
        if found is None:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            found = self._found[facade, model] = self._find(facade, model)
        return found

    def sifted(self, request: Request) -> Sifted:
        """Its owners by the facts alone: what is true of all requests that ask the same, until the facts change."""
        sifted = self._sifted.get(request)
        if sifted is None:
            if len(self._sifted) >= _REMEMBERED:
                self._sifted.clear()
            owners = self.owners(request.facade, request.model)
            sifted = self._sifted[request] = sift(owners, lambda owner: owner.shortcomings(request))
        return sifted

    def nodes(self) -> list[NodeFacts]:
        """All known nodes, by id."""
        return [self._nodes[node] for node in sorted(self._nodes)]

    def engines(self, node: str, facade: str) -> list[Owner]:
        """Every engine of a known node, without a model, in their order; also those without a route there."""
        facts = self._nodes[node]
        owners = [self._owner(facts, each, facade) for each in facts.inventory.engines]
        return sorted(owners, key=_by_order)

    def _find(self, facade: str, model: str) -> tuple[Owner, ...]:
        indices: list[_Key] = [(facade, naming, key(naming, model)) for naming in NAMINGS]
        if not model:
            indices = [(facade, *_ANY_MODEL)]
        found = [owner for index in indices for owner in self._owners.get(index, {}).values()]
        return tuple(sorted(found, key=_by_order))

    def _index(self, facts: NodeFacts) -> None:
        self._unindex(facts.id)
        entries = self._entries[facts.id] = []
        for engine in facts.inventory.engines:
            dialect = facts.dialects.get(engine.status.id)
            for facade in () if dialect is None else dialect.routes:
                for index, owner in self._named(facts, engine, facade):
                    place = (facts.id, engine.status.id)
                    # The first name stands: what an engine lists goes before what it calls a loaded copy.
                    self._owners.setdefault(index, {}).setdefault(place, owner)
                    entries.append((index, place))

    def _unindex(self, node: str) -> None:
        self._found.clear()
        self._sifted.clear()
        for index, place in self._entries.pop(node, ()):
            owners = self._owners.get(index, {})
            owners.pop(place, None)
            if not owners:
                self._owners.pop(index, None)

    def _named(self, facts: NodeFacts, engine: EngineInventory, facade: str) -> Iterator[tuple[_Key, Owner]]:
        """The engine under each name that may be asked of it on ``facade``."""
        naming = facts.dialects[engine.status.id].naming
        yield (facade, *_ANY_MODEL), self._owner(facts, engine, facade)
        owners = [(model, self._owner(facts, engine, facade, model, key(naming, model.id))) for model in engine.models]
        for _, owner in owners:
            yield (facade, naming, owner.key), owner
        for model, owner in owners:
            for copy in model.loaded:
                named = replace(owner, key=key(naming, copy.instance))
                yield (facade, naming, named.key), named

    def _owner(
        self, facts: NodeFacts, engine: EngineInventory, facade: str, model: Model | None = None, key: str = ""
    ) -> Owner:
        status = engine.status
        dialect = facts.dialects.get(status.id)
        routes = frozenset() if dialect is None else dialect.routes.get(facade, frozenset())
        known = self._findings.get((facts.id, status.id))
        loaded = None if model is None or not (model.loaded or status.loaded != "unknown") else bool(model.loaded)
        return Owner(
            candidate=Candidate(
                node=facts.id,
                engine=status.id,
                kind=status.kind,
                model="" if model is None else model.id,
                local=facts.local,
                doubtful=facts.suspect or status.health == "degraded",
                loaded=loaded,
            ),
            key=key,
            revision=engine.revision,
            node=facts,
            routes=routes.difference(known.missing) if known is not None and known.missing else routes,
            routable=status.routable,
            loaded_only=facts.loaded_only or (dialect is not None and dialect.eligible == "loaded"),
            answered=model is not None and known is not None and model.id in known.loaded,
            order=(facts.id, not loaded, status.health != "ok", status.ownership != "owned", status.id),
        )
