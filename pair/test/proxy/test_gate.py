"""Tests of what is answered where no engine may serve, and of requests that name no model or want none to run."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from pair.test.proxy.bench import CHAT, DONE, NODE, Bench, BenchCase
from pair.test.proxy.network import response
from pair.test.routing.facts import engine, node

OLLAMA = engine("ollama", "m", name="a")
EMBEDDED = engine("llamacpp", loaded=("tiny",), name="e")


class Rule(Struct, frozen=True):
    model: str
    require: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()


class GateTests(BenchCase):
    """PX-39, PX-24: the reason, and the step that helps; nobody is asked, and the job has failed at once."""

    def gate(self, bench: Bench, code: str, text: str, *, status: int = 502, job: bool = True) -> None:
        """The answer to what the client of ``bench`` has asked."""
        self.assert_refused(bench, status, code)
        self.assertIn(text, bench.client.received.decode())
        self.assertEqual((bench.contacted(), bench.engines.refreshed), ([], []))
        if job:
            self.assertEqual((bench.ending, bench.job.attempt_count), (("failed", code), 0))
        self.assertEqual(bench.plane.meters.no_owners.values, {(bench.facade, code): 1})

    def test_unknown_model(self) -> None:
        """M08, M11: what nobody has; how to see what there is stands in the answer."""
        self.gate(self.ask(body={**CHAT, "model": "x y"}), "model_unknown", "pair-admin model list")

    def test_stopped_engine(self) -> None:
        """M08: what an engine has that does not run."""
        bench = self.bench(OLLAMA)
        bench.engines.stop("a")
        bench.client.asks("POST", "/api/chat", CHAT)
        self.gate(bench, "engine_stopped", "pair-admin engine list")

    def test_rule(self) -> None:
        """What a rule keeps from all its owners."""
        bench = self.ask(OLLAMA, rules=(Rule("m*", require=("gpu=none",)),))
        self.gate(bench, "owners_excluded", "routing.rule")

    def test_demand_of_the_request(self) -> None:
        """A label that the request asks for and no owner has; a malformed one is the caller's mistake (RT-23)."""
        bench = self.bench(OLLAMA)
        bench.client.asks("POST", "/api/chat", CHAT, X_Pair_Require="engine=ollama, big")
        self.gate(bench, "owners_excluded", "rule")
        bench = self.bench(OLLAMA)
        bench.client.asks("POST", "/api/chat", CHAT, X_Pair_Require="No Label")
        self.assert_refused(bench, 400, "bad_request")

    def test_not_loaded(self) -> None:
        """What an engine has on disk that offers loaded models only."""
        bench = self.ask(engine("llamacpp", "m", name="a"), path="/v1/chat/completions")
        self.gate(bench, "model_not_loaded", "load it in its engine")

    def test_node_that_offers_loaded_models_only(self) -> None:
        """M17: what a node has on disk, and does not offer, is asked of nobody: nothing of ours loads it (RT-16)."""
        bench = self.bench(EMBEDDED, peers=(node("far", OLLAMA, loaded_only=True),))
        bench.advance(0.1)
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.advance()
        self.assertEqual(bench.members.machines["far"].connections, [])
        self.gate(bench, "model_not_loaded", "load it in its engine")

    def test_route_that_the_owner_lacks(self) -> None:
        """PX-24: 501 names the route that does the work, and that route then answers."""
        bench = self.ask(OLLAMA, EMBEDDED, body={**CHAT, "model": "tiny"})
        self.gate(bench, "route_unsupported", "; use /v1/chat/completions", status=501)
        bench.connect().asks("POST", "/v1/chat/completions", {**CHAT, "model": "tiny"})
        self.assertEqual(bench.contacted(), ["e"])

    def test_no_engine(self) -> None:
        """A request without a model, where no engine runs that has the route."""
        bench = self.ask(OLLAMA, path="/v1/chat/completions", body={}, facade="lmstudio")
        self.gate(bench, "no_engine", "pair-admin engine list")

    def test_text_is_the_callers_dialect(self) -> None:
        """PX-84: each family tells it in its own shape."""
        for path, shape in [
            ("/api/chat", lambda document: document["error"]),
            ("/v1/chat/completions", lambda document: document["error"]["message"]),
            ("/v1/messages", lambda document: document["error"]["message"]),
        ]:
            bench = self.ask(path=path, body={**CHAT, "model": "x"})
            self.assertTrue(shape(bench.client.answer.json).startswith("no node has the model 'x'"))

    def test_no_name_of_the_machine(self) -> None:
        """X10: no answer of ours holds an address, a path or a traceback; each has the id that the log has."""
        bench = self.bench()
        bench.a.refuses = bench.b.refuses = True
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.advance(5)
        for told in (b"127.0.0.1", b"11435", b"/work", b"Traceback", b"refused"):
            self.assertNotIn(told, bench.client.received)
        self.assertTrue(bench.client.answer.fields["x-pair-request"].startswith("run."))


