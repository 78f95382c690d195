"""Tests of :mod:`pair.proxy.scheduling`: loads and facts as the data path changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from zope.interface import implementer

from pair.interfaces import IRoutingPolicy
from pair.proxy.scheduling import SETTLE
from pair.records.telemetry import CompactTelemetry
from pair.routing.candidates import Request
from pair.routing.dialects import match
from pair.test.proxy.bench import CHAT, DONE, NODE, Bench, BenchCase
from pair.test.proxy.network import response
from pair.test.routing.facts import engine, node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.routing.candidates import Candidate
    from pair.routing.planning import Plan
    from pair.routing.policies import Ranked, View

PEER = "b0b0"


class Rule(Struct, frozen=True):
    model: str
    require: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()


@implementer(IRoutingPolicy)
class Broken:
    """A policy that fails."""

    name = "broken"

    def rank(self, request: Request, candidates: Sequence[Candidate], view: View) -> Sequence[Ranked]:
        raise ZeroDivisionError


def plan(bench: Bench, model: str = "m", path: str = "/api/chat") -> Plan:
    """What is planned for a request now."""
    route = match("ollama", "POST", path)
    assert route is not None
    return bench.scheduling.plan(Request("ollama", route, model))


def engines(made: Plan) -> list[str]:
    """The candidates of a plan."""
    return [each.candidate.engine for each in made.ranked]


class LoadTests(BenchCase):
    """RT-28 to RT-33, RT-41 to RT-45."""

    def load(self, bench: Bench) -> tuple[int, int]:
        """Jobs that the snapshot counts on this node, and those that it does not yet."""
        load = bench.scheduling.book.load(NODE)
        return load.pending, load.reservations

    def test_a_request_counts_once(self) -> None:
        """Reserved at its dispatch, counted by the next snapshot, and gone with its end."""
        bench = self.bench()
        bench.client.asks("POST", "/api/chat", CHAT)
        self.assertEqual(self.load(bench), (0, 1))
        bench.advance(SETTLE)
        self.assertEqual(self.load(bench), (1, 0))
        bench.a.answers(response(200, DONE))
        self.assertEqual(self.load(bench), (0, 0))
        bench.advance(SETTLE)
        self.assertEqual((self.load(bench), bench.in_use()), ((0, 0), {}))

    def test_between_rounds(self) -> None:
        """RT-42: a request that waits for its next round is on no node."""
        bench = self.ask(engine("ollama", "m", name="a"))
        bench.a.answers(response(503))
        self.assertEqual(self.load(bench), (0, 0))
        bench.advance(0.5)
        bench.advance(SETTLE)
        self.assertEqual(self.load(bench), (1, 0))

    def test_changes_are_joined(self) -> None:
        """RT-33: however many jobs change in a short while, one snapshot is made; without a change, none."""
        bench = self.bench()
        bench.advance()
        before = bench.scheduling.book.snapshot.generation
        for _ in range(20):
            bench.connect().asks("POST", "/api/chat", CHAT)
            bench.advance()
        bench.advance(SETTLE)
        self.assertEqual(bench.scheduling.book.snapshot.generation, before + 1)
        bench.advance(10)
        self.assertEqual(bench.scheduling.book.snapshot.generation, before + 1)

    def test_owner_routes_count_nothing(self) -> None:
        """RT-41: only inference reserves."""
        bench = self.bench()
        bench.client.asks("GET", "/v1/models/m")
        self.assertEqual(self.load(bench), (0, 0))

    def test_stop(self) -> None:
        """A stopped service follows nothing, and may be asked all the same."""
        bench = self.ask()
        bench.scheduling.stopService()
        bench.engines.stop("a")
        self.assertEqual(engines(plan(bench)), ["a", "b"])
        bench.client.leaves()


class FactsTests(BenchCase):
    """What the engines tell comes into the next plan (RT-22)."""

    def test_inventory(self) -> None:
        """An engine that stops or lists another model is left out at once."""
        bench = self.bench()
        self.assertEqual(engines(plan(bench)), ["a", "b"])
        bench.engines.stop("a")
        self.assertEqual(engines(plan(bench)), ["b"])
        bench.engines.put(engine("ollama", "other", name="b"))
        self.assertEqual((engines(plan(bench)), plan(bench).answer), ([], "engine_stopped"))
        self.assertEqual(engines(plan(bench, "other")), ["b"])

    def test_labels(self) -> None:
        """RT-23: the labels follow the kinds of the engines that run."""
        bench = self.bench(engine("ollama", "m", name="a"), engine("llamacpp", loaded=("m",), name="e"))
        (facts,) = bench.scheduling.catalogue.nodes()
        self.assertEqual(facts.inventory.labels, ("os=linux", "engine=llamacpp", "engine=ollama"))
        bench.engines.stop("e")
        (facts,) = bench.scheduling.catalogue.nodes()
        self.assertEqual(facts.inventory.labels, ("os=linux", "engine=ollama"))

    def test_own_hardware(self) -> None:
        """DS-94, RT-35: the pressure is that of the busiest GPU as it is told; unknown without."""
        bench = self.bench()
        bench.scheduling.observe(CompactTelemetry(NODE, 95.0, True, 500, 0, "self"))
        bench.advance(1)
        self.assertEqual(bench.scheduling.book.load(NODE).pressure, 3)
        bench.scheduling.observe(CompactTelemetry(NODE, None, False, None, 0, "self"))
        bench.advance(3)
        self.assertEqual(bench.scheduling.book.load(NODE).pressure, 1)

    def test_peers(self) -> None:
        """RT-29, RT-34: other members are ranked with the jobs that others place on them, until they are dropped."""
        bench = self.bench(peers=(node(PEER, engine("ollama", "m", name="c")),))
        counts = {PEER: 2, NODE: 1, "unknown": 5}
        bench.scheduling.count_others(lambda: counts)
        bench.scheduling.pending_changed()
        bench.advance(0.1)
        self.assertEqual([bench.scheduling.book.load(each).pending for each in (NODE, PEER)], [1, 2])
        bench.scheduling.observe(CompactTelemetry(PEER, 95.0, True, 500, 0, "feed"))
        bench.advance(1)
        self.assertEqual(bench.scheduling.book.load(PEER).pressure, 3)
        bench.scheduling.drop_peer(PEER)
        bench.advance(0.1)
        self.assertEqual([each.id for each in bench.scheduling.catalogue.nodes()], [NODE])
        self.assertEqual([each.node for each in bench.scheduling.book.snapshot.ranks], [NODE])

    def test_demands(self) -> None:
        """RT-23: of the first rule that matches the model under either naming, and of the request."""
        bench = self.bench(rules=(Rule("llama3:latest", ("x",), ("y",)), Rule("*", ("z",))))
        demands = bench.scheduling.demands
        self.assertEqual(demands("llama3", frozenset("h")), (frozenset("xh"), frozenset("y")))
        self.assertEqual(demands("other", frozenset()), (frozenset("z"), frozenset()))
        self.assertEqual(demands("", frozenset()), (frozenset("z"), frozenset()))

    def test_policy_that_fails(self) -> None:
        """RT-58: the default stands in for it, and an entry says so."""
        bench = self.bench(policy=Broken())
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.a.answers(response(200, DONE))
        self.assertEqual((bench.client.answer.status, bench.job.policy), (200, "pressure"))
        self.assertEqual(bench.entries, ["routing:policy:broken"])
