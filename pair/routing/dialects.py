"""The paths of the two facades, and what each kind of engine serves of them.

All that is known of a path is a :class:`Route` of the tables here (proxy page,
section 4); no code elsewhere compares a path. A kind of engine declares in its
:class:`Dialect` which routes it serves, how its models are named and how it
says that it lacks one. This module knows no kind by name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Literal, get_args
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from pair.routing.names import Naming

Facade = Literal["ollama", "lmstudio"]
Role = Literal["inference", "owner", "listing", "identity", "mutate", "tunnel"]
"""What alone decides gate, job, reservation, retry, fan-out and ingress permission (RT-7).

A ``tunnel`` is one only with a websocket upgrade. A request that matches no
route is passed to the facade's own engine (PX-25).
"""
Family = Literal["ollama", "openai", "anthropic", "lmstudio0", "lmstudio1"]
ModelFrom = Literal["body", "body_or_name", "path", "none"]
Eligible = Literal["on_disk", "loaded"]
AfterSuccess = Literal["nothing", "reread", "reread_first"]
"""What follows a good answer: the engine's list is read again when it has ended, or before it ends (PX-26)."""
Verdict = Literal["ok", "stale_model", "route_missing", "busy", "client", "fault"]

_ID = "{id}"
_DOTS = frozenset((".", ".."))
_PREFIX_LIMIT = 8192


class Route(Struct, frozen=True, cache_hash=True):
    """One listed path of a facade.

    ``path`` is exact, or ends in ``/{id}``, which stands for the rest of a path,
    slashes included (PX-23). ``streams``: whether the answer streams when the
    request does not say. ``list_key``: the field that names a record of a list.
    ``operation``: what a job on it is called (JB-34). ``after``: what a success
    of it means for the engine's list of models (PX-26).

    Raises:
        ValueError: no such role, or a path that is no path of ours.
    """

    method: str
    path: str
    role: Role
    family: Family
    model_from: ModelFrom = "none"
    streams: bool = False
    list_key: str | None = None
    operation: str = "other"
    after: AfterSuccess = "nothing"

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise ValueError(f"a route without a role: {self.method} {self.path}")
        if not self.path.startswith("/") or _ID in self.path.removesuffix(f"/{_ID}"):
            raise ValueError(f"no path of a route: {self.path}")

    @property
    def key(self) -> str:
        """``POST /v1/messages``: how a dialect names it."""
        return f"{self.method} {self.path}"


class Pattern(Struct, frozen=True):
    """One form in which an engine says that it lacks the model asked for (RT-10).

    ``text`` is a regular expression, searched without regard to case in the
    body of an answer whose status is one of ``statuses``.

    Raises:
        ValueError: ``text`` is no regular expression.
    """

    statuses: tuple[int, ...]
    text: str

    def __post_init__(self) -> None:
        try:
            re.compile(self.text)
        except re.error as error:
            raise ValueError(f"no regular expression: {self.text}") from error

    def matches(self, status: int, body: str) -> bool:
        """Whether an answer has this form."""
        return status in self.statuses and re.search(self.text, body, re.IGNORECASE) is not None


class Dialect(Struct, frozen=True):
    """What a kind of engine speaks: ``IEngineKind.dialect`` (RT-8).

    ``routes`` has, for each facade that the kind serves, the keys of its routes
    there. ``naming`` is the same on every facade. ``eligible``: whether a model
    on disk can be asked for, or only a loaded one. ``idle``: seconds that a
    pooled connection to such an engine may rest.

    Raises:
        ValueError: empty kind, or an ``idle`` that is no positive number.
    """

    kind: str
    routes: Mapping[str, frozenset[str]]
    naming: Naming = "exact"
    eligible: Eligible = "loaded"
    stale: tuple[Pattern, ...] = ()
    idle: float = 4.0

    def __post_init__(self) -> None:
        if not self.kind:
            raise ValueError("a dialect without a kind")
        if not self.idle > 0:
            raise ValueError(f"idle must be positive: {self.idle}")


def _post(path: str, family: Family, operation: str = "other", *, streams: bool = False) -> Route:
    return Route("POST", path, "inference", family, "body", streams, operation=operation)


