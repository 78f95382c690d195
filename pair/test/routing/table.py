"""The tables of the pages, written out a second time: paths (PX section 4) and what each kind serves (RT-8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PATHS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "ollama": {
        "inference": (
            "POST /api/chat",
            "POST /api/generate",
            "POST /api/embed",
            "POST /api/embeddings",
            "POST /v1/chat/completions",
            "POST /v1/completions",
            "POST /v1/embeddings",
            "POST /v1/responses",
            "POST /v1/messages",
        ),
        "owner": ("POST /api/show", "POST /v1/messages/count_tokens", "GET /v1/models/{id}"),
        "listing": ("GET /api/tags", "GET /v1/models", "GET /api/ps"),
        "identity": ("GET /", "GET /api/version"),
        "mutate": (
            "POST /api/pull",
            "POST /api/push",
            "POST /api/create",
            "POST /api/copy",
            "DELETE /api/delete",
            "POST /api/blobs/{id}",
            "HEAD /api/blobs/{id}",
        ),
    },
    "lmstudio": {
        "inference": (
            "POST /v1/chat/completions",
            "POST /v1/completions",
            "POST /v1/embeddings",
            "POST /v1/responses",
            "POST /v1/messages",
            "POST /v1/rerank",
            "POST /v1/images/generations",
            "POST /v1/audio/speech",
            "POST /api/v0/chat/completions",
            "POST /api/v0/completions",
            "POST /api/v0/embeddings",
            "POST /api/v1/chat",
        ),
        "owner": ("POST /v1/messages/count_tokens", "GET /v1/models/{id}", "GET /api/v0/models/{id}"),
        "listing": ("GET /v1/models", "GET /api/v0/models", "GET /api/v1/models"),
        "identity": ("GET /", "GET /lmstudio-greeting"),
        "mutate": (
            "POST /api/v1/models/load",
            "POST /api/v1/models/unload",
            "POST /api/v1/models/download",
            "GET /api/v1/models/download/status/{id}",
        ),
        "tunnel": (
            "GET /llm",
            "GET /embedding",
            "GET /system",
            "GET /files",
            "GET /repository",
            "GET /diagnostics",
            "GET /plugins",
        ),
    },
}
"""Facade, role, and the routes that have it there."""

OPERATIONS: Mapping[str, str] = {
    "/api/chat": "chat",
    "/api/generate": "generate",
    "/api/embed": "embed",
    "/api/embeddings": "embed",
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/embeddings": "embed",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
    "/v1/rerank": "rerank",
    "/v1/images/generations": "image",
    "/v1/audio/speech": "audio",
    "/api/v0/chat/completions": "chat",
    "/api/v0/completions": "completions",
    "/api/v0/embeddings": "embed",
    "/api/v1/chat": "chat",
}
"""What a job on each inference path is called (JB-34)."""

_CHAT = frozenset({"POST /v1/chat/completions", "POST /v1/completions"})
_EMBED = frozenset({"POST /v1/embeddings"})
_NEWER = frozenset({"POST /v1/responses", "POST /v1/messages"})
_COUNT = frozenset({"POST /v1/messages/count_tokens"})
_RERANK = frozenset({"POST /v1/rerank"})
_MODEL = frozenset({"GET /v1/models/{id}"})
_EMBEDDED = _CHAT | _NEWER | _COUNT | _MODEL

DECLARED: Mapping[str, Mapping[str, frozenset[str]]] = {
    "ollama": {"ollama": frozenset(route for routes in PATHS["ollama"].values() for route in routes)},
    "lmstudio": {
        "lmstudio": _CHAT
        | _EMBED
        | _NEWER
        | _MODEL
        | {
            "POST /api/v0/chat/completions",
            "POST /api/v0/completions",
            "POST /api/v0/embeddings",
            "GET /api/v0/models",
            "GET /api/v0/models/{id}",
            "POST /api/v1/chat",
            "GET /api/v1/models",
            "POST /api/v1/models/load",
            "POST /api/v1/models/unload",
            "POST /api/v1/models/download",
            "GET /api/v1/models/download/status/{id}",
        }
    },
    "llamacpp": {"ollama": _EMBEDDED | _EMBED, "lmstudio": _EMBEDDED | _EMBED | _RERANK},
    "embedded": {"ollama": _EMBEDDED, "lmstudio": _EMBEDDED},
    "openai-compatible": {"ollama": _CHAT | _EMBED | _MODEL, "lmstudio": _CHAT | _EMBED | _MODEL},
}
"""Kind, facade, and the keys of the routes that the kind serves there."""

NATURE: Mapping[str, tuple[str, str, float]] = {
    "ollama": ("ollama", "on_disk", 60.0),
    "lmstudio": ("exact", "on_disk", 4.0),
    "llamacpp": ("exact", "loaded", 4.0),
    "embedded": ("exact", "loaded", 4.0),
    "openai-compatible": ("exact", "loaded", 4.0),
}
"""Kind, and its naming, eligibility and idle life in seconds."""
