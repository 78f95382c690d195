"""Tests of :mod:`pair.proxy.attempts` and :mod:`pair.proxy.attempt`: from an admitted request to its answer."""

from __future__ import annotations

import gc
from itertools import product
from typing import TYPE_CHECKING

from pair.test.proxy.bench import CHAT, DONE, NODE, Bench, BenchCase
from pair.test.proxy.network import LAST_CHUNK, chunk, head, response, stream
from pair.test.routing.facts import engine

if TYPE_CHECKING:
    from collections.abc import Callable

MISSING = b'{"error":"model \'m\' not found"}'


class ForwardingTests(BenchCase):
    """What an engine is sent."""

    def test_request_is_made_anew(self) -> None:
        """H01, H08: the engine sees its own authority, one length, the hop marker; no word of browsers or proxies."""
        bench = self.bench()
        bench.client.asks(
            "POST",
            "/api/chat?x=1",
            CHAT,
            User_Agent="app",
            Cookie="c",
            X_Forwarded_For="10.0.0.1",
            X_Pair_Explain="1",
            Authorization="Bearer k",
        )
        asked, _, body = bench.a.asked.partition(b"\r\n\r\n")
        lines = asked.split(b"\r\n")
        self.assertEqual(lines[0], b"POST /api/chat?x=1 HTTP/1.1")
        length = b"Content-Length: %d" % len(body)
        self.assertEqual(
            set(lines[1:]),
            {
                b"Host: 127.0.0.1:11435",
                b"Content-Type: application/json",
                b"User-Agent: app",
                b"Authorization: Bearer k",
                length,
                b"X-Pair-Hop: 1",
            },
        )

    def test_chunked_request_gets_a_length(self) -> None:
        """H07, PX-33: a chunked body of several octets a character arrives with its length in octets."""
        bench = self.bench()
        body = '{"model":"m","prompt":"žluťoučký"}'.encode()
        bench.client.sends(
            b"POST /api/generate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
            chunk(body[:23]),
            chunk(body[23:]) + LAST_CHUNK,
        )
        head, _, sent = bench.a.asked.partition(b"\r\n\r\n")
        self.assertEqual(sent, body)
        self.assertIn(b"Content-Length: %d" % len(body), head)
        self.assertNotIn(b"Transfer-Encoding", head)

    def test_each_inference_path_arrives_as_it_is(self) -> None:
        """M13: every inference path reaches the engine under its own name, with the gate applied."""
        for path in (
            "/v1/embeddings",
            "/v1/completions",
            "/v1/responses",
            "/v1/messages",
            "/api/embed",
            "/api/generate",
        ):
            bench = self.ask(path=path)
            self.assertTrue(bench.a.asked.startswith(b"POST " + path.encode() + b" HTTP/1.1\r\n"))
            gated = self.ask(path=path, body={**CHAT, "model": "other"})
            self.assertEqual((gated.client.answer.status, gated.contacted()), (502, []))

    def test_trailing_slash_is_left_out(self) -> None:
        """H13: with one trailing slash a path is itself, and is forwarded without."""
        self.assertTrue(self.ask(path="/api/chat/").a.asked.startswith(b"POST /api/chat HTTP/1.1"))


