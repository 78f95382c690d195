"""All parts of a node, joined. The one file that knows them all.

What is here decides who is told of whom, and in which order the parts start
and stop (AR-12, AR-13); what each part does is its own business.
"""

from __future__ import annotations

import os
import platform
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from twisted.application.service import IService, Service

import pair
from pair.announcement import Announcement
from pair.clustering import Clustering
from pair.control.service import build_control
from pair.control.snippets import curl_line, default_model
from pair.control.views import Listener
from pair.engines.memory import StoredMemory
from pair.engines.service import EngineService
from pair.errors.book import ErrorBook
from pair.errors.registry import Registry
from pair.included import CONDITIONS
from pair.jobs.history import LAST_FLUSH, HistoryService
from pair.jobs.ledger import JobLedger
from pair.members import Members
from pair.neighbours import Neighbours
from pair.overview import Overview, Phase
from pair.protocols.dial import engine_endpoint
from pair.protocols.eager import listen_eager
from pair.protocols.pool import ClientPool
from pair.proxy.facades import Facades
from pair.proxy.keptspeeds import KeptSpeeds
from pair.proxy.meters import Meters
from pair.proxy.plane import Budget, Plane
from pair.proxy.scheduling import SchedulerService
from pair.proxy.steering import Steering
from pair.proxy.sweep import Sweep
from pair.routing.labels import automatic_labels, node_labels
from pair.routing.policies.pressure import PressurePolicy
from pair.sharing import Sharing
from pair.supervision.child import SupervisedService
from pair.supervision.notify import SystemdNotifier
from pair.supervision.ordered import OrderedServices
from pair.supervision.process import die
from pair.supervision.stalls import Limits
from pair.supervision.watchdog import StallWatchdog
from pair.supervision.writers import WriterWatch
from pair.telemetry.sampler import Sampler
from pair.telemetry.sources import machine_sources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from twisted.internet.defer import Deferred

    from pair.choices import Choices
    from pair.cluster.identity import Identity
    from pair.ground import Ground
    from pair.included import Extensions
    from pair.records.endpoints import Endpoint
    from pair.records.engines import NodeInventory

_ENGINES_STOP = 4.0
_LAST_WORDS = 1.0
"""Seconds for the last step of the engines' and of a facade's stop (OP-52)."""

_OVERRUN = 2.0
"""Seconds beyond the stop's deadline after which the process is ended (OP-53)."""