def _list(path: str, family: Family, key: str) -> Route:
    return Route("GET", path, "listing", family, list_key=key)


def _mutate(method: str, path: str, family: Family, after: AfterSuccess = "nothing") -> Route:
    return Route(method, path, "mutate", family, after=after)


CHAT = _post("/v1/chat/completions", "openai", "chat")
"""The inference that every facade has, and nearly every kind of engine serves."""

_SHARED = (
    CHAT,
    _post("/v1/completions", "openai", "completions"),
    _post("/v1/embeddings", "openai", "embed"),
    _post("/v1/responses", "openai", "responses"),
    _post("/v1/messages", "anthropic", "messages"),
    Route("POST", "/v1/messages/count_tokens", "owner", "anthropic", "body"),
    Route("GET", "/v1/models/{id}", "owner", "openai", "path"),
    _list("/v1/models", "openai", "id"),
)

ROUTES: Mapping[str, tuple[Route, ...]] = {
    "ollama": (
        _post("/api/chat", "ollama", "chat", streams=True),
        _post("/api/generate", "ollama", "generate", streams=True),
        _post("/api/embed", "ollama", "embed"),
        _post("/api/embeddings", "ollama", "embed"),
        *_SHARED,
        Route("POST", "/api/show", "owner", "ollama", "body_or_name"),
        _list("/api/tags", "ollama", "model"),
        _list("/api/ps", "ollama", "model"),
        Route("GET", "/", "identity", "ollama"),
        Route("GET", "/api/version", "identity", "ollama"),
        _mutate("POST", "/api/pull", "ollama", "reread_first"),
        _mutate("POST", "/api/push", "ollama"),
        _mutate("POST", "/api/create", "ollama", "reread_first"),
        _mutate("POST", "/api/copy", "ollama", "reread_first"),
        _mutate("DELETE", "/api/delete", "ollama", "reread_first"),
        _mutate("POST", "/api/blobs/{id}", "ollama"),
        _mutate("HEAD", "/api/blobs/{id}", "ollama"),
    ),
    "lmstudio": (
        *_SHARED,
        _post("/v1/rerank", "openai", "rerank"),
        _post("/v1/images/generations", "openai", "image"),
        _post("/v1/audio/speech", "openai", "audio"),
        _post("/api/v0/chat/completions", "lmstudio0", "chat"),
        _post("/api/v0/completions", "lmstudio0", "completions"),
        _post("/api/v0/embeddings", "lmstudio0", "embed"),
        _post("/api/v1/chat", "lmstudio1", "chat"),
        Route("GET", "/api/v0/models/{id}", "owner", "lmstudio0", "path"),
        _list("/api/v0/models", "lmstudio0", "id"),
        _list("/api/v1/models", "lmstudio1", "key"),
        Route("GET", "/", "identity", "openai"),
        Route("GET", "/lmstudio-greeting", "identity", "openai"),
        _mutate("POST", "/api/v1/models/load", "lmstudio1", "reread"),
        _mutate("POST", "/api/v1/models/unload", "lmstudio1", "reread"),
        _mutate("POST", "/api/v1/models/download", "lmstudio1", "reread"),
        _mutate("GET", "/api/v1/models/download/status/{id}", "lmstudio1"),
        Route("GET", "/llm", "tunnel", "openai"),
        Route("GET", "/embedding", "tunnel", "openai"),
        Route("GET", "/system", "tunnel", "openai"),
        Route("GET", "/files", "tunnel", "openai"),
        Route("GET", "/repository", "tunnel", "openai"),
        Route("GET", "/diagnostics", "tunnel", "openai"),
        Route("GET", "/plugins", "tunnel", "openai"),
    ),
}
"""The path tables of the facades."""

_ALTERNATIVES: Mapping[str, tuple[str, ...]] = {
    "/api/chat": ("/v1/chat/completions", "/v1/completions"),
    "/api/generate": ("/v1/completions", "/v1/chat/completions"),
    "/api/embed": ("/v1/embeddings",),
    "/api/embeddings": ("/v1/embeddings",),
    "/api/show": ("/v1/models/{id}",),
}