class EndedTests(BenchCase):
    """What an answered request leaves behind."""

    LONG = {**CHAT, "images": [200_000 * "x"]}
    ASKED = (("/api/chat", CHAT), ("/api/chat", LONG), ("/nowhere", CHAT), ("/nowhere", LONG), ("/api/pull", CHAT))

    def setUp(self) -> None:
        """Look at nothing that was there before: it is much."""
        super().setUp()
        gc.freeze()
        self.addCleanup(gc.unfreeze)

    def test_nothing_for_the_collector(self) -> None:
        """What served it goes as it ends: no cycle waits for the collector, which would stop all streams to look."""
        bench = self.bench(engine("ollama", "m", name="a"))
        gc.disable()
        self.addCleanup(gc.enable)
        for path, body in self.ASKED:
            found = []
            for _ in range(2):  # The first makes the connection, which stays.
                gc.collect()
                bench.client.asks("POST", path, body)
                bench.advance()
                bench.a.answers(response(200, DONE))
                bench.advance(1)
                found.append(gc.collect())
            self.assertEqual(found[1], 0, path)

    def test_nothing_of_what_was_broken_off(self) -> None:
        """Nor does one wait when either end leaves in the middle of an answer."""
        leave: Callable[[Bench], None]
        for leave in (lambda bench: bench.client.leaves(), lambda bench: bench.a.breaks()):
            bench = self.bench(engine("ollama", "m", name="a"))
            bench.client.asks("POST", "/api/chat", CHAT)
            bench.advance()
            bench.a.answers(stream() + chunk(DONE)[:5])
            gc.collect()
            gc.disable()
            self.addCleanup(gc.enable)
            leave(bench)
            bench.advance()
            self.assertEqual(bench.in_use(), {})
            self.assertEqual(gc.collect(), 0)

    def test_nothing_of_what_had_no_answer(self) -> None:
        """Nor does one when a request is given up before its answer, whether its engine works, hangs or is down."""
        leave: Callable[[Bench], object]
        leaves = (lambda bench: bench.client.leaves(), lambda bench: bench.admission.stop())
        for leave, (path, body) in product(leaves, self.ASKED):
            for trouble in ("", "hangs", "refuses"):
                bench = self.bench(engine("ollama", "m", name="a"))
                if trouble:
                    setattr(bench.a, trouble, True)
                bench.client.asks("POST", path, body)
                bench.advance()
                gc.collect()
                gc.disable()
                self.addCleanup(gc.enable)
                leave(bench)
                bench.advance()
                self.assertEqual(bench.in_use(), {})
                self.assertEqual(gc.collect(), 0, (path, trouble))

    def test_a_mistake_of_ours(self) -> None:
        """One request costs no more than itself, whatever raises as it is sent or as its answer begins (PX-3)."""

        def fail(*_: object, **named: object) -> None:
            raise ZeroDivisionError

        for place, name in (("engines", "credential"), ("pool", "send"), ("sweep", "watch"), ("scheduling", "take")):
            bench = self.bench()
            setattr(getattr(bench, place), name, fail)
            bench.client.asks("POST", "/api/chat", CHAT)
            self.assertEqual((bench.client.answer.status, bench.in_use()), (500, {}))
            bench.advance()
            self.assertEqual({each.aborted for each in bench.a.connections} - {True}, set())
        for place, name in (("holds", "committed"), ("catalogue", "note_route_answers")):
            bench = self.ask()
            setattr(getattr(bench.scheduling, place), name, fail)
            self.assertRaises(ZeroDivisionError, bench.a.answers, stream() + chunk(DONE))
            bench.a.breaks()  # as Twisted does then
            self.assertEqual((bench.job.state, bench.in_use()), ("failed", {}))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 4)


