"""How Ollama writes things down: names, durations, rows, counts."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from pair.test.doubles.serving import Refused
from pair.test.doubles.shelf import FOREVER, Weights

if TYPE_CHECKING:
    from pair.test.doubles.telling import Told

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?)(ns|us|µs|ms|s|m|h)")
_CENTURIES = 11_000_000_000.0
"""What stays for good leaves then, in epoch seconds."""


def full(name: str) -> str:
    """A name with all that it leaves out."""
    name = name.strip().lower().removeprefix("registry.ollama.ai/").removeprefix("library/")
    return tagged(name)


def duration(told: object) -> float | None:
    """``keep_alive`` in seconds; None: not said.

    Raises:
        Refused: it is no duration.
    """
    if told is None:
        return None
    if isinstance(told, int | float) and not isinstance(told, bool):
        return FOREVER if told < 0 else float(told)
    text = str(told)
    parts = _DURATION.findall(text.removeprefix("-"))
    if "".join(number + unit for number, unit in parts) != text.removeprefix("-") and text != "0":
        raise Refused(400, f'time: invalid duration "{text}"')
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return FOREVER if text.startswith("-") else seconds


def tagged(name: str) -> str:
    """``name`` with a tag."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def named(asking: dict[str, Any]) -> str:
    """The model that is named in one of the two ways.

    Raises:
        Refused: in neither.
    """
    name = asking.get("model") or asking.get("name")
    if not isinstance(name, str) or not name:
        raise Refused(400, "invalid model name")
    return name


def required(asking: dict[str, Any], field: str) -> str:
    """The text in a field.

    Raises:
        Refused: there is none.
    """
    value = asking.get(field)
    if not isinstance(value, str) or not value:
        raise Refused(400, f"{field} is required")
    return value


def details(weights: Weights) -> dict[str, Any]:
    """``details`` of a row."""
    return {
        "parent_model": "",
        "format": "gguf",
        "family": weights.family,
        "families": [weights.family],
        "parameter_size": weights.parameters,
        "quantization_level": weights.quantization,
    }


def row(weights: Weights) -> dict[str, Any]:
    """A row of ``/api/tags``."""
    return {
        "name": weights.name,
        "model": weights.name,
        "modified_at": instant(weights.at),
        "size": weights.size,
        "digest": weights.digest,
        "details": details(weights),
    }


def v1_row(name: str, weights: Weights) -> dict[str, Any]:
    """A row of ``/v1/models``."""
    return {"id": name, "object": "model", "created": int(weights.at), "owned_by": weights.publisher}


def chat_part(text: str) -> dict[str, Any]:
    """A piece of an answer of ``/api/chat``."""
    return {"message": {"role": "assistant", "content": text}}


def generate_part(text: str) -> dict[str, Any]:
    """A piece of an answer of ``/api/generate``."""
    return {"response": text}


def measures(told: Told) -> dict[str, int]:
    """Counts and durations at the end of an answer."""
    return {
        "total_duration": nanoseconds(told.load + told.seconds) + 1_000_000,
        "load_duration": nanoseconds(told.load),
        "prompt_eval_count": told.prompt_tokens,
        "prompt_eval_duration": nanoseconds(told.prompt) + 1000,
        "eval_count": len(told.pieces),
        "eval_duration": nanoseconds(told.output) + 1000,
    }


def line(document: object) -> bytes:
    """A line of NDJSON."""
    return msgspec.json.encode(document) + b"\n"


def nanoseconds(seconds: float) -> int:
    """As Ollama tells durations."""
    return round(seconds * 1e9)


def instant(seconds: float) -> str:
    """As Ollama tells dates."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=min(seconds, _CENTURIES))
    return moment.isoformat().replace("+00:00", "Z")
