"""Model names as keys: two names mean the same model of an engine when their keys are equal (RT-11).

A key is for comparing only. The engine is always sent the name that the client
sent (RT-12).
"""

from __future__ import annotations

import string
from typing import Literal

Naming = Literal["ollama", "exact"]

NAMINGS: tuple[Naming, ...] = ("ollama", "exact")

_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_IMPLIED = ("registry.ollama.ai/", "library/")


def key(naming: Naming, name: str) -> str:
    """The key of ``name``.

    ``exact`` is the name as it stands. ``ollama`` fills in what Ollama implies:
    its registry, the ``library`` namespace, the tag ``latest``, and no
    difference between cases. An empty name stays empty; a key is its own key.
    """
    if naming == "exact":
        return name
    name = name.strip(" ").translate(_LOWER)
    # As often as it stands there, so that the key of a key is the key.
    while name.startswith(_IMPLIED):
        name = name.partition("/")[2].lstrip(" ")
    if not name:
        return name
    last = name.rpartition("/")[2]
    return name if ":" in last or "@" in last else f"{name}:latest"
