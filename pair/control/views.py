"""What the API answers: the areas' records, and the few fields that it adds (UI-22, UI-25). Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from pair.control.snippets import curl_line, default_model
from pair.records.engines import EngineAddress, EngineStatus, LoadedInstance, Model, NodeInventory
from pair.supervision.components import Component

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Sequence

    from pair.records.endpoints import Endpoint
    from pair.routing.candidates import NodeFacts

ListenerState = Literal["off", "pending", "bound", "moved", "bypassed", "failed"]


class Health(Struct, frozen=True, rename="camel"):
    """``GET /healthz``: the reactor turns (OP-42)."""

    uptime_ms: int
    status: Literal["ok"] = "ok"


class Readiness(Struct, frozen=True, omit_defaults=True):
    """``GET /readyz`` (OP-42)."""

    ready: bool
    reasons: tuple[str, ...] = ()


class ProtocolRange(Struct, frozen=True):
    """The versions of the peer protocol that this node speaks (OP-57)."""

    min: int = 1
    max: int = 1


class Listener(Struct, frozen=True):
    """A socket that clients come to; ``address`` is None where there is none."""

    name: str
    address: str | None
    state: ListenerState


class WatchdogFacts(Struct, frozen=True, rename="camel"):
    """How often the reactor stood still, when for the last time, and for how long at the longest."""

    stalls: int = 0
    last_stall_at: int | None = None
    longest_ms: int = 0


class ServiceStatus(Struct, frozen=True, rename="camel"):
    """``GET /service``: the process itself (UI-31)."""

    node: str
    name: str
    version: str
    started_at: int
    pid: int
    state_dir: str
    listeners: tuple[Listener, ...] = ()
    components: tuple[Component, ...] = ()
    watchdog: WatchdogFacts = WatchdogFacts()
    protocol: ProtocolRange = ProtocolRange()


class Collection(Struct, frozen=True, rename="camel"):
    """What every list begins with."""

    generation: str
    revision: int


class EngineView(EngineStatus, frozen=True, rename="camel", kw_only=True):
    """An engine, the node it is on, where it answers there (None: nowhere), and how many models it has."""

    node: str
    address: str | None
    model_count: int
    loaded_count: int


class EngineList(Collection, frozen=True):
    """``GET /engines`` (UI-37)."""

    engines: tuple[EngineView, ...]


class ModelCopy(Struct, frozen=True, rename="camel"):
    """A model as one engine of one node has it: :class:`pair.records.engines.Model` without the engine's own entry."""

    node: str
    engine: str
    on_disk: bool
    facade: str
    size_bytes: int | None
    digest: str | None
    family: str | None
    parameters: int | None
    quantization: str | None
    format: str | None
    context_max: int | None
    capabilities: tuple[str, ...]
    loaded: tuple[LoadedInstance, ...]
    modified_at: int | None


class ModelRow(Struct, frozen=True, rename="camel"):
    """All copies of one name.

    ``owners`` are the nodes that can serve it now, ``same_as`` other names of the same weights.
    """

    name: str
    owners: tuple[str, ...]
    same_as: tuple[str, ...]
    copies: tuple[ModelCopy, ...]


class ModelList(Collection, frozen=True):
    """``GET /models`` (UI-41)."""

    models: tuple[ModelRow, ...]


class Snippet(Struct, frozen=True):
    """A command that can be run as it stands."""

    client: str
    text: str


class EndpointView(Struct, frozen=True, rename="camel"):
    """A facade: where it is, why not elsewhere, and how to try it."""

    facade: str
    url: str | None
    state: str
    wanted_port: int
    port: int | None
    addresses: tuple[str, ...]
    reason: str | None
    detail: str | None
    default_model: str | None
    snippets: tuple[Snippet, ...]


class EndpointList(Collection, frozen=True):
    """``GET /endpoints`` (UI-59)."""

    endpoints: tuple[EndpointView, ...]


def engine_views(inventory: NodeInventory, address: Callable[[str], EngineAddress | None]) -> tuple[EngineView, ...]:
    """The engines of one node."""
    views = []
    for engine in inventory.engines:
        at = address(engine.status.id)
        views.append(
            EngineView(
                **msgspec.structs.asdict(engine.status),
                node=inventory.node,
                address=None if at is None else at.authority,
                model_count=len(engine.models),
                loaded_count=sum(bool(model.loaded) for model in engine.models),
            )
        )
    return tuple(views)


def all_engines(
    own: NodeInventory, address: Callable[[str], EngineAddress | None], peers: Iterable[NodeInventory]
) -> tuple[EngineView, ...]:
    """Those of this node, then those of others; where these answer is their own node's business."""
    others = (each for peer in peers for each in engine_views(peer, lambda engine: None))
    return (*engine_views(own, address), *others)


def model_rows(inventories: Iterable[NodeInventory], offline: Container[str]) -> tuple[ModelRow, ...]:
    """The models of nodes by name; names that share a digest point at each other. No node of ``offline`` owns any."""
    copies: defaultdict[str, list[ModelCopy]] = defaultdict(list)
    owners: defaultdict[str, set[str]] = defaultdict(set)
    names: defaultdict[str, set[str]] = defaultdict(set)
    for inventory in inventories:
        for engine in inventory.engines:
            serves = engine.status.state == "running" and inventory.node not in offline
            for model in engine.models:
                copies[model.id].append(_copy(inventory.node, model))
                if serves:
                    owners[model.id].add(inventory.node)
                if model.digest is not None:
                    names[model.digest].add(model.id)
    return tuple(
        ModelRow(
            name=name,
            owners=tuple(sorted(owners[name])),
            same_as=tuple(sorted({each for copy in found for each in names[copy.digest or ""]} - {name})),
            copies=tuple(found),
        )
        for name, found in sorted(copies.items())
    )


def endpoint_views(endpoints: Sequence[Endpoint], nodes: Sequence[NodeFacts]) -> tuple[EndpointView, ...]:
    """The facades of this node, each with a command that gets an answer, where one can be had."""
    views = []
    for each in endpoints:
        model = default_model(nodes, each.facade)
        snippets = () if each.url is None or model is None else (Snippet("curl", curl_line(each.url, model)),)
        views.append(
            EndpointView(**msgspec.structs.asdict(each), url=each.url, default_model=model, snippets=snippets)
        )
    return tuple(views)


def _copy(node: str, model: Model) -> ModelCopy:
    fields = msgspec.structs.asdict(model)
    del fields["id"], fields["listed"]
    # An engine lists what it can open again: there is no list of what is only in memory.
    return ModelCopy(node=node, on_disk=True, **fields)