_EXACT = {
    facade: {(each.method, each.path): each for each in routes if not each.path.endswith(_ID)}
    for facade, routes in ROUTES.items()
}
_OPEN = {
    facade: tuple((each.path.removesuffix(_ID), each) for each in routes if each.path.endswith(_ID))
    for facade, routes in ROUTES.items()
}


def normalise_path(path: str) -> str:
    """``path``, without query, less one trailing slash."""
    return path[:-1] if len(path) > 1 and path.endswith("/") else path


def match(facade: str, method: str, path: str) -> Route | None:
    """The route of a request (RT-6), or None: not listed, passed through.

    Args:
        facade: ``ollama`` or ``lmstudio``; another is a KeyError.
        method: as sent; HEAD counts as GET where it is not listed itself.
        path: of :func:`normalise_path`. It is compared as it stands: an
            encoded spelling of a listed path is not listed.
    """
    route = _find(facade, method, path)
    return _find(facade, "GET", path) if route is None and method == "HEAD" else route


def _find(facade: str, method: str, path: str) -> Route | None:
    route = _EXACT[facade].get((method, path))
    if route is not None:
        return route
    for prefix, each in _OPEN[facade]:
        if each.method == method and len(path) > len(prefix) and path.startswith(prefix):
            return None if _climbs(path[len(prefix) :]) else each
    return None


def _climbs(id: str) -> bool:
    """Whether an engine, or what stands before it, might take a path that ends so for another one."""
    return not _DOTS.isdisjoint(unquote(id).replace("\\", "/").split("/"))


def id_in_path(route: Route, path: str) -> str:
    """What stands for ``{id}`` in a path that matched ``route``, percent-decoded once (PX-23)."""
    return unquote(path[len(route.path) - len(_ID) :])


def routes_of(facade: str, *paths: str) -> frozenset[str]:
    """The keys of a facade's routes, for a kind's dialect.

    Each of ``paths`` is the path of a route, or ends in a slash and stands for
    all under it (``/`` for the whole table). With any ``/v1`` route comes
    ``GET /v1/models/{id}`` (RT-8).

    Raises:
        ValueError: one of ``paths`` names no route of that facade.
    """
    found: set[str] = set()
    for path in paths:
        named = {each.key for each in ROUTES[facade] if _covers(path, each.path)}
        if not named:
            raise ValueError(f"the {facade} facade has no path {path}")
        found |= named
    if any(" /v1/" in each for each in found):
        found.add("GET /v1/models/{id}")
    return frozenset(found)


def _covers(named: str, path: str) -> bool:
    return path == named or (named.endswith("/") and path.startswith(named))


def with_routes(dialect: Dialect, paths: Collection[str]) -> Dialect:
    """``dialect`` with more routes, each on every facade of it that lists the path (setting ``routes``).

    Raises:
        ValueError: a path that no facade of the dialect lists.
    """
    routes = dict(dialect.routes)
    for path in paths:
        facades = [facade for facade in routes if any(_covers(path, each.path) for each in ROUTES[facade])]
        if not facades:
            raise ValueError(f"no facade has a path {path}")
        for facade in facades:
            routes[facade] |= routes_of(facade, path)
    return msgspec.structs.replace(dialect, routes=routes)


def alternative(route: Route, offered: Collection[str]) -> str | None:
    """The path that does the work of ``route`` and is among the ``offered`` keys, best first (PX-24); or None."""
    for path in _ALTERNATIVES.get(route.path, ()):
        if f"POST {path}" in offered or f"GET {path}" in offered:
            return path
    return None


def classify(dialect: Dialect, status: int, prefix: bytes) -> Verdict:
    """What an engine's answer says of the engine (RT-10).

    Args:
        dialect: of the engine that answered.
        status: its status. A redirect is the caller's to judge and is ``ok`` here.
        prefix: the beginning of the body; no more than 8 KiB of it are looked at.
    """
    if status < 400:
        return "ok"
    body = prefix[:_PREFIX_LIMIT].decode("utf-8", "replace")
    if any(each.matches(status, body) for each in dialect.stale):
        return "stale_model"
    if status in (429, 503):
        return "busy"
    if status == 404:
        return "route_missing"
    if status == 408 or status >= 500:
        return "fault"
    return "client"
