"""Nodes as the directory knows them, and what it tells of them (discovery page, section 7; UI-33)."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from pair.records.telemetry import Cpu, Gpu, Memory, System

Source = Literal["self", "mdns", "roster", "manual"]
Presence = Literal["online", "suspect", "offline"]
Relation = Literal["self", "member", "pending", "other_cluster", "stranger"]
ClusterState = Literal["same", "other", "none", "unknown"]
EvidenceKind = Literal["feed", "inference", "telemetry", "inbound", "mdns", "probe_ni", "probe_em"]
ProbeResult = Literal["ok", "timeout", "refused", "unreachable", "unresolvable", "not_pair", "never"]

DEFAULT_PORTS = {
    "ni": 14318,
    "ol": 11434,
    "lm": 1234,
    "er": 14319,
    "wl": 14320,
    "cl": 14321,
    "em": 14322,
    "ec": 14323,
}
"""Where each service of a node is unless it says otherwise, by its key, in the order of a record."""


class NodeWarning(Struct, frozen=True):
    """Something about a node that a person should know."""

    code: str
    text: str


class NodeHardware(Struct, frozen=True):
    """What a node said last of its machine; None and no GPU where it withheld it (DS-81)."""

    os: System | None = None
    cpu: Cpu | None = None
    memory: Memory | None = None
    gpus: tuple[Gpu, ...] = ()


class NodeEntry(Struct, frozen=True, rename="camel"):
    """What the directory knows of one node; what is not known is None.

    ``key`` is its UUID, or ``manual:<address>`` until that is known. ``me`` is
    true for this node. ``ip`` is the first of ``ips``, which are in the order
    of DS-36. ``confirmed`` has, by service, the address that answered last.
    ``evidence`` is the kind of the last sign of life, and ``last_heard_at``
    its time. ``revision`` is the directory's at the last change of this entry.
    """

    key: str
    uuid: str | None
    name: str
    presence: Presence
    relation: Relation
    me: bool = field(name="self", default=False)
    claims: tuple[Source, ...] = ()
    last_heard_at: int | None = None
    evidence: EvidenceKind | None = None
    member: bool = False
    trusted: bool = False
    cluster_uuid: str | None = None
    cluster_state: ClusterState = "unknown"
    ip: str | None = None
    ips: tuple[str, ...] = ()
    confirmed: dict[str, str] = {}
    services: dict[str, int] = {}
    hardware: NodeHardware | None = None
    hardware_at: int | None = None
    inventory_at: int | None = None
    warnings: tuple[NodeWarning, ...] = ()
    revision: int = 0


class ManualNode(Struct, frozen=True, rename="camel"):
    """A node that a person gave by its address, or the settings, which then have to be edited to take it away.

    ``address`` is an IP literal or a host's name, ``port`` that of node-info.
    ``uuid`` is whose answer came last; None: none ever did. ``result`` is what
    came of the last probe. ``static`` ones are from ``discovery.static_peers``.
    """

    id: str
    address: str
    port: int
    added_at: int
    uuid: str | None = None
    last_ok_at: int | None = None
    result: ProbeResult = "never"
    static: bool = False


class NodeAdded(Struct, frozen=True):
    """A node is in the directory that was not."""

    revision: int
    entry: NodeEntry


class NodeChanged(Struct, frozen=True):
    """Something of a node is other than it was."""

    revision: int
    entry: NodeEntry
    old: NodeEntry


class NodeRemoved(Struct, frozen=True):
    """A node is in the directory no more; ``entry`` is what was last known of it."""

    revision: int
    entry: NodeEntry


class NodeRekeyed(Struct, frozen=True):
    """What was known by ``old_key`` is known by ``new_key``, where there may have been an entry before."""

    revision: int
    old_key: str
    new_key: str


class PresenceChanged(Struct, frozen=True):
    """A node's presence is another. It follows the :class:`NodeChanged` of the same change."""

    revision: int
    uuid: str
    old: Presence
    new: Presence


NodeEvent = NodeAdded | NodeChanged | NodeRemoved | NodeRekeyed | PresenceChanged