class ModelLessTests(BenchCase):
    """PX-35: without a model there is no gate; the engine judges the body, in one round."""

    def test_no_model(self) -> None:
        """An absent or empty model is a job without one, which reserves like any other."""
        bodies: tuple[dict[str, Any], ...] = ({"messages": []}, {"model": ""})
        for body in bodies:
            bench = self.ask(body=body)
            self.assertEqual((bench.contacted(), bench.job.model), (["a"], None))
            self.assertEqual(
                bench.in_use(),
                {"active": 1, "bodies": bench.job.request_bytes, "underway": 1, "reservations": 1, "jobs": 1},
            )
            bench.a.answers(response(400, b'{"error":"no model"}'))
            self.assertEqual(bench.client.answer.json, {"error": "no model"})

    def test_other_content_type(self) -> None:
        """A body that is no JSON, and does not say that it is, names no model."""
        bench = self.bench()
        bench.client.asks("POST", "/api/chat", b"\x00\x01", Content_Type="application/octet-stream")
        self.assertTrue(bench.a.asked.endswith(b"\r\n\r\n\x00\x01"))

    def test_one_round(self) -> None:
        """Each engine is asked once, and there is no second round."""
        bench = self.ask(body={})
        bench.a.answers(response(503))
        bench.b.answers(response(503))
        self.assertEqual((bench.client.answer.status, bench.job.attempt_count), (503, 2))

    def test_by_the_load(self) -> None:
        """Rules for all models hold for none too."""
        bench = self.ask(body={}, rules=(Rule("*", forbid=("engine=ollama",)),))
        self.assert_refused(bench, 502, "owners_excluded")


class IntentTests(BenchCase):
    """PX-36: load and unload by an empty prompt."""

    def test_unload_of_what_is_loaded(self) -> None:
        """It goes where the model is in memory, as a job of its own kind."""
        bench = self.ask(OLLAMA, engine("ollama", loaded=("m",), name="b"), body={"model": "m", "keep_alive": 0})
        self.assertEqual((bench.contacted(), bench.job.operation), (["b"], "unload"))
        bench.b.answers(response(200, b'{"done":true,"done_reason":"unload"}'))
        self.assertEqual(bench.ending, ("completed", None))

    def test_unload_of_what_is_not(self) -> None:
        """Loaded nowhere, it is answered here, in the form of the route."""
        for path, stream, content_type in [
            ("/api/chat", True, "application/x-ndjson"),
            ("/api/generate", False, "application/json"),
        ]:
            bench = self.ask(OLLAMA, path=path, body={"model": "m", "keep_alive": "0s", "stream": stream})
            answer = bench.client.answer
            self.assertEqual((answer.status, answer.fields["content-type"]), (200, content_type))
            self.assertEqual((answer.json["done_reason"], answer.json["model"]), ("unload", "m"))
            self.assertEqual(answer.body.endswith(b"\n"), stream)
            self.assertEqual((bench.contacted(), bench.ending), ([], ("completed", None)))

    def test_unload_of_what_has_just_answered(self) -> None:
        """RT-20: it goes where the answer came from, though the list does not tell yet; once it is done, no more."""
        bench = self.ask(OLLAMA, body={"model": "m", "messages": [{"role": "user", "content": "hi"}]})
        bench.a.answers(response(200, DONE))
        bench.advance()
        for passed_on in (True, False):
            again = bench.connect()
            again.asks("POST", "/api/chat", {"model": "m", "keep_alive": 0})
            bench.advance()
            self.assertEqual(again.received == b"", passed_on)
            if passed_on:
                self.assertIn(b"keep_alive", bench.a.asked)
                bench.a.answers(response(200, b'{"done":true,"done_reason":"unload"}'))
                bench.advance()
            self.assertEqual(again.answer.json["done_reason"], "unload")

    def test_unload_of_an_unknown_model(self) -> None:
        """What nobody has cannot be unloaded either."""
        self.assert_refused(self.ask(OLLAMA, body={"model": "x", "keep_alive": 0}), 502, "model_unknown")

    def test_load(self) -> None:
        """It goes where the next request would."""
        bench = self.ask(OLLAMA, path="/api/generate", body={"model": "m"})
        self.assertEqual((bench.contacted(), bench.job.operation), (["a"], "load"))


class ExplainTests(BenchCase):
    """PX-83."""

    def explained(self, answer: bytes, **asked: Any) -> dict[str, str]:
        """The fields of the answer after a failure of the first engine."""
        settings = {"explain": asked.pop("explain", False)}
        bench = self.bench(**settings)
        bench.client.asks("POST", "/api/chat", CHAT, **asked)
        bench.a.answers(response(500))
        bench.b.answers(answer)
        return {name: value for name, value in bench.client.answer.fields.items() if name.startswith("x-pair")}

    def test_off_by_default(self) -> None:
        """Without being asked we say nothing of the node."""
        self.assertEqual(self.explained(response(200, DONE)), {})

    def test_asked_for(self) -> None:
        """By a field of the request or by the setting: who, the how-manieth, and why."""
        wanted = {
            "x-pair-node": NODE,
            "x-pair-attempts": "2",
            "x-pair-why": "policy=pressure; load=2; pending=0; pressure=1; reservations=1; rank=1/1; after=status500",
        }
        self.assertEqual(self.explained(response(200, DONE), X_Pair_Explain="1"), wanted)
        self.assertEqual(self.explained(response(200, DONE), explain=True), wanted)

    def test_of_a_failure(self) -> None:
        """A final answer that is an error tells the attempts and the reason of the last."""
        fields = self.explained(response(400), explain=True)
        self.assertEqual((fields["x-pair-attempts"], "x-pair-node" in fields), ("2", False))


