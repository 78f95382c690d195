"""How good the routing is: ``pressure`` beside chance, turns, and what nobody can know, on simulated clusters.

Not of the processor, but of the policy: what is printed is the same on every
machine. It is ``make bench-routing``; the tables stand in ``docs/routing-simulation.rst``.
"""

from __future__ import annotations

import argparse
import math
import os
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

import pair
from pair.routing.policies.pressure import PressurePolicy
from pair.test.simulation import scenario
from pair.test.simulation.bounds import Bounds, bounded
from pair.test.simulation.clairvoyant import Clairvoyant
from pair.test.simulation.policies import AnyPolicy, AssignedPolicy, InformedPolicy, LoadsPolicy, RoundRobinPolicy
from pair.test.simulation.results import Figures, figures
from pair.test.simulator import Result, Simulation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.interfaces import IRoutingPolicy
    from pair.test.simulation.scenario import Ask, Scenario

SEEDS = 5

LOAD = 5
"""As how many jobs a load counts, in the step that counts loads."""

Maker = Callable[[Simulation], "IRoutingPolicy"]


def _pressure(simulation: Simulation) -> IRoutingPolicy:
    return PressurePolicy()


def _mean(means: dict[str, float], ask: Ask) -> float:
    return means[ask.origin]


def _known(ask: Ask) -> float:
    return ask.output


def run(name: str, seed: int) -> tuple[dict[str, Result], Bounds]:
    """All policies on one scenario with one seed, and its bounds."""
    told = scenario.load(name)
    means = {origin: _mean_output(told, origin) for origin in told.origins}
    ties = partial(LoadsPolicy, jobs=LOAD, gpu_in_ties=True)
    policies: dict[str, Maker] = {
        "random": AnyPolicy,
        "round robin": RoundRobinPolicy,
        "pressure": _pressure,
        "loads": partial(LoadsPolicy, jobs=LOAD),
        "ties": ties,
        "rates": partial(InformedPolicy, output=partial(_mean, means)),
        "lengths": partial(InformedPolicy, output=_known),
    }
    results = {each: Simulation(told, seed, policy).run() for each, policy in policies.items()}
    at_once = replace(told, lag=0.0, loss=0.0)
    results["at once"] = Simulation(at_once, seed, ties).run()
    asks = told.asks(random.Random(seed))
    starts = [_assignment(results[each]) for each in ("lengths", "loads", "pressure")]
    nodes = Clairvoyant(told, asks, random.Random(seed)).best(starts)
    results["clairvoyant"] = Simulation(told, seed, partial(AssignedPolicy, nodes=nodes)).run()
    return results, Bounds(told, asks)


def _mean_output(told: Scenario, origin: str) -> float:
    clients = [each for each in told.traffic if each.origin == origin]
    return sum(each.count * each.mean_output for each in clients) / sum(each.count for each in clients)


def _assignment(result: Result) -> dict[str, str]:
    """Where each request of a run was last sent."""
    return {each.ask.job: each.node for each in result.outcomes if each.node is not None}


HEADS = ("policy", "p50 s", "p95 s", "≤ 5 s", "makespan s", "loads", "lost")
TABLE = ("random", "round robin", "pressure", "clairvoyant", "bound")
STEPS = (
    ("loads", "pressure", "loads"),
    ("GPUs", "loads", "ties"),
    ("lag", "ties", "at once"),
    ("rates, faults", "at once", "rates"),
    ("lengths", "rates", "lengths"),
    ("the future", "lengths", "clairvoyant"),
)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A simple table of reStructuredText."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    rule = "  ".join("=" * width for width in widths)

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        return "  ".join((first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others))).rstrip()

    return "\n".join((rule, line(heads), rule, *map(line, rows), rule))


def _row(name: str, of: Figures) -> tuple[str, ...]:
    def seconds(value: float) -> str:
        return "never" if value == math.inf else f"{value:.2f}"

    lost = "–" if name == "bound" else f"{of.lost}"
    waits = (seconds(of.p50), seconds(of.p95), f"{100 * of.soon:.1f} %")
    return (name, *waits, f"{of.makespan:.0f}", f"{of.loads:.1f}", lost)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routing", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs of each scenario")
    parser.add_argument("scenario", nargs="*", help="which; without a name, all")
    options = parser.parse_args()
    names = options.scenario or scenario.names()
    print(f"PAIR {pair.__version__}, seeds 0 to {options.seeds - 1}, {datetime.now(UTC).date().isoformat()}.\n")
    parts = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        runs = {name: [pool.submit(run, name, seed) for seed in range(options.seeds)] for name in names}
        for name, futures in runs.items():
            done = [each.result() for each in futures]
            of = {policy: figures([results[policy] for results, _ in done]) for policy in done[0][0]}
            of["bound"] = bounded([bounds for _, bounds in done], of["pressure"].asked)
            print(f"{name}\n{'~' * len(name)}\n\n{scenario.load(name).about}.\n")
            print(table(HEADS, [_row(each, of[each]) for each in TABLE]))
            print(flush=True)
            steps = [of[before].mean - of[after].mean for _, before, after in STEPS]
            parts.append((name, *(f"{each:.2f}" for each in (of["pressure"].mean, *steps, of["clairvoyant"].mean))))
    print("What the gap consists of\n~~~~~~~~~~~~~~~~~~~~~~~~\n")
    print(table(("mean wait s", "pressure", *(name for name, _, _ in STEPS), "clairvoyant"), parts))


if __name__ == "__main__":
    main()
