"""What is shown of a node: readiness, status, figures, and what the control API reads.

It only reads, and only what the parts show of themselves.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import pair
from pair.control.revision import Revision
from pair.control.sources import ControlSources
from pair.control.views import Listener, ServiceStatus, WatchdogFacts
from pair.known import KnownNodes
from pair.metrics import Metrics, Source
from pair.privacy import path_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pair.clustering import Clustering
    from pair.engines.service import EngineService
    from pair.errors.book import ErrorBook
    from pair.events import Signal
    from pair.ground import Ground
    from pair.jobs.ledger import JobLedger
    from pair.neighbours import Neighbours
    from pair.proxy.facades import Facades
    from pair.proxy.plane import Plane
    from pair.proxy.steering import Steering
    from pair.records.telemetry import Hardware
    from pair.settings import Settings
    from pair.sharing import Sharing
    from pair.supervision.components import Component
    from pair.supervision.watchdog import StallWatchdog
    from pair.supervision.writers import WriterWatch

PROTOCOL = 1
"""The highest version of the peer protocol (OP-57)."""

Phase = Literal["starting", "up", "stopping"]


class Overview:
    """Reads the parts of one node.

    Attributes:
        revision: rises when something shown changes.
    """

    def __init__(
        self,
        node: str,
        settings: Settings,
        ground: Ground,
        *,
        phase: Callable[[], Phase],
        now: Callable[[], int],
        errors: ErrorBook,
        watchdog: StallWatchdog,
        writers: WriterWatch,
        engines: EngineService,
        plane: Plane,
        ledger: JobLedger,
        listeners: Callable[[], tuple[Listener, ...]],
        facades: Facades,
        hardware: Callable[[], Hardware],
        cluster: Clustering,
        neighbours: Neighbours,
        sharing: Sharing,
        steering: Steering,
        components: Callable[[], tuple[Component, ...]],
    ) -> None:
        self.revision = Revision()
        self._node = node
        self._settings = settings
        self._ground = ground
        self._phase = phase
        self._now = now
        self._errors = errors
        self._watchdog = watchdog
        self._writers = writers
        self._engines = engines
        self._plane = plane
        self._ledger = ledger
        self._listeners = listeners
        self._facades = facades
        self._hardware = hardware
        self._cluster = cluster
        self._neighbours = neighbours
        self._sharing = sharing
        self._steering = steering
        self._nodes = KnownNodes(engines.inventory, neighbours, sharing)
        self._components = components
        self._started_at = now()
        self._metrics = Metrics(pair.__version__, PROTOCOL, self._started_at / 1000)
        self._metrics.register(plane.meters.sources())
        self._metrics.register(cluster.figures)
        self._metrics.register(self._figures())
        for signal in (facades.changed, *(each for signals in self._changes().values() for each in signals)):
            signal.subscribe(self.revision.bump)
        sharing.jobs.changed.subscribe(self.revision.bump)

    def readiness(self) -> tuple[str, ...]:
        """Why the node is not ready, as codes; empty when it is (OP-43)."""
        phase = self._phase()
        reasons: list[str] = [] if phase == "up" else [phase]
        if not self._ground.store.writable:
            reasons.append("store_read_only")
        reasons += (f"writer_stalled_{name}" for name in self._writers.stalled)
        reasons += (
            f"facade_{each.facade}_{each.state}"
            for each in self._facades.endpoints()
            if each.port is None and each.state != "off"
        )
        return tuple(reasons)

    def status(self) -> ServiceStatus:
        """The process and its parts (UI-31)."""
        dog = self._watchdog
        return ServiceStatus(
            node=self._node,
            name=self._settings.node.name,
            version=pair.__version__,
            started_at=self._started_at,
            pid=os.getpid(),
            state_dir=path_text(self._ground.directory.path),
            listeners=self._listeners(),
            components=self._components(),
            watchdog=WatchdogFacts(dog.stalls, dog.last_at, round(dog.longest * 1000)),
        )

    def sources(self) -> ControlSources:
        """What the control API shows."""
        return ControlSources(
            node=self._node,
            now=self._now,
            service=self.status,
            readiness=self.readiness,
            metrics=self._metrics.render if self._settings.metrics.enabled else None,
            engines=self._engines.inventory,
            engine_address=self._engines.address,
            facades=self._facades,
            scheduling=self._plane.scheduling,
            jobs=self._sharing.jobs.view,
            errors=self._sharing.errors,
            cluster=self._cluster.sources,
            nodes=self._nodes,
            steering=self._steering,
            job_commands=self._sharing.jobs,
            hide_error=self._sharing.errors.hide,
            peers=lambda: tuple(self._sharing.offers.values()),
            follow_jobs=self._sharing.jobs.changed.subscribe,
            changes=self._changes(),
        )

    def _changes(self) -> Mapping[str, tuple[Signal[Any], ...]]:
        """What tells of changes, by topic of the event stream (UI-61)."""
        sharing = self._sharing
        return {
            "nodes": (
                self._neighbours.directory.events,
                sharing.offered,
                sharing.withdrawn,
                sharing.jobs.pending_changed,
                self._steering.changed,
            ),
            "telemetry": (self._neighbours.collector.loads,),
            "engines": (self._engines.changed, sharing.offered, sharing.withdrawn),
            "errors": (sharing.errors.changed,),
            "cluster": (self._cluster.trust.changed,),
            "invitations": (self._cluster.invitations.changed,),
            "routing": (self._steering.changed,),
        }

    def _figures(self) -> Mapping[str, Source]:
        """The figures that are read off the parts, each when somebody asks (OP-40)."""
        node, plane, book = self._node, self._plane, self._plane.scheduling.book
        return {
            "pair_jobs": lambda: {(state,): number for state, number in self._ledger.counts().items()},
            "pair_jobs_total": self._ledger.totals,
            "pair_streams_open": lambda: {
                ("client",): len(plane.underway),
                ("engine",): sum(each.engine is not None for each in plane.underway),
            },
            "pair_pending": lambda: {(node,): book.load(node).pending},
            "pair_pressure": lambda: {(node,): book.load(node).pressure},
            "pair_reservations": lambda: {(node,): book.load(node).reservations},
            "pair_body_budget_bytes": lambda: plane.bodies.used,
            "pair_gpu_utilisation_percent": lambda: {
                (each.id,): each.utilization_percent
                for each in self._hardware().gpus
                if each.utilization_percent is not None
            },
            "pair_gpu_memory_bytes": self._gpu_memory,
            "pair_engine_up": lambda: {
                (each.status.id,): each.status.state == "running" for each in self._engines.inventory().engines
            },
            "pair_engine_restarts_total": lambda: {(id,): n for id, n in self._engines.restarts().items()},
            "pair_component_up": lambda: {(each.name,): each.state == "up" for each in self._components()},
            "pair_component_restarts_total": lambda: {(each.name,): each.restarts for each in self._components()},
            "pair_errors": lambda: Counter((each.severity,) for each in self._errors.entries()),
            "pair_reactor_stall_seconds_max": lambda: self._watchdog.longest,
            "pair_reactor_stalls_total": lambda: self._watchdog.stalls,
            "pair_store_queue": lambda: self._ground.store.depth,
            "pair_unhandled_errors_total": lambda: self._ground.logs.unhandled,
        }

    def _gpu_memory(self) -> Mapping[tuple[str, ...], float]:
        """In bytes, as far as it is known."""
        known = {
            (each.id, kind): size
            for each in self._hardware().gpus
            for kind, size in (("used", each.vram_used_bytes), ("total", each.vram_total_bytes))
        }
        return {labels: size for labels, size in known.items() if size is not None}
