"""Kind ``embedded``: the small model that a node without any other engine serves by itself (EN-106 to EN-108).

It is llama.cpp's server either way: a ``llama-server`` of this host where
there is one, else the one in the package ``xllamacpp``, run by
``pair.engines.embedded``.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import msgspec
from zope.interface import implementer

from pair.engines import locate
from pair.engines.data import EMBEDDED_WEIGHTS as WEIGHTS
from pair.engines.facts import (
    Answers,
    EnginePorts,
    EngineTiming,
    Found,
    HostFacts,
    Identity,
    Launch,
    LaunchOptions,
    Listing,
)
from pair.engines.kinds.llamacpp import LlamaCpp, listed_ids, server_command
from pair.interfaces import IEngineKind
from pair.routing.dialects import Dialect, routes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE = "xllamacpp"
CHILD = "pair.engines.embedded"
CONTEXT = 4096
"""Tokens, shared out among the slots."""
SLOTS = 2

_ROUTES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
)

DIALECT = Dialect(
    kind="embedded",
    routes={"ollama": routes_of("ollama", *_ROUTES), "lmstudio": routes_of("lmstudio", *_ROUTES)},
)

_NO_PACKAGE = "The package xllamacpp is not installed; this installs it: pip install 'personal-ai-router[embedded]'"


@implementer(IEngineKind)
class Embedded(LlamaCpp):
    """The embedded default."""

    name = "embedded"
    dialect = DIALECT
    control = "process"
    ports = EnginePorts(standard=None, base=8081)
    timing = EngineTiming(ready=30.0, health=5.0, grace=5.0)

    def locate(self, facts: HostFacts) -> Sequence[Found]:
        """Servers of this host, then our own child; each says if it lacks the package or the weights."""
        folder = f"{facts.data_dir}/models"
        weights = f"{folder}/{WEIGHTS.file}"
        missing = None if facts.is_file(weights) else _no_weights(folder, facts.home, facts.python)
        servers = [
            Found(each.path, each.found_by, weights, missing) for each in locate.locate(locate.LLAMA_SERVER, facts)
        ]
        if PACKAGE in facts.modules:
            return (*servers, Found(facts.python, "package", weights, missing))
        return servers or (Found(facts.python, "package", weights, _NO_PACKAGE),)

    def identify(self, answers: Answers) -> Identity | None:
        """As ``llamacpp``, and the list names our model: not before the model is in memory."""
        return super().identify(answers) if WEIGHTS.name in listed_ids(answers, "identity") else None

    def launch(self, found: Found, port: int, options: LaunchOptions) -> Launch:
        """The same model, name, context and slots whichever program serves them.

        Raises:
            ValueError: ``found`` names no weights.
        """
        if found.model is None:
            raise ValueError("the embedded engine needs its weights")
        if found.found_by != "package":
            values = LaunchOptions(model=found.model, alias=WEIGHTS.name, slots=SLOTS, context=CONTEXT)
            return server_command(found.path, port, values)
        where = ("--port", str(port), "--model", found.model, "--alias", WEIGHTS.name)
        return Launch((found.path, "-m", CHILD, *where))

    def models(self, engine: str, answers: Answers) -> Listing | None:
        """As ``llamacpp``, with what we know of the weights besides."""
        listing = super().models(engine, answers)
        if listing is None:
            return None
        models = tuple(
            msgspec.structs.replace(each, size_bytes=WEIGHTS.bytes, digest=f"sha256:{WEIGHTS.sha256}")
            if each.id == WEIGHTS.name
            else each
            for each in listing.models
        )
        return msgspec.structs.replace(listing, models=models)


def _no_weights(folder: str, home: str, python: str) -> str:
    def shown(path: str) -> str:
        return f"~/{shlex.quote(path[len(home) + 1 :])}" if home and path.startswith(f"{home}/") else shlex.quote(path)

    return (
        f"The weights of {WEIGHTS.title} ({WEIGHTS.bytes // 1_000_000} MB, {WEIGHTS.licence}) are missing; "
        f"this fetches them: {shown(python)} -m pair.engines.weights --into {shown(folder)}"
    )
