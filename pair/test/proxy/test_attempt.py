"""Tests of :mod:`pair.proxy.attempt`: what is waited for, and for how long; clients that do not wait."""

from __future__ import annotations

from pair.test.proxy.bench import CHAT, DONE, LINE, Bench, BenchCase
from pair.test.proxy.network import LAST_CHUNK, chunk, head, response, stream
from pair.test.routing.facts import engine

ONE = (engine("ollama", "m", name="a"),)


class WaitingTests(BenchCase):
    """PX-51 and PX-56."""

    def test_slow_engine_is_waited_for(self) -> None:
        """S01, S17: with an engine that is alive no limit runs, be it silent for 14 min."""
        bench = self.ask()
        bench.advance(840)
        self.assertEqual((bench.client.received, bench.contacted()), (b"", ["a"]))
        bench.a.answers(stream(), *[chunk(LINE) for _ in range(5)], chunk(DONE) + LAST_CHUNK)
        self.assertEqual(bench.client.received.count(LINE), 5)
        self.assertEqual(bench.ending, ("completed", None))

    def test_many_wait(self) -> None:
        """PX-51: fifty wait for 5 min, and each gets the whole of its own answer."""
        bench = self.bench(*ONE)
        clients = [bench.connect() for _ in range(50)]
        for client in clients:
            client.asks("POST", "/api/chat", CHAT)
        bench.advance(300)
        for number, socket in enumerate(bench.a.connections):
            socket.receive(stream() + chunk(b'{"number":%d}\n' % number) + chunk(DONE) + LAST_CHUNK)
        bodies = [client.answer.body for client in clients]
        self.assertEqual(
            bodies, [chunk(b'{"number":%d}\n' % number) + chunk(DONE) + LAST_CHUNK for number in range(50)]
        )
        self.assertEqual({each.state for each in bench.jobs.ended()}, {"completed"})
        self.assertEqual((len(bench.jobs.ended()), bench.in_use()), (50, {}))

    def test_limit_of_the_head(self) -> None:
        """S01: ``engine_wait_max`` ends the wait for a head; the error names the limit and its setting."""
        bench = self.ask(*ONE, engine_wait_max=5.0)
        bench.advance(4.9)
        self.assertFalse(bench.a.socket.aborted)
        bench.advance(0.2)
        self.assertTrue(bench.a.socket.aborted)
        self.assert_refused(bench, 504, "engine_silent")
        self.assertIn("proxy.engine_wait_max allows 5 s", bench.client.answer.json["error"])
        self.assertEqual((bench.outcomes, bench.ending), (["stalled"], ("failed", "engine_silent")))

    def test_limit_of_the_head_ends_with_it(self) -> None:
        """A head in time ends that limit; its body may take longer."""
        bench = self.ask(*ONE, engine_wait_max=5.0)
        bench.advance(4)
        bench.a.answers(stream())
        bench.advance(60)
        bench.a.answers(chunk(DONE) + LAST_CHUNK)
        self.assertEqual(bench.ending, ("completed", None))

    def test_limit_of_the_first_byte(self) -> None:
        """S22: no body byte within ``first_byte_limit``, head or not: the next owner serves."""
        for said in (b"", stream(), stream() + b"5\r\n"):
            bench = self.ask(first_byte_limit=10.0)
            if said:
                bench.a.answers(said)
            bench.advance(9.9)
            self.assertFalse(bench.b.contacted)
            bench.advance(0.2)
            self.assertTrue(bench.a.socket.aborted)
            self.assert_served_by_b(bench)
            self.assertEqual(bench.outcomes, ["stalled", "won"])

    def test_limit_of_the_first_byte_ends_with_it(self) -> None:
        """S22: after the first byte nothing is ever replayed, however long the engine rests."""
        bench = self.ask(first_byte_limit=10.0)
        bench.a.answers(stream(), chunk(LINE))
        bench.advance(60)
        self.assertEqual((bench.contacted(), bench.job.state), (["a"], "running"))

    def test_dead_engine(self) -> None:
        """PX-56: within a sweep of its death a silent engine is left for the next owner."""
        bench = self.ask()
        bench.engines.dead.add("a")
        bench.advance(5.5)
        self.assertTrue(bench.a.socket.aborted)
        self.assert_served_by_b(bench)
        self.assertEqual(bench.outcomes, ["stalled", "won"])

    def test_dead_engine_alone(self) -> None:
        """F10, PX-46: with nobody else it is 504, and it is not tried again; its job shows why."""
        bench = self.ask(*ONE)
        bench.engines.dead.add("a")
        bench.advance(5.5)
        self.assert_refused(bench, 504, "engine_silent")
        self.assertEqual((bench.ending, bench.outcomes), (("failed", "engine_silent"), ["stalled"]))

    def test_one_of_six(self) -> None:
        """F10: an engine dies in silence after five of six answers: the sixth client is told."""
        bench = self.bench(*ONE)
        clients = [bench.connect() for _ in range(6)]
        for each in clients:
            each.asks("POST", "/api/chat", CHAT)
        bench.advance()
        for socket in bench.a.connections[:5]:
            socket.receive(response(200, DONE))
        bench.engines.dead.add("a")
        bench.advance(5.5)
        self.assertEqual([each.answer.status for each in clients], [200] * 5 + [504])

    def test_reset_in_the_upload(self) -> None:
        """An engine that dies while it is sent a long request: the next owner gets all of it."""
        bench = self.bench()
        bench.a.takes = False
        bench.client.asks("POST", "/api/chat", {**CHAT, "padding": "x" * 200_000})
        bench.a.breaks()
        bench.advance()
        self.assertIn(b"x" * 200_000, bench.b.asked)
        self.assert_served_by_b(bench)
        self.assertEqual(bench.outcomes, ["broken", "won"])

    def test_upload_without_progress(self) -> None:
        """PX-51: an engine that stops reading a long request for 30 s is left."""
        bench = self.bench()
        bench.a.takes = False
        bench.client.asks("POST", "/api/chat", {**CHAT, "padding": "x" * 400_000})
        bench.advance(29)
        self.assertFalse(bench.b.contacted)
        bench.advance(2)
        self.assertTrue(bench.a.socket.aborted)
        self.assertIn(b"x" * 400_000, bench.b.asked)
        self.assert_served_by_b(bench)
        self.assertEqual(bench.outcomes, ["broken", "won"])

    def test_engine_that_was_stopped_before_its_turn(self) -> None:
        """An engine that stopped since the plan is no longer asked; the round goes on without it."""
        bench = self.ask()
        bench.engines.stop("b")
        bench.a.answers(response(500, b"{}"))
        self.assertEqual((bench.client.answer.status, bench.contacted()), (500, ["a"]))


