"""Tests of what the simulator is made of: a machine does what it says, and what is known beforehand is true."""

from __future__ import annotations

import itertools
import math
import random
from typing import TYPE_CHECKING, Any

from twisted.trial.unittest import SynchronousTestCase

from pair.test.simulation.bounds import Bounds, bounded
from pair.test.simulation.clairvoyant import Clairvoyant
from pair.test.simulation.events import Events, Progress
from pair.test.simulation.line import Line
from pair.test.simulation.machine import Machine
from pair.test.simulation.results import quantile
from pair.test.simulation.scenario import Ask, FaultSpec, NodeSpec, Scenario, TrafficSpec, load, names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.records.engines import NodeInventory


class Client:
    """Asks a machine, and keeps what it hears and when."""

    def __init__(self, ask: Ask, events: Events) -> None:
        self.ask = ask
        self.heard: list[tuple[Any, ...]] = []
        self._events = events

    def _hear(self, *what: object) -> None:
        self.heard.append((round(self._events.now, 6), *what))

    def refused(self) -> None:
        self._hear("refused")

    def answered(self, status: int, body: bytes) -> None:
        self._hear(status, body)

    def began(self) -> None:
        self._hear("began")

    def ended(self) -> None:
        self._hear("ended")

    def cut(self) -> None:
        self._hear("cut")


class MachineCase(SynchronousTestCase):
    """A machine that makes a token in a tenth of a second and reads a prompt at a hundred a second."""

    def machine(self, **spec: Any) -> Machine:
        self.events = Events()
        self.told: list[NodeInventory] = []
        given: dict[str, Any] = {"models": {"m": 3.0}, "loaded": ("m",), "prefill": 100.0, "decode": 10.0}
        made = NodeSpec(id="a", **(given | spec))
        return Machine(made, self.events, 0.0, self.told.append, lambda event, **more: None)

    def ask(self, machine: Machine, at: float = 0.0, model: str = "m", prompt: int = 90, output: int = 11) -> Client:
        """By default the first byte comes after one second and the last one after two."""
        client = Client(Ask(f"j{at}", "a", at, model, prompt, output), self.events)
        self.events.at(at, machine.offer, client)
        return client

    def run_events(self) -> None:
        while self.events.step():
            pass


