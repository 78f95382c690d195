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

from twisted.application.service import IService, Service

import pair
from pair.control.conditions import CONDITIONS as CONTROL_CONDITIONS
from pair.control.service import build_control
from pair.control.snippets import curl_line, default_model
from pair.control.views import Listener
from pair.engines import ports
from pair.engines.conditions import CONDITIONS as ENGINE_CONDITIONS
from pair.engines.kinds.embedded import Embedded
from pair.engines.kinds.llamacpp import LlamaCpp
from pair.engines.kinds.lmstudio import LMStudio
from pair.engines.kinds.ollama import Ollama
from pair.engines.kinds.openai_compatible import OpenAICompatible
from pair.engines.memory import StoredMemory
from pair.engines.service import EngineService
from pair.errors.book import ErrorBook
from pair.errors.conditions import CONDITIONS as ERROR_CONDITIONS
from pair.errors.registry import Registry
from pair.jobs.conditions import CONDITIONS as JOB_CONDITIONS
from pair.jobs.history import LAST_FLUSH, HistoryService
from pair.jobs.ledger import JobLedger
from pair.logs import Logger
from pair.overview import Overview, Phase
from pair.protocols.dial import engine_endpoint
from pair.protocols.eager import listen_eager
from pair.protocols.pool import ClientPool
from pair.proxy.admission import Admission
from pair.proxy.browser import BrowserPolicy
from pair.proxy.conditions import CONDITIONS as PROXY_CONDITIONS
from pair.proxy.facade import FacadeService
from pair.proxy.identity import Banners
from pair.proxy.listings import Listings
from pair.proxy.meters import Meters
from pair.proxy.plane import Budget, Plane
from pair.proxy.scheduling import SchedulerService
from pair.proxy.sweep import Sweep
from pair.routing.labels import automatic_labels, node_labels
from pair.routing.policies.pressure import PressurePolicy
from pair.supervision.child import SupervisedService
from pair.supervision.conditions import CONDITIONS as SUPERVISION_CONDITIONS
from pair.supervision.notify import SystemdNotifier
from pair.supervision.ordered import OrderedServices
from pair.supervision.process import die
from pair.supervision.stalls import Limits
from pair.supervision.watchdog import StallWatchdog
from pair.supervision.writers import WriterWatch

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred
    from pair.ground import Ground
    from pair.cluster.identity import Identity
    from collections.abc import Callable, Iterable, Iterator

    from pair.records.endpoints import BypassReason, Endpoint
    from pair.records.engines import NodeInventory
    from pair.settings import Loaded

KINDS = (Ollama(), LMStudio(), LlamaCpp(), Embedded(), OpenAICompatible())
"""The kinds of engine that come with PAIR."""

POLICIES = (PressurePolicy(),)
"""The routing policies that come with PAIR."""

CONDITIONS = (
    *CONTROL_CONDITIONS,
    *ENGINE_CONDITIONS,
    *ERROR_CONDITIONS,
    *JOB_CONDITIONS,
    *PROXY_CONDITIONS,
    *SUPERVISION_CONDITIONS,
)

_STAND_INS = {"ollama": 11435, "lmstudio": 1235}
"""The first port that stands in for a facade's own (EN-43)."""

_ENGINES_STOP = 4.0
_LAST_WORDS = 1.0
"""Seconds for the last step of the engines' and of a facade's stop (OP-52)."""

_OVERRUN = 2.0
"""Seconds beyond the stop's deadline after which the process is ended (OP-53)."""

log = Logger()


