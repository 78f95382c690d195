"""Tests of pair.control.nodes, asked through the site that stands in front of it (UI-33 to UI-35)."""

from __future__ import annotations

import dataclasses
import sqlite3
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace
from twisted.internet.defer import succeed
from twisted.trial.unittest import SynchronousTestCase

from pair.control.nodes import NodeList, NodeView, ProbedNode, manual_key
from pair.control.route import BASE
from pair.discovery.addresses import ManualError, NoZoneError
from pair.records.nodes import ManualNode
from pair.store import StoreClosed
from pair.test.control.samples import ENTRIES, FIXED, MAC, NODE, NOW, RACK, SHED, Node

if TYPE_CHECKING:
    from pair.control.sources import ControlSources
    from pair.test.surfaces.wire import Answer


class NodeWithout(Node):
    """A node whose directory is not up."""

    @property
    def sources(self) -> ControlSources:
        return dataclasses.replace(super().sources, nodes=None, job_commands=None, hide_error=None)


class NodeTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.node = Node()
        self.nodes = self.node.nodes

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        return self.node.ask(method, f"{BASE}/nodes{path}", None if body is None else msgspec.json.encode(body))

    def assert_refused(self, answer: Answer, status: int, code: str, **details: str) -> None:
        self.assertEqual((answer.status, answer.code), (status, code))
        self.assertEqual(answer.json["error"]["details"], details)


class ListTests(NodeTestCase):
    def test_list(self) -> None:
        """All entries of the directory, self first, each with what belongs to it (UI-33)."""
        answer = self.ask("GET", "")
        nodes = answer.json["nodes"]
        self.assertEqual([each["name"] for each in nodes], ["desk", "rack", "mac", "shed"])
        self.assertEqual([each["self"] for each in nodes], [True, False, False, False])
        rack = nodes[1]
        self.assertEqual((rack["relation"], rack["presence"], rack["lastHeardAt"]), ("member", "online", NOW - 400))
        self.assertEqual((rack["activeJobs"], rack["drained"]), (2, True))
        self.assertEqual(rack["warnings"][0]["code"], "one_way")
        self.assertEqual(rack["hardware"]["gpus"][0]["utilizationPercent"], 62)
        embedded, ollama = rack["engines"]
        self.assertEqual((embedded["id"], embedded["state"], embedded["health"]), ("embedded", "running", "ok"))
        self.assertEqual((embedded["modelCount"], embedded["loadedCount"], ollama["modelCount"]), (2, 1, 2))
        self.assertEqual(msgspec.json.decode(answer.body, type=NodeList).nodes, self.nodes.all())

    def test_unknown_is_null(self) -> None:
        """What a stranger did not tell is null, and neither 0 nor an empty list."""
        mac = self.ask("GET", f"/{MAC}").json
        self.assertEqual((mac["engines"], mac["drained"], mac["hardware"], mac["activeJobs"]), (None, None, None, 0))

    def test_one(self) -> None:
        """A node by its UUID in any spelling, as self, or by the key of its entry (UI-22, CL-4, DS-40)."""
        for id, name in (
            ("self", "desk"),
            (NODE, "desk"),
            (RACK.upper(), "rack"),
            (RACK.replace("-", ""), "rack"),
            (quote("manual:shed:14318", safe=""), "shed"),
            ("manual:shed:14318", "shed"),
        ):
            answer = self.ask("GET", f"/{id}")
            self.assertEqual((answer.status, answer.json["name"]), (200, name), id)
            msgspec.json.decode(answer.body, type=NodeView)

    def test_unknown(self) -> None:
        """No other is there, for any verb (UI-24)."""
        for method, path in (("GET", "/rack"), ("GET", "/rack/telemetry"), ("POST", "/rack/probe")):
            self.assert_refused(self.ask(method, path), 404, "no_such_node")

    def test_not_up(self) -> None:
        """Without a directory it is 503, and the rest of the API goes on."""
        self.node = NodeWithout()
        for method, path in (
            ("GET", "/nodes"),
            ("GET", "/nodes/self"),
            ("DELETE", "/nodes/manual/x"),
            ("POST", "/jobs/self/1/cancel"),
            ("DELETE", "/jobs/history"),
            ("POST", "/errors/self/hide/a:b"),
        ):
            self.assert_refused(self.node.ask(method, BASE + path), 503, "not_ready")
        self.assertEqual(self.node.ask("GET", f"{BASE}/models").status, 200)

    def test_addresses(self) -> None:
        """An entry has the addresses by which people gave it, before and after its UUID is known."""
        manual = {each.name: each.manual for each in self.nodes.all()}
        self.assertEqual(manual, {"desk": (), "rack": (FIXED,), "mac": (), "shed": (SHED,)})
        self.assertEqual(manual_key(replace(SHED, address="fd00::1")), "manual:[fd00::1]:14318")