class MachineTests(MachineCase):
    """RT-69."""

    def test_slots(self) -> None:
        """So many at once, the others in their order."""
        machine = self.machine(slots=2)
        clients = [self.ask(machine, at) for at in (0.0, 0.5, 0.6, 0.7)]
        self.run_events()
        self.assertEqual(
            [[each[0] for each in client.heard] for client in clients], [[1, 2], [1.5, 2.5], [3, 4], [3.5, 4.5]]
        )

    def test_queue_limit(self) -> None:
        """One more than may wait is told 503; a limit of none leaves the slots."""
        machine = self.machine(queue=1)
        clients = [self.ask(machine, at) for at in (0.0, 0.1, 0.2)]
        self.run_events()
        self.assertEqual([len(each.heard) for each in clients], [2, 2, 1])
        self.assertEqual(clients[2].heard[0][1], 503)

    def test_models_come_and_go(self) -> None:
        """A model is loaded where there is room, and waits for one that is in use; the list says what is loaded."""
        machine = self.machine(models={"m": 3.0, "n": 5.0}, slots=2)
        self.ask(machine)
        second = self.ask(machine, 0.1, "n")
        third = self.ask(machine, 0.2)
        self.run_events()
        # m until 2, n loads until 7 and serves until 9, m loads until 12.
        self.assertEqual([each[0] for each in second.heard + third.heard], [8, 9, 13, 14])
        self.assertEqual(machine.loads, 2)
        loaded = [[each.id for each in told.engines[0].models if each.loaded] for told in self.told]
        self.assertEqual(loaded, [[], ["n"], [], ["m"]])
        revisions = [told.engines[0].revision for told in self.told]
        self.assertEqual(revisions, sorted(set(revisions)))

    def test_room_for_two(self) -> None:
        """With room for two, both stay, and the one that began to serve longest ago leaves first."""
        machine = self.machine(models={"m": 1.0, "n": 1.0, "o": 1.0}, holds=2)
        for at, model in ((0.0, "n"), (5.0, "m"), (10.0, "o")):
            self.ask(machine, at, model)
        self.run_events()
        self.assertEqual((machine.loads, sorted(machine.loaded)), (2, ["m", "o"]))

    def test_refusing(self) -> None:
        """503 to new work; what is under way goes on."""
        machine = self.machine()
        first = self.ask(machine)
        self.events.at(0.5, machine.set_busy, True)
        second = self.ask(machine, 0.6)
        self.events.at(0.7, machine.set_busy, False)
        third = self.ask(machine, 0.8)
        self.run_events()
        self.assertEqual([len(first.heard), second.heard[0][1], len(third.heard)], [2, 503, 2])

    def test_freezing(self) -> None:
        """All is later by as much as it was frozen, and what came in the meantime is read then."""
        machine = self.machine()
        first = self.ask(machine)
        self.events.at(0.5, machine.set_frozen, True)
        second = self.ask(machine, 1.0)
        self.events.at(10.5, machine.set_frozen, False)
        self.run_events()
        self.assertEqual([each[0] for each in first.heard + second.heard], [11, 12, 13, 14])

    def test_slow(self) -> None:
        """At half the speed the rest takes twice as long; the GPU is busy by whatever makes it slow."""
        machine = self.machine()
        first = self.ask(machine)
        self.events.at(1.5, machine.set_speed, 0.5)
        self.events.at(1.6, lambda: self.assertEqual(machine.utilisation, 100.0))
        self.run_events()
        self.assertEqual([each[0] for each in first.heard], [1, 2.5])

    def test_gone(self) -> None:
        """What it was at is cut, new work refused, and it comes back with nothing in memory."""
        machine = self.machine(models={"m": 3.0, "n": 3.0}, slots=1)
        first, second = self.ask(machine), self.ask(machine, 0.1)
        self.events.at(1.5, machine.set_gone, True)
        third = self.ask(machine, 2.0)
        self.events.at(4.0, machine.set_gone, False)
        fourth = self.ask(machine, 5.0)
        self.run_events()
        self.assertEqual([each.heard[-1][1] for each in (first, second, third)], ["cut", "cut", "refused"])
        self.assertEqual([each[0] for each in fourth.heard], [9, 10])

    def test_stale(self) -> None:
        """The model is gone and listed, then not listed; who waits for it is told too."""
        machine = self.machine(models={"m": 3.0, "n": 3.0})
        first, second = self.ask(machine), self.ask(machine, 0.1)
        self.events.at(0.5, machine.set_missing, "m", True)
        third, fourth = self.ask(machine, 0.6), self.ask(machine, 0.7, "n")
        self.events.at(20.0, machine.set_missing, "m", False)
        self.run_events()
        self.assertEqual([each.heard[0][1] for each in (second, third)], [404, 404])
        self.assertEqual((len(first.heard), len(fourth.heard)), (2, 2))
        self.assertEqual([each.id for each in self.told[-1].engines[0].models], ["n"])

    def test_aborted(self) -> None:
        """The slot of one that hung up is free at once, and it hears nothing more."""
        machine = self.machine()
        first, second, third = self.ask(machine), self.ask(machine, 0.1), self.ask(machine, 0.2)
        for client in (first, second):
            self.events.at(0.5, machine.abort, client)
        self.run_events()
        self.assertEqual((first.heard, second.heard), ([], []))
        self.assertEqual([each[0] for each in third.heard], [1.5, 2.5])

    def test_progress_is_exact(self) -> None:
        """Speeds that come and go: what is left is what was not done."""
        events = Events()
        done: list[float] = []
        progress = Progress(events, 10.0, 1.0, lambda: done.append(events.now))
        for at, speed in ((2.0, 0.0), (5.0, 0.5), (9.0, 2.0)):
            events.at(at, progress.set_speed, speed)
        while events.step():
            pass
        self.assertEqual(done, [12.0])


def drawn(seed: int, count: int, models: Sequence[str], gap: float) -> list[Ask]:
    """Requests at random."""
    chance = random.Random(seed)
    at, asks = 0.0, []
    for number in range(count):
        at += chance.expovariate(1 / gap)
        asks.append(Ask(f"j{number}", "a", at, chance.choice(models), chance.randint(10, 400), chance.randint(1, 60)))
    return asks


