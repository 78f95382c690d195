"""Tests of routing as a whole, in the simulator: every scenario, its invariants and what it is there to show."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from pair.interfaces import IRoutingPolicy
from pair.routing.policies.pressure import PressurePolicy
from pair.routing.reservations import ReservationBook
from pair.test.simulation import scenario
from pair.test.simulation.clairvoyant import Clairvoyant
from pair.test.simulation.invariants import Violation
from pair.test.simulation.policies import AnyPolicy, AssignedPolicy, InformedPolicy, LoadsPolicy, RoundRobinPolicy
from pair.test.simulation.requests import Errand
from pair.test.simulation.results import figures
from pair.test.simulation.scenario import FaultSpec, NodeSpec, Scenario, TrafficSpec
from pair.test.simulator import Result, Simulation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pair.routing.candidates import Candidate, Request
    from pair.routing.policies import Ranked, View


def lines(result: Result, event: str, **fields: str) -> list[dict[str, Any]]:
    """The lines of a trace about one kind of event, with these fields."""
    told = (msgspec.json.decode(each) for each in result.trace)
    return [each for each in told if each["event"] == event and fields.items() <= each.items()]


def ends(result: Result) -> Counter[str]:
    """How many requests ended in which way."""
    return Counter(each.end for each in result.outcomes)


def times(found: Iterable[dict[str, Any]], since: float = 0.0, until: float = 1e9) -> list[float]:
    """When, within bounds."""
    return [each["t"] for each in found if since <= each["t"] < until]


class TraceTests(SynchronousTestCase):
    """RT-68."""

    def test_equal_for_equal_seeds(self) -> None:
        """Every scenario twice, with all invariants after each event: the same lines; another seed has others."""
        self.assertGreaterEqual({len(scenario.load(each).nodes) for each in scenario.names()}, {2, 3, 8})
        for name in scenario.names():
            told = scenario.load(name)
            first = Simulation(told, 7).run().trace
            self.assertEqual(Simulation(told, 7).run().trace, first, name)
            if name != "eight_nodes":
                self.assertNotEqual(Simulation(told, 8).run().trace, first, name)

    def test_lines(self) -> None:
        """Each line has its time and its event; time does not go back."""
        result = Simulation(scenario.load("two_nodes")).run()
        told = [msgspec.json.decode(each) for each in result.trace]
        self.assertEqual([each["t"] for each in told], sorted(each["t"] for each in told))
        first = told[0]
        self.assertEqual((first["event"], first["job"]), ("asked", "lap.1"))
        self.assertEqual(told[1], {"t": first["t"], "event": "dispatched", "job": "lap.1", "node": "desk"} | told[1])

    def test_other_hashes(self) -> None:
        """A process that hashes text differently prints the same (RT-2)."""
        done = subprocess.run(
            [sys.executable, "-m", "pair.test.simulator", "two_origins", "--seed", "3"],
            env={**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        )
        expected = Simulation(scenario.load("two_origins"), 3).run().trace
        self.assertEqual(done.stdout.decode().splitlines(), list(expected))

    def test_the_same_questions_under_every_policy(self) -> None:
        """What clients ask is drawn before anything else: policies are compared on the same."""
        told = scenario.load("two_nodes")
        asked = {
            tuple(sorted((each.ask for each in Simulation(told, 1, policy).run().outcomes), key=lambda each: each.at))
            for policy in (AnyPolicy, RoundRobinPolicy)
        }
        self.assertEqual(len(asked), 1)


class ScenarioTests(SynchronousTestCase):
    """What each scenario shows (RT-71)."""

    def run_seeds(self, name: str, seeds: int = 4) -> list[Result]:
        return [Simulation(scenario.load(name), seed).run() for seed in range(seeds)]

    def test_burst(self) -> None:
        """A hundred at once over four equal nodes: 25 each (RT-47)."""
        for result in self.run_seeds("burst"):
            self.assertEqual(Counter(each.node for each in result.outcomes), dict.fromkeys("abcd", 25))

    def test_two_nodes(self) -> None:
        """Once it is learned that it is the faster, ties go to it: most is served there, and all is served."""
        for result in self.run_seeds("two_nodes"):
            nodes = Counter(each.node for each in result.outcomes)
            self.assertEqual(ends(result), {"served": 60})
            self.assertGreater(nodes["desk"], 2 * nodes["lap"])

    def test_three_nodes(self) -> None:
        """Nothing goes to a node without the model, and nothing is lost."""
        for result in self.run_seeds("three_nodes"):
            self.assertEqual(ends(result), {"served": 120})
            large = {each.node for each in result.outcomes if each.ask.model == "large"}
            self.assertEqual(large, {"desk"})

    def test_fast_503(self) -> None:
        """Who refuses in a millisecond looks idle, and still gets next to nothing; it is back when it is well."""
        for result in self.run_seeds("fast_503"):
            self.assertEqual(ends(result), {"served": 120})
            sent = lines(result, "dispatched", node="c")
            asked = lines(result, "asked")
            refused = lines(result, "failed", outcome="status503")
            # Holds of 1, 2, 4, 8, 16 and 30 s, and a trial after each; more only while one is on its way.
            self.assertLessEqual(len(refused), 8)
            self.assertLessEqual(len(times(sent, 30, 90)), 0.05 * 120 + 2)
            self.assertTrue(times(lines(result, "first_byte", node="c"), 90), "restored on success")
            self.assertEqual(len(asked), 120)

    def test_freeze(self) -> None:
        """A frozen node costs a request 8 s at most, and gets no other until it gives a sign of life (PX-55)."""
        for result in self.run_seeds("freeze"):
            silent = lines(result, "failed", node="b", outcome="silent")
            self.assertEqual(max(Counter(each["job"] for each in silent).values()), 1)
            sent = {each["job"]: each["t"] for each in lines(result, "dispatched", node="b")}
            for each in silent:
                self.assertLessEqual(each["t"], max(40.0, sent[each["job"]]) + 8.0)
            held = [each for each in times(lines(result, "dispatched", node="b")) if min(times(silent)) < each < 100]
            self.assertEqual(held, [])
            self.assertTrue(times(lines(result, "first_byte", node="b"), 100), "back without a restart")
            self.assertLessEqual(set(ends(result)), {"served", "cut"})
            cut = [each.node for each in result.outcomes if each.end == "cut"]
            self.assertEqual(cut, ["b"] * len(cut))

    def test_flapping(self) -> None:
        """What has not begun is served by another; only streams under way at that node are cut."""
        for result in self.run_seeds("flapping"):
            self.assertLessEqual(set(ends(result)), {"served", "cut"})
            gone = lines(result, "fault", node="b")
            self.assertEqual(len(gone), 12)
            for each in lines(result, "cut"):
                self.assertEqual(each["node"], "b")
                self.assertTrue(any(abs(each["t"] - fault["t"]) < 0.01 for fault in gone))
            self.assertTrue(times(lines(result, "first_byte", node="b"), 111), "back after the last time")

    def test_stale(self) -> None:
        """A model that is listed and lost is asked for ever more seldom, and after the list is right, not at all."""
        for result in self.run_seeds("stale"):
            self.assertEqual(ends(result), {"served": 120})
            denied = times(lines(result, "failed", node="c", outcome="status404"))
            # 5, 10, 20, 40 and 60 s apart; one more where two were on their way.
            self.assertLessEqual(len(denied), 7)
            self.assertEqual(times(lines(result, "dispatched", node="c"), 140.2), [])

    def test_two_origins(self) -> None:
        """Each hears of the other late: a burst of one goes astray by what the other has just sent, and no more."""
        for result in self.run_seeds("two_origins"):
            self.assertEqual(ends(result), {"served": 120})
            burst = [each["node"] for each in lines(result, "dispatched") if each["job"].startswith("b.")]
            shares = Counter(burst)
            self.assertEqual(sum(shares.values()), 40)
            self.assertLessEqual(max(shares.values()) - min(shares.values()), 8)

    def test_busy_gpu(self) -> None:
        """A node whose GPU somebody else uses gets less than its share meanwhile, and its share again after it."""
        shares = Counter[str]()
        for result in self.run_seeds("busy_gpu"):
            self.assertEqual(ends(result), {"served": 120})
            shares.update(each["node"] for each in lines(result, "dispatched") if 50 <= each["t"] < 100)
        self.assertLess(2 * shares["b"], shares["a"])
        self.assertLess(2 * shares["b"], shares["c"])

    def test_eight_nodes(self) -> None:
        """All is served, by whoever has the model."""
        (result,) = self.run_seeds("eight_nodes", 1)
        self.assertEqual(ends(result), {"served": 200})
        specs = {each.id: each for each in scenario.load("eight_nodes").nodes}
        for each in result.outcomes:
            self.assertIn(each.ask.model, specs[each.node or ""].models)


def small(*faults: FaultSpec, count: int = 20, nodes: int = 2, **traffic: Any) -> Scenario:
    """So many equal nodes, with clients at the first."""
    specs = [NodeSpec(id=each, models={"m": 1.0}, loaded=("m",)) for each in "abcdefgh"[:nodes]]
    asked: dict[str, Any] = {"every": 0.5, "models": {"m": 1.0}, "output": (20, 40)} | traffic
    return Scenario(
        about="",
        nodes=tuple(specs),
        traffic=(TrafficSpec(origin="a", count=count, **asked),),
        faults=faults,
    )


class EndTests(SynchronousTestCase):
    """The ways in which a request ends."""

    def test_busy_gate(self) -> None:
        """Where all refuse, the first go their rounds and the others are refused at once; then all is well (RT-52)."""
        faults = [FaultSpec(node=each, kind="503", at=0.0, lasts=10.0) for each in "ab"]
        result = Simulation(small(*faults, count=60, every=0.3)).run()
        self.assertEqual(set(ends(result)), {"refused", "failed", "served"})
        dispatched = times(lines(result, "dispatched"), 0, 10)
        self.assertLess(len(dispatched), 40)
        for each in lines(result, "refused"):
            self.assertTrue(1 <= each["retry_after"] <= 30)

    def test_sole_owner_is_always_tried(self) -> None:
        """Faults keep nobody from the only one that has the model (RT-53)."""
        fault = FaultSpec(node="b", kind="refuse", at=1.0, lasts=8.0)
        told = small(fault, count=30, every=0.3)
        lone = replace(told.nodes[0], models={"other": 1.0}, loaded=())
        result = Simulation(replace(told, nodes=(lone, told.nodes[1]))).run()
        self.assertGreater(len(lines(result, "failed", outcome="connect")), 10)
        self.assertTrue(times(lines(result, "first_byte"), 9.0))

    def test_all_owners_gone(self) -> None:
        """Who is out of sight long enough is offline, and says so; it is online again by its first sign of life."""
        fault = FaultSpec(node="b", kind="freeze", at=1.0, lasts=40.0)
        told = small(fault, count=30, every=2.0)
        lone = replace(told.nodes[0], models={"other": 1.0}, loaded=())
        result = Simulation(replace(told, nodes=(lone, told.nodes[1]))).run()
        presence = [each["presence"] for each in lines(result, "presence", node="b")]
        self.assertEqual(presence, ["suspect", "offline", "online"])
        self.assertTrue(lines(result, "failed", answer="owners_offline"))
        self.assertTrue(times(lines(result, "first_byte"), 41.0))

    def test_clients_that_hang_up(self) -> None:
        """A client without patience leaves nothing behind, with one node that plans and with two (RT-42)."""
        told = scenario.load("two_origins")
        hasty = replace(told, traffic=tuple(replace(each, patience=2.0) for each in told.traffic))
        for each in (small(count=40, every=0.0, patience=3.0), hasty):
            self.assertEqual(set(ends(Simulation(each).run())), {"served", "hung_up"})

    def test_cut_streams(self) -> None:
        """An answer that has begun is not begun again elsewhere (PX-63)."""
        fault = FaultSpec(node="b", kind="refuse", at=5.0, lasts=5.0)
        result = Simulation(small(fault, count=10, output=(400, 400))).run()
        (cut,) = [each for each in result.outcomes if each.end == "cut"]
        self.assertEqual((cut.node, cut.attempts, cut.wait), ("b", 1, None))

    def test_telemetry_that_never_comes(self) -> None:
        """Without telemetry all others are neutral, and requests spread by jobs."""
        told = replace(small(count=30, every=0.0, nodes=3), loss=1.0)
        shares = Counter(each.node for each in Simulation(told).run().outcomes)
        self.assertLessEqual(max(shares.values()) - min(shares.values()), 1)


class InvariantTests(SynchronousTestCase):
    """RT-70: what may never be is noticed."""

    def violated(self, simulation: Simulation, what: str) -> None:
        with self.assertRaises(Violation) as caught:
            simulation.run()
        self.assertIn(what, str(caught.exception))

    def test_a_reservation_without_a_dispatch(self) -> None:
        """One that nobody holds."""
        simulation = Simulation(small())
        simulation.origins["a"].book.take("ghost", "b", 1, 0.0)
        self.violated(simulation, "reservations are as many as open dispatches")

    def test_a_dispatch_without_a_reservation(self) -> None:
        """One that is released too early."""
        simulation = Simulation(small())
        origin = simulation.origins["a"]

        def release() -> None:
            for job in origin.errands:
                origin.book.release(job, 3.0)

        simulation.events.at(3.0, release)
        self.violated(simulation, "a reservation is not where its job is")

    def test_two_places(self) -> None:
        """A job that is sent to a second node while it is at the first."""
        simulation = Simulation(small())
        origin = simulation.origins["a"]

        def send_again() -> None:
            errand = next(each for each in origin.errands.values() if each.attempt is not None)
            twin = Errand(origin, errand.ask)
            twin.attempt = errand.attempt
            origin.errands["a.twin"] = twin

        simulation.events.at(3.0, send_again)
        self.violated(simulation, "a job is active at two nodes")

    def test_an_ineligible_node(self) -> None:
        """A dispatch to a node that is known to be gone, whatever the plan says."""
        simulation = Simulation(small())
        origin = simulation.origins["a"]
        origin.facts = {name: replace(each, online=False) for name, each in origin.facts.items()}
        self.violated(simulation, "a job goes to a node that is gone")

    def test_a_load_that_is_off(self) -> None:
        """A job that ended counts until the next snapshot: the book has forgotten that it is over."""

        class Forgetful(ReservationBook):
            def release(self, job: str, now: float) -> bool:
                released = super().release(job, now)
                self.forget(now + 61.0)
                return released

        simulation = Simulation(small())
        book = Forgetful()
        book.apply(simulation.origins["a"].book.snapshot)
        simulation.origins["a"].book = book
        self.violated(simulation, "a load is not what it should be")

    def test_a_count_that_stays(self) -> None:
        """A job of another node whose end is never heard of."""
        simulation = Simulation(small())
        simulation.origins["a"].told_job("x.1", "b")
        self.violated(simulation, "a load is left")

    def test_a_policy_that_fails(self) -> None:
        """Its replacement would hide that it was not measured (RT-58)."""

        class Broken(PressurePolicy):
            def rank(self, request: Request, candidates: Sequence[Candidate], view: View) -> tuple[Ranked, ...]:
                return ()

        self.violated(Simulation(small(), policy=lambda simulation: Broken()), "a policy fails")


class PolicyTests(SynchronousTestCase):
    """The policies to compare with."""

    def test_they_are_policies(self) -> None:
        """Each provides the interface, and serves all there is."""
        makers = (AnyPolicy, RoundRobinPolicy, partial(LoadsPolicy, jobs=3), partial(InformedPolicy, output=len_of))
        for maker in makers:
            verifyObject(IRoutingPolicy, maker(Simulation(small())))
            self.assertEqual(ends(Simulation(small(), 0, maker).run()), {"served": 20})

    def test_knowledge_helps(self) -> None:
        """Chance waits longest, then ``pressure``, then who counts loads, then who knows all, then who sees ahead."""
        told = scenario.load("three_nodes")
        simulation = Simulation(told, 5, partial(InformedPolicy, output=len_of))
        results = {
            "random": Simulation(told, 5, AnyPolicy).run(),
            "pressure": Simulation(told, 5).run(),
            "loads": Simulation(told, 5, partial(LoadsPolicy, jobs=5)).run(),
            "lengths": simulation.run(),
        }
        found = Clairvoyant(told, simulation.asks, simulation.random).best(
            [{each.ask.job: each.node for each in results["lengths"].outcomes if each.node}], effort=200
        )
        results["clairvoyant"] = Simulation(told, 5, partial(AssignedPolicy, nodes=found)).run()
        waits = [figures([each]).mean for each in results.values()]
        self.assertEqual(waits, sorted(waits, reverse=True))


def len_of(ask: scenario.Ask) -> float:
    """The true length."""
    return ask.output