class TelemetryTests(NodeTestCase):
    def test_history(self) -> None:
        """The samples of the window, the oldest first; what is not known is null (UI-34)."""
        found = self.ask("GET", f"/{RACK}/telemetry?windowMs=5000").json
        self.assertEqual((found["node"], found["intervalMs"]), (RACK, 2000))
        self.assertEqual([each["at"] for each in found["samples"]], [NOW - 4000, NOW - 2000])
        self.assertEqual([each["cpuPercent"] for each in found["samples"]], [20.0, 30.0])
        self.assertEqual([each["gpus"][0]["utilizationPercent"] for each in found["samples"]], [60.0, None])

    def test_gaps(self) -> None:
        """A time without samples is a gap, also when it is now (UI-34)."""
        samples = self.ask("GET", f"/{RACK}/telemetry").json["samples"]
        gap: dict[str, Any] = {"at": NOW - 18_000, "cpuPercent": None, "memoryUsedBytes": None, "gpus": []}
        self.assertEqual((len(samples), samples[1]), (4, gap))
        self.nodes.samples[RACK] = self.nodes.samples[RACK][:1]
        self.assertEqual(self.ask("GET", f"/{RACK}/telemetry").json["samples"][1:], [gap])

    def test_nothing_known(self) -> None:
        """A node that was never asked has no samples."""
        for path in (f"/{MAC}", "/manual:shed:14318"):
            self.assertEqual(self.ask("GET", f"{path}/telemetry").json["samples"], [])

    def test_bad_window(self) -> None:
        """The window is from one sample to 15 min."""
        for window in ("0", "1999", "900001", "ten"):
            answer = self.ask("GET", f"/{RACK}/telemetry?windowMs={window}")
            self.assert_refused(answer, 422, "invalid_value", path="windowMs")


class ManualTests(NodeTestCase):
    def test_added(self) -> None:
        """A new address is 201, one that is there already 200 (DS-71)."""
        answer = self.ask("POST", "/manual", {"address": "attic"})
        self.assertEqual((answer.status, answer.json["id"], answer.json["address"]), (201, "new", "attic"))
        self.assertEqual((answer.json["result"], answer.json["static"]), ("never", False))
        answer = self.ask("POST", "/manual", {"address": "attic"})
        self.assertEqual((answer.status, answer.json["id"]), (200, "new"))
        msgspec.json.decode(answer.body, type=ManualNode)

    def test_not_added(self) -> None:
        """Each reason has its words (DS-71)."""
        messages = set()
        for reason in ("bad_address", "bad_port", "is_self", "too_many"):
            self.nodes.fault = ManualError(reason)
            answer = self.ask("POST", "/manual", {"address": "x"})
            self.assert_refused(answer, 422, "invalid_value", path="address", reason=reason)
            messages.add(answer.json["error"]["message"])
        self.nodes.fault = NoZoneError()
        answer = self.ask("POST", "/manual", {"address": "fe80::1"})
        self.assert_refused(answer, 422, "invalid_value", path="address", reason="bad_address")
        messages.add(answer.json["error"]["message"])
        self.assertEqual(len(messages), 5)

    def test_not_written(self) -> None:
        """What cannot be written has not happened."""
        for fault in (sqlite3.OperationalError(), StoreClosed()):
            self.nodes.fault = fault
            self.assert_refused(self.ask("POST", "/manual", {"address": "x"}), 503, "store")
            self.assert_refused(self.ask("DELETE", f"/manual/{SHED.id}"), 503, "store")

    def test_removed(self) -> None:
        """It is removed by its id, once; what the settings name is not (DS-71)."""
        self.assertEqual(self.ask("DELETE", f"/manual/{SHED.id}").json, {"removed": SHED.id})
        self.assert_refused(self.ask("DELETE", f"/manual/{SHED.id}"), 404, "no_such_address")
        answer = self.ask("DELETE", f"/manual/{FIXED.id}")
        self.assert_refused(answer, 409, "setting_locked", key="discovery.static_peers")
        self.assertEqual(self.nodes.given, [FIXED])

    def test_probed(self) -> None:
        """A node is asked now, and told as it is then; this one need not be asked (UI-35)."""
        for id, name, answered in ((RACK, "rack", True), ("self", "desk", True), (MAC, "mac", False)):
            answer = self.ask("POST", f"/{id}/probe")
            self.assertEqual((answer.json["name"], answer.json["answered"]), (name, answered))
            msgspec.json.decode(answer.body, type=ProbedNode)
        self.assertEqual(self.nodes.asked, [("probe", RACK), ("probe", MAC)])

    def test_heard_is_no_answer(self) -> None:
        """What a node announces does not show that it can be reached, and an old answer not that it can be now."""
        for evidence, at, answered in (
            ("mdns", NOW, False),
            ("probe_ni", NOW - 1, False),
            ("probe_ni", NOW, True),
            ("probe_em", NOW, True),
            (None, None, False),
        ):
            self.nodes.answering = set()
            self.nodes.entries = (*ENTRIES[:2], replace(ENTRIES[2], evidence=evidence, last_heard_at=at))
            self.assertEqual(self.ask("POST", f"/{MAC}/probe").json["answered"], answered, evidence)

    def probe_finds(self, entries: tuple[Any, ...]) -> None:
        def probe(key: str) -> Any:
            self.nodes.entries = entries
            return succeed(True)

        self.nodes.probe = probe  # type: ignore[method-assign]

    def test_found_by_probe(self) -> None:
        """One that tells its UUID by that is found by its address (DS-74)."""
        self.probe_finds((*ENTRIES[:2], replace(ENTRIES[2], name="the shed")))
        self.nodes.given[0] = replace(SHED, uuid=MAC, result="ok")
        self.assertEqual(self.ask("POST", "/manual:shed:14318/probe").json["name"], "the shed")

    def test_gone_by_probe(self) -> None:
        """A stranger may be gone by then."""
        self.probe_finds(ENTRIES[:2])
        self.assert_refused(self.ask("POST", f"/{MAC}/probe"), 404, "no_such_node")