class FailoverTests(BenchCase):
    """PX-42 to PX-48, on two engines of this node."""

    def test_engine_that_is_down(self) -> None:
        """A refused connection: the next owner serves, and the job has both attempts."""
        bench = self.bench()
        bench.a.refuses = True
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.advance()
        self.assert_served_by_b(bench)
        self.assertEqual(bench.outcomes, ["connect", "won"])
        self.assertEqual(bench.engines.outcomes, [("a", False), ("b", True)])

    def test_engine_that_does_not_accept(self) -> None:
        """No connection within 3 s: the next owner serves (PX-51)."""
        bench = self.bench()
        bench.a.hangs = True
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.advance(2.9)
        self.assertFalse(bench.b.contacted)
        bench.advance(0.2)
        self.assert_served_by_b(bench)
        self.assertEqual(bench.outcomes, ["timeout", "won"])

    def test_busy_engine(self) -> None:
        """F04: 503 or 429 before any byte was relayed: the next owner serves."""
        for status in (503, 429):
            bench = self.ask()
            bench.a.answers(response(status, b"{}"))
            self.assert_served_by_b(bench)

    def test_dead_after_its_head(self) -> None:
        """S16: 200 and then the end before a byte of the body, in each framing: the next owner serves."""
        heads = (
            stream(),
            stream() + b"7\r\n",
            head(200, (b"Content-Length", b"9")),
            head(200),
        )
        for start in heads:
            for break_off in ("closes", "breaks"):
                bench = self.ask()
                bench.a.answers(start)
                self.assertEqual(bench.client.received, b"")
                getattr(bench.a, break_off)()
                self.assert_served_by_b(bench)
                self.assertEqual(bench.outcomes, ["empty", "won"])

    def test_model_that_is_gone(self) -> None:
        """RT-10, EN-80: "model not found" is noted, and the next owner serves."""
        bench = self.ask()
        bench.a.answers(response(404, MISSING))
        self.assert_served_by_b(bench)
        self.assertEqual(bench.engines.missing, [("a", "m")])

    def test_route_that_is_missing(self) -> None:
        """RT-10: another 404 costs the engine this route and no other, and nothing is said of the model."""
        bench = self.ask(path="/v1/messages")
        bench.a.answers(response(404, b"page not found"))
        self.assert_served_by_b(bench)
        self.assertEqual(bench.engines.missing, [])
        again = bench.connect()
        again.asks("POST", "/v1/messages", CHAT)
        self.assertEqual(len(bench.a.connections), 1)
        again.leaves()
        bench.connect().asks("POST", "/api/chat", CHAT)
        self.assertIn(b"POST /api/chat", bench.a.asked)

    def test_callers_mistake_is_passed_on(self) -> None:
        """400 and 422 are told at once, as the engine told them, and nobody else is asked."""
        for status in (400, 401, 403, 413, 422):
            bench = self.ask()
            bench.a.answers(response(status, b'{"error":"yours"}', (b"X-Engine", b"1")))
            answer = bench.client.answer
            self.assertEqual((answer.status, answer.body), (status, b'{"error":"yours"}'))
            self.assertEqual(answer.fields["x-engine"], "1")
            self.assertEqual(bench.contacted(), ["a"])
            self.assertEqual(bench.ending, ("failed", "engine_status"))
            self.assertEqual(bench.in_use(), {})

    def test_redirect(self) -> None:
        """H13: a redirect is a 502 of ours; its Location goes nowhere."""
        bench = self.ask()
        bench.a.answers(response(307, b"", (b"Location", b"http://127.0.0.1:11435/api/chat")))
        self.assert_refused(bench, 502, "engine_redirect")
        self.assertNotIn(b"11435", bench.client.received)
        self.assertEqual(bench.contacted(), ["a"])

    def test_loop(self) -> None:
        """X11: 508 of an "engine" that is PAIR again is an entry, and the next owner serves."""
        bench = self.ask()
        bench.a.answers(response(508, b"{}"))
        self.assert_served_by_b(bench)
        self.assertEqual(bench.entries, [f"proxy:loop:{NODE}"])

    def test_only_one_answer_for_many_refusals(self) -> None:
        """The engine that answers nothing but 404, a thousand times: each is passed on whole, and nothing is left."""
        bench = self.bench(engine("ollama", "m", name="a"))
        for _ in range(1000):
            client = bench.connect()
            client.asks("POST", "/api/chat", CHAT)
            bench.a.answers(response(404, b"x" * 10_000))
            self.assertEqual(client.answer.body, b"x" * 10_000)
            client.leaves()
            bench.scheduling.catalogue.remove(NODE)
            bench.engines.changed.emit(bench.engines.inventory())
        self.assertEqual(bench.in_use(), {})


