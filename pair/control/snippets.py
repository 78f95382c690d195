"""Commands to paste that get an answer from a facade (UI-75). Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import msgspec

from pair.routing.candidates import Request
from pair.routing.dialects import CHAT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pair.records.engines import EngineStatus, Model
    from pair.routing.candidates import NodeFacts

TACITURN = "openai-compatible"
"""Of engines of this kind it is never known what their models can."""

QUESTION = "Say hello in one sentence."


def curl_line(url: str, model: str) -> str:
    """A ``curl`` command that asks ``model`` for a sentence.

    Args:
        url: of a facade, such as ``http://127.0.0.1:1234``.
        model: as the facade lists it.
    """
    question = {"model": model, "max_tokens": 60, "messages": [{"role": "user", "content": QUESTION}]}
    body = shlex.quote(msgspec.json.encode(question).decode())
    return f"curl {url}{CHAT.path} -H 'Content-Type: application/json' -d {body}"


def default_model(nodes: Iterable[NodeFacts], facade: str, *, certain: bool = False) -> str | None:
    """A model that is really there, writes text and is served at a facade; None where no engine at hand has one.

    One of this node is preferred, then one that is known to write, then one
    that is in memory, then one of the facade's own engine.

    Args:
        nodes: what is known of them.
        facade: at which :func:`curl_line` asks.
        certain: leave out models of which it is not known yet what they can.
    """
    request = Request(facade, CHAT)
    offers = [
        (not node.local, not model.capabilities, not model.loaded, engine.status.facade != facade, model.id)
        for node in nodes
        if not any(node.objections(request))
        for engine in node.inventory.engines
        if _serves(engine.status, node, facade)
        for model in engine.models
        if _writes(model, certain and engine.status.kind != TACITURN)
    ]
    return min(offers)[-1] if offers else None


def _serves(engine: EngineStatus, node: NodeFacts, facade: str) -> bool:
    dialect = node.dialects.get(engine.id)
    spoken = () if dialect is None else dialect.routes.get(facade, ())
    return engine.state == "running" and engine.routable and CHAT.key in spoken


def _writes(model: Model, certain: bool) -> bool:
    if not model.capabilities:
        return not certain
    return not {"chat", "completion"}.isdisjoint(model.capabilities)
