"""B-scale: what one request costs to plan and to place, by the number of known nodes, with 1000 models."""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING

from benchmarks._report import Bound, Report, main
from pair.records.engines import EngineInventory, EngineStatus, LoadedInstance, Model, NodeInventory
from pair.routing.breaker import Breaker
from pair.routing.candidates import Catalogue, NodeFacts, Request
from pair.routing.dialects import Dialect, match, routes_of
from pair.routing.planning import plan
from pair.routing.policies.pressure import PressurePolicy
from pair.routing.reservations import ReservationBook
from pair.routing.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable

NODES = (2, 20, 100)
MODELS = 1000
JOBS = 1000
PATH = "/v1/chat/completions"


class Layout:
    """So many nodes; each model is on two of them, and one model, ``shared``, on three where there are so many.

    Attributes:
        inventories: what each has.
        requests: one for each model but ``shared``.
        shared: one for that.
    """

    def __init__(self, nodes: int) -> None:
        route = match("lmstudio", "POST", PATH)
        assert route is not None, "the path is in the table"
        self.requests = [Request("lmstudio", route, f"model-{number}") for number in range(MODELS)]
        self.shared = Request("lmstudio", route, "shared")
        self.inventories = []
        for place in range(nodes):
            models = [each.model for number, each in enumerate(self.requests) if (place - number) % nodes < 2]
            node = f"{place:08x}-0000-4000-8000-000000000000"
            self.inventories.append(_inventory(node, [*models, "shared"] if place < 3 else models))


class Cluster:
    """The scheduler of the first node of a layout, which knows all of it."""

    def __init__(self, nodes: int) -> None:
        layout = Layout(nodes)
        self.names = [each.node for each in layout.inventories]
        self.requests = layout.requests
        self.shared = layout.shared
        self.catalogue = Catalogue()
        self.breaker = Breaker()
        self.book = ReservationBook()
        self.scheduler = Scheduler()
        self.policy = PressurePolicy()
        self._jobs = 0
        dialect = Dialect("openai-compatible", {"lmstudio": routes_of("lmstudio", PATH)})
        for each in layout.inventories:
            self.catalogue.put(NodeFacts(each, {"engine": dialect}, local=each.node == self.names[0]))
        self.scheduler.set_nodes(self.names)
        self.recompute(JOBS)

    def serve(self, request: Request) -> None:
        """Plan a request, take its place, and release it."""
        now = time.monotonic()
        made = plan(request, self.catalogue, self.book, self.breaker, self.policy, now)
        self._jobs += 1
        job = f"run.{self._jobs}"
        self.book.take(job, made.ranked[0].candidate.node, self.book.snapshot.generation, now)
        self.book.release(job, now)

    def recompute(self, jobs: int) -> None:
        """Make a new snapshot, with so many jobs under way."""
        self._jobs += 1
        own = {f"job.{self._jobs}.{number}": self.names[number % len(self.names)] for number in range(jobs)}
        counts: dict[str, int] = {}
        for node in own.values():
            counts[node] = counts.get(node, 0) + 1
        self.scheduler.set_pending(counts, own)
        snapshot = self.scheduler.recompute(time.monotonic())
        assert snapshot is not None, "other jobs make another snapshot"
        self.book.apply(snapshot)


def _inventory(node: str, models: list[str]) -> NodeInventory:
    status = EngineStatus("engine", "openai-compatible", "lmstudio", state="running", health="ok", routable=True)
    listed = [Model(each, "engine", "lmstudio", loaded=(LoadedInstance(each),)) for each in models]
    return NodeInventory(node, engines=(EngineInventory(status, models=tuple(listed)),))


def _microseconds(call: Callable[[], object], number: int) -> float:
    """CPU of one call, of so many."""
    begun = time.process_time()
    for _ in range(number):
        call()
    return 1e6 * (time.process_time() - begun) / number


def measure(quick: bool) -> Report:
    """Take the figures."""
    clusters = {number: Cluster(number) for number in NODES}
    taken: dict[str, list[float]] = {}
    for _ in range(4 if quick else 15):
        for number, cluster in clusters.items():
            requests = cluster.requests

            def serve_all(cluster: Cluster = cluster, requests: list[Request] = requests) -> None:
                for each in requests:
                    cluster.serve(each)

            def recompute(cluster: Cluster = cluster) -> None:
                cluster.recompute(JOBS)

            taken.setdefault(f"{number} nodes", []).append(_microseconds(serve_all, 3) / MODELS)
            taken.setdefault(f"{number} nodes, recompute", []).append(_microseconds(recompute, 3))
        large = clusters[NODES[-1]]
        now = time.monotonic()

        def plan_shared(large: Cluster = large, now: float = now) -> None:
            plan(large.shared, large.catalogue, large.book, large.breaker, large.policy, now)

        taken.setdefault("plan of 3 owners", []).append(_microseconds(plan_shared, 1000))
    first, last = taken[f"{NODES[0]} nodes"], taken[f"{NODES[-1]} nodes"]
    growth = statistics.median(large / small for small, large in zip(first, last, strict=True))
    figures = {name: {"cpu_us": statistics.median(values)} for name, values in taken.items()}
    bounds = (Bound(f"{NODES[0]}_to_{NODES[-1]}", growth, must=1.3, goal=1.1),)
    return Report("B-scale", figures, bounds, {"python": sys.version.split()[0]})


if __name__ == "__main__":
    main(measure)
