"""Tests of :mod:`pair.proxy.holds`: what attempts arm, and what the next request sees of it."""

from __future__ import annotations

from msgspec.structs import replace
from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock

from pair.proxy.outcomes import STALLED, judge_status
from pair.proxy.scheduling import SchedulerService
from pair.records.engines import NodeInventory
from pair.routing.candidates import Candidate, Request
from pair.routing.dialects import match
from pair.routing.explain import Penalty
from pair.routing.policies.pressure import PressurePolicy
from pair.test.fakes import FakeEngines, error_book
from pair.test.proxy.bench import CHAT, DONE, NODE, START, Bench, BenchCase
from pair.test.proxy.network import Client, response
from pair.test.routing.facts import engine, node

MISSING = b'{"error":"model \'m\' not found"}'
SOLE = engine("ollama", "m", name="a")
PEER = "1b0b"


def wanted(model: str = "m") -> Request:
    """A chat, in routing's words."""
    route = match("ollama", "POST", "/api/chat")
    assert route is not None
    return Request("ollama", route, model)


class HoldsCase(BenchCase):
    """What several of them ask."""

    def order(self, bench: Bench) -> list[str]:
        """Where the next request would go, best first."""
        return [each.candidate.engine for each in bench.scheduling.plan(wanted()).ranked]

    def held(self, bench: Bench) -> dict[tuple[str, str], tuple[str, float]]:
        """Kind and seconds left, by engine and model."""
        now = int(bench.clock.seconds() * 1000)
        shown = bench.scheduling.penalties()
        return {key[1:]: (each.kind, (each.until - now) / 1000) for key, each in shown.items()}

    def ask_again(self, bench: Bench) -> Client:
        """One more client asks, on a connection of its own."""
        client = bench.connect()
        client.asks("POST", "/api/chat", CHAT)
        bench.advance()
        return client


class ArmingTests(HoldsCase):
    """The third column of PX-44."""

    def test_busy(self) -> None:
        """F04: 429 and 503 hold the engine, for as long as it says; the next request goes to the other one first."""
        for fields, seconds in [((), 1.0), (((b"Retry-After", b"9"),), 9.0)]:
            for status in (429, 503):
                bench = self.ask()
                bench.a.answers(response(status, b"{}", *fields))
                self.assert_served_by_b(bench)
                self.assertEqual((self.held(bench), self.order(bench)), ({("a", ""): ("busy", seconds)}, ["b", "a"]))
                bench.advance(seconds)
                self.assertEqual(self.order(bench), ["a", "b"])

    def test_faults(self) -> None:
        """H16: three failures in a row while probes are green; the first success makes good, and the entry goes."""
        bench = self.bench()
        for _ in range(3):
            client = self.ask_again(bench)
            bench.a.answers(response(500, b"{}"))
            bench.b.answers(response(200, DONE))
            self.assertEqual(client.answer.status, 200)
            client.leaves()
            bench.advance(1)
        self.assertEqual(self.order(bench), ["b", "a"])
        self.assertEqual(self.held(bench)["a", "m"][0], "fault")
        self.assertEqual(bench.entries, [f"routing:node_failing:{NODE}"])
        bench.advance(30)
        trial, other = self.ask_again(bench), self.ask_again(bench)
        bench.b.answers(response(200, DONE))
        self.assertEqual(other.answer.status, 200)
        self.assertEqual(bench.entries, [f"routing:node_failing:{NODE}"])
        bench.a.answers(response(200, DONE))
        self.assertEqual((trial.answer.status, bench.entries, self.held(bench)), (200, [], {}))

    def test_connections(self) -> None:
        """A refused connection counts for the whole engine, and so does a 2xx that ends before its first byte."""
        bench = self.bench(SOLE)
        bench.a.refuses = True
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.advance(5)
        self.assertEqual(self.held(bench)["a", ""][0], "fault")
        self.assert_refused(bench, 502, "engine_unreachable")

    def test_sole_owner(self) -> None:
        """F14: after five failures the sixth request is tried at once."""
        bench = self.ask(SOLE)
        for _ in range(5):
            bench.a.answers(response(500, b"{}"))
            self.ask_again(bench)
        self.assertEqual(self.held(bench)["a", "m"][0], "fault")
        client = self.ask_again(bench)
        bench.a.answers(response(200, DONE))
        self.assertEqual((client.answer.status, self.held(bench)), (200, {}))

    def test_neutral(self) -> None:
        """408, 501, 508, a redirect and the caller's own mistakes arm nothing, however often."""
        for status in (302, 400, 408, 422, 501, 508):
            bench = self.bench(SOLE)
            for _ in range(4):
                client = self.ask_again(bench)
                bench.a.answers(response(status, b"{}"))
                client.leaves()
            self.assertEqual(self.held(bench), {})

    def test_owner_routes_arm_nothing(self) -> None:
        """PX-27: what is asked of an owner besides inference is no trial and no fault."""
        bench = self.bench(SOLE)
        for _ in range(4):
            client = bench.connect()
            client.asks("POST", "/api/show", {"model": "m"})
            bench.a.answers(response(503, b"{}"))
            self.assertEqual(client.answer.status, 503)
            client.leaves()
        self.assertEqual(self.held(bench), {})

    def test_client_leaves(self) -> None:
        """A trial whose client left is tried again by the next one."""
        bench = self.ask()
        bench.a.answers(response(503, b"{}"))
        self.assert_served_by_b(bench)
        bench.advance(1)
        trial = self.ask_again(bench)
        self.assertEqual(self.order(bench), ["b", "a"])
        trial.leaves()
        bench.advance()
        self.assertEqual(self.order(bench), ["a", "b"])