class FinalAnswerTests(BenchCase):
    """PX-45 to PX-47: what is left when nobody answers."""

    def exhaust(self, bench: Bench, answer: bytes, rounds: int = 5) -> None:
        """The one engine gives ``answer`` in each round."""
        for wait in (0.25, 0.5, 1.0, 2.0)[: rounds - 1]:
            bench.a.answers(answer)
            before = len(bench.a.asked)
            bench.advance(wait - 0.01)
            self.assertEqual(len(bench.a.asked), before)
            self.assertEqual(len(bench.scheduling.book), 0)
            bench.advance(0.02)
            self.assertGreater(len(bench.a.asked), before)
        bench.a.answers(answer)

    def test_busy_in_all_rounds(self) -> None:
        """F04: after five rounds the engine's own 503 is passed on, with a Retry-After where it has none."""
        for extra, retry in ((), "1"), (((b"Retry-After", b"7"),), "7"):
            bench = self.ask(engine("ollama", "m", name="a"))
            self.exhaust(bench, response(503, b'{"error":"busy"}', *extra))
            answer = bench.client.answer
            self.assertEqual((answer.status, answer.body), (503, b'{"error":"busy"}'))
            self.assertEqual(answer.fields["retry-after"], retry)
            self.assertEqual(bench.outcomes, ["status"] * 5)
            self.assertEqual(bench.in_use(), {})

    def test_chunked_refusal_gets_a_length(self) -> None:
        """A refusal that came in chunks is passed on whole, with its length."""
        bench = self.ask()
        bench.a.answers(head(400, (b"Transfer-Encoding", b"chunked")) + chunk(b"ab"), chunk(b"c") + LAST_CHUNK)
        answer = bench.client.answer
        self.assertEqual((answer.body, answer.fields["content-length"]), (b"abc", "3"))
        self.assertNotIn("transfer-encoding", answer.fields)

    def test_nobody_can_be_reached(self) -> None:
        """Both engines are down in five rounds: 502 in the caller's dialect, ten attempts, never a 200 (S16)."""
        bench = self.bench()
        bench.a.refuses = bench.b.refuses = True
        bench.client.asks("POST", "/v1/chat/completions", {**CHAT, "stream": True})
        bench.advance(5)
        self.assert_refused(bench, 502, "engine_unreachable")
        self.assertEqual(bench.client.answer.json["error"]["code"], "engine_unreachable")
        self.assertEqual(bench.job.attempt_count, 10)

    def test_no_attempt_after_the_deadline(self) -> None:
        """No attempt starts later than ``start_deadline``; one that runs is not cut by it (PX-45)."""
        bench = self.ask(start_deadline=1.0)
        bench.advance(40)
        bench.a.answers(response(503))
        self.assertEqual((bench.client.answer.status, bench.contacted()), (503, ["a"]))

    def test_engine_that_stops_between_rounds(self) -> None:
        """What was tried is not said to be unknown or stopped: its own last answer is the final one."""
        bench = self.ask(engine("ollama", "m", name="a"))
        bench.a.answers(response(503, b"busy"))
        bench.engines.stop("a")
        bench.advance(1)
        self.assertEqual((bench.client.answer.status, bench.client.answer.body), (503, b"busy"))

    def test_long_refusal(self) -> None:
        """More than 64 KiB of a refusal are not read: the engine is left, and 502 stands for its answer (PX-47)."""
        bench = self.ask(engine("ollama", "m", name="a"))
        bench.a.answers(response(500, b"x" * 65_537))
        self.assertTrue(bench.a.socket.aborted)
        self.assert_refused(bench, 502, "engine_unreachable")

    def test_refusal_of_the_limit(self) -> None:
        """64 KiB are passed on."""
        bench = self.ask(engine("ollama", "m", name="a"))
        bench.a.answers(response(500, b"x" * 65_536))
        self.assertEqual(len(bench.client.answer.body), 65_536)

    def test_slow_refusal(self) -> None:
        """A refusal that is not whole in 1 s is left, and the next owner serves (PX-47)."""
        bench = self.ask()
        bench.a.answers(head(500, (b"Content-Length", b"9")) + b"x")
        bench.advance(0.9)
        self.assertFalse(bench.b.contacted)
        bench.advance(0.2)
        self.assertTrue(bench.a.socket.aborted)
        self.assert_served_by_b(bench)
        self.assertEqual([each.status for each in bench.job.attempts], [500, 200])

    def test_broken_reused_connection(self) -> None:
        """PX-50: a pooled connection that dies at once is replaced, which is no attempt."""
        bench = self.ask(engine("ollama", "m", name="a"))
        bench.a.answers(response(200, DONE))
        bench.client.asks("POST", "/api/chat", CHAT)
        self.assertEqual(len(bench.a.connections), 1)
        bench.a.breaks()
        bench.advance()
        bench.a.answers(response(200, DONE))
        self.assertEqual((len(bench.a.connections), bench.outcomes), (2, ["won"]))
        self.assertEqual(bench.client.received.count(DONE), 2)
