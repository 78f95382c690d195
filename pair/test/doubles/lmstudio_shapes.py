"""How LM Studio writes things down: rows, configurations, errors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pair.test.doubles.shelf import Copy, Weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.test.doubles.serving import Refused

SMOLLM = Weights(
    "smollm2-135m-instruct", 98_362_432, "llama", "135M", "Q4_1", 8192, ("completion", "tools"), "lmstudio-community"
)
OSS = Weights(
    "openai/gpt-oss-20b", 12_109_566_560, "gpt-oss", "20B", "MXFP4", 131_072,
    ("completion", "tools", "thinking"), "openai",
)  # fmt: skip
NOMIC = Weights(
    "text-embedding-nomic-embed-text-v1.5", 274_290_560, "nomic-bert", "137M", "F16", 2048, ("embedding",), "nomic-ai"
)
GRANITE = Weights("ibm/granite-4-micro", 2_279_145_003, "granite", "3B", "Q4_K_M", 131_072, ("completion",), "ibm")

TYPES = {400: "invalid_request", 404: "model_not_found"}
"""Of errors of ``/api/v1``."""


def row(weights: Weights, copies: Sequence[Copy]) -> dict[str, Any]:
    """A row of ``/api/v1/models``."""
    told: dict[str, Any] = {
        "type": "embedding" if weights.embeds else "llm",
        "publisher": weights.publisher,
        "key": weights.name,
        "display_name": weights.name.rpartition("/")[2].replace("-", " ").title(),
        "architecture": weights.family,
        "quantization": {"name": weights.quantization, "bits_per_weight": 16 if weights.embeds else 4},
        "size_bytes": weights.size,
        "params_string": weights.parameters,
        "loaded_instances": [{"id": each.id, "config": config(each)} for each in copies],
        "max_context_length": weights.context,
        "format": "gguf",
        "capabilities": {"vision": "vision" in weights.can, "trained_for_tool_use": "tools" in weights.can},
        "description": None,
    }
    if "thinking" in weights.can:
        told["capabilities"]["reasoning"] = {"allowed_options": ["low", "medium", "high"], "default": "medium"}
    if weights.embeds:
        for name in ("architecture", "capabilities", "description"):
            del told[name]
    return told


def config(copy: Copy) -> dict[str, Any]:
    """How a copy was loaded."""
    if copy.weights.embeds:
        return {"context_length": copy.context}
    return {
        "context_length": copy.context,
        "eval_batch_size": 512,
        "parallel": copy.parallel,
        "flash_attention": True,
        "offload_kv_cache_to_gpu": True,
    }


def older_row(name: str, weights: Weights, copy: Copy | None) -> dict[str, Any]:
    """A row of ``/api/v0/models``."""
    told: dict[str, Any] = {
        "id": name,
        "object": "model",
        "type": "embeddings" if weights.embeds else "vlm" if "vision" in weights.can else "llm",
        "publisher": weights.publisher,
        "arch": weights.family,
        "compatibility_type": "gguf",
        "quantization": weights.quantization,
        "state": "not-loaded" if copy is None else "loaded",
        "max_context_length": weights.context,
    }
    if copy is not None:
        told["loaded_context_length"] = copy.context
    if "tools" in weights.can:
        told["capabilities"] = ["tool_use"]
    return told


def served_row(name: str) -> dict[str, Any]:
    """A row of ``/v1/models``."""
    return {"id": name, "object": "model", "owned_by": "organization_owner"}


def runtime() -> dict[str, Any]:
    """What it says that it runs on."""
    return {
        "name": "llama.cpp-linux-x86_64-avx2",
        "version": "1.50.2",
        "supported_formats": ["gguf"],
    }


def invalid_request(refused: Refused) -> dict[str, Any]:
    """An error of ``/v1`` and ``/api/v0``."""
    param = "model" if refused.code == "model_not_found" or "odel" in refused.message else None
    told = {"message": refused.message, "type": "invalid_request_error", "param": param, "code": refused.code}
    return {"error": told}


def instant(seconds: float) -> str:
    """As it tells dates."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