class CommitTests(BenchCase):
    """PX-57: the answer begins with the first byte of its body."""

    def assert_uncommitted(self, bench: Bench) -> None:
        """The client has nothing, and another engine may still serve."""
        self.assertEqual((bench.client.received, bench.job.state), (b"", "queued"))

    def test_head_and_framing_do_not_commit(self) -> None:
        """A head is no answer, nor is the line that begins a chunk; the first byte is, and loses neither."""
        bench = self.ask()
        bench.a.answers(stream())
        self.assert_uncommitted(bench)
        bench.a.answers(b"2")
        self.assert_uncommitted(bench)
        bench.a.answers(b"9;x=y\r\n")
        self.assert_uncommitted(bench)
        bench.a.answers(LINE[:1])
        self.assertEqual(bench.client.answer.body, b"29;x=y\r\n" + LINE[:1])
        self.assertEqual((bench.job.state, len(bench.client.socket.writes)), ("running", 1))
        bench.a.answers(LINE[1:] + b"\r\n" + LAST_CHUNK)

    def test_empty_answers_commit(self) -> None:
        """A 2xx that is complete and empty is an answer, in each framing."""
        for said, framing in [
            (response(200), "content-length"),
            (stream() + LAST_CHUNK, "transfer-encoding"),
            (head(204), None),
        ]:
            bench = self.ask()
            bench.a.answers(said)
            answer = bench.client.answer
            self.assertIn(answer.status, (200, 204))
            self.assertEqual(
                [each for each in ("content-length", "transfer-encoding") if each in answer.fields],
                [framing] if framing else [],
            )
            self.assertEqual((bench.ending, bench.in_use()), (("completed", None), {}))

    def test_last_chunk_on_its_own(self) -> None:
        """An empty chunked answer may come in pieces too."""
        bench = self.ask()
        bench.a.answers(stream(), b"0\r\n")
        self.assert_uncommitted(bench)
        bench.a.answers(b"\r\n")
        self.assertEqual(bench.client.answer.body, LAST_CHUNK)

    def test_body_is_given_up_at_commit(self) -> None:
        """PX-29: the request's body is kept until the answer begins, and no longer."""
        bench = self.ask()
        self.assertGreater(bench.plane.bodies.used, 0)
        bench.a.answers(stream(), chunk(LINE))
        self.assertEqual(bench.plane.bodies.used, 0)