class OwnerTests(BenchCase):
    """PX-27: routes that only an owner of the model can answer."""

    def test_model_in_the_path(self) -> None:
        """GET /v1/models/{id}: sent as it is, without a body, answered from the head on; no job, no reservation."""
        bench = self.bench()
        bench.client.asks("GET", "/v1/models/m%3Alatest?x")
        self.assertTrue(bench.a.asked.startswith(b"GET /v1/models/m%3Alatest?x HTTP/1.1\r\n"))
        self.assertNotIn(b"Content-Length", bench.a.asked)
        self.assertEqual(bench.in_use(), {"underway": 1})
        bench.a.answers(response(200, b"{}")[:-2])
        self.assertEqual(bench.client.answer.status, 200)
        bench.a.answers(b"{}")
        self.assertEqual((bench.client.answer.body, bench.in_use(), bench.jobs.ended()), (b"{}", {}, ()))

    def test_head_of_a_model(self) -> None:
        """HEAD counts as GET; the answer is a head alone, and the next one on that connection is not mixed up."""
        bench = self.bench(OLLAMA)
        bench.client.asks("HEAD", "/v1/models/m")
        bench.a.answers(head_answer := response(200, b"{}")[:-2])
        self.assertIn(b"Content-Length: 2", head_answer)
        self.assertEqual((bench.client.answer.body, bench.in_use()), (b"", {}))
        bench.client.asks("GET", "/v1/models/m")
        bench.advance()
        bench.a.answers(response(200, b"[]"))
        self.assertTrue(bench.client.received.endswith(b"\r\n\r\n[]"))

    def test_show_by_model_or_name(self) -> None:
        """/api/show names the model either way."""
        for body in ({"model": "m"}, {"name": "m"}):
            bench = self.ask(path="/api/show", body=body)
            bench.a.answers(response(200, b"{}"))
            self.assertEqual((bench.client.answer.status, bench.in_use(), bench.jobs.ended()), (200, {}, ()))

    def test_count_tokens(self) -> None:
        """A route that only some engines have."""
        bench = self.ask(OLLAMA, EMBEDDED, path="/v1/messages/count_tokens", body={**CHAT, "model": "tiny"})
        self.assertEqual(bench.contacted(), ["e"])

    def test_unknown_model(self) -> None:
        """In the engine's own words, so that ``ollama run`` pulls the model; with our code in a field."""
        bench = self.ask(path="/api/show", body={"model": "x"})
        self.assert_refused(bench, 404, "model_unknown")
        self.assertEqual(bench.client.answer.body, b'{"error":"model \'x\' not found"}')
        bench = self.bench()
        bench.client.asks("GET", "/v1/models/x")
        self.assertEqual(bench.client.answer.json["error"]["code"], "model_not_found")
        self.assertEqual((bench.client.answer.status, bench.contacted()), (404, []))

    def test_stopped_engine(self) -> None:
        """Other reasons are told as everywhere."""
        bench = self.bench(OLLAMA)
        bench.engines.stop("a")
        bench.client.asks("GET", "/v1/models/m")
        self.assert_refused(bench, 502, "engine_stopped")

    def test_each_owner_once(self) -> None:
        """The next owner is tried; there is no second round, and nothing is said of the engines' health."""
        bench = self.ask(path="/api/show", body={"model": "m"})
        bench.a.answers(response(503))
        bench.b.answers(response(503, b"b"))
        self.assertEqual((bench.client.answer.body, bench.in_use(), bench.engines.outcomes), (b"b", {}, []))

    def test_silent_owner(self) -> None:
        """10 s for a head, then the next."""
        bench = self.ask(path="/api/show", body={"model": "m"})
        bench.advance(9.9)
        self.assertFalse(bench.b.contacted)
        bench.advance(0.2)
        bench.b.answers(response(200, b"{}"))
        self.assertEqual(bench.client.answer.status, 200)

    def test_bad_names(self) -> None:
        """A name that is too long or has control characters is refused, in path and body (PX-35)."""
        bench = self.bench()
        bench.client.asks("GET", "/v1/models/a%0Ab")
        self.assert_refused(bench, 400, "bad_model")
        for model in ("x" * 513, "a\nb", 5):
            self.assert_refused(self.ask(path="/api/show", body={"model": model}), 400, "bad_model")
