"""Tests of :mod:`pair.members`: which members may be chosen, and why not (RT-15, RT-23, RT-67)."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from pair.events import Signal
from pair.members import Members
from pair.records.engines import NodeInventory
from pair.records.nodes import NodeChanged, NodeEntry, NodeEvent, NodeRemoved, NodeWarning
from pair.routing.candidates import Request
from pair.routing.dialects import match
from pair.test.proxy.bench import NODE, BenchCase
from pair.test.routing.facts import DIALECTS, engine

PEER = "b0b0"
OTHER = "c0c0"


def member(uuid: str, **fields: Any) -> NodeEntry:
    """A member that is online, unless ``fields`` say otherwise."""
    told: dict[str, Any] = {"presence": "online", "relation": "member", "member": True, "trusted": True, **fields}
    return NodeEntry(uuid, uuid, uuid, **told)


def offer(uuid: str, **fields: Any) -> NodeInventory:
    """What one offers: an Ollama with the model ``m``."""
    return NodeInventory(uuid, (engine("ollama", "m", name="c"),), **fields)


class Directory:
    """See :class:`pair.discovery.directory.DirectoryService`."""

    def __init__(self) -> None:
        self.events: Signal[NodeEvent] = Signal()
        self.known = {NODE: member(NODE, me=True, relation="self")}

    def get(self, node: str) -> NodeEntry | None:
        return self.known.get(node)

    def put(self, entry: NodeEntry) -> None:
        old = self.known.get(entry.key, entry)
        self.known[entry.key] = entry
        self.events.emit(NodeChanged(1, entry, old))

    def remove(self, node: str) -> None:
        self.events.emit(NodeRemoved(1, self.known.pop(node)))


class MembersTests(BenchCase):
    def setUp(self) -> None:
        super().setUp()
        self.node = self.bench(engine("ollama", "m", name="a"))
        self.directory = Directory()
        unused: Any = None
        directory: Any = self.directory
        self.members = Members(self.node.clock, self.node.scheduling, DIALECTS, directory, unused, unused)

    def why(
        self, require: frozenset[str] = frozenset(), forbid: frozenset[str] = frozenset()
    ) -> dict[str, str | None]:
        """Why each other node is out of it, by its UUID; None for one that is not."""
        route = match("ollama", "POST", "/api/chat")
        assert route is not None
        asked = Request("ollama", route, "m", require=require, forbid=forbid)
        found = self.node.scheduling.explain(asked).candidates
        return {each.node: None if each.eligible else str(each.excluded_by) for each in found if each.node != NODE}

    def test_offered(self) -> None:
        """A member with an engine that has the model may serve; this node is not counted among the members."""
        self.directory.put(self.directory.known[NODE])
        self.assertEqual(self.why(), {})
        self.directory.put(member(PEER))
        self.members.offered(offer(PEER))
        self.assertEqual(self.why(), {PEER: None})

    def test_why_not(self) -> None:
        """Each member is named with the first check that it fails (RT-15)."""
        warning = (NodeWarning("incompatible", "It is too old."),)
        for fields, told, reason in (
            ({"presence": "offline"}, {}, "offline"),
            ({"presence": "suspect"}, {}, None),
            ({"trusted": False}, {}, "not_trusted"),
            ({"warnings": warning}, {}, "incompatible"),
            ({"warnings": (replace(warning[0], code="one_way"),)}, {}, None),
            ({}, {"drained": True}, "drained"),
            ({"trusted": False}, {"drained": True}, "not_trusted"),
        ):
            self.directory.put(member(PEER, **fields))
            self.members.offered(offer(PEER, **told))
            self.assertEqual(self.why(), {PEER: reason}, (fields, told))

    def test_labels(self) -> None:
        """RT-23: the labels of a member are those that it published."""
        self.directory.put(member(PEER))
        self.members.offered(offer(PEER, labels=("gpu=large", "battery")))
        large, battery = frozenset({"gpu=large"}), frozenset({"battery"})
        self.assertEqual(self.why(require=large), {PEER: None})
        self.assertEqual(self.why(require=large, forbid=battery), {PEER: "label_rule"})
        self.assertEqual(self.why(require=large | {"rack"}), {PEER: "label_rule"})
        self.members.offered(offer(PEER, labels=("gpu=large", "rack")))
        self.assertEqual(self.why(require=large | {"rack"}, forbid=battery), {PEER: None})

    def test_silent(self) -> None:
        """RT-67: a member that has told nothing of itself yet is named too."""
        self.directory.put(member(PEER, presence="offline"))
        self.directory.put(member(OTHER))
        self.assertEqual(self.why(), {PEER: "offline", OTHER: "route_unsupported"})

    def test_gone(self) -> None:
        """Who is no member any more, or not known, is named no longer."""
        for uuid in (PEER, OTHER):
            self.directory.put(member(uuid))
            self.members.offered(offer(uuid))
        self.directory.put(member(PEER, member=False, relation="stranger"))
        self.directory.remove(OTHER)
        self.assertEqual(self.why(), {})
        self.members.offered(offer(OTHER))
        self.members.withdrawn(PEER)
        self.assertEqual(self.why(), {})
