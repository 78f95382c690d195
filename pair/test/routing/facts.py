"""Short ways to say what nodes and engines there are."""

from __future__ import annotations

from typing import Any

from pair.records.engines import EngineInventory, EngineStatus, LoadedInstance, Model, NodeInventory
from pair.routing.candidates import Catalogue, NodeFacts, Request
from pair.routing.dialects import Dialect, match, routes_of

V1 = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")

OLLAMA = Dialect("ollama", {"ollama": routes_of("ollama", "/")}, "ollama", "on_disk", (), 60.0)
LMSTUDIO = Dialect("lmstudio", {"lmstudio": routes_of("lmstudio", *V1, "/api/v0/", "/api/v1/")}, "exact", "on_disk")
LLAMACPP = Dialect("llamacpp", {"ollama": routes_of("ollama", *V1), "lmstudio": routes_of("lmstudio", *V1)})

DIALECTS = {each.kind: each for each in (OLLAMA, LMSTUDIO, LLAMACPP)}


def engine(
    kind: str, *models: str, loaded: tuple[str, ...] = (), name: str = "", loaded_known: bool = True, **status: Any
) -> EngineInventory:
    """A running engine of ``kind``; what is ``loaded`` it lists too, as ``name`` or ``name=instance``."""
    copies = {each.partition("=")[0]: (LoadedInstance(each.rpartition("=")[2]),) for each in loaded}
    told: dict[str, Any] = {"state": "running", "health": "ok", "routable": True, "models": "known"}
    return EngineInventory(
        EngineStatus(
            name or kind,
            kind,
            "ollama" if kind == "ollama" else "lmstudio",
            loaded="known" if loaded_known else "unknown",
            **(told | status),
        ),
        tuple(
            Model(each, name or kind, "any", loaded=copies.get(each, ())) for each in dict.fromkeys((*models, *copies))
        ),
    )


def node(
    id: str, *engines: EngineInventory, labels: tuple[str, ...] = (), drained: bool = False, **facts: Any
) -> NodeFacts:
    """A node that is online and trusted, unless ``facts`` say otherwise."""
    return NodeFacts(
        NodeInventory(id, engines, drained, labels),
        {each.status.id: DIALECTS[each.status.kind] for each in engines},
        **facts,
    )


def catalogue(*nodes: NodeFacts) -> Catalogue:
    """A catalogue that knows ``nodes``."""
    known = Catalogue()
    for each in nodes:
        known.put(each)
    return known


def request(model: str = "", path: str = "/v1/chat/completions", facade: str = "ollama", **more: Any) -> Request:
    """A request for ``model``."""
    route = match(facade, "POST", path)
    assert route is not None
    return Request(facade, route, model, **more)
