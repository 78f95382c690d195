"""Tests of :mod:`pair.proxy.meters` (OP-40)."""

from __future__ import annotations

from typing import Any

from pair.metrics import Metrics
from pair.test.proxy.bench import CHAT, DONE, NODE, Bench, BenchCase
from pair.test.proxy.network import LAST_CHUNK, chunk, response, stream
from pair.test.routing.facts import engine


class MetersTests(BenchCase):
    def requests(self, bench: Bench) -> dict[tuple[str, ...], float]:
        """What was counted of requests."""
        return bench.plane.meters.requests.values

    def test_each_request_once(self) -> None:
        """Whatever becomes of it: served, refused by whom it may be, a list, a preflight, passed through."""
        cases: list[tuple[str, str, Any, dict[str, Any], tuple[str, str, str]]] = [
            ("POST", "/api/chat", {**CHAT, "model": "x"}, {}, ("ollama", "inference", "5xx")),
            ("POST", "/api/chat", b"{", {"Content_Type": "application/json"}, ("ollama", "inference", "4xx")),
            ("POST", "/v1/messages", CHAT, {"Host": "evil.example"}, ("anthropic", "inference", "4xx")),
            ("GET", "/v1/models", b"", {}, ("openai", "listing", "2xx")),
            ("GET", "/", b"", {}, ("ollama", "local", "2xx")),
            ("DELETE", "/api/delete", b"{}", {}, ("ollama", "local", "5xx")),
            ("GET", "/nowhere", b"", {}, ("other", "other", "4xx")),
            (
                "OPTIONS",
                "/api/chat",
                b"",
                {"Origin": "http://localhost", "Access_Control_Request_Method": "POST"},
                ("other", "other", "2xx"),
            ),
        ]
        for method, path, body, fields, counted in cases:
            bench = self.bench(engine("llamacpp", name="e"))
            bench.client.asks(method, path, body, **fields)
            bench.advance()
            self.assertEqual(self.requests(bench), {("ollama", *counted): 1})
            self.assertEqual(sum(bench.plane.meters.durations.counts["ollama",]), 1)

    def test_relayed(self) -> None:
        """By the engine's status; one that broke off has the status it began with."""
        for end in (LAST_CHUNK, b""):
            bench = self.ask()
            bench.a.answers(stream() + chunk(DONE), *([end] if end else []))
            if not end:
                bench.a.breaks()
            self.assertEqual(self.requests(bench), {("ollama", "ollama", "inference", "2xx"): 1})

    def test_left(self) -> None:
        """A client that left before an answer has no status."""
        for pieces in (b"", b"{"):
            bench = self.bench()
            if pieces:
                bench.client.sends(b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
            else:
                bench.client.asks("POST", "/api/chat", CHAT)
            bench.client.leaves()
            self.assertEqual(self.requests(bench), {("ollama", "ollama", "inference", "aborted"): 1})

    def test_attempts(self) -> None:
        """Each by its outcome, statuses in three words."""
        for status, word in ((404, "status_404"), (503, "status_503"), (429, "status_429"), (500, "status_other")):
            bench = self.ask()
            bench.a.answers(response(status))
            bench.b.answers(response(200, DONE))
            self.assertEqual(bench.plane.meters.attempts.values, {(NODE, "a", word): 1, (NODE, "b", "won"): 1})

    def test_times(self) -> None:
        """To dispatch, to the first byte, and to the end."""
        bench = self.ask()
        meters = bench.plane.meters
        self.assertEqual(sum(meters.routing.counts[()]), 1)
        bench.advance(2)
        bench.a.answers(stream(), chunk(DONE))
        bench.advance(2)
        bench.a.answers(LAST_CHUNK)
        self.assertEqual((meters.first_bytes.sums["ollama",], meters.durations.sums["ollama",]), (2, 4))

    def test_sources(self) -> None:
        """All are families of the table."""
        metrics = Metrics("1", 1, 0.0)
        bench = self.ask()
        metrics.register(bench.plane.meters.sources())
        bench.a.answers(response(200, DONE))
        self.assertIn(b'pair_attempts_total{engine="a",node="7ab2",outcome="won"} 1.0', metrics.render())
