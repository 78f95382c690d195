"""The records of the inventory feed, and the document that local programs read (EN-84, DS-92).

A node tells of itself, of each engine and of each model under a key of its
own, so that a change is told alone. Here is how an inventory is taken apart
and put together again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import asdict, replace

from pair.records.engines import EngineInventory, EngineStatus, Model, NodeInventory
from pair.records.telemetry import NodeInfo, ProtocolRange

if TYPE_CHECKING:
    from collections.abc import Callable

S = TypeVar("S", bound=Struct)

NODE = "node"
TELEMETRY = "telemetry"

RECORDS_MAX = 5000
"""The most records of one node (JB-5)."""


class NodeRecord(Struct, frozen=True):
    """What holds for the whole node; key ``node``. ``reason`` is why it is drained, if somebody said that."""

    protocol: ProtocolRange
    drained: bool = False
    labels: tuple[str, ...] = ()
    reason: str | None = None


class EngineRecord(EngineStatus, frozen=True, rename="camel"):
    """An engine; key ``engine:<id>``. ``models_revision`` rises with each change of its models (RT-51)."""

    models_revision: int = 0


class TelemetryRecord(NodeInfo, frozen=True, rename="camel", kw_only=True):
    """How busy the node is; key ``telemetry``. Services and addresses are left out; ``sample`` counts them (DS-92)."""

    sample: int


class OtherRecord(Struct, frozen=True):
    """Of a kind that this PAIR does not know. There is such a record, and no more is kept of it."""


InventoryRecord = NodeRecord | EngineRecord | Model | TelemetryRecord | OtherRecord

_OTHER = OtherRecord()
_SILENT = NodeRecord(ProtocolRange(1, 1))
"""Stands for what a node has not told yet of itself."""

_NULL = Raw(b"null")
_LISTED_MAX = 4096
"""Octets of an engine's own entry; a longer one is not kept (EN-83)."""

_DEEPEST = 200
"""Brackets in such an entry, so that whoever reads it goes no deeper."""

_MOST = 2**53 - 1
"""A number that is more, or negative, is not known: no size, count or instant is like that."""


class _Sampled(Struct):
    sample: int


class _Told(Model, frozen=True):
    """A model as it is read: of a raw value or None, msgspec reads None only."""

    listed: Raw = _NULL


class InventoryCodec:
    """Provides :class:`pair.feeds.codec.Codec` for the inventory feed.

    Args:
        read_info: What a node says of itself in a body of node-info; None where that is none.
    """

    def __init__(self, read_info: Callable[[bytes], NodeInfo | None]) -> None:
        self._read_info = read_info
        self._encoder = msgspec.json.Encoder()
        self._node = msgspec.json.Decoder(NodeRecord)
        self._engine = msgspec.json.Decoder(EngineRecord)
        self._model = msgspec.json.Decoder(_Told)
        self._sampled = msgspec.json.Decoder(_Sampled)

    def encode(self, record: InventoryRecord) -> bytes:
        """See :class:`pair.feeds.codec.Codec`."""
        return self._encoder.encode(record)

    def decode(self, origin: str, key: str, data: bytes | Raw) -> InventoryRecord:
        """See :class:`pair.feeds.codec.Codec`. Of a kind that is not known, the content is not looked at (JB-23)."""
        kind, _, rest = key.partition(":")
        if key == NODE:
            return self._node.decode(data)
        if key == TELEMETRY:
            return self._read_telemetry(origin, data)
        if kind == "engine":
            engine = self._engine.decode(data)
            if engine.id != rest:
                raise ValueError("another engine")
            return _sane(engine)
        if kind == "model":
            told = self._model.decode(data)
            if f"{told.engine}:{told.id}" != rest:
                raise ValueError("another model")
            known = {**asdict(_sane(told)), "loaded": tuple(map(_sane, told.loaded))}
            return Model(**{**known, "listed": _listed(bytes(told.listed))})
        return _OTHER

    def _read_telemetry(self, origin: str, data: bytes | Raw) -> TelemetryRecord:
        info = self._read_info(bytes(data))
        if info is None:
            raise ValueError("no node-info")
        # Its owner is the node that is connected to, whatever it says (JB-28).
        return telemetry_record(replace(info, host_uuid=origin), self._sampled.decode(data).sample)


