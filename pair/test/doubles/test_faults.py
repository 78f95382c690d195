"""What can be wrong with a double (EN-111)."""

from __future__ import annotations

from pair.engines.kinds.ollama import Ollama as OllamaKind
from pair.routing.dialects import classify
from pair.test.doubles.case import CHAT, DoubleCase
from pair.test.doubles.faults import parse
from pair.test.doubles.ollama import Ollama
from pair.test.doubles.telling import Pace
from pair.test.doubles.wire import Got, ask


class FaultTests(DoubleCase):
    def setUp(self) -> None:
        super().setUp()
        self.serve(Ollama(self.clock, pace=Pace(rate=10)))

    def meet(self, fault: str, **fields: object) -> Got:
        """The answer to one request that meets a fault, as far as it comes in a while."""
        self.double.faults.add(fault, times=1, **fields)
        asking = self.begin("POST", "/api/chat", CHAT)
        self.pass_time(20, asking.over)
        return asking.got

    def test_statuses(self) -> None:
        """Each in the words of the path; 404 is that of a model, which ``route`` is not."""
        for status in (401, 404, 429, 500, 503):
            got = self.meet(str(status))
            self.assertEqual((got.status, list(got.json)), (status, ["error"]))
        kinds = {fault: self.meet(fault) for fault in ("404", "route", "500", "503")}
        verdicts = {fault: classify(OllamaKind.dialect, got.status, got.body) for fault, got in kinds.items()}
        self.assertEqual(verdicts, {"404": "stale_model", "route": "route_missing", "500": "fault", "503": "busy"})

    def test_before_the_answer(self) -> None:
        """Nothing comes, what comes is no HTTP, or it comes late."""
        got = self.meet("hang")
        self.assertEqual((got.status, got.lost), (0, False))
        got = self.meet("garbage")
        self.assertEqual((got.status, got.lost), (0, True))
        got = self.meet("empty")
        self.assertEqual((got.status, got.body, got.ended), (200, b"", True))
        began = self.clock.seconds()
        self.assertTrue(self.meet("slow", seconds=5).ended)
        self.assertGreater(self.clock.seconds() - began, 5)

    def test_in_the_middle(self) -> None:
        """It stops, breaks, or tells of an error after so many frames; no last line follows."""
        for fault, lost, ended in (("stall", False, False), ("cut", True, False), ("length", True, False)):
            got = self.meet(fault, after=3)
            self.assertEqual((got.status, len(got.lines), got.lost, got.ended), (200, 3, lost, ended), fault)
            self.assertFalse(got.lines[-1]["done"])
        got = self.meet("error", after=3)
        self.assertEqual((list(got.lines[-1]), got.ended), (["error"], True))

    def test_whole_answers(self) -> None:
        """Half of it comes, or less than its length says; an error makes it a 500."""
        self.double.faults.add("error", times=1)
        got = self.post("/api/chat", {**CHAT, "stream": False})
        self.assertEqual((got.status, list(got.json)), (500, ["error"]))
        for fault in ("cut", "stall", "length"):
            self.double.faults.add(fault, times=1)
            asking = self.begin("POST", "/api/chat", {**CHAT, "stream": False})
            self.pass_time(5, asking.over)
            self.assertEqual((asking.got.status, asking.got.ended), (200, False), fault)
            self.assertTrue(asking.got.body)
            self.assertLess(len(asking.got.body), int(asking.got.fields["content-length"]))

    def test_error_frames(self) -> None:
        """In the words of each stream."""
        for path, body, last in (
            ("/v1/chat/completions", CHAT, ""),
            ("/v1/messages", {**CHAT, "max_tokens": 9}, "error"),
        ):
            self.double.faults.add("error", times=1)
            got = self.post(path, {**body, "stream": True})
            name, document = got.events[-1]
            self.assertEqual(name, last)
            self.assertIn("error", document)

    def test_refuses(self) -> None:
        """The port is closed for its time, or until it is cleared."""
        self.double.faults.add("refuse", seconds=2)
        self.failureResultOf(ask(self.line, "GET", "/"))
        self.clock.advance(2.1)
        self.assertEqual(self.ask("GET", "/").status, 200)
        self.double.faults.add("refuse")
        self.clock.advance(10**6)
        self.failureResultOf(ask(self.line, "GET", "/"))
        self.double.faults.clear()
        self.assertEqual(self.ask("GET", "/").status, 200)

    def test_exits(self) -> None:
        """All connections break, and nobody listens any more."""
        other = self.begin("POST", "/api/chat", CHAT)
        self.pass_time(0.5)
        got = self.meet("exit")
        self.assertEqual((got.status, got.lost, other.got.lost, other.got.ended), (0, True, True, False))
        self.failureResultOf(ask(self.line, "GET", "/"))

    def test_probes_see_nothing(self) -> None:
        """A fault meets POSTs, unless it names a path (H16)."""
        self.double.faults.add("500")
        self.assertEqual((self.ask("GET", "/api/tags").status, self.post("/api/chat", CHAT).status), (200, 500))
        self.double.faults.clear()
        self.double.faults.add("401", path="/api/tags")
        self.assertEqual((self.ask("GET", "/api/tags").status, self.post("/api/chat", CHAT).status), (401, 200))

    def test_times(self) -> None:
        """For the next N requests, then no more."""
        self.double.faults.add("500", times=2)
        self.assertEqual([self.post("/api/chat", CHAT).status for _ in range(3)], [500, 500, 200])

    def test_over_http(self) -> None:
        """``POST /_double/fault`` sets, GET lists, DELETE clears; what came is told; nothing of it counts as asked."""
        self.post("/_double/fault", {"fault": "500", "times": 3})
        self.assertEqual(self.post("/api/chat", CHAT).status, 500)
        self.assertEqual(self.ask("GET", "/_double/fault").json[0]["fault"], "500")
        self.ask("DELETE", "/_double/fault")
        self.assertEqual(self.post("/api/chat", CHAT).status, 200)
        self.assertEqual(self.ask("GET", "/_double/asked").json, [{"method": "POST", "path": "/api/chat"}] * 2)
        self.assertEqual(self.post("/_double/fault", {"fault": "nonsense"}).status, 400)
        self.assertEqual(self.post("/_double/fault", {"fault": "refuse"}).status, 400)

    def test_as_an_argument(self) -> None:
        """A name, or the same JSON."""
        self.assertEqual(parse("hang").fault, "hang")
        self.assertEqual(parse('{"fault":"cut","after":5}').after, 5)
        self.assertRaises(ValueError, parse, "nonsense")
        self.assertRaises(ValueError, parse, '{"fault":"x"}')
