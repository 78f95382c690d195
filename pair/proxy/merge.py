"""The lists of models, made from what all nodes say of themselves (PX-69, PX-71 to PX-74).

Pure: inventories in, the bytes of a JSON answer out, the same bytes for the
same inventories. An entry is the engine's own, untouched, wherever the engine
speaks the dialect of the list; otherwise it is built of what is known of the
model, so that an engine of one family stands in the lists of the others.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from pair.records.engines import Model
from pair.routing.names import key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pair.records.engines import EngineInventory, LoadedInstance
    from pair.routing.candidates import NodeFacts
    from pair.routing.dialects import Family, Route

# The one list of what is in memory; apart from its path its route is that of /api/tags.
_RUNNING = "/api/ps"

_CONTEXT_FIELDS = frozenset(
    (
        "context_length",
        "max_context_length",
        "loaded_context_length",
        "max_model_len",
        "context_window",
        "n_ctx",
        "n_ctx_train",
    )
)
# One of these stands in each of those names.
_CONTEXT_MARKS = (b"context", b"n_ctx", b"max_model_len")
_NO_DIGEST = "0" * 64
_HEX = frozenset("0123456789abcdef")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Source(Struct, frozen=True):
    """One model of one engine, and how it comes into the list."""

    key: str
    node: str
    local: bool
    engine: str
    kind: str
    model: Model
    own: Raw | None
    """The engine's own entry, where it is of the list's family."""

    @property
    def rank(self) -> tuple[bool, str, bool, str]:
        """Whose entry is shown: the local node's, then the lowest node id's; there, one of the list's family."""
        return not self.local, self.node, self.own is None, self.engine


class _Shape(Struct):
    """What tells the families' entries apart."""

    id: Raw = Raw()
    key: Raw = Raw()
    model: Raw = Raw()
    name: Raw = Raw()
    state: Raw = Raw()

    def is_of(self, family: Family) -> bool:
        """Whether an entry with these fields may stand in a list of ``family`` as it is."""
        match family:
            case "ollama":
                return bool(len(self.model) or len(self.name))
            case "lmstudio0":
                return bool(len(self.id) and len(self.state))
            case "lmstudio1":
                return len(self.key) > 0
            case _:
                return len(self.id) > 0 and not len(self.state)


_shapes = msgspec.json.Decoder(_Shape)


def listing(facade: str, route: Route, nodes: Iterable[NodeFacts], *, explain: bool = False) -> bytes:
    """The answer to a route of role ``listing``.

    Args:
        facade: Where the list was asked for.
        route: The route that was asked.
        nodes: All nodes; those that could not serve a request now are left out here.
        explain: Each entry also says which nodes have the model (PX-83).

    Returns:
        A JSON object, with an empty list where nothing is known.
    """
    running = route.path == _RUNNING
    groups: dict[str, list[_Source]] = {}
    for source in _sources(facade, route.family, nodes):
        if source.model.loaded or not running:
            groups.setdefault(source.key, []).append(source)
    entries = [_entry(route.family, running, sorted(groups[each], key=_rank), explain) for each in sorted(groups)]
    if route.family in ("ollama", "lmstudio1"):
        return msgspec.json.encode({"models": entries})
    return msgspec.json.encode({"object": "list", "data": entries})


def _rank(source: _Source) -> tuple[bool, str, bool, str]:
    return source.rank


def _sources(facade: str, family: Family, nodes: Iterable[NodeFacts]) -> Iterator[_Source]:
    for node in nodes:
        if not (node.online and node.compatible and (node.trusted or node.local)) or node.inventory.drained:
            continue
        for engine in node.inventory.engines:
            status = engine.status
            dialect = node.dialects.get(status.id)
            if not status.routable or dialect is None or not dialect.routes.get(facade):
                continue
            loaded_only = node.loaded_only or dialect.eligible == "loaded"
            hidden = _instances(engine)
            for model in engine.models:
                if (model.loaded or not loaded_only) and model.id not in hidden:
                    own = _own(family, model.listed)
                    name = key(dialect.naming, model.id)
                    yield _Source(name, node.id, node.local, status.id, status.kind, model, own)


def _instances(engine: EngineInventory) -> set[str]:
    """The names of loaded copies that are no models of their own: ``key:2`` beside ``key`` (PX-72)."""
    return {
        each.instance for model in engine.models for each in model.loaded if each.instance.startswith(f"{model.id}:")
    }


def _own(family: Family, listed: Raw | None) -> Raw | None:
    if listed is None:
        return None
    try:
        return listed if _shapes.decode(listed).is_of(family) else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _entry(family: Family, running: bool, sources: Sequence[_Source], explain: bool) -> Raw | dict[str, Any]:
    first = sources[0]
    if first.own is not None and not running and not explain and (len(sources) == 1 or not _tells_context(first.own)):
        return first.own
    entry = _record(family, running, first)
    for other in sources[1:]:
        _shrink(entry, _record(family, running, other))
    if explain:
        entry["pair"] = {"nodes": sorted({each.node for each in sources})}
    return entry


