"""What Ollama tells, line by line, while models come and go."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pair.test.doubles.shelf import Disk, Weights


def pulling(disk: Disk, found: Weights | None, step: float, now: Callable[[], float]) -> Iterator[dict[str, Any]]:
    """The lines of a pull. A layer goes on where an earlier pull left it, ``step`` octets with each line."""
    yield {"status": "pulling manifest"}
    if found is None:
        yield {"error": "pull model manifest: file does not exist"}
        return
    for digest, total in found.layers:
        told: dict[str, Any] = {"status": f"pulling {digest[7:19]}", "digest": digest, "total": total}
        if not disk.layers.get(digest):
            yield told
        while (done := disk.layers.get(digest, 0)) < total:
            done = min(total, done + math.ceil(step))
            disk.fetched(digest, done)
            yield {**told, "completed": done}
        yield {**told, "completed": total}
    yield {"status": "verifying sha256 digest"}
    yield {"status": "writing manifest"}
    disk.put(found.named(found.name, now()))
    yield {"status": "success"}


def pushing(weights: Weights) -> Iterator[dict[str, Any]]:
    """The lines of a push. Only what bears a namespace may go."""
    yield {"status": "retrieving manifest"}
    if "/" not in weights.name:
        yield {"error": "you are not authorized to push to this namespace"}
        return
    for digest, total in weights.layers:
        told = {"status": f"pushing {digest[7:19]}", "digest": digest, "total": total}
        yield told
        yield {**told, "completed": total}
    yield {"status": "pushing manifest"}
    yield {"status": "success"}


def creating(disk: Disk, base: Weights, made: Weights) -> Iterator[dict[str, Any]]:
    """The lines while a model is made of another's layers."""
    for digest, _ in base.layers:
        yield {"status": f"using existing layer {digest}"}
    yield {"status": "writing manifest"}
    disk.put(made)
    yield {"status": "success"}