class LineTests(MachineCase):
    """What a line tells beforehand."""

    def compare(self, seed: int, faults: Sequence[FaultSpec] = (), **spec: Any) -> None:
        machine = self.machine(**spec)
        line = Line(machine.spec, faults)
        clients, told = [], []
        for fault in faults:
            turn = machine.set_frozen if fault.kind == "freeze" else machine.set_gone
            for begin, end in fault.spells:
                if fault.kind == "slow":
                    self.events.at(begin, machine.set_speed, fault.factor)
                    self.events.at(end, machine.set_speed, 1.0)
                else:
                    self.events.at(begin, turn, True)
                    self.events.at(end, turn, False)
        for ask in drawn(seed, 40, tuple(machine.spec.models), 1.5):
            client = Client(ask, self.events)
            clients.append(client)
            self.events.at(ask.at, machine.offer, client)
            told.append(line.join(ask.at, ask.model, ask.prompt, ask.output))
        self.run_events()
        for client, (first, last) in zip(clients, told, strict=True):
            heard = [each[0] for each in client.heard]
            self.assertEqual(len(heard), 2)
            self.assertAlmostEqual(heard[0], first, places=4)
            self.assertAlmostEqual(heard[1], last, places=4)
        self.assertEqual(machine.loads, line.loads)

    def test_as_the_machine_does(self) -> None:
        """Slots, models that come and go, slow hours and short freezes: to the microsecond what happens then."""
        slow = FaultSpec(node="a", kind="slow", at=20.0, lasts=15.0, factor=0.3)
        freeze = FaultSpec(node="a", kind="freeze", at=50.0, lasts=6.0, times=3, every=20.0)
        many = {"m": 3.0, "n": 5.0, "o": 2.0}
        for seed in range(12):
            self.compare(seed)
            self.compare(seed, slots=3)
            self.compare(seed, models=many, slots=2, holds=2)
            self.compare(seed, (slow, freeze), models=many, slots=2)

    def test_what_is_refused_or_lost(self) -> None:
        """What comes at a bad time never ends, and nor does what is there when the machine goes."""
        spec = NodeSpec(id="a", models={"m": 3.0}, loaded=("m",), prefill=100.0, decode=10.0)
        never = (math.inf, math.inf)
        busy = FaultSpec(node="a", kind="503", at=10.0, lasts=5.0)
        gone = FaultSpec(node="a", kind="refuse", at=30.0, lasts=5.0)
        frozen = FaultSpec(node="a", kind="freeze", at=50.0, lasts=20.0)
        stale = FaultSpec(node="a", kind="stale", model="m", at=80.0, lasts=5.0)
        line = Line(spec, (busy, gone, frozen, stale))
        ends = [line.join(at, "m", 90, 11) for at in (9.5, 12.0, 29.0, 36.0, 49.5, 72.0, 79.9, 86.0)]
        self.assertEqual(ends[0], (10.5, 11.5))
        self.assertEqual([ends[number] for number in (1, 2, 4, 7)], [never] * 4)
        self.assertEqual(ends[3], (40.0, 41.0), "loaded anew")
        self.assertEqual(ends[5][1] < math.inf, ends[6][1] < math.inf)
        self.assertEqual(line.join(0.0, "other", 1, 1), never)


def world(seed: int, jobs: int, gap: float = 1.0) -> tuple[Scenario, list[Ask]]:
    """Two unequal machines and a few requests."""
    nodes = (
        NodeSpec(id="a", slots=2, models={"m": 1.0, "n": 4.0}, loaded=("m",), prefill=900.0, decode=40.0),
        NodeSpec(id="b", models={"m": 2.0, "n": 2.0}, loaded=("n",), prefill=300.0, decode=15.0),
    )
    traffic = TrafficSpec(origin="a", count=jobs, models={"m": 1.0, "n": 1.0})
    return Scenario(about="", nodes=nodes, traffic=(traffic,)), drawn(seed, jobs, ("m", "n"), gap)


