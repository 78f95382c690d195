"""Tests of what people decide of routing, asked through the site (UI-36, UI-54, UI-55)."""

from __future__ import annotations

import dataclasses
import sqlite3
from typing import TYPE_CHECKING, Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from pair.control.route import BASE
from pair.control.steering import REASON_MAX
from pair.records.telemetry import CompactTelemetry
from pair.store import StoreClosed
from pair.test.control.samples import MAC, NODE, RACK, Node
from pair.test.routing.facts import engine, node

if TYPE_CHECKING:
    from pair.control.sources import ControlSources
    from pair.test.surfaces.wire import Answer


class NodeWithout(Node):
    """A node on which nothing can be chosen yet."""

    @property
    def sources(self) -> ControlSources:
        return dataclasses.replace(super().sources, steering=None)


class SteeringCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.node = Node()
        self.node.scheduling.set_peer(node(RACK, engine("llamacpp", loaded=("m",))))

    def ask(self, method: str, path: str, **body: Any) -> Answer:
        return self.node.ask(method, f"{BASE}{path}", msgspec.json.encode(body) if body else None)

    def assert_refused(self, answer: Answer, status: int, code: str, **details: str) -> None:
        self.assertEqual((answer.status, answer.code), (status, code))
        self.assertEqual(answer.json["error"]["details"], details)

    def assert_not_written(self, method: str, path: str, **body: Any) -> None:
        for fault in (sqlite3.OperationalError(), StoreClosed()):
            self.node.store.fault = fault
            self.assert_refused(self.ask(method, path, **body), 503, "store")


class RoutingTests(SteeringCase):
    """``GET /routing``."""

    def order(self, facade: str = "ollama") -> Any:
        found = self.ask("GET", "/routing").json
        return next(each for each in found["facades"] if each["facade"] == facade)

    def test_load(self) -> None:
        """Each engine has the load of its node, and the age of the sample behind that, also where it is left out."""
        self.node.scheduling.observe(CompactTelemetry(NODE, 90.0, True, 500, 0, "self"))
        self.node.clock.advance(2)
        candidates = self.order()["candidates"]
        self.assertEqual({each["node"] for each in candidates}, {NODE, RACK})
        for each in candidates:
            load = (each["pending"], each["pressure"], each["reservations"], each["telemetryAgeMs"])
            self.assertEqual(load, (0, 3, 0, 2500) if each["node"] == NODE else (0, 1, 0, None))

    def test_policies(self) -> None:
        """Those that can be chosen are named."""
        found = self.ask("GET", "/routing").json
        self.assertEqual((found["policy"], found["policies"]), ("pressure", ["pressure", "backwards"]))

    def test_not_up(self) -> None:
        """What can be shown before anything can be chosen is shown."""
        self.node = NodeWithout()
        self.assertEqual(self.ask("GET", "/routing").json["policies"], [])
        for method, path, body in (
            ("PUT", "/routing/policy", {"policy": "pressure"}),
            ("PUT", "/routing/selection", {"facade": "ollama", "node": "self"}),
            ("DELETE", "/routing/selection/ollama", {}),
            ("PUT", "/nodes/self/drain", {"drained": True}),
        ):
            self.assert_refused(self.ask(method, path, **body), 503, "not_ready")


class PolicyTests(SteeringCase):
    """``PUT /routing/policy`` (RT-60)."""

    def test_chosen(self) -> None:
        """It is in force, and the answer says how requests are routed now."""
        found = self.ask("PUT", "/routing/policy", policy="backwards")
        self.assertEqual((found.status, found.json["policy"]), (200, "backwards"))
        self.assertEqual(found.json["facades"][0]["candidates"][0]["node"], max(NODE, RACK))
        self.assertEqual(self.ask("GET", "/routing").json, found.json)

    def test_refused(self) -> None:
        """One that is not there, one that a setting fixes, and one that could not be written."""
        answer = self.ask("PUT", "/routing/policy", policy="lottery")
        self.assert_refused(answer, 422, "invalid_value", path="policy")
        self.assertIn("pressure, backwards", answer.json["error"]["message"])
        self.assert_not_written("PUT", "/routing/policy", policy="backwards")
        self.node.steer("routing.policy=pressure")
        answer = self.ask("PUT", "/routing/policy", policy="backwards")
        self.assert_refused(answer, 409, "setting_locked", key="routing.policy", source="--set")
        self.assertEqual(self.ask("GET", "/routing").json["policy"], "pressure")