class Parts:
    """Everything above the ground, built for one identity and not started.

    Attributes:
        services: all of them, in the order of their start.
    """

    def __init__(
        self,
        reactor: Any,
        loaded: Loaded,
        identity: Identity,
        ground: Ground,
        say: Callable[[str], None],
    ) -> None:
        self._reactor = reactor
        self._loaded = loaded
        self._settings = settings = loaded.settings
        self._store = store = ground.store
        self._logs = ground.logs
        self._say = say
        self._run = secrets.token_hex(8)
        self._phase: Phase = "starting"
        self._offered = False
        self._facades: dict[str, FacadeService] = {}
        self._listen = partial(listen_eager, reactor)

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
        self._engines = EngineService(
            reactor,
            settings,
            KINDS,
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
            self._ledger.changed,
            next(each for each in POLICIES if each.name == settings.routing.policy),
            settings.routing.rule,
            self._labels,
            settings.routing.loaded_only,
            self._errors,
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
            meters=Meters(reactor.seconds),
            active=Budget(settings.proxy.max_active),
            bodies=Budget(settings.proxy.body_budget),
        )
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
            history=self._history,
            listeners=self._listeners,
            endpoints=self.endpoints,
            components=lambda: self.services.tree(),
        )
        self._control = build_control(
            reactor,
            self._listen,
            settings,
            ground.directory,
            self._errors,
            self._overview.sources(),
            self._overview.revision,
        )
        self._ledger.changed.subscribe(self._history.keep)
        store.writable_changed.subscribe(self._store_changed)
        self.services = self._in_order()

    def announce(self) -> None:
        """The start is done: say where applications find us, and then how to try it (OP-47)."""
        self._phase = "up"
        if os.geteuid() == 0:
            self._errors.raise_entry("service:running_as_root")
        for endpoint in self.endpoints():
            where = endpoint.url or "no port"
            self._say(f"{endpoint.facade:<10}{where}" + (f"  {endpoint.detail}" if endpoint.detail else ""))
        self._say(f"{'control':<10}{self._control.url or 'not there yet'}  (pair-admin status)")
        summary = ", ".join(f"{each.facade} {each.state} on {each.port}" for each in self.endpoints())
        log.info("PAIR {version} is ready: {summary}.", version=pair.__version__, summary=summary)
        self._notifier.ready(summary)
        self._engines.changed.subscribe(self._offer_command)
        self._offer_command(self._engines.inventory())

    def stopping(self) -> None:
        """The stop begins: from now on it has its deadline (OP-53)."""
        self._phase = "stopping"
        self._notifier.stopping()
        self._watchdog.end_within(self._settings.service.stop_deadline + _OVERRUN)

    def endpoints(self) -> tuple[Endpoint, ...]:
        """The facades, in the order of the settings."""
        return tuple(self._facades[name].endpoint for name in self._settings.proxy.facades if name in self._facades)

    def _in_order(self) -> OrderedServices:
        """The order of the start; the stop goes the other way (AR-12, AR-13)."""
        settings = self._settings
        services = OrderedServices(self._reactor, settings.service.stop_deadline)
        services.add("watchdog", self._watchdog)
        services.add("writers", self._writers)
        services.add("service manager", self._notifier)
        services.add("history", self._supervised("history", lambda: self._history), stop_deadline=LAST_FLUSH)
        services.add("control", self._supervised("control", lambda: self._control))
        services.add("engines", self._engines, stop_deadline=_ENGINES_STOP)
        services.add("scheduler", self._scheduling)
        services.add("pool", _Closed(self._plane.pool))
        services.add("sweep", self._plane.sweep)
        for name in settings.proxy.facades:
            facade = self._supervised(name, partial(self._make_facade, name))
            services.add(f"{name} facade", facade, stop_deadline=settings.service.drain + _LAST_WORDS)
        return services

    def _supervised(self, name: str, make: Callable[[], IService]) -> SupervisedService:
        return SupervisedService(name, make, self._reactor, self._errors)

    def _make_facade(self, name: str) -> FacadeService:
        settings = self._settings.proxy
        listings = Listings(
            self._reactor, self._engines, self._scheduling.catalogue.nodes, settings.list_wait, settings.explain
        )
        browser = BrowserPolicy(settings.allowed_hosts, settings.origins)
        ids = secrets.token_hex(4)
        admission = Admission(self._plane, name, browser, listings, Banners(self._engines), self._run, ids)
        key = f"proxy.ports.{name}"
        facade = self._facades[name] = FacadeService(
            self._reactor,
            name,
            admission,
            self._listen,
            self._settings.node.bind,
            self._loaded.value(key),
            self._loaded.source(key).name != "default",
            settings.takeover_of(name) == "auto",
            partial(self._stand_ins, name),
            self._holder,
            self._errors,
            self._settings.service.drain,
        )
        facade.changed.subscribe(self._overview.revision.bump)
        return facade

    def _stand_ins(self, facade: str) -> Iterator[int]:
        taken = ports.reserved(engine.port for engine in self._settings.engines.values() if engine.port is not None)
        base = _STAND_INS[facade]
        return (port for port in range(base, base + ports.SPAN) if port not in taken)

    def _holder(self, port: int) -> BypassReason:
        """Whether it is one of our engines that holds a port which a facade wants."""
        statuses = [each.status for each in self._engines.inventory().engines]
        addresses = [self._engines.address(each.id) for each in statuses]
        return "engine" if any(each is not None and each.port == port for each in addresses) else "foreign"

    def _own_ports(self) -> frozenset[int]:
        """All ports on which this process listens: none of them is an engine's (EN-10)."""
        return self._control.ports.union(*(each.ports for each in self._facades.values()))

    def _listeners(self) -> tuple[Listener, ...]:
        """The control API and the facades, as they listen now (UI-31)."""
        facades = (
            Listener(each.facade, None if each.port is None else f"127.0.0.1:{each.port}", each.state)
            for each in self.endpoints()
        )
        return (self._control.listener, *facades)

    def _labels(self, kinds: Iterable[str]) -> tuple[str, ...]:
        automatic = automatic_labels(platform.system().lower(), platform.machine().lower(), kinds=kinds)
        return node_labels(self._settings.node.labels, automatic)

    def _offer_command(self, inventory: NodeInventory) -> None:
        """Once there is a model, print a command that gets an answer from it (QA-1)."""
        for endpoint in reversed(self.endpoints()):
            model = default_model(inventory, endpoint.facade)
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

    def _now(self) -> int:
        return int(self._reactor.seconds() * 1000)


class _Closed(Service):
    """The connections to engines, closed when this stops."""

    def __init__(self, pool: ClientPool) -> None:
        self._pool = pool

    def stopService(self) -> Deferred[None]:
        """Abort them; fires when no socket is left."""
        super().stopService()
        return self._pool.close()
