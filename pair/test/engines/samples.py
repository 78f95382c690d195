"""Stored answers of engines: ``pair/test/samples/<kind>/<version>/<name>.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pair.engines.facts import Answer

_ROOT = Path(__file__).parent.parent / "samples"

LLAMACPP = "llamacpp/xllamacpp-2026.10.11549"
ROUTER = "llamacpp/router-2025-12"
LMSTUDIO = "lmstudio/0.4-2026-02"
LMSTUDIO_OLDER = "lmstudio/0.3-2025-10"
OLLAMA = "ollama/api-2025-10"
VLLM = "openai-compatible/vllm-2025-10"


def sample(folder: str, name: str) -> Answer:
    """One stored answer."""
    stored = json.loads((_ROOT / folder / f"{name}.json").read_text("utf-8"))
    return answer(stored["body"], stored["status"], stored["fields"])


def answer(body: Any, status: int = 200, fields: dict[str, str] | None = None) -> Answer:
    """An answer with ``body`` as JSON."""
    return Answer(status, fields or {}, json.dumps(body, separators=(",", ":")).encode())


def answers(folder: str, **names: str) -> dict[str, Answer]:
    """The stored answers ``names``, by purpose."""
    return {purpose: sample(folder, name) for purpose, name in names.items()}
