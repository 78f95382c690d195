"""Tests of :mod:`pair.members`: which members may be chosen, and why not (RT-15, RT-23, RT-67)."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred

from pair.addresses import Place
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

    def places(self, node: str, service: str) -> tuple[Place, ...]:
        return (Place("10.0.0.9", 14322),)

    def note(self, node: str, kind: str) -> None:
        assert kind == "inference"


class Getter:
    """See :class:`pair.cluster.getting.PeerGetter`; ``knocks`` are those without an answer."""

    def __init__(self) -> None:
        self.knocks: list[Deferred[bool]] = []

    def knock(self, node: str, places: tuple[Place, ...], pinned: bool, seconds: float) -> Deferred[bool]:
        assert (node, pinned) == (PEER, True)
        self.knocks.append(Deferred())
        return self.knocks[-1]


class MembersTests(BenchCase):
    def setUp(self) -> None:
        super().setUp()
        self.node = self.bench(engine("ollama", "m", name="a"))
        self.directory = Directory()
        unused: Any = None
        directory: Any = self.directory
        getter: Any
        self.getter = getter = Getter()
        self.members = Members(self.node.clock, self.node.scheduling, DIALECTS, directory, getter, unused)

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

    def test_proven_dead(self) -> None:
        """PX-64: one that is silent for 12 s and does not answer is, until it shows itself again."""
        self.directory.put(member(PEER))
        self.members.moved(PEER)
        self.node.advance(11.5)
        self.assertFalse(self.members.gone(PEER))
        self.assertEqual(self.getter.knocks, [])
        self.node.advance(0.5)
        self.assertEqual([self.members.gone(PEER) for _ in range(2)], [False, False])
        (knock,) = self.getter.knocks
        knock.callback(False)
        self.assertTrue(self.members.gone(PEER))
        self.members.heard(PEER)
        self.assertFalse(self.members.gone(PEER))

    def test_not_dead(self) -> None:
        """PX-64: one that answers, or is heard meanwhile, is not; one that discovery has given up is."""
        self.directory.put(member(PEER))
        self.members.gone(PEER)
        self.getter.knocks.pop().callback(True)
        self.assertFalse(self.members.gone(PEER))
        self.node.advance(12)
        self.members.gone(PEER)
        self.members.heard(PEER)
        self.getter.knocks.pop().callback(False)
        self.assertFalse(self.members.gone(PEER))
        self.directory.put(member(PEER, presence="offline"))
        self.assertTrue(self.members.gone(PEER))
