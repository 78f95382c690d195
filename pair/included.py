"""What comes with PAIR: the kinds of engine, the routing policies, and the conditions that people may be told of.

Kinds and policies of others are found beside them (EN-1, RT-57).
"""

from __future__ import annotations

from msgspec import Struct

from pair.cluster.conditions import CONDITIONS as CLUSTER_CONDITIONS
from pair.control.conditions import CONDITIONS as CONTROL_CONDITIONS
from pair.discovery.conditions import CONDITIONS as DISCOVERY_CONDITIONS
from pair.engines.conditions import CONDITIONS as ENGINE_CONDITIONS
from pair.engines.kinds.embedded import Embedded
from pair.engines.kinds.llamacpp import LlamaCpp
from pair.engines.kinds.lmstudio import LMStudio
from pair.engines.kinds.ollama import Ollama
from pair.engines.kinds.openai_compatible import OpenAICompatible
from pair.errors.conditions import CONDITIONS as ERROR_CONDITIONS
from pair.extensions import Extended, extended
from pair.feeds.conditions import CONDITIONS as FEED_CONDITIONS
from pair.interfaces import IEngineKind, IRoutingPolicy
from pair.jobs.conditions import CONDITIONS as JOB_CONDITIONS
from pair.proxy.conditions import CONDITIONS as PROXY_CONDITIONS
from pair.routing.policies.pressure import PressurePolicy
from pair.supervision.conditions import CONDITIONS as SUPERVISION_CONDITIONS
from pair.surfaces.conditions import CONDITIONS as SURFACE_CONDITIONS
from pair.telemetry.conditions import CONDITIONS as TELEMETRY_CONDITIONS

KINDS: tuple[IEngineKind, ...] = (Ollama(), LMStudio(), LlamaCpp(), Embedded(), OpenAICompatible())
"""The kinds of engine that come with PAIR."""

POLICIES: tuple[IRoutingPolicy, ...] = (PressurePolicy(),)
"""The routing policies that come with PAIR."""


class Extensions(Struct, frozen=True):
    """The kinds of engine and the routing policies that there are, those of others included."""

    kinds: Extended[IEngineKind]
    policies: Extended[IRoutingPolicy]

    @classmethod
    def find(cls) -> Extensions:
        """Look for those of others; it may import modules of theirs."""
        return cls(extended(KINDS, IEngineKind), extended(POLICIES, IRoutingPolicy))


CONDITIONS = (
    *CLUSTER_CONDITIONS,
    *CONTROL_CONDITIONS,
    *DISCOVERY_CONDITIONS,
    *ENGINE_CONDITIONS,
    *ERROR_CONDITIONS,
    *FEED_CONDITIONS,
    *JOB_CONDITIONS,
    *PROXY_CONDITIONS,
    *SUPERVISION_CONDITIONS,
    *SURFACE_CONDITIONS,
    *TELEMETRY_CONDITIONS,
)