def _sane(record: S) -> S:
    """``record`` of another node; a number that is none of what it counts is as if it had not been told."""
    names = record.__struct_fields__
    absurd = [each for each in names if type(value := getattr(record, each)) is int and not 0 <= value <= _MOST]
    if not absurd:
        return record
    defaults = dict(zip(reversed(names), reversed(record.__struct_defaults__), strict=False))
    return replace(record, **{each: defaults[each] for each in absurd})


def _listed(data: bytes) -> Raw | None:
    """An engine's own entry, apart from the line that it came in; None for what is none."""
    fits = len(data) <= _LISTED_MAX and data.count(b"{") + data.count(b"[") <= _DEEPEST
    return Raw(data) if fits and data.startswith(b"{") else None


def telemetry_record(info: NodeInfo, sample: int) -> TelemetryRecord:
    """The full body ``info`` as a record, the ``sample``-th one (DS-92)."""
    return TelemetryRecord(**{**asdict(info), "services": None, "ips": ()}, sample=sample)


def records_of(inventory: NodeInventory, protocol: ProtocolRange) -> dict[str, InventoryRecord]:
    """All of ``inventory`` by key, the node first, an engine before its models."""
    said = NodeRecord(protocol, inventory.drained, inventory.labels, inventory.drain_reason)
    records: dict[str, InventoryRecord] = {NODE: said}
    for engine in inventory.engines:
        status = engine.status
        records[f"engine:{status.id}"] = EngineRecord(**asdict(status), models_revision=engine.revision)
        for model in engine.models:
            records[f"model:{status.id}:{model.id}"] = model
    return records


def inventory_of(node: str, records: Mapping[str, InventoryRecord]) -> NodeInventory:
    """What ``node`` offers by its records; engines and models are in the order of their ids."""
    models: dict[str, list[Model]] = {}
    for record in records.values():
        if isinstance(record, Model):
            models.setdefault(record.engine, []).append(record)
    engines = sorted((each for each in records.values() if isinstance(each, EngineRecord)), key=_id)
    said = records.get(NODE)
    node_says = said if isinstance(said, NodeRecord) else _SILENT
    return NodeInventory(
        node,
        tuple(
            EngineInventory(_status(each), tuple(sorted(models.get(each.id, ()), key=_id)), each.models_revision)
            for each in engines
        ),
        node_says.drained,
        node_says.labels,
        node_says.reason,
    )


def _id(record: EngineRecord | Model) -> str:
    return record.id


def _status(record: EngineRecord) -> EngineStatus:
    return EngineStatus(**{name: getattr(record, name) for name in EngineStatus.__struct_fields__})


class Views(Struct, frozen=True, rename="camel"):
    """The models of a node by their ids, for programs that want no more (EN-84).

    What is left out is unknown; what is empty is known to be empty.
    ``models`` is of all engines whose lists are known, each id once.
    """

    models: tuple[str, ...] | UnsetType
    models_by_engine: Mapping[str, tuple[str, ...]]
    loaded_by_engine: Mapping[str, tuple[str, ...]]


def views_of(inventory: NodeInventory) -> Views:
    """What ``inventory`` comes to. A list that is not up to date counts as the last that is known (EN-79)."""
    listed = {
        each.status.id: tuple(model.id for model in each.models)
        for each in inventory.engines
        if each.status.models != "unknown"
    }
    loaded = {
        each.status.id: tuple(model.id for model in each.models if model.loaded)
        for each in inventory.engines
        if each.status.loaded != "unknown"
    }
    union = tuple(dict.fromkeys(model for models in listed.values() for model in models))
    return Views(union if listed else UNSET, listed, loaded)


def with_views(document: bytes, views: Views) -> bytes:
    """The document of the inventory feed (JB-11) with ``views`` added, in front of the records."""
    fields: dict[str, Any] = msgspec.json.decode(document, type=dict[str, Raw])
    records = fields.pop("records")
    return msgspec.json.encode({**fields, **msgspec.to_builtins(views), "records": records})
