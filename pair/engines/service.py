"""The engines of this node: which there are, what they are to be, what they offer (AR-5, EN-1 to EN-12).

It joins a runner for each engine; which kinds there are it is told.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from zope.interface import implementer

from pair.engines import alias, hostfacts, ports
from pair.engines.charge import Charge, Surroundings
from pair.engines.children import Children
from pair.engines.facts import Found, HostFacts
from pair.engines.kinds.embedded import PACKAGE
from pair.engines.probe import Prober
from pair.engines.processes import HostProcesses
from pair.engines.runner import Runner
from pair.engines.standby import Standby
from pair.engines.tasks import Tasks
from pair.events import Signal
from pair.interfaces import ILocalEngines
from pair.privacy import Secret
from pair.records.engines import EngineAddress, NodeInventory
from pair.routing.dialects import with_routes
from pair.settings.grammar import engine_address
from pair.supervision.repeating import Repeating

if TYPE_CHECKING:
    from pair.engines.memory import EngineMemory
    from pair.engines.probe import Ask
    from pair.engines.processes import Processes
    from pair.interfaces import IEngineKind, IErrorBook
    from pair.records.engines import Drain
    from pair.routing.dialects import Dialect
    from pair.settings import EngineSettings, Settings

T = TypeVar("T")

DETECT_SECONDS = 60.0
STANDBY_SECONDS = 5.0
STANDBY_ENGINE = "embedded"
"""The engine that the setting ``embedded`` is about (EN-106)."""


class Swept(Struct, frozen=True):
    """What one look at the host found of an engine: its programs, its credential, its places by its own files."""

    founds: Sequence[Found]
    credential: Secret | None
    configured: tuple[EngineAddress, ...]


Sweep = Mapping[str, Swept]
"""By engine."""


@implementer(ILocalEngines)
class EngineService(Service):
    """See :class:`pair.interfaces.ILocalEngines`.

    Args:
        reactor: the reactor: processes, connections, threads and time.
        settings: of the node.
        kinds: the kinds of engine that there are.
        node: UUID of this node.
        errors: where conditions are raised.
        memory: what engines leave behind for the next start.
        now: epoch milliseconds.
        own_ports: the ports that this process listens on; asked each time, for facades move.
        in_flight: how many requests an engine is at, by its id.
        environment: ours.
        ask: how engines are asked, if not over HTTP.
        processes: the process table, if not this host's.
        in_thread: runs what blocks, if not in the reactor's threads.
    """

    def __init__(
        self,
        reactor: Any,
        settings: Settings,
        kinds: Iterable[IEngineKind],
        *,
        node: str,
        errors: IErrorBook,
        memory: EngineMemory,
        now: Callable[[], int],
        own_ports: Callable[[], frozenset[int]],
        in_flight: Callable[[str], int],
        environment: Mapping[str, str] = os.environ,
        ask: Ask | None = None,
        processes: Processes | None = None,
        free: Callable[[int], bool] = hostfacts.port_is_free,
        in_thread: Callable[[Callable[[], Sweep]], Deferred[Sweep]] | None = None,
    ) -> None:
        self.name = "engines"
        self.changed: Signal[NodeInventory] = Signal()
        self._settings = settings
        self._node = node
        self._clock = reactor
        self._environment = environment
        self._own_ports = own_ports
        self._in_thread = in_thread or (lambda work: deferToThreadPool(reactor, reactor.getThreadPool(), work))
        around = Surroundings(
            clock=reactor,
            now=now,
            ask=ask or Prober(reactor),
            children=Children(
                reactor, reactor, processes or HostProcesses(), memory, environment, now, hostfacts.home()
            ),
            memory=memory,
            errors=errors,
            own_ports=own_ports,
            taken=self._taken,
            reserved=ports.reserved_in(settings, alias.chosen(settings.facade.ollama.alias, environment)),
            free=free,
            in_flight=in_flight,
        )
        self._runners = {
            charge.id: Runner(charge, around, self._emit) for charge in charges(settings, kinds, environment)
        }
        self._standby = Standby(settings.embedded)
        self._drain: Drain | None = None
        self._tasks = Tasks("the engines")
        self._repeated = [
            Repeating(reactor, each.charge.kind.timing.health, each.poll, f"The poll of engine {each.charge.id}")
            for each in self._runners.values()
        ]
        self._repeated.append(Repeating(reactor, DETECT_SECONDS, self._detect, "The search for engines"))
        self._repeated.append(Repeating(reactor, STANDBY_SECONDS, self._stand_by, "The watch of the embedded engine"))

    # IService

    def startService(self) -> Deferred[None]:
        """Look for the engines. The Deferred fires when each has been looked for once; ours may still be starting."""
        super().startService()
        return self._tasks.run(self._start())

    def stopService(self) -> Deferred[None]:
        """End what we started, all at once. The Deferred fires when nothing is left of it (EN-37)."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _start(self) -> None:
        await self._tasks.run(self._detect())
        for begun in [self._tasks.run(runner.begin()) for runner in self._runners.values()]:
            await begun
        if not self.running:
            return  # stopped meanwhile
        for each in self._repeated:
            each.startService()

    async def _stop(self) -> None:
        self._tasks.cancel()
        await self._tasks.finished()
        for stopped in [each.stopService() for each in self._repeated]:
            await stopped
        for runner in self._runners.values():
            self._tasks.run(runner.close())
        await self._tasks.finished()

    # ILocalEngines

    def inventory(self) -> NodeInventory:
        """See :class:`pair.interfaces.ILocalEngines`."""
        engines = tuple(runner.inventory() for _, runner in sorted(self._runners.items()))
        drain, labels = self._drain, self._settings.node.labels
        return NodeInventory(self._node, engines, drain is not None, labels, None if drain is None else drain.reason)

    def drain(self, drain: Drain | None) -> None:
        """Say of this node that it takes no new work; None: that it does (RT-22). No engine is told."""
        if drain != self._drain:
            self._drain = drain
            self._emit()

    def restarts(self) -> Mapping[str, int]:
        """How often each engine was started again after a failure, since this process began."""
        return {id: runner.keeper.core.restarts for id, runner in self._runners.items()}

    def dialect(self, engine: str) -> Dialect:
        """See :class:`pair.interfaces.ILocalEngines`."""
        return self._runners[engine].dialect

    def address(self, engine: str) -> EngineAddress | None:
        """See :class:`pair.interfaces.ILocalEngines`."""
        return self._runners[engine].address

    def credential(self, engine: str) -> Secret | None:
        """See :class:`pair.interfaces.ILocalEngines`."""
        return self._runners[engine].credential

    def alive(self, engine: str) -> bool:
        """See :class:`pair.interfaces.ILocalEngines`."""
        return self._runners[engine].alive

    def note_missing(self, engine: str, model: str) -> None:
        """See :class:`pair.interfaces.ILocalEngines`."""
        self._runners[engine].note_missing(model)

    def note_outcome(self, engine: str, good: bool) -> None:
        """See :class:`pair.interfaces.ILocalEngines`."""
        self._runners[engine].note_outcome(good)

    def note_bytes(self, engines: Sequence[str]) -> None:
        """See :class:`pair.interfaces.ILocalEngines`."""
        for engine in engines:
            self._runners[engine].note_bytes()

    def refresh(self, engine: str) -> Deferred[None]:
        """See :class:`pair.interfaces.ILocalEngines`."""
        return self._runners[engine].refresh()

    # Within

    def _emit(self) -> None:
        self.changed.emit(self.inventory())

    def _taken(self) -> frozenset[int]:
        children = (runner.keeper.address for runner in self._runners.values())
        return self._own_ports().union(address.port for address in children if address is not None)

    async def _detect(self) -> None:
        sweep = await self._in_thread(self._sweep)
        for engine, swept in sweep.items():
            runner = self._runners[engine]
            runner.credential = swept.credential
            runner.located(swept.founds, swept.configured)

    def _sweep(self) -> Sweep:
        """Runs in a thread."""
        facts = hostfacts.gather(self._settings.node.data_dir, (PACKAGE,), self._environment)
        return {engine: self._swept(runner.charge, facts) for engine, runner in self._runners.items()}

    def _swept(self, charge: Charge, facts: HostFacts) -> Swept:
        engine = charge.settings
        # An engine given by URL is there and nowhere else.
        ports = () if engine.url is not None else charge.kind.configured(facts)
        return Swept(
            founds=charge.kind.locate(msgspec.structs.replace(facts, binary=engine.binary)),
            credential=hostfacts.read_credential(engine.credential_file, engine.credential_env, self._environment),
            configured=tuple(EngineAddress(host, port) for port in ports for host in alias.LOOPBACK),
        )

    def _stand_by(self) -> None:
        runner = self._runners.get(STANDBY_ENGINE)
        if runner is not None and runner.charge.settings.mode != "off":
            others = any(each.routable for each in self._runners.values() if each is not runner)
            runner.desire(self._standby.desired(others, self._clock.seconds()))


