"""Tests of pair.control.routing: what the API says of where requests go (UI-54, UI-56, RT-54, RT-67)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from pair.control.route import BASE
from pair.proxy.outcomes import judge_status
from pair.proxy.scheduling import SETTLE
from pair.routing.candidates import Candidate
from pair.test.control.samples import NODE, NOW, Node

if TYPE_CHECKING:
    from pair.test.surfaces.wire import Answer


class RoutingCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.node = Node()

    def routing(self) -> Any:
        return self.node.ask("GET", f"{BASE}/routing").json

    def explain(self, **body: object) -> Answer:
        return self.node.ask("POST", f"{BASE}/routing/explain", msgspec.json.encode(body))

    def hold(self, engine: str, model: str = "") -> None:
        """That engine has said that it is busy, and will be for 8 s."""
        candidate = Candidate(NODE, engine, engine, model)
        sent = self.node.scheduling.take("1", candidate)
        self.node.scheduling.holds.failed(sent, judge_status(503, "busy"), 8)
        self.node.scheduling.finished("1")


class OrderTests(RoutingCase):
    """``GET /routing``."""

    def test_facades(self) -> None:
        """Each facade has its order with the loads, and the engines that are out of it with the reason."""
        found = self.routing()
        self.assertEqual((found["policy"], found["penalties"]), ("pressure", []))
        orders = {each["facade"]: each["candidates"] for each in found["facades"]}
        self.assertEqual(sorted(orders), ["lmstudio", "ollama"])
        first, second = orders["ollama"]
        self.assertEqual((first["engine"], first["rank"], first["eligible"]), ("embedded", 1, True))
        self.assertEqual(first["terms"], {"pending": 0, "pressure": 1, "reservations": 0})
        self.assertEqual((second["engine"], second["excludedBy"]), ("ollama", "engine_stopped"))

    def test_loads(self) -> None:
        """What is dispatched counts at once; the generation is that of the loads."""
        before = self.routing()
        self.node.scheduling.take("1", Candidate(NODE, "embedded", "embedded"))
        (first, *_) = self.routing()["facades"][0]["candidates"]
        self.assertEqual((first["score"], first["terms"]["reservations"]), (2, 1))
        job = self.node.ledger.admit("ollama", "openai", "chat", "/v1/chat/completions", False, "m", 1)
        job.attempt_began(NODE, "embedded", "pressure", "")
        self.node.clock.advance(SETTLE)
        self.assertGreater(self.routing()["generation"], before["generation"])

    def test_penalties(self) -> None:
        """A hold is shown with its kind, end and count, and at the candidate that it is held against (RT-54)."""
        self.hold("embedded")
        found = self.routing()
        held = {"kind": "busy", "until": NOW + 8000, "count": 1}
        self.assertEqual(found["penalties"], [{"node": NODE, "engine": "embedded", "model": None, **held}])
        self.assertEqual(found["facades"][0]["candidates"][0]["hold"], held)
        self.node.clock.advance(9)
        self.assertEqual(self.routing()["penalties"], [])


class ExplainTests(RoutingCase):
    """``POST /routing/explain``."""

    def test_candidate(self) -> None:
        """The object of RT-67, with every engine in it; nothing is reserved by asking."""
        answer = self.explain(facade="ollama", path="/v1/chat/completions", model="smollm2:360m")
        self.assertEqual(answer.status, 200)
        self.assertEqual(
            answer.json,
            {
                "policy": "pressure",
                "generation": self.node.scheduling.book.snapshot.generation,
                "head": None,
                "candidates": [
                    {
                        "node": NODE,
                        "engine": "embedded",
                        "rank": 1,
                        "eligible": True,
                        "score": 1.0,
                        "terms": {"pending": 0, "pressure": 1, "reservations": 0},
                        "hold": None,
                    },
                    {
                        "node": NODE,
                        "engine": "ollama",
                        "rank": None,
                        "eligible": False,
                        "excludedBy": "engine_stopped",
                    },
                ],
                "wouldAnswer": None,
            },
        )
        self.assertEqual(len(self.node.scheduling.book), 0)

    def test_nobody(self) -> None:
        """What would be answered is said where nobody may serve; in the dialect of any path that is planned."""
        for path, model, would in (
            ("/api/chat", "smollm2:360m", "route_unsupported"),
            ("/api/chat", "smollm2", "engine_stopped"),
            ("/api/show", "nobody's", "model_unknown"),
            ("/v1/embeddings/", "nobody's", "model_unknown"),
            ("/v1/models/nobody%27s", "", "model_unknown"),
        ):
            answer = self.explain(facade="ollama", path=path, model=model)
            self.assertEqual((answer.status, answer.json["wouldAnswer"]), (200, would), path)
            self.assertEqual([each["eligible"] for each in answer.json["candidates"]], [False, False])

    def test_model_of_the_path(self) -> None:
        """The model stands in the path, where it does for the client too; without one it is model-less."""
        for path in ("/v1/models/smollm2:360m", "/v1/chat/completions"):
            answer = self.explain(facade="lmstudio", path=path)
            self.assertEqual((answer.json["wouldAnswer"], answer.json["candidates"][0]["rank"]), (None, 1), path)

    def test_paths_that_are_not_planned(self) -> None:
        """Lists, pulls, tunnels and what is passed on go by other rules; a name that nobody can have is named too."""
        for path in ("/api/tags", "/api/pull", "/", "/metrics", "", "/llm", "/v1/chat/completions?x"):
            answer = self.explain(facade="ollama", path=path, model="m")
            self.assertEqual((answer.status, answer.code), (422, "invalid_value"), path)
            self.assertEqual(answer.json["error"]["details"], {"path": "path"})
        answer = self.explain(facade="ollama", path="/api/chat", model="a\nb")
        self.assertEqual((answer.status, answer.json["error"]["details"]), (422, {"path": "model"}))

    def test_body(self) -> None:
        """Strict: no other field, type or facade, and none may be missing (UI-12)."""
        for body, path in (
            (b'{"facade":"ollama","path":"/api/chat","x":1}', "x"),
            (b'{"facade":"ollama","path":1}', "path"),
            (b'{"facade":"openai","path":"/api/chat"}', "facade"),
            (b'{"facade":"ollama"}', "path"),
            (b'{"facade":"ollama","path":"/api/chat","model":null}', "model"),
            (b'{"facade":"ollama","path":"/api/chat"} {}', ""),
            (b"", "facade"),
        ):
            answer = self.node.ask("POST", f"{BASE}/routing/explain", body)
            self.assertEqual((answer.status, answer.code), (400, "bad_request"), body)
            self.assertEqual(answer.json["error"]["details"], {"path": path}, body)
