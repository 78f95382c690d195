"""What must hold between settings, each of which is allowed by itself. Pure."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

from pair.settings.grammar import ENGINE_ID, engine_address, is_local
from pair.settings.structs import EngineSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

KINDS = ("ollama", "lmstudio", "llamacpp", "embedded", "openai-compatible")
POLICIES = ("pressure",)

BY_URL = ("openai-compatible", "ollama", "lmstudio")
"""The kinds that an engine by URL may have (EN-4)."""

RESERVED_PORTS = frozenset({11434, 1234, 14300, *range(14318, 14324)})
"""Ports that no engine is given, whatever the settings say (EN-43)."""

_URL_ONLY = ("kind", "remote", "models", "routes", "credential_file", "credential_env")
_RUN_ONLY = ("binary", "port")


OTHER = "{other}"
"""Stands in a message for the key, of two, at which the rule is not told."""


class Finding(Struct, frozen=True):
    """One rule that does not hold, and the keys (or a section, as the first) that it is about."""

    keys: tuple[str, ...]
    message: str


def check(settings: Settings, kinds: Collection[str], policies: Collection[str]) -> Iterator[Finding]:
    """All rules between keys that ``settings`` breaks."""
    proxy, service = settings.proxy, settings.service
    if proxy.body_budget < proxy.max_body:
        yield Finding(("proxy.body_budget", "proxy.max_body"), "proxy.body_budget must be at least proxy.max_body")
    if service.stop_deadline < service.drain + 7:
        yield Finding(
            ("service.stop_deadline", "service.drain"), "service.stop_deadline must be at least service.drain + 7"
        )
    if settings.routing.policy not in policies:
        yield Finding(("routing.policy",), f"there is no such policy; known: {', '.join(policies)}")
    yield from _ports(settings)
    for name, engine in settings.engines.items():
        yield from _engine(name, engine, kinds)


def _ports(settings: Settings) -> Iterator[Finding]:
    ours = {
        "proxy.ports.ollama": settings.proxy.ports.ollama,
        "proxy.ports.lmstudio": settings.proxy.ports.lmstudio,
        **{f"ports.{name}": port for name, port in asdict(settings.ports).items()},
    }
    engines = {f"engines.{name}.port": each.port for name, each in settings.engines.items() if each.port is not None}
    holder: dict[int, str] = {}
    for key, port in (*ours.items(), *engines.items()):
        if port and port in holder:
            yield Finding((key, holder[port]), f"port {port} is that of {OTHER} too")
        elif port:
            holder[port] = key
    for key, port in engines.items():
        if port in RESERVED_PORTS and holder[port] == key:
            yield Finding((key,), f"port {port} is reserved")


def _engine(id: str, engine: EngineSettings, kinds: Collection[str]) -> Iterator[Finding]:
    prefix = f"engines.{id}."
    set_keys = {name for name in (*_URL_ONLY, *_RUN_ONLY) if getattr(engine, name) != getattr(_UNSET, name)}
    if ENGINE_ID.fullmatch(id) is None:
        yield Finding((f"engines.{id}",), "an engine's id is [a-z][a-z0-9-]{0,31}")
    elif engine.url is not None:
        yield from _by_url(id, engine, kinds, set_keys)
    elif id not in kinds or id == "openai-compatible":
        near = get_close_matches(id, kinds, n=1)
        meant = f"; did you mean engines.{near[0]}?" if near and near[0] != id else ""
        yield Finding((f"engines.{id}",), f"no kind of engine has this name, and no url is set{meant}")
    else:
        for name in _URL_ONLY:
            if name in set_keys:
                yield Finding((f"{prefix}{name}",), "it is for an engine by URL, and url is not set")


def _by_url(id: str, engine: EngineSettings, kinds: Collection[str], set_keys: Collection[str]) -> Iterator[Finding]:
    prefix = f"engines.{id}."
    url = f"{prefix}url"
    if id in kinds:
        yield Finding((url,), "an engine by URL needs an id of its own that is no kind's name")
    if engine.kind not in BY_URL:
        yield Finding((f"{prefix}kind", url), f"an engine by URL needs a kind of {', '.join(BY_URL)}")
    if not engine.remote and engine.url is not None and not is_local(engine_address(engine.url)):
        yield Finding((url, f"{prefix}remote"), "the host is not this machine; that needs remote = true")
    if engine.credential_file is not None and engine.credential_env is not None:
        yield Finding((f"{prefix}credential_file", f"{prefix}credential_env"), "only one of both may be set")
    for name in _RUN_ONLY:
        if name in set_keys:
            yield Finding((f"{prefix}{name}",), "it is for an engine that PAIR runs, and url is set")


_UNSET = EngineSettings()