def charges(settings: Settings, kinds: Iterable[IEngineKind], environment: Mapping[str, str]) -> list[Charge]:
    """The engines that there may be: one of each kind that has a place of its own, and those given by URL.

    Raises:
        ValueError: a setting ``routes`` names a path that no facade has.
    """
    by_name = {kind.name: kind for kind in kinds}
    asked = alias.chosen(settings.facade.ollama.alias, environment)
    named = (alias.named(environment), *(() if asked is None else (asked,)))
    found = [_charge(kind, settings, named) for kind in by_name.values() if kind.control != "none"]
    given = [
        _given(name, by_name[engine.kind], engine)
        for name, engine in settings.engines.items()
        if engine.url is not None and engine.kind is not None
    ]
    return found + given


def _charge(kind: IEngineKind, settings: Settings, named: Iterable[alias.Alias]) -> Charge:
    engine = settings.engine(kind.name)
    usual = [port for port in (engine.port, kind.ports.standard) if port is not None]
    addresses = [EngineAddress(host, port) for port in usual for host in alias.LOOPBACK]
    if kind.ports.standard == alias.STANDARD_PORT:
        addresses += [EngineAddress(host, each.port) for each in named for host in each.hosts]
    required = engine.mode == "on" or (kind.name == STANDBY_ENGINE and settings.embedded == "on")
    return Charge(
        id=kind.name,
        kind=kind,
        dialect=kind.dialect,
        settings=engine,
        addresses=tuple(dict.fromkeys(addresses)),
        guesses=tuple(EngineAddress(host, port) for port in kind.ports.probe for host in alias.LOOPBACK),
        required=required,
    )


def _given(id: str, kind: IEngineKind, engine: EngineSettings) -> Charge:
    assert engine.url is not None
    address = engine_address(engine.url)
    # A name that means this machine is not asked of any resolver (EN-4).
    hosts = alias.LOOPBACK if address.host.lower() == "localhost" else (address.host,)
    return Charge(
        id=id,
        kind=kind,
        dialect=with_routes(kind.dialect, engine.routes) if engine.routes else kind.dialect,
        settings=engine,
        addresses=tuple(EngineAddress(host, address.port, address.tls) for host in hosts),
        required=engine.mode == "on",
    )
