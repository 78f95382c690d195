"""Tests of :mod:`pair.proxy.collecting`: bodies that are kept (PX-29 to PX-32)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from pair.proxy.collecting import KeptBody
from pair.proxy.plane import Budget
from pair.test.proxy.bench import CHAT, Bench, BenchCase
from pair.test.proxy.network import LAST_CHUNK, chunk, response

CHUNKED = b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


def declared(size: int, *fields: bytes) -> bytes:
    """The head of a request with so long a body."""
    lines = (b"POST /api/chat HTTP/1.1", b"Host: localhost", b"Content-Length: %d" % size, *fields)
    return b"\r\n".join(lines) + b"\r\n\r\n"


def body_of(size: int) -> bytes:
    """A request for ``m`` that is exactly so long."""
    start = b'{"model":"m","prompt":"'
    return start + b"x" * (size - len(start) - 2) + b'"}'


class CapTests(BenchCase):
    """PX-29, H04: exactly the cap passes, one byte more does not."""

    CAP = 1000

    def capped(self) -> Bench:
        """A bench with that cap."""
        return self.bench(max_body=self.CAP)

    def assert_too_large(self, bench: Bench) -> None:
        """413 that names the cap; no engine was chosen."""
        self.assert_refused(bench, 413, "too_large")
        self.assertIn("(1000 bytes)", bench.client.answer.json["error"])
        self.assertEqual((bench.contacted(), bench.jobs.ended()), ([], ()))
        self.assertEqual(bench.client.answer.fields["connection"], "close")

    def test_declared(self) -> None:
        """A declared length is refused before a byte is read, and without a 100 (H11)."""
        bench = self.capped()
        bench.client.sends(declared(self.CAP) + body_of(self.CAP))
        self.assertTrue(bench.a.asked.endswith(body_of(self.CAP)))
        bench = self.capped()
        bench.client.sends(declared(self.CAP + 1, b"Expect: 100-continue"))
        self.assert_too_large(bench)

    def test_chunked(self) -> None:
        """A chunked body is cut at the cap, wherever the chunks end."""
        bench = self.capped()
        whole = body_of(self.CAP)
        bench.client.sends(CHUNKED, chunk(whole[:999]), chunk(whole[999:]), LAST_CHUNK)
        self.assertTrue(bench.a.asked.endswith(whole))
        for pieces in ([whole + b" "], [whole, b" "]):
            bench = self.capped()
            bench.client.sends(CHUNKED, *[chunk(each) for each in pieces])
            self.assert_too_large(bench)

    def test_what_follows_a_refusal_is_thrown_away(self) -> None:
        """The rest of a body that is too large opens no further request."""
        bench = self.capped()
        bench.client.sends(declared(2000), b"x" * 1500, declared(2) + b"{}")
        self.assertEqual(bench.client.received.count(b"HTTP/1.1"), 1)


class BudgetTests(BenchCase):
    """PX-29: all kept bodies together."""

    def budgeted(self) -> Bench:
        """Room for 1500 bytes, 1000 of which a client that still sends has taken."""
        bench = self.bench(body_budget=1500)
        self.other = bench.connect()
        self.other.sends(declared(1000))
        return bench

    def assert_overloaded(self, bench: Bench) -> None:
        """503 with Retry-After, and only what the other client has is taken."""
        answer = bench.client.answer
        self.assertEqual((answer.status, answer.fields["x-pair-error"]), (503, "overloaded"))
        self.assertEqual(answer.fields["retry-after"], "2")
        self.assertEqual((bench.plane.bodies.used, bench.plane.active.used), (1000, 1))

    def test_declared(self) -> None:
        """A declared length counts from the start."""
        bench = self.budgeted()
        bench.client.sends(declared(501))
        self.assert_overloaded(bench)
        bench.client = bench.connect()
        bench.client.sends(declared(500))
        self.assertEqual((bench.client.received, bench.plane.bodies.used), (b"", 1500))

    def test_chunked(self) -> None:
        """A chunked body counts as it comes."""
        bench = self.budgeted()
        bench.client.sends(CHUNKED, chunk(b"x" * 500))
        self.assertEqual(bench.plane.bodies.used, 1500)
        bench.client.sends(chunk(b"x"))
        self.assert_overloaded(bench)

    def test_given_back_on_every_path(self) -> None:
        """After an answer, a refusal of each kind, a stall and a loss the budget is whole."""
        whole = body_of(600)
        for pieces, status in [
            ((declared(600) + whole,), 200),
            ((declared(600) + whole.replace(b'"m"', b'"x"'),), 502),
            ((declared(600, b"Content-Type: application/json") + whole[:-1] + b" ",), 400),
            ((declared(600), whole[:5]), 408),
            ((CHUNKED, chunk(whole) + b"no\r\n"), 400),
        ]:
            bench = self.bench()
            bench.client.sends(*pieces)
            if status == 200:
                bench.a.answers(response(200, b"{}"))
            if status == 408:
                bench.advance(121)
            self.assertEqual((bench.client.answer.status, bench.in_use()), (status, {}))


class OtherBodyTests(BenchCase):
    """PX-30 to PX-34."""

    def test_expect(self) -> None:
        """H11: a client that waits for a 100 gets it at once, then its answer."""
        bench = self.bench()
        bench.client.sends(declared(600, b"Expect: 100-continue"))
        self.assertEqual(bench.client.received, b"HTTP/1.1 100 Continue\r\n\r\n")
        bench.client.sends(body_of(600))
        self.assertNotIn(b"Expect", bench.a.asked)
        bench.a.answers(response(200, b"{}"))
        self.assertIn(b"HTTP/1.1 200", bench.client.received)

    def test_stalled(self) -> None:
        """PX-31: 120 s without a byte end it; each byte begins them anew."""
        bench = self.bench()
        bench.client.sends(declared(600), b"{")
        bench.advance(119)
        bench.client.sends(b'"')
        bench.advance(119)
        self.assertEqual(bench.client.received, b"")
        bench.advance(3)
        self.assert_refused(bench, 408, "body_stalled")

    def test_encodings(self) -> None:
        """PX-32: none but identity."""
        for coding, status in [(b"gzip", 415), (b"br", 415), (b"gzip, identity", 415), (b"identity", 200), (b"", 200)]:
            bench = self.bench()
            bench.client.sends(declared(600, b"Content-Encoding: " + coding) + body_of(600))
            if status == 200:
                bench.a.answers(response(200, b"{}"))
            self.assertEqual((bench.client.answer.status, bench.in_use()), (status, {}), coding)

    def test_json_that_is_none(self) -> None:
        """PX-34: a body that says it is JSON and is not reaches no engine."""
        for body in (b"{", b"\xef\xbb\xbf{}", b'{"model":NaN}', b"[" * 1000, b'{"model":"m"} x'):
            bench = self.bench()
            bench.client.asks("POST", "/api/chat", body, Content_Type="application/json; charset=utf-8")
            self.assert_refused(bench, 400, "bad_request")
            self.assertEqual(bench.jobs.ended(), ())

    def test_no_body(self) -> None:
        """A request without a body is model-less; the engine says what it thinks of it."""
        bench = self.bench()
        bench.client.asks("POST", "/api/chat")
        self.assertIn(b"Content-Length: 0\r\n", bench.a.asked)

    def test_next_request_on_the_connection(self) -> None:
        """A request that was answered leaves its connection for the next, pipelined or not (X05)."""
        bench = self.bench()
        bench.client.sends(2 * (declared(600) + body_of(600)))
        self.assertEqual(bench.a.asked.count(b"POST"), 1)
        bench.a.answers(response(200, b"1"))
        bench.a.answers(response(200, b"2"))
        first, _, second = bench.client.received.partition(b"HTTP/1.1 200 Word\r\n")[2].partition(b"HTTP/1.1")
        self.assertTrue(first.endswith(b"1") and second.endswith(b"2"))
        bench.client.asks("POST", "/api/chat", CHAT)
        self.assertEqual(bench.a.asked.count(b"POST"), 3)


class KeptBodyTests(SynchronousTestCase):
    """What one body takes of the budget."""

    def test_holds_what_it_needs(self) -> None:
        """It grows within the budget, never shrinks, and gives back all, once."""
        budget = Budget(10)
        body = KeptBody(budget)
        self.assertTrue(body.hold(4) and body.hold(3) and body.hold(10))
        self.assertEqual(budget.used, 10)
        self.assertFalse(body.hold(11))
        self.assertEqual(budget.used, 10)
        body.free()
        body.free()
        self.assertEqual(budget.used, 0)