class SelectionTests(SteeringCase):
    """``PUT /routing/selection``, ``DELETE /routing/selection/{facade}`` (RT-27)."""

    def selected(self) -> list[tuple[str, str | None, str | None]]:
        facades = self.ask("GET", "/routing").json["facades"]
        return [(each["facade"], each["selection"], each["head"]) for each in facades]

    def test_selected(self) -> None:
        """A member, this node, and none again; each facade has its own."""
        found = self.ask("PUT", "/routing/selection", facade="ollama", node=RACK.upper())
        self.assertEqual(found.status, 200)
        self.assertEqual(self.selected(), [("lmstudio", None, None), ("ollama", RACK, "selection")])
        self.ask("PUT", "/routing/selection", facade="lmstudio", node="self")
        self.assertEqual(self.selected()[0], ("lmstudio", NODE, "selection"))
        found = self.ask("DELETE", "/routing/selection/ollama")
        self.assertEqual((found.status, self.selected()[1]), (200, ("ollama", None, None)))
        self.assertEqual(self.ask("DELETE", "/routing/selection/ollama").status, 200)

    def test_explained(self) -> None:
        """RT-67: explain says what became of it, request by request."""
        self.ask("PUT", "/routing/selection", facade="ollama", node=RACK)
        for model, head, first in (("m", "selection", RACK), ("smollm2:360m", "selection_ineligible", NODE)):
            body = {"facade": "ollama", "path": "/v1/chat/completions", "model": model}
            found = self.node.ask("POST", f"{BASE}/routing/explain", msgspec.json.encode(body)).json
            self.assertEqual((found["head"], found["candidates"][0]["node"]), (head, first))

    def test_refused(self) -> None:
        """Nobody knows it, it is a stranger, there is no such facade, or it could not be written."""
        select = "/routing/selection"
        self.assert_refused(self.ask("PUT", select, facade="ollama", node="lamp"), 404, "no_such_node")
        for other in (MAC, "manual:shed:14318"):
            answer = self.ask("PUT", select, facade="ollama", node=other)
            self.assert_refused(answer, 422, "invalid_value", path="node")
        self.assert_refused(self.ask("PUT", select, facade="vllm", node=RACK), 400, "bad_request", path="facade")
        self.assert_refused(self.ask("DELETE", f"{select}/vllm"), 404, "no_such_endpoint")
        self.assert_not_written("PUT", select, facade="ollama", node=RACK)
        self.assert_not_written("DELETE", f"{select}/ollama")


class DrainTests(SteeringCase):
    """``PUT /nodes/{id}/drain`` (UI-36, RT-22)."""

    def test_drained(self) -> None:
        """The answer is the node as it is then; the reason is as it was given, less what is no text."""
        for id in ("self", NODE):
            found = self.ask("PUT", f"/nodes/{id}/drain", drained=True, reason="new\u202e GPU")
            self.assertEqual((found.status, found.json["uuid"]), (200, NODE))
            self.assertEqual((found.json["drained"], found.json["drainReason"]), (True, "new GPU"))
        found = self.ask("PUT", "/nodes/self/drain", drained=True)
        self.assertEqual((found.json["drained"], found.json["drainReason"]), (True, None))
        found = self.ask("PUT", "/nodes/self/drain", drained=False, reason="done")
        self.assertEqual((found.json["drained"], found.json["drainReason"]), (False, None))

    def test_others(self) -> None:
        """A member has to be drained there, a stranger not at all (UI-28)."""
        answer = self.ask("PUT", f"/nodes/{RACK}/drain", drained=True)
        self.assert_refused(answer, 409, "not_origin", node=RACK)
        self.assertIn("pair-admin node drain", answer.json["error"]["message"])
        self.assert_refused(self.ask("PUT", f"/nodes/{MAC}/drain", drained=True), 403, "forbidden")
        self.assert_refused(self.ask("PUT", "/nodes/lamp/drain", drained=True), 404, "no_such_node")

    def test_refused(self) -> None:
        """A body of another form, or a disk that does not take it."""
        for body, path in (
            ({"reason": "x"}, "drained"),
            ({"drained": True, "reason": "x" * (REASON_MAX + 1)}, "reason"),
        ):
            answer = self.ask("PUT", "/nodes/self/drain", **body)
            self.assert_refused(answer, 400, "bad_request", path=path)
        self.assert_not_written("PUT", "/nodes/self/drain", drained=True)