class StallTests(HoldsCase):
    """RT-50 on one node: ``engine_stalled``, connect timeouts and the limits on a wait."""

    def stall(self) -> Bench:
        """The first engine is not alive any more, and the second has served."""
        bench = self.bench()
        bench.engines.set_status("a", models_at=1)
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.engines.dead.add("a")
        bench.advance(5)
        self.assert_served_by_b(bench)
        return bench

    def test_until_evidence(self) -> None:
        """The engine is held; a failed probe is no evidence, one that read its list is, within a second."""
        bench = self.stall()
        self.assertEqual(self.held(bench)["a", ""][0], "stall")
        bench.engines.set_status("a", health="ok", health_at=2)
        bench.advance(10)
        self.assertEqual(self.order(bench), ["b", "a"])
        bench.engines.set_status("a", models_at=2)
        bench.advance(1)
        self.assertEqual(self.order(bench), ["a", "b"])
        bench.engines.dead.clear()
        self.ask_again(bench)
        self.assertEqual(self.order(bench), ["b", "a"])
        bench.a.answers(response(200, DONE))
        self.assertEqual(self.order(bench), ["a", "b"])

    def test_at_most_a_minute(self) -> None:
        """Then it is tried again without evidence."""
        bench = self.stall()
        bench.advance(59)
        self.assertEqual(self.order(bench), ["b", "a"])
        bench.advance(1.5)
        self.assertEqual(self.order(bench), ["a", "b"])

    def test_connect_timeout(self) -> None:
        """An engine that does not accept is silent, not faulty."""
        bench = self.bench()
        bench.a.hangs = True
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.advance(3.1)
        self.assertEqual(self.held(bench)["a", ""][0], "stall")
        self.assert_served_by_b(bench)


class StaleTests(HoldsCase):
    """RT-51."""

    def test_listed_and_denied(self) -> None:
        """M16: listed still, the model is left alone at that engine for 5 s; another model of it is not."""
        bench = self.ask(engine("ollama", "m", "n", name="a"), engine("ollama", "m", name="b"))
        bench.a.answers(response(404, MISSING))
        self.assert_served_by_b(bench)
        self.assertEqual(self.order(bench), ["b"])
        self.assertEqual(len(bench.scheduling.plan(wanted("n")).ranked), 1)
        bench.advance(5)
        self.assertEqual(self.order(bench), ["a", "b"])

    def test_denied_by_all(self) -> None:
        """M16: the engine's own words the first time, then an error of ours; a newer list ends it."""
        bench = self.ask(SOLE)
        bench.a.answers(response(404, MISSING))
        self.assertEqual((bench.client.answer.status, bench.client.answer.body), (404, MISSING))
        bench.client.leaves()
        bench.client = self.ask_again(bench)
        self.assert_refused(bench, 502, "model_unknown")
        bench.engines.put(engine("ollama", "m", name="a"))
        self.assertEqual(self.order(bench), [])
        bench.engines.put(replace(SOLE, revision=1))
        self.assertEqual(self.order(bench), ["a"])

    def test_missing_route(self) -> None:
        """A plain 404 page says nothing of the model."""
        bench = self.ask()
        bench.a.answers(response(404, b"404 page not found"))
        self.assert_served_by_b(bench)
        bench.connect().asks("POST", "/api/generate", {"model": "m", "prompt": "x"})
        self.assertIn(b"POST /api/generate", bench.a.asked)


