"""Tests of :mod:`pair.proxy.trail`: what the log is told of requests (PX-101, PX-102)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from twisted.logger import ILogObserver, LogLevel, formatEvent, globalLogPublisher

from pair.logs.levels import LEVELS, RANKS
from pair.proxy import trail
from pair.test.proxy.bench import CHAT, DONE, NODE, Bench, BenchCase
from pair.test.proxy.network import LAST_CHUNK, chunk, response, stream
from pair.test.routing.facts import engine

if TYPE_CHECKING:
    from twisted.logger import LogEvent

MARK = "xyzzy-marker"
MARKED = {"model": "m", "messages": [{"role": "user", "content": MARK}], "prompt": MARK, "input": MARK}


class TrailCase(BenchCase):
    def setUp(self) -> None:
        super().setUp()
        self.events: list[LogEvent] = []
        observer = cast(ILogObserver, self.events.append)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        self.level(LogLevel.debug)

    def level(self, level: LogLevel) -> None:
        self.patch(LEVELS.gate(trail.__name__), "least", RANKS[level])

    @property
    def own(self) -> list[LogEvent]:
        """What :mod:`pair.proxy.trail` said."""
        return [each for each in self.events if each["log_namespace"] == trail.__name__]

    @property
    def lines(self) -> list[str]:
        """The same as text."""
        return [formatEvent(each) for each in self.own]

    def told(self, *names: str) -> list[tuple[Any, ...]]:
        """These fields of each line."""
        return [tuple(each.get(name) for name in names) for each in self.own]


class LineTests(TrailCase):
    """What is said, and when."""

    def test_answered(self) -> None:
        """One line when it is dispatched, one when the attempt ended, one for the request."""
        bench = self.ask()
        bench.advance(2)
        bench.a.answers(response(200, DONE))
        self.assertEqual(
            self.lines,
            [
                "Request run.1 goes to a.",
                f"Request run.1 ended at a: won, status 200, {len(DONE)} bytes.",
                "Request run.1 ended after 2000 ms: POST /api/chat on ollama, status 200, answered.",
            ],
        )
        names = ("job", "facade", "route", "node", "kind", "model", "stream")
        self.assertEqual(self.told(*names)[0], (bench.job.id, "ollama", "/api/chat", NODE, "ollama", "m", True))

    def test_failover(self) -> None:
        """Each attempt has its number and its outcome; that it moves on is said."""
        bench = self.ask()
        bench.a.answers(response(500))
        bench.advance()
        bench.b.answers(stream(), chunk(DONE), LAST_CHUNK)
        self.assertEqual(
            self.told("attempt", "engine", "outcome", "status"),
            [
                (1, "a", None, None),
                (1, "a", "status", 500),
                (2, "b", None, None),
                (2, "b", "won", 200),
                (None, None, "answered", 200),
            ],
        )
        self.assertEqual(self.lines[2], "Request run.1 moves on to b.")

    def test_ends_that_are_not_good(self) -> None:
        """The client left before and after the first byte, and an engine broke off."""

        def leaves(bench: Bench) -> None:
            bench.client.leaves()

        def leaves_later(bench: Bench) -> None:
            bench.a.answers(stream(), chunk(b"{}\n"))
            bench.client.leaves()

        def breaks(bench: Bench) -> None:
            bench.a.answers(stream(), chunk(b"{}\n"))
            bench.a.breaks()

        for end, told in (
            (leaves, [(1, "cancelled", None), (None, "client_gone", None)]),
            (leaves_later, [(1, "cancelled", 200), (None, "answered", 200)]),
            (breaks, [(1, "broken", 200), (None, "answered", 200)]),
        ):
            bench = self.ask()
            self.events.clear()
            end(bench)
            self.assertEqual(self.told("attempt", "outcome", "status"), told)

    def test_refused(self) -> None:
        """A request that goes nowhere is one line with the code of its refusal."""
        bench = self.ask(body={**CHAT, "model": "x"})
        bench.client.asks("GET", "/api/version", Origin="https://evil.example")
        self.assertEqual(
            self.told("route", "status", "outcome"),
            [("/api/chat", 502, "model_unknown"), ("/api/version", 403, "bad_origin")],
        )

    def test_directly(self) -> None:
        """Of what is passed on the path is not told; neither is a job."""
        bench = self.bench(engine("ollama", "m", name="a"))
        bench.client.asks("GET", f"/{MARK}")
        bench.a.answers(response(200, b"{}"))
        self.assertEqual(
            self.told("route", "engine", "attempt", "job"), [("(other)", "a", 1, None), ("(other)", None, None, None)]
        )

    def test_silent_at_info(self) -> None:
        """Nothing is said of a healthy request."""
        self.level(LogLevel.info)
        bench = self.ask()
        bench.a.answers(response(200, DONE))
        self.assertEqual(self.lines, [])


class PrivacyTests(TrailCase):
    """At debug, no line of any part holds what is a client's or an engine's (PX-101, OP-34)."""

    ANSWERS = (
        response(200, MARK.encode()),
        response(200, b"", (b"X-Marked", MARK.encode())),
        response(400, MARK.encode()),
        response(404, b'{"error":"model \'' + MARK.encode() + b"' not found\"}"),
        response(500, MARK.encode()),
        b"HTTP/1.1 200 " + MARK.encode() + b"\r\nContent-Length: 99\r\n\r\n",
        MARK.encode() + b" is no HTTP\r\n\r\n",
    )

    def test_marked(self) -> None:
        """A marker in query, fields, bodies and answers of all roles, well and badly formed, is in no event."""
        asked = (
            ("POST", f"/api/chat?{MARK}", MARKED),
            ("POST", f"/api/chat?{MARK}", b'{"model":"m","messages":"' + MARK.encode()),
            ("POST", f"/v1/chat/completions?key={MARK}", {**MARKED, "stream": True}),
            ("POST", f"/api/show?{MARK}", {"model": "m", "verbose": MARK}),
            ("GET", f"/api/tags?{MARK}", b""),
            ("GET", f"/?{MARK}", b""),
            ("POST", f"/api/pull?{MARK}", {"name": "m", "extra": MARK}),
            ("POST", f"/{MARK}?{MARK}", MARK.encode()),
        )
        for method, path, body in asked:
            for each in self.ANSWERS:
                bench = self.bench()
                bench.client.asks(method, path, body, Authorization=f"Bearer {MARK}", X_Marked=MARK, Cookie=MARK)
                for machine in bench.machines.values():
                    bench.advance(1)
                    if machine.contacted:
                        machine.answers(each)
                        machine.closes()
                bench.client.leaves()
                bench.advance(60)
        for each in (b"GET /?" + MARK.encode() + b" HTTP/9\r\n\r\n", MARK.encode() + b"\r\n\r\n"):
            self.bench().client.sends(each)
        self.assertGreater(len(self.lines), 100)
        for event in self.events:
            self.assertNotIn(MARK, formatEvent(event))
            self.assertNotIn(MARK, repr(event))