class ClientGoneTests(BenchCase):
    """PX-49, PX-61: a client that leaves ends all that was done for it, within a turn."""

    def leave(self, bench: Bench) -> None:
        """The client goes; nothing is held for it any more, and nothing more is begun."""
        attempts = bench.job.attempt_count
        bench.client.leaves()
        self.assertEqual((bench.ending, bench.in_use()), (("cancelled", "client_gone"), {}))
        bench.advance(10)
        self.assertEqual(bench.job.attempt_count, attempts)

    def test_before_the_head(self) -> None:
        """S05: the engine sees the close at once, and no other one is tried for the dead client."""
        bench = self.ask()
        bench.advance(2)
        self.leave(bench)
        self.assertTrue(bench.a.socket.aborted)
        self.assertEqual(bench.contacted(), ["a"])
        self.assertEqual(bench.outcomes, ["cancelled"])

    def test_half_close(self) -> None:
        """A client that sends no more counts as gone."""
        bench = self.ask()
        bench.client.half_closes()
        self.assertTrue(bench.a.socket.aborted)
        self.assertEqual((bench.ending, bench.in_use()), (("cancelled", "client_gone"), {}))

    def test_after_the_head(self) -> None:
        """Between the engine's head and its first byte."""
        bench = self.ask()
        bench.a.answers(stream())
        self.leave(bench)
        self.assertTrue(bench.a.socket.aborted)

    def test_while_a_refusal_is_read(self) -> None:
        """The rest of the refusal is not waited for."""
        bench = self.ask()
        bench.a.answers(head(503, (b"Content-Length", b"5")))
        self.leave(bench)
        self.assertEqual(bench.contacted(), ["a"])

    def test_while_connecting(self) -> None:
        """The connection is given up."""
        bench = self.bench()
        bench.a.hangs = True
        bench.client.asks("POST", "/api/chat", CHAT)
        self.leave(bench)
        self.assertEqual(bench.a.given_up, 1)

    def test_between_rounds(self) -> None:
        """The next round does not begin, and in the pause no node was reserved (RT-42)."""
        bench = self.ask(*ONE)
        bench.a.answers(response(503))
        self.assertEqual(len(bench.scheduling.book), 0)
        self.leave(bench)
        self.assertEqual(bench.a.asked.count(b"POST"), 1)

    def test_while_it_sends(self) -> None:
        """Before its body is whole there is no job; the budget has its bytes back."""
        bench = self.bench()
        bench.client.sends(b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{")
        self.assertEqual(bench.in_use(), {"active": 1, "bodies": 99})
        bench.client.leaves()
        self.assertEqual((bench.in_use(), bench.jobs.ended(), bench.contacted()), ({}, (), []))
