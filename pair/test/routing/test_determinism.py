"""Tests that the same inputs give the same output, whatever the order in which they came (RT-2)."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from pair.routing.breaker import Breaker
from pair.routing.candidates import Candidate
from pair.routing.explain import explain
from pair.routing.policies.pressure import PressurePolicy
from pair.routing.reservations import ReservationBook
from pair.routing.scheduler import Scheduler
from pair.test.routing.facts import catalogue, engine, node, request

NODES = tuple(f"n{number:02d}" for number in range(24))


def decide(seed: int) -> bytes:
    """An explanation over many nodes; ``seed`` is the order in which they and their jobs were told."""
    shuffle = random.Random(seed).sample
    scheduler = Scheduler()
    scheduler.set_nodes(shuffle(NODES, len(NODES)))
    jobs = {f"j{number}": NODES[number * 7 % 5] for number in range(40)}
    scheduler.set_pending(
        dict.fromkeys(shuffle(NODES[:12], 12), 8), {job: jobs[job] for job in shuffle(sorted(jobs), 40)}
    )
    for each in shuffle(NODES[6:], 18):
        scheduler.observe(each, float(NODES.index(each) * 4), True, 0.0, 0.0)
    book = ReservationBook()
    for job in shuffle(sorted(jobs), 40):
        book.take(job, jobs[job], 0, 0.0)
    snapshot = scheduler.recompute(1.0)
    assert snapshot is not None
    book.apply(snapshot)
    breaker = Breaker()
    for each in shuffle(NODES[:9], 9):
        sent = breaker.dispatched(f"held {each}", Candidate(each, "ollama", "ollama", "m"), 0.0)
        breaker.busy(sent, float(NODES.index(each) % 2 * 5 + 5), 0.0)
    facts = [
        node(
            each,
            *shuffle([engine("ollama", *shuffle(["m", "n", "o"], 3)), engine("llamacpp", loaded=("m",))], 2),
            drained=each.endswith("3"),
            labels=tuple(shuffle(["x", "y", "z"], 3)),
        )
        for each in shuffle(NODES, len(NODES))
    ]
    asked = request(
        "m",
        require=frozenset(shuffle(["x", "y"], 2)),
        tried=frozenset(shuffle([("n00", "ollama"), ("n01", "ollama")], 2)),
    )
    return msgspec.json.encode(explain(asked, catalogue(*facts), book, breaker, PressurePolicy(), 1.0, 0))


class DeterminismTests(SynchronousTestCase):
    def test_shuffled_inputs(self) -> None:
        """A thousand orders of telling, one decision."""
        self.assertEqual({decide(seed) for seed in range(1000)}, {decide(0)})

    def test_other_hashes(self) -> None:
        """Processes that hash text differently decide alike."""
        program = (
            "import sys; from pair.test.routing.test_determinism import decide; sys.stdout.buffer.write(decide(1))"
        )
        for seed in ("0", "1", "4711"):
            done = subprocess.run(
                [sys.executable, "-c", program],
                env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
                capture_output=True,
                check=True,
            )
            self.assertEqual(done.stdout, decide(0))
