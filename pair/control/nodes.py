"""What the API says of nodes, and does for people there (UI-33 to UI-35).

Who is there, and who is alive, is the directory's to say.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from pair.addresses import Place, parse_node
from pair.control.views import Collection
from pair.discovery.addresses import MANUAL_MAX, ManualError, NoZoneError
from pair.records.engines import EngineInventory, EngineState, Health
from pair.records.nodes import ManualNode, NodeEntry
from pair.records.telemetry import Sample
from pair.store import StoreClosed
from pair.surfaces.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pair.control.sources import Nodes
    from pair.records.engines import NodeInventory

SAMPLE_MS = 2000
HISTORY_MS = 15 * 60 * 1000
"""Milliseconds between two samples of a node, and for which they are kept (DS-96)."""

LATEST_MS = 10_000
"""A sample that is older is not how busy a node is now (DS-78)."""

_GAP_MS = 5000
"""Two samples that are further apart have a gap between them."""

_ANSWERS = frozenset(("probe_ni", "probe_em"))
"""Evidence that a question brings (DS-56)."""

_NOT_ADDED = {
    "bad_address": "It is no address: host, host:port, or [IPv6]:port, without a scheme or a path.",
    "bad_port": "A port is a number from 1 to 65535.",
    "is_self": "That is this node itself.",
    "too_many": f"There are {MANUAL_MAX} addresses already. Remove one that is not used any more.",
}


_NO_ZONE = "An address that begins with fe80 is one of each network: say by which interface, as in fe80::20%eth0."


class NodeEngine(Struct, frozen=True, rename="camel"):
    """An engine of a node, in few words; ``GET /engines`` has the rest."""

    id: str
    kind: str
    facade: str
    state: EngineState
    health: Health
    version: str | None
    model_count: int
    loaded_count: int

    @classmethod
    def of(cls, engine: EngineInventory) -> NodeEngine:
        """The same of an inventory."""
        status, loaded = engine.status, sum(bool(model.loaded) for model in engine.models)
        return cls(
            status.id,
            status.kind,
            status.facade,
            status.state,
            status.health,
            status.version,
            len(engine.models),
            loaded,
        )


class NodeView(NodeEntry, frozen=True, rename="camel", kw_only=True):
    """An entry of the directory, and what others know of its node (UI-33).

    ``engines`` and ``drained`` are None for one that has told nothing of
    itself; ``active_jobs`` are those that it works on. ``drain_reason`` is in
    the words of whoever drained it. ``manual`` are the addresses by which
    people gave it.
    """

    engines: tuple[NodeEngine, ...] | None = None
    active_jobs: int = 0
    drained: bool | None = None
    drain_reason: str | None = None
    manual: tuple[ManualNode, ...] = ()


class ProbedNode(NodeView, frozen=True, rename="camel", kw_only=True):
    """A node after it was asked whether it is there, and whether it has answered (UI-35)."""

    answered: bool


class NodeList(Collection, frozen=True):
    """``GET /nodes``: self first."""

    nodes: tuple[NodeView, ...]


class TelemetryQuery(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The query of ``GET /nodes/{id}/telemetry``."""

    window_ms: Annotated[int, Meta(ge=SAMPLE_MS, le=HISTORY_MS)] = HISTORY_MS


class TelemetryHistory(Struct, frozen=True, rename="camel"):
    """How busy a node was, the oldest sample first; one in which nothing is known stands for a gap (UI-34)."""

    node: str
    samples: tuple[Sample, ...]
    interval_ms: int = SAMPLE_MS


class AddressBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /nodes/manual`` (DS-70)."""

    address: str


class Gone(Struct, frozen=True):
    """The answer to a removal."""

    removed: str


def node_views(
    entries: Iterable[NodeEntry],
    inventories: Mapping[str, NodeInventory],
    active_jobs: Mapping[str, int],
    manual: Sequence[ManualNode],
) -> tuple[NodeView, ...]:
    """``entries`` with what belongs to each.

    Args:
        entries: of the directory.
        inventories: what nodes offer, by UUID.
        active_jobs: how many jobs a node works on, by UUID.
        manual: all addresses that people gave.
    """
    views = []
    for entry in entries:
        offers = inventories.get(entry.uuid or "")
        views.append(
            NodeView(
                **{name: getattr(entry, name) for name in NodeEntry.__struct_fields__},
                engines=None if offers is None else tuple(map(NodeEngine.of, offers.engines)),
                active_jobs=active_jobs.get(entry.uuid or "", 0),
                drained=None if offers is None else offers.drained,
                drain_reason=None if offers is None else offers.drain_reason,
                manual=tuple(each for each in manual if entry.key in (each.uuid, manual_key(each))),
            )
        )
    return tuple(views)


def manual_key(node: ManualNode) -> str:
    """The key of its entry as long as its UUID is not known (DS-40)."""
    return f"manual:{Place(node.address, node.port)}"


def node(nodes: Nodes, id: str, me: str) -> NodeView:
    """The one of that UUID, in any spelling, or of that key; ``self`` is ``me``.

    Raises:
        Refused: There is none.
    """
    found = nodes.get(me if id == "self" else parse_node(id) or id)
    if found is None:
        raise Refused(404, "no_such_node", "No node has that id.")
    return found


def history(nodes: Nodes, node: NodeView, window_ms: int, now: int) -> TelemetryHistory:
    """How busy ``node`` was in the last ``window_ms``."""
    samples = () if node.uuid is None else nodes.telemetry(node.uuid, window_ms)
    return TelemetryHistory(node.key, tuple(_with_gaps(samples, now)))


async def added(nodes: Nodes, asked: AddressBody) -> tuple[ManualNode, bool]:
    """The node at that address, and whether it is new.

    Raises:
        Refused: It is no address, or ours, or there are too many (DS-71); or it could not be written.
    """
    try:
        return await nodes.add(asked.address)
    except NoZoneError as why:
        raise Refused(422, "invalid_value", _NO_ZONE, path="address", reason=why.reason) from None
    except ManualError as why:
        raise Refused(422, "invalid_value", _NOT_ADDED[why.reason], path="address", reason=why.reason) from None
    except (sqlite3.Error, StoreClosed):
        raise _not_written() from None


async def removed(nodes: Nodes, id: str) -> Gone:
    """It, taken back.

    Raises:
        Refused: There is none, the settings name it (DS-71), or it could not be written.
    """
    if any(each.id == id and each.static for each in nodes.manual()):
        message = "It is in the settings, and so cannot be removed while the node runs."
        raise Refused(409, "setting_locked", message, key="discovery.static_peers")
    try:
        there_was = await nodes.remove(id)
    except (sqlite3.Error, StoreClosed):
        raise _not_written() from None
    if not there_was:
        raise Refused(404, "no_such_address", "No address has that id.")
    return Gone(id)


async def probed(nodes: Nodes, node: NodeView, now: Callable[[], int]) -> ProbedNode:
    """It, after a question whether it is there.

    Args:
        nodes: they are asked.
        node: which is meant.
        now: epoch milliseconds.

    Raises:
        Refused: It is gone.
    """
    if node.me:
        return _probed(node, True)
    began = now()
    await nodes.probe(node.key)
    # Its UUID may be known now, and its entry be another one by that.
    found = nodes.get(node.key) or next((each for each in nodes.all() if _was(each, node)), None)
    if found is None:
        raise Refused(404, "no_such_node", "The node is not there any more.")
    # What it announces is no answer: that may be heard where it cannot be reached.
    answered = found.evidence in _ANSWERS and found.last_heard_at is not None and found.last_heard_at >= began
    return _probed(found, answered)


def _probed(node: NodeView, answered: bool) -> ProbedNode:
    return ProbedNode(**{name: getattr(node, name) for name in NodeView.__struct_fields__}, answered=answered)


def _was(node: NodeView, before: NodeView) -> bool:
    return any(manual_key(each) == before.key for each in node.manual)


def _with_gaps(samples: Iterable[Sample], now: int) -> Iterator[Sample]:
    last: int | None = None
    for each in samples:
        if last is not None and each.at - last > _GAP_MS:
            yield Sample(last + SAMPLE_MS)
        yield each
        last = each.at
    if last is not None and now - last > _GAP_MS:
        yield Sample(last + SAMPLE_MS)


def _not_written() -> Refused:
    return Refused(503, "store", "It could not be written to the disk; nothing has changed.")
