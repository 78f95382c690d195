"""Engines, their models, and what a node says of them (engines page, Inventory)."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

EngineState = Literal[
    "absent",
    "stopped",
    "starting",
    "running",
    "stopping",
    "backoff",
    "failed",
    "occupied",
    "detached",
]
Health = Literal["unknown", "ok", "busy", "degraded", "unhealthy", "needs_credential"]
Ownership = Literal["owned", "adopted"]
Desired = Literal["on", "off"]
Knowledge = Literal["known", "stale", "unknown"]
FoundBy = Literal["setting", "managed", "app", "path", "known", "unit", "package", "port", "container"]


class EngineAddress(Struct, frozen=True):
    """Where an engine answers."""

    host: str
    port: int
    tls: bool = False

    @property
    def authority(self) -> str:
        """``host:port`` as a Host header has it (an IPv6 literal in brackets)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class LoadedInstance(Struct, frozen=True, rename="camel"):
    """One copy of a model in memory. What the engine does not tell is None."""

    instance: str
    context_length: int | None = None
    parallel: int | None = None
    size_bytes: int | None = None
    gpu_bytes: int | None = None
    expires_at: int | None = None


class Model(Struct, frozen=True, rename="camel"):
    """A model as one engine lists it. What the engine does not tell is None.

    ``loaded`` is empty for a model that is on disk only. ``listed`` is the
    engine's own entry, byte for byte, at most 4 KiB, else None (PX-71).
    """

    id: str
    engine: str
    facade: str
    size_bytes: int | None = None
    digest: str | None = None
    family: str | None = None
    parameters: int | None = None
    quantization: str | None = None
    format: str | None = None
    context_max: int | None = None
    capabilities: tuple[str, ...] = ()
    loaded: tuple[LoadedInstance, ...] = ()
    modified_at: int | None = None
    listed: msgspec.Raw | None = None


class EngineStatus(Struct, frozen=True, rename="camel"):
    """What is known of one engine of this node (EN-84, key ``engine:<id>``)."""

    id: str
    kind: str
    facade: str
    state: EngineState = "absent"
    health: Health = "unknown"
    health_at: int | None = None
    ownership: Ownership | None = None
    desired: Desired | None = None
    routable: bool = False
    version: str | None = None
    path: str | None = None
    found_by: FoundBy | None = None
    slots: int = 1
    models: Knowledge = "unknown"
    loaded: Knowledge = "unknown"
    models_at: int | None = None
    retry_at: int | None = None
    """When a start is tried again, in state ``backoff`` or ``failed``."""
    detail: str | None = None
    """One sentence for a person: what is missing and the command that mends it."""


class EngineInventory(Struct, frozen=True, rename="camel"):
    """One engine with its models, and a number that rises with each change of them (RT-51)."""

    status: EngineStatus
    models: tuple[Model, ...] = ()
    revision: int = 0


class Drain(Struct, frozen=True):
    """A node takes no new work (RT-22); ``reason`` is in the words of whoever drained it."""

    reason: str | None = None


class NodeInventory(Struct, frozen=True, rename="camel"):
    """All that one node offers, at one instant."""

    node: str
    engines: tuple[EngineInventory, ...] = ()
    drained: bool = False
    labels: tuple[str, ...] = ()
    drain_reason: str | None = None