def _record(family: Family, running: bool, source: _Source) -> dict[str, Any]:
    entry = _built(family, source) if source.own is None else msgspec.json.decode(source.own, type=dict[str, Any])
    if running:
        entry.pop("modified_at", None)
        entry.update(_in_memory(source.model.loaded))
    return entry


def _tells_context(own: Raw) -> bool:
    data = bytes(own)
    return any(mark in data for mark in _CONTEXT_MARKS)


def _shrink(entry: dict[str, Any], other: dict[str, Any]) -> None:
    """Show the smaller of two values of a context length; one that is absent stays so (PX-72)."""
    for name, mine in entry.items():
        theirs = other.get(name)
        if isinstance(mine, dict) and isinstance(theirs, dict):
            _shrink(mine, theirs)
        elif name in _CONTEXT_FIELDS and isinstance(mine, int) and isinstance(theirs, int):
            entry[name] = min(mine, theirs)


def _built(family: Family, source: _Source) -> dict[str, Any]:
    """An entry in the words of ``family``, of what is known; what clients demand and nobody knows is empty."""
    model = source.model
    match family:
        case "ollama":
            return _ollama(model)
        case "lmstudio0":
            return _lmstudio0(model)
        case "lmstudio1":
            return _lmstudio1(model)
        case _:
            created = 0 if model.modified_at is None else model.modified_at // 1000
            return {"id": model.id, "object": "model", "created": created, "owned_by": source.kind}


def _ollama(model: Model) -> dict[str, Any]:
    details = _known(
        format=model.format,
        family=model.family,
        parameter_size=_parameter_size(model.parameters),
        quantization_level=model.quantization,
    )
    optional = _known(modified_at=_instant(model.modified_at), size=model.size_bytes)
    return {"name": model.id, "model": model.id, **optional, "digest": _digest(model.digest), "details": details}


def _lmstudio0(model: Model) -> dict[str, Any]:
    return {
        "id": model.id,
        "object": "model",
        "type": "embeddings" if _embeds(model) else "vlm" if "vision" in model.capabilities else "llm",
        **_known(arch=model.family, compatibility_type=model.format, quantization=model.quantization),
        "state": "loaded" if model.loaded else "not-loaded",
        **_known(
            max_context_length=model.context_max,
            loaded_context_length=_smallest_context(model.loaded),
            capabilities=["tool_use"] if "tools" in model.capabilities else None,
        ),
    }


def _lmstudio1(model: Model) -> dict[str, Any]:
    instances = [
        {"id": each.instance, "config": _known(context_length=each.context_length, parallel=each.parallel)}
        for each in model.loaded
    ]
    return {
        "type": "embedding" if _embeds(model) else "llm",
        "key": model.id,
        "display_name": model.id,
        **_known(
            architecture=model.family,
            quantization=None if model.quantization is None else {"name": model.quantization},
            size_bytes=model.size_bytes,
            params_string=_parameter_size(model.parameters),
        ),
        "loaded_instances": instances,
        **_known(max_context_length=model.context_max, format=model.format),
        "capabilities": {
            "vision": "vision" in model.capabilities,
            "trained_for_tool_use": "tools" in model.capabilities,
        },
    }


def _in_memory(loaded: Sequence[LoadedInstance]) -> dict[str, Any]:
    """What ``/api/ps`` says of a model besides: of its first copy, with the smallest context of all."""
    first = loaded[0]
    return _known(
        size=first.size_bytes,
        size_vram=first.gpu_bytes,
        expires_at=_instant(first.expires_at),
        context_length=_smallest_context(loaded),
    )


def _smallest_context(loaded: Sequence[LoadedInstance]) -> int | None:
    return min((each.context_length for each in loaded if each.context_length is not None), default=None)


def _embeds(model: Model) -> bool:
    return "embedding" in model.capabilities and not {"chat", "completion"}.intersection(model.capabilities)


def _known(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _digest(digest: str | None) -> str:
    """64 hex digits, as the clients of Ollama cut them up unasked."""
    digits = (digest or "").removeprefix("sha256:").lower()
    return digits if len(digits) == 64 and _HEX.issuperset(digits) else _NO_DIGEST


def _instant(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat().replace("+00:00", "Z")


def _parameter_size(parameters: int | None) -> str | None:
    """``3.2B``, ``134.52M``: as Ollama writes the number of parameters."""
    if parameters is None:
        return None
    for unit, letter, digits in ((10**9, "B", 1), (10**6, "M", 2), (10**3, "K", 0)):
        if parameters >= unit:
            number = parameters / unit
            return f"{number:.0f}{letter}" if number.is_integer() else f"{number:.{digits}f}{letter}"
    return str(parameters)
