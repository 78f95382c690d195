"""B-scale with feeds: what a request costs where all that is known of the other nodes comes by their feeds."""

from __future__ import annotations

import statistics
import sys
import time
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs

from msgspec.structs import replace
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from benchmarks._report import Bound, Report, main
from benchmarks.scale import MODELS, NODES, PATH, Layout
from pair.engines.offers import Offers
from pair.engines.publishing import SAMPLE_SECONDS, InventoryPublisher
from pair.events import Signal
from pair.feeds.codec import StructCodec
from pair.feeds.followers import Followers
from pair.feeds.publisher import Feed
from pair.feeds.wire import read_position
from pair.jobs.ledger import JobLedger
from pair.members import Members
from pair.proxy.scheduling import SchedulerService
from pair.records.errors import ServiceError
from pair.records.inventory import RECORDS_MAX, InventoryCodec
from pair.records.jobs import Job
from pair.records.nodes import NodeAdded, NodeEntry
from pair.records.telemetry import Cpu, NodeInfo
from pair.routing.dialects import Dialect, routes_of
from pair.routing.policies.pressure import PressurePolicy
from pair.settings import Settings
from pair.sharing import ERRORS_MAX, JOBS_MAX, Sharing
from pair.telemetry.collector import Collector
from pair.telemetry.reduce import decode
from pair.test.fakes import FakeEngines, error_book
from pair.test.feeds.links import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pair.records.engines import NodeInventory
    from pair.routing.candidates import Request

STEP = 0.05
"""Virtual seconds from one look at the connections to the next: that of a batch."""

LIFE = 10
"""Virtual seconds of which the cost is taken, in which each node tells five times how busy it is."""

CHANGES = 5

_RUN = "f" * 16
_DIALECTS = {"openai-compatible": Dialect("openai-compatible", {"lmstudio": routes_of("lmstudio", PATH)})}


class Member:
    """Another node: its three feeds, as it publishes them, and one change of its models for the asking."""

    def __init__(self, clock: Clock, inventory: NodeInventory) -> None:
        self._inventory = inventory
        node = inventory.node

        def feed(name: str, codec: Any, most: int) -> Feed[Any]:
            made: Feed[Any] = Feed(clock, name, node, "0", codec, most, _RUN, lambda: int(clock.seconds() * 1000))
            made.startService()
            return made

        offers = feed("inventory", InventoryCodec(decode), RECORDS_MAX)
        self.feeds = {
            "wl": feed("jobs", StructCodec(Job, "id", "origin"), JOBS_MAX),
            "er": feed("errors", StructCodec(ServiceError, "id", "node"), ERRORS_MAX),
            "em": offers,
        }
        info = NodeInfo(
            host_uuid=node,
            name=node,
            telemetry_valid=True,
            sample_age_ms=100,
            gpu_utilization_percent=10.0,
            cpu=Cpu("a processor", 8, 16, 12.5),
        )
        self._publisher = InventoryPublisher(clock, offers, lambda: self._inventory, lambda: info)
        self._publisher.startService()

    def change(self) -> None:
        """Its first model is loaded if it was not, and not if it was."""
        (engine,) = self._inventory.engines
        first, *others = engine.models
        loaded = () if first.loaded else others[0].loaded
        models = (replace(first, loaded=loaded), *others)
        changed = replace(engine, models=models, revision=engine.revision + 1)
        self._inventory = replace(self._inventory, engines=(changed,))
        self._publisher.update()