class Parts:
    """Everything above the ground, built for one identity and not started.

    Attributes:
        services: all of them, in the order of their start.
    """

    def __init__(
        self,
        reactor: Any,
        extensions: Extensions,
        choices: Choices,
        identity: Identity,
        ground: Ground,
        say: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._extensions = extensions
        self._settings = settings = choices.effective().settings
        self._store = store = ground.store
        self._logs = ground.logs
        self._say = say
        self._run = secrets.token_hex(8)
        self._phase: Phase = "starting"
        self._offered = False
        listen = partial(listen_eager, reactor)

        self._errors = ErrorBook(identity.uuid, Registry(CONDITIONS), self._now)
        self._watchdog = StallWatchdog(
            reactor, reactor.callFromThread, self._errors, Limits(stall=settings.watchdog.stall), self._die
        )
        self._writers = WriterWatch(reactor, {"store": store}, self._errors)
        self._notifier = SystemdNotifier(reactor, os.environ, os.getpid(), lambda: not self._writers.stalled)
        self._ledger = JobLedger(identity.uuid, self._run, self._now)
        self._history = HistoryService(
            reactor, store, self._now, settings.jobs.history_rows, settings.jobs.history_days, self._errors
        )
        self._sampler = Sampler(
            reactor,
            reactor.callFromThread,
            partial(machine_sources, settings.telemetry.gpu == "auto"),
            settings.telemetry.interval,
            settings.telemetry.unified,
            self._errors,
            self._now,
        )
        self._engines = EngineService(
            reactor,
            settings,
            extensions.kinds.members,
            node=identity.uuid,
            errors=self._errors,
            memory=StoredMemory(store),
            now=self._now,
            own_ports=self._own_ports,
            in_flight=lambda engine: self._plane.in_flight(engine),
        )
        self._scheduling = SchedulerService(
            reactor,
            time.monotonic,
            identity.uuid,
            self._engines,
            PressurePolicy(),
            settings.routing.rule,
            self._labels,
            settings.routing.loaded_only,
            self._errors,
            settings.routing.freshness,
        )
        self._cluster = cluster = Clustering(
            reactor,
            settings,
            identity,
            ground,
            self._errors,
            listen,
            self._now,
            self._run,
            lambda node, service: self._neighbours.directory.places(node, service),
        )
        self._neighbours = neighbours = Neighbours(
            reactor,
            settings,
            identity.uuid,
            ground,
            self._errors,
            cluster,
            self._sampler,
            self._now,
            self._run,
        )
        self._members = members = Members(
            reactor,
            self._scheduling,
            {each.name: each.dialect for each in extensions.kinds.members},
            neighbours.directory,
            neighbours.getter,
            lambda: cluster.trust.pins,
        )
        self._plane = Plane(
            clock=reactor,
            monotonic=time.monotonic,
            node=identity.uuid,
            settings=settings.proxy,
            engines=self._engines,
            scheduling=self._scheduling,
            jobs=self._ledger,
            pool=ClientPool(reactor, partial(engine_endpoint, reactor)),
            sweep=Sweep(reactor),
            errors=self._errors,
            meters=Meters(time.monotonic),
            active=Budget(settings.proxy.max_active),
            bodies=Budget(settings.proxy.body_budget),
            members=self._members,
        )
        self._sharing = sharing = Sharing(
            reactor,
            settings,
            identity.uuid,
            self._ledger,
            self._history,
            self._errors,
            self._offer,
            self._plane.cancel,
            cluster,
            neighbours,
            self._now,
            self._run,
        )
        self._scheduling.count_others(sharing.jobs.pending_elsewhere)
        sharing.jobs.pending_changed.subscribe(self._scheduling.pending_changed)
        sharing.offered.subscribe(members.offered)
        sharing.withdrawn.subscribe(members.withdrawn)
        neighbours.collector.loads.subscribe(self._scheduling.observe)
        neighbours.proven.subscribe(self._scheduling.evidence)
        neighbours.proven.subscribe(members.heard)
        cluster.trust.changed.subscribe(members.trust_changed)
        self._steering = steering = Steering(
            choices,
            self._scheduling,
            extensions.policies.members,
            self._engines.drain,
            cluster.members,
            self._errors,
        )
        cluster.trust.changed.subscribe(steering.members_changed)
        self._facades = Facades(reactor, self._plane, choices, listen, self._run, peers=self._cluster.peers)
        self._overview = Overview(
            identity.uuid,
            settings,
            ground,
            phase=lambda: self._phase,
            now=self._now,
            errors=self._errors,
            watchdog=self._watchdog,
            writers=self._writers,
            engines=self._engines,
            plane=self._plane,
            ledger=self._ledger,
            listeners=self._listeners,
            facades=self._facades,
            hardware=lambda: self._sampler.hardware,
            cluster=self._cluster,
            neighbours=self._neighbours,
            sharing=self._sharing,
            steering=self._steering,
            components=lambda: self.services.tree(),
        )
        self._control = build_control(
            reactor,
            listen,
            settings,
            ground.directory,
            self._errors,
            self._overview.sources(),
            self._overview.revision,
        )
        self._ledger.changed.subscribe(self._history.keep)
        store.writable_changed.subscribe(self._store_changed)
        ground.logs.writable_changed.subscribe(self._log_changed)
        self._engines.changed.subscribe(self._sharing.publisher.update)
        for signal in (self._engines.changed, self._facades.changed):
            signal.subscribe(self._advertise)
        self._log_changed(ground.logs.writable)  # it was open before this could listen
        self.services = self._in_order()

    def announce(self) -> None:
        """The start is done: say where applications find us, whether we are ready, and how to try it (OP-47)."""
        self._phase = "up"
        for kind in self._extensions.kinds.refused:
            self._errors.raise_entry(f"engines:bad_plugin:{kind}", kind=kind)
        for policy in self._extensions.policies.refused:
            self._errors.raise_entry(f"routing:policy:{policy}", name=policy)
        if os.geteuid() == 0:
            self._errors.raise_entry("service:running_as_root")
        for endpoint in self._served():
            where = endpoint.url or "no port"
            self._say(f"{endpoint.facade:<10}{where}" + (f"  {endpoint.detail}" if endpoint.detail else ""))
        self._say(f"{'control':<10}{self._control.url or 'not there yet'}  (pair-admin status)")
        Announcement(
            pair.__version__,
            self._overview.readiness,
            lambda: ", ".join(f"{each.facade} {each.state} on {each.port}" for each in self._served()),
            self._notifier,
            (self._errors.changed, self._errors.removed, self._facades.changed),
        ).begin()
        self._engines.changed.subscribe(self._offer_command)
        self._offer_command(None)

    def _served(self) -> list[Endpoint]:
        return [each for each in self._facades.endpoints() if each.state != "off"]

    def stopping(self) -> None:
        """The stop begins: from now on it has its deadline (OP-53)."""
        self._phase = "stopping"
        self._notifier.stopping()
        self._neighbours.stopping()
        self._watchdog.end_within(self._settings.service.stop_deadline + _OVERRUN)

    def _in_order(self) -> OrderedServices:
        """The order of the start; the stop goes the other way (AR-12, AR-13)."""
        settings = self._settings
        services = OrderedServices(self._reactor, settings.service.stop_deadline)
        services.add("watchdog", self._watchdog)
        services.add("writers", self._writers)
        services.add("service manager", self._notifier)
        services.add("history", self._supervised("history", lambda: self._history), stop_deadline=LAST_FLUSH)
        self._cluster.add_trust(services)
        services.add("control", self._supervised("control", lambda: self._control))
        services.add("telemetry", self._sampler)
        services.add("engines", self._engines, stop_deadline=_ENGINES_STOP)
        self._neighbours.add_directory(services)
        services.add("scheduler", self._scheduling)
        services.add("steering", self._steering)
        services.add("speeds", KeptSpeeds(self._reactor, self._store, self._scheduling.speeds))
        services.add("pool", _Closed(self._plane.pool))
        services.add("members", self._members)
        services.add("sweep", self._plane.sweep)
        self._cluster.add_peers(services)
        self._neighbours.add_surface(services)
        self._sharing.add_surfaces(services)
        self._sharing.add_feeds(services)
        self._neighbours.add_own_ports(services)
        for name, facade in self._facades.services.items():
            services.add(f"{name} facade", facade, stop_deadline=settings.service.drain + _LAST_WORDS)
        return services

    def _supervised(self, name: str, make: Callable[[], IService]) -> SupervisedService:
        return SupervisedService(name, make, self._reactor, self._errors)

    def _own_ports(self) -> frozenset[int]:
        """All ports on which this process listens: none of them is an engine's (EN-10)."""
        return self._control.ports | self._cluster.peering.numbers | self._facades.ports

    def _listeners(self) -> tuple[Listener, ...]:
        """The control API, the ports for other nodes, and the facades, as they listen now (UI-31)."""
        facades = (
            Listener(each.facade, None if each.port is None else f"127.0.0.1:{each.port}", each.state)
            for each in self._facades.endpoints()
        )
        return (self._control.listener, *self._cluster.peering.listeners, *facades)

    def _labels(self, kinds: Iterable[str]) -> tuple[str, ...]:
        gpus = [(each.vendor, each.vram_total_bytes or 0) for each in self._sampler.hardware.gpus]
        automatic = automatic_labels(platform.system().lower(), platform.machine().lower(), gpus, kinds)
        return node_labels(self._settings.node.labels, automatic)

    def _offer(self) -> NodeInventory:
        """What this node offers to others, with its labels."""
        inventory = self._engines.inventory()
        kinds = (each.status.kind for each in inventory.engines if each.status.routable)
        offered = inventory.engines
        if self._settings.routing.loaded_only:
            offered = tuple(replace(each, models=tuple(m for m in each.models if m.loaded)) for each in offered)
        return replace(inventory, engines=offered, labels=self._labels(kinds))

    def _advertise(self, _: object) -> None:
        """Tell other nodes of the facades behind which there is an engine (DS-8)."""
        running = (each.status.id for each in self._engines.inventory().engines if each.status.routable)
        served = {facade for id in running for facade in self._engines.dialect(id).routes}
        endpoints = self._facades.endpoints()
        self._neighbours.set_facades({each.facade: each.port for each in endpoints if each.facade in served})

    def _offer_command(self, _: object) -> None:
        """Once there is a model, print a command that gets an answer from it (QA-1)."""
        for endpoint in reversed(self._facades.endpoints()):
            model = default_model(self._scheduling.catalogue.nodes(), endpoint.facade, certain=True)
            if not self._offered and endpoint.url is not None and model is not None:
                self._offered = True
                self._say(f"\nTry it:\n  {curl_line(endpoint.url, model)}")

    def _die(self, line: str) -> None:
        """End the process at once, the log's last lines written. From any thread."""
        self._logs.close()
        die(line)

    def _store_changed(self, writable: bool) -> None:
        if writable:
            self._errors.clear("storage:write_failed")
        else:
            self._errors.raise_entry("storage:write_failed", file=self._store.path.name)

    def _log_changed(self, writable: bool) -> None:
        if writable:
            self._errors.clear("storage:log_failed")
        else:
            self._errors.raise_entry("storage:log_failed", file="logs/pair.jsonl")

    def _now(self) -> int:
        # Not the reactor's, which stays as it was when the time of day is put right.
        return int(time.time() * 1000)


class _Closed(Service):
    """The connections to engines, closed when this stops."""

    def __init__(self, pool: ClientPool) -> None:
        self._pool = pool

    def stopService(self) -> Deferred[None]:
        """Abort them; fires when no socket is left."""
        super().stopService()
        return self._pool.close()
