"""Commands to paste that get an answer from a facade (UI-75). Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pair.records.engines import EngineInventory, Model, NodeInventory


QUESTION = "Say hello in one sentence."


def curl_line(url: str, model: str) -> str:
    """A ``curl`` command that asks ``model`` for a sentence.

    Args:
        url: of a facade, such as ``http://127.0.0.1:1234``.
        model: as the facade lists it.
    """
    question = {"model": model, "max_tokens": 60, "messages": [{"role": "user", "content": QUESTION}]}
    body = shlex.quote(msgspec.json.encode(question).decode())
    return f"curl {url}/v1/chat/completions -H 'Content-Type: application/json' -d {body}"


def default_model(inventory: NodeInventory, facade: str) -> str | None:
    """A model that is really there and writes text; None where no running engine has one.

    One that is in memory is preferred, then one of the facade's own engine.
    """
    offers = [
        (not model.loaded, engine.status.facade != facade, model.id)
        for engine in inventory.engines
        if _serves(engine)
        for model in engine.models
        if _writes(model)
    ]
    return min(offers)[-1] if offers else None


def _serves(engine: EngineInventory) -> bool:
    return engine.status.state == "running" and engine.status.routable


def _writes(model: Model) -> bool:
    return not model.capabilities or not {"chat", "completion"}.isdisjoint(model.capabilities)