class GateTests(HoldsCase):
    """RT-52, PX-13 (11)."""

    def test_flood_on_a_sole_owner(self) -> None:
        """While one request waits for its next round the others are refused at once: no job, no dispatch, no load."""
        bench = self.ask(SOLE)
        bench.a.answers(response(503, b'{"error":"busy"}', (b"Retry-After", b"7")))
        first = bench.job
        for _ in range(200):
            client = bench.connect()
            client.asks("POST", "/api/chat", CHAT)
            answer = client.answer
            self.assertEqual((answer.status, answer.fields["x-pair-error"]), (503, "busy"))
            self.assertEqual(answer.fields["retry-after"], "7")
            client.leaves()
        self.assertEqual((bench.job.id, len(bench.a.connections)), (first.id, 1))
        self.assertEqual(bench.in_use()["active"], 1)
        bench.advance(0.25)
        bench.a.answers(response(200, DONE))
        self.assertEqual(bench.client.answer.status, 200)
        client = self.ask_again(bench)
        bench.a.answers(response(200, DONE))
        self.assertEqual(client.answer.status, 200)

    def test_no_request_waits(self) -> None:
        """When the one that knew has its final answer, one more is let in, held or not."""
        bench = self.ask(SOLE)
        bench.a.answers(response(429, b"{}", (b"Retry-After", b"30")))
        self.assertEqual(bench.client.answer.status, 429)
        client = self.ask_again(bench)
        bench.a.answers(response(429, b"{}"))
        self.assertEqual((client.answer.status, client.answer.fields["retry-after"]), (429, "1"))

    def test_another_owner(self) -> None:
        """One free owner lets it in, and so do lists and owner routes at any time."""
        bench = self.ask()
        bench.a.answers(response(503, b"{}"))
        other = self.ask_again(bench)
        bench.b.answers(response(200, DONE))
        self.assertEqual(other.answer.status, 200)

    def test_dialect(self) -> None:
        """The refusal is in the caller's words (PX-84)."""
        bench = self.ask(SOLE)
        bench.a.answers(response(503, b"{}"))
        client = bench.connect()
        client.asks("POST", "/v1/messages", CHAT)
        self.assertEqual(client.answer.json["error"]["type"], "overloaded_error")


class ServiceTests(HoldsCase):
    """What the scheduler gives and follows."""

    def test_explained(self) -> None:
        """RT-67: the account of a decision has the hold, with its end by the wall clock."""
        bench = self.ask()
        bench.a.answers(response(503, b"{}"))
        self.assert_served_by_b(bench)
        made = bench.scheduling.explain(wanted())
        self.assertEqual([each.engine for each in made.candidates], ["b", "a"])
        self.assertEqual(made.candidates[0].hold, None)
        self.assertEqual(made.candidates[1].hold, Penalty("busy", int(START * 1000) + 1000, 1))

    def test_engine_that_goes(self) -> None:
        """RT-54: with the engine goes what was held against it, and the entry of its node."""
        bench = self.bench()
        for _ in range(3):
            self.fail_once(bench)
        self.assertEqual(bench.entries, [f"routing:node_failing:{NODE}"])
        bench.engines.changed.emit(NodeInventory(NODE, (engine("ollama", "m", name="b"),)))
        self.assertEqual((self.held(bench), bench.entries), ({}, []))

    def test_broken_off_by_its_going(self) -> None:
        """RT-54: what was under way to an engine or a node that went is held against none."""
        bench = self.bench(engine("ollama", "other", name="a"), peers=(node(PEER, engine("ollama", "m", name="far")),))
        bench.advance(0.1)
        clients = [self.ask_again(bench) for _ in range(4)]
        bench.scheduling.drop_peer(PEER)
        for each in bench.members.machines[PEER].connections:
            each.lose(ConnectionLost())
        bench.advance(10)
        self.assertEqual({each.answer.status for each in clients}, {502})
        self.assertEqual((self.held(bench), bench.entries), ({}, []))

    def fail_once(self, bench: Bench) -> None:
        sent = bench.scheduling.take("j", Candidate(NODE, "a", "ollama", "m"))
        bench.scheduling.holds.failed(sent, judge_status(500, "fault"))
        bench.scheduling.finished("j")

    def test_wall_clock(self) -> None:
        """A hold ends on time whatever the wall clock does."""
        wall, monotonic = Clock(), Clock()
        engines = FakeEngines(NODE, SOLE)
        errors = error_book(NODE, lambda: 0)
        scheduling = SchedulerService(
            wall, monotonic.seconds, NODE, engines, PressurePolicy(), (), lambda kinds: (), False, errors
        )
        scheduling.holds.known(engines.inventory())
        sent = scheduling.take("j", Candidate(NODE, "a", "ollama", "m"))
        scheduling.holds.failed(sent, STALLED)
        wall.advance(10_000)
        monotonic.advance(59)
        self.assertEqual(len(scheduling.penalties()), 1)
        (shown,) = scheduling.penalties().values()
        self.assertEqual(shown.until, 10_001_000)
        monotonic.advance(1)
        self.assertEqual(scheduling.penalties(), {})