class Feeds:
    """A node among others, from the octets of their feeds to its scheduler; the connections are in memory.

    Args:
        layout: who has what; the first of its nodes is this one.
    """

    def __init__(self, layout: Layout) -> None:
        self.requests = layout.requests
        self.clock = clock = Clock()
        me, *others = layout.inventories
        self.members = {}
        for each in others:
            self.members[each.node] = Member(clock, each)
            clock.advance(SAMPLE_SECONDS / len(others))  # Not all of them say in the same instant how busy they are.
        self._links: list[Link] = []
        self._jobs = 0
        errors = error_book(me.node, self._now)
        engines = FakeEngines(me.node, *me.engines)
        engines.dialect = lambda engine: _DIALECTS["openai-compatible"]  # type: ignore[method-assign]
        ledger = JobLedger(me.node, _RUN, self._now)
        self.scheduling = SchedulerService(
            clock, time.monotonic, me.node, engines, PressurePolicy(), (), tuple, False, errors
        )
        entries = {
            each.node: NodeEntry(each.node, each.node, each.node, "online", "member", member=True, trusted=True)
            for each in others
        }
        ignore: Callable[..., None] = lambda *_: None  # noqa: E731
        directory: Any = SimpleNamespace(
            events=Signal(),
            woken=Signal(),
            get=entries.get,
            places=lambda node, service: (service,),
            confirm=ignore,
            note=ignore,
            doubt=ignore,
            warn=ignore,
            inventory_told=ignore,
        )
        getter: Any = SimpleNamespace(stream=self._stream)
        own = NodeInfo(host_uuid=me.node)
        collector = Collector(clock, me.node, lambda: own, lambda _: Deferred(), lambda low, high: low, self._now)
        neighbours: Any = SimpleNamespace(
            directory=directory, getter=getter, collector=collector, note=ignore, heard=ignore, info=ignore
        )
        view = SimpleNamespace(members=[SimpleNamespace(node=each.node) for each in layout.inventories])
        trust = SimpleNamespace(me=me.node, view=view, changed=Signal())
        cluster: Any = SimpleNamespace(trust=trust, loaded=Signal(), fellows=lambda: view.members)
        history: Any = SimpleNamespace(changed=Signal(), rows=tuple)
        sharing = Sharing(
            clock,
            Settings(),
            me.node,
            ledger,
            history,
            errors,
            lambda: me,
            lambda job: False,
            cluster,
            neighbours,
            self._now,
            _RUN,
        )
        members = Members(clock, self.scheduling, _DIALECTS, directory, getter, lambda: cluster)
        sharing.offered.subscribe(members.offered)
        collector.loads.subscribe(self.scheduling.observe)
        heard: set[str] = set()
        collector.loads.subscribe(lambda load: heard.add(load.uuid))
        self.scheduling.count_others(sharing.jobs.pending_elsewhere)
        self.scheduling.startService()
        services: list[Any] = []
        sharing.add_feeds(cast("Any", SimpleNamespace(add=lambda _, service: services.append(service))))
        cluster.loaded.emit(None)
        for each in services:
            if isinstance(each, Followers | Offers):
                each.startService()
        self.live(1.0)
        for entry in entries.values():
            collector.node_event(NodeAdded(1, entry))
        collector.startService()
        self.live(3.0)
        known = len(self.scheduling.catalogue.nodes())
        if not known == len(heard) == len(layout.inventories):
            raise RuntimeError(f"of {len(layout.inventories)} nodes, {known} are known, {len(heard)} told their load")

    def live(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds / STEP)):
            self.clock.advance(STEP)
            for link in self._links:
                link.pump()

    def serve(self, request: Request) -> None:
        """Plan a request, take its place, and release it."""
        made = self.scheduling.plan(request)
        self._jobs += 1
        job = f"run.{self._jobs}"
        self.scheduling.take(job, made.ranked[0].candidate)
        self.scheduling.finished(job)

    def _now(self) -> int:
        return int(self.clock.seconds() * 1000)

    def _stream(self, node: str, places: Sequence[str], path: str) -> Deferred[Any]:
        link: Any = Link()
        query = parse_qs(path.partition("?")[2].encode())
        self.members[node].feeds[places[0]].serve("a follower", link, read_position(query))
        link.place = None
        self._links.append(link)
        return succeed(link)


def _microseconds(call: Callable[[], object]) -> float:
    begun = time.process_time()
    call()
    return 1e6 * (time.process_time() - begun)


def measure(quick: bool) -> Report:
    """Take the figures."""
    nodes = {number: Feeds(Layout(number)) for number in NODES}
    first: dict[int, list[float]] = {number: [] for number in NODES}
    again: dict[int, list[float]] = {number: [] for number in NODES}
    news: dict[int, list[float]] = {number: [] for number in NODES}
    life: dict[int, list[float]] = {number: [] for number in NODES}
    for turn in range(3 if quick else 9):
        for number, node in nodes.items():
            member = list(node.members.values())[turn % len(node.members)]

            def serve_all(node: Feeds = node) -> None:
                for each in node.requests:
                    node.serve(each)

            def tell(node: Feeds = node, member: Member = member) -> None:
                for _ in range(CHANGES):
                    member.change()
                    node.live(2 * STEP)

            life[number].append(_microseconds(partial(node.live, LIFE)) / 1e4 / LIFE)
            quiet = life[number][-1] * 1e4 * STEP * 2
            news[number].append(_microseconds(tell) / CHANGES - quiet)
            first[number].append(_microseconds(serve_all) / MODELS)
            again[number].append(statistics.median(_microseconds(serve_all) for _ in range(3)) / MODELS)
    figures = {
        f"{number} nodes": {
            "cpu_us": statistics.median(again[number]),
            "after_news_cpu_us": statistics.median(first[number]),
            "news_cpu_us": statistics.median(news[number]),
            "all_feeds_cpu_percent": statistics.median(life[number]),
        }
        for number in NODES
    }

    def growth(taken: dict[int, list[float]]) -> float:
        return statistics.median(large / small for small, large in zip(taken[NODES[0]], taken[NODES[-1]], strict=True))

    name = f"{NODES[0]}_to_{NODES[-1]}"
    bounds = (
        Bound(name, growth(again), must=1.3, goal=1.1),
        Bound(f"{name}_after_news", growth(first), must=1.3, goal=1.1),
    )
    return Report("B-scale, feeds", figures, bounds, {"python": sys.version.split()[0]})


if __name__ == "__main__":
    main(measure)