class KnowledgeTests(SynchronousTestCase):
    """What is compared with: the clairvoyant finds the best, and nothing is better than a bound."""

    def test_the_best_of_all(self) -> None:
        """On small cases it is as good as the best of all assignments there are."""
        for seed in range(6):
            told, asks = world(seed, 7)
            found = Clairvoyant(told, asks, random.Random(seed))
            every = itertools.product("ab", repeat=len(asks))
            best = min(found.cost(dict(zip((each.job for each in asks), nodes, strict=True))) for nodes in every)
            self.assertAlmostEqual(found.cost(found.best([{}], effort=200)), best)

    def test_nothing_beats_a_bound(self) -> None:
        """No assignment of small cases ends sooner, has more begun in time, or less of a wait."""
        for seed, gap in itertools.product(range(4), (0.0001, 0.5, 3.0)):
            told, asks = world(seed, 7, gap)
            bounds = Bounds(told, asks)
            row = bounded([bounds], len(asks))
            within = {seconds: bounds.within(seconds) for seconds in (0.3, 1.0, 3.0, 10.0)}
            for nodes in itertools.product("ab", repeat=len(asks)):
                lines = {each.id: Line(each) for each in told.nodes}
                served = [
                    lines[node].join(ask.at, ask.model, ask.prompt, ask.output)
                    for node, ask in zip(nodes, asks, strict=True)
                ]
                waits = sorted(first - ask.at for (first, _), ask in zip(served, asks, strict=True))
                self.assertGreaterEqual(max(last for _, last in served) + 1e-6, row.makespan)
                for seconds, most in within.items():
                    self.assertLessEqual(sum(wait <= seconds for wait in waits), most)
                self.assertGreaterEqual(quantile(waits, 0.5) + 1e-6, row.p50)
                self.assertGreaterEqual(quantile(waits, 0.95) + 1e-6, row.p95)

    def test_a_bound_that_says_something(self) -> None:
        """A crowd on one machine: the bound is near what is possible."""
        node = NodeSpec(id="a", slots=2, models={"m": 1.0}, loaded=("m",), prefill=1000.0, decode=10.0)
        told = Scenario(about="", nodes=(node,), traffic=(TrafficSpec(origin="a", count=40, models={"m": 1.0}),))
        asks = [Ask(f"j{number}", "a", 0.0, "m", 900, 2) for number in range(40)]
        row = bounded([Bounds(told, asks)], len(asks))
        # Forty times 1.1 s on two slots.
        self.assertAlmostEqual(row.makespan, 22.0)
        self.assertTrue(17.0 < row.p95 < 21.0, row.p95)


class FileTests(SynchronousTestCase):
    """Scenario files."""

    def test_those_that_there_are(self) -> None:
        """Each says what it is about and can be drawn from; equal seeds draw the same."""
        for name in names():
            told = load(name)
            self.assertTrue(told.about)
            asks = told.asks(random.Random(1))
            self.assertEqual(asks, told.asks(random.Random(1)))
            self.assertEqual([each.at for each in asks], sorted(each.at for each in asks))
            self.assertEqual(len({each.job for each in asks}), len(asks))
            self.assertTrue(set(told.origins) <= {each.origin for each in asks})

    def test_what_cannot_be(self) -> None:
        """A scenario that contradicts itself is refused."""
        node = NodeSpec(id="a", models={"m": 1.0})
        traffic = TrafficSpec(origin="a", count=1, models={"m": 1.0})

        def fault(**fields: Any) -> FaultSpec:
            given: dict[str, Any] = {"node": "a", "kind": "503", "at": 0.0, "lasts": 1.0}
            return FaultSpec(**(given | fields))

        def told(*nodes: NodeSpec, faults: tuple[FaultSpec, ...] = (), clients: TrafficSpec = traffic) -> Scenario:
            return Scenario(about="", nodes=nodes, traffic=(clients,), faults=faults)

        told(node, faults=(fault(),))
        for wrong in (
            lambda: NodeSpec(id="a", models={}, slots=0),
            lambda: NodeSpec(id="a", models={"m": 1.0}, loaded=("n",)),
            lambda: TrafficSpec(origin="a", count=1, models={}, prompt=(5, 4)),
            lambda: fault(factor=0.0),
            lambda: fault(times=2, every=0.5),
            lambda: told(node, node),
            lambda: told(node, clients=TrafficSpec(origin="b", count=1, models={"m": 1.0})),
            lambda: told(node, clients=TrafficSpec(origin="a", count=1, models={"n": 1.0})),
            lambda: told(node, faults=(fault(node="b"),)),
            lambda: told(node, faults=(fault(kind="freeze"),)),
        ):
            with self.assertRaises(ValueError):
                wrong()
