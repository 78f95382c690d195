"""The facades of this node, and what people choose for them while it runs (PX-2, PX-96, PX-97, EN-54)."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from msgspec.structs import replace
from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThreadPool
from zope.interface import implementer

from pair import hostports
from pair.choices import SettingLocked, facade_port, served_facades
from pair.engines import alias, ports
from pair.engines.ports import Wish
from pair.events import Signal
from pair.proxy.admission import Admission
from pair.proxy.browser import BrowserPolicy
from pair.proxy.claim import Host
from pair.proxy.facade import FacadeService, alias_entries
from pair.proxy.identity import Banners
from pair.proxy.ingress import Ingress
from pair.proxy.listeners import PortTaken
from pair.proxy.listings import Listings
from pair.proxy.selfdial import SelfDial
from pair.records.endpoints import Endpoint
from pair.settings.grammar import is_local
from pair.settings.structs import Facade, FacadePorts
from pair.supervision.child import SupervisedService
from pair.supervision.components import IComponents

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from twisted.internet.interfaces import IReactorTime

    from pair.choices import Choice, Choices
    from pair.hostports import Holder
    from pair.proxy.ingress import Peers
    from pair.proxy.listeners import Listen
    from pair.proxy.plane import Plane
    from pair.records.engines import NodeInventory
    from pair.settings import Loaded
    from pair.supervision.components import Component

NAMES: tuple[str, ...] = get_args(Facade)

_STAND_INS = {"ollama": 11435, "lmstudio": 1235}
"""The first port that stands in for a facade's own (EN-43)."""


class NoSuchFacade(Exception):  # noqa: N818 - an answer, not a fault
    """There is no facade of that name."""


class PortReserved(Exception):  # noqa: N818 - the same
    """The port is kept for another part of PAIR, or for an engine (EN-43)."""


class PortOccupied(Exception):  # noqa: N818 - the same
    """The port cannot be had. ``holder`` says who has it, as far as that is known."""

    def __init__(self, port: int, holder: str) -> None:
        super().__init__(port, holder)
        self.port = port
        self.holder = holder


class Facades:
    """All facades, those that are off too.

    Args:
        reactor: for time, and threads.
        plane: what serves requests.
        choices: what people chose, over the settings.
        listen: opens a socket.
        nonce: names this process, to its own probes and in request ids.
        environment: ours.
        program_at: which program has a port, if not asked in a thread.
        peers: how other nodes are met; None: not at all.

    Attributes:
        changed: emits an endpoint when it changes.
        services: by name; each is to be started and stopped.
    """

    def __init__(
        self,
        reactor: Any,
        plane: Plane,
        choices: Choices,
        listen: Listen,
        nonce: str,
        environment: Mapping[str, str] = os.environ,
        program_at: Callable[[int], Deferred[Holder | None]] | None = None,
        peers: Peers | None = None,
    ) -> None:
        self.changed: Signal[Endpoint] = Signal()
        self._clock = reactor
        self._plane = plane
        self._choices = choices
        self._listen = listen
        self._nonce = nonce
        self._peers = peers
        self._environment = environment
        self._program_at = program_at or self._ask_in_thread
        self._made: dict[str, FacadeService] = {}
        self._lock = DeferredLock()
        served = self._loaded.settings.proxy.facades
        self.services = {name: Switched(reactor, self._supervised(name), name in served) for name in NAMES}
        self._host = Host(
            engine_at=self._engine_at,
            program_at=self._program_at,
            reserved=self._reserved,
            reaches_us=SelfDial(reactor, plane.pool, nonce),
        )
        self._states = _states(plane.engines.inventory())
        plane.engines.changed.subscribe(self._engines_changed)

    # What is shown

    def endpoints(self) -> tuple[Endpoint, ...]:
        """All facades, as they are now."""
        return tuple(self._endpoint(name) for name in NAMES)

    @property
    def ports(self) -> frozenset[int]:
        """All ports on which facades accept."""
        return frozenset[int]().union(*(each.ports for each in self._made.values()))

    def _endpoint(self, name: str) -> Endpoint:
        if self.services[name].on and name in self._made:
            return self._made[name].endpoint
        return Endpoint(name, "pending" if self.services[name].on else "off", self._wish(name).port)

    # What people choose

    def change(self, name: str, port: int | None = None, on: bool | None = None) -> Deferred[None]:
        """Move a facade, switch it, or both. The Deferred fires when that is stored, and it has begun to be so.

        A facade that is switched off accepts no more; open answers have the
        time of a drain (PX-68).

        Raises:
            NoSuchFacade: there is none of that name.
            SettingLocked: a setting fixes it.
            PortReserved, PortOccupied, PortDenied: the port cannot be had. Nothing has changed.
        """
        return Deferred.fromCoroutine(self._change(name, port, on))

    def default_port(self, name: str) -> Deferred[None]:
        """Let a facade seek its default port again. Raises as :meth:`change`."""
        return Deferred.fromCoroutine(self._default_port(name))

    async def _change(self, name: str, port: int | None, on: bool | None) -> None:
        service = self._service(name)
        async with self._lock:
            for choice, wanted in ((facade_port(name), port), (served_facades(), on)):
                if wanted is not None:
                    self._check_free(choice)
            if port is not None:
                await self._move(name, port)
            if on is not None:
                served = [each for each in NAMES if (on if each == name else self.services[each].on)]
                await self._choices.put(served_facades(), tuple(served))
                await service.turn(on)
                if not on:
                    self._made.pop(name, None)
                    self._forget_alias(name)
        self.changed.emit(self._endpoint(name))

    async def _default_port(self, name: str) -> None:
        service = self._service(name)
        async with self._lock:
            await self._choices.remove(facade_port(name))
            if service.on and name in self._made:
                self._made[name].wish(self._wish(name))
        self.changed.emit(self._endpoint(name))

    async def _move(self, name: str, port: int) -> None:
        wish = self._wish(name)
        if port in self._reserved() - {wish.port, getattr(FacadePorts(), name)}:
            raise PortReserved(port)
        keep = partial(self._choices.put, facade_port(name), port)
        facade = self._made.get(name)
        if facade is None or not facade.running:
            await keep()
            return
        try:
            await facade.move(replace(wish, port=port, chosen=True), keep)
        except PortTaken:
            holder = await self._program_at(port)
            raise PortOccupied(port, "another program" if holder is None else holder.described) from None

    def _service(self, name: str) -> Switched:
        if name not in self.services:
            raise NoSuchFacade(name)
        return self.services[name]

    def _check_free(self, choice: Choice[Any]) -> None:
        source = self._choices.lock(choice)
        if source is not None:
            raise SettingLocked(choice.setting, source)

    # What they are made of

    @property
    def _loaded(self) -> Loaded:
        return self._choices.effective()

    def _supervised(self, name: str) -> SupervisedService:
        return SupervisedService(name, partial(self._make, name), self._clock, self._plane.errors)

    def _make(self, name: str) -> FacadeService:
        plane, settings = self._plane, self._loaded.settings
        listings = Listings(
            self._clock,
            plane.engines,
            plane.scheduling.catalogue.nodes,
            settings.proxy.list_wait,
            settings.proxy.explain,
        )
        browser = BrowserPolicy(settings.proxy.allowed_hosts, settings.proxy.origins)
        run = f"{self._nonce}.{name}"  # so that no request has the id of one at the other facade, or that of a job
        admission = Admission(plane, name, browser, listings, Banners(plane.engines), self._nonce, run)
        facade = self._made[name] = FacadeService(
            self._clock,
            name,
            admission,
            self._listen,
            settings.node.bind,
            self._wish(name),
            self._alias(name),
            self._host,
            plane.errors,
            settings.service.drain,
            None if self._peers is None else Ingress(plane, name, self._peers, admission.next_id),
        )
        facade.changed.subscribe(self.changed.emit)
        return facade

    def _wish(self, name: str) -> Wish:
        loaded, key = self._loaded, facade_port(name).key
        return Wish(
            loaded.value(key),
            base=_STAND_INS[name],
            chosen=loaded.source(key).name != "default",
            takes_over=loaded.settings.proxy.takeover_of(name) == "auto",
        )

    def _alias(self, name: str) -> alias.Alias | None:
        """Where a facade is to listen besides; a reserved port is reported instead (EN-54)."""
        settings = self._loaded.settings
        found = self._asked_alias() if name == "ollama" else None
        if found is None or found.port == settings.engine("ollama").port:
            return None
        if found.port in ports.reserved_in(settings, None) - {self._wish(name).port}:
            for entry in set(alias_entries(name).ids.values()):
                detail = f"Port {found.port} is reserved for another part of PAIR, or for an engine."
                self._plane.errors.raise_entry(entry, facade=name, detail=detail)
            return None
        return found

    def _asked_alias(self) -> alias.Alias | None:
        return alias.chosen(self._loaded.settings.facade.ollama.alias, self._environment)

    def _forget_alias(self, name: str) -> None:
        for entry in set(alias_entries(name).ids.values()):
            self._plane.errors.clear(entry)

    # This host

    def _reserved(self) -> frozenset[int]:
        return ports.reserved_in(self._loaded.settings, self._asked_alias())

    def _ask_in_thread(self, port: int) -> Deferred[Holder | None]:
        return deferToThreadPool(self._clock, self._clock.getThreadPool(), hostports.holder, port)

    def _engine_at(self, port: int) -> bool:
        engines = self._plane.engines
        addresses = (engines.address(each.status.id) for each in engines.inventory().engines)
        return any(each is not None and is_local(each) and each.port == port for each in addresses)

    def _engines_changed(self, inventory: NodeInventory) -> None:
        """An engine that stopped may have left its port to us (EN-50)."""
        states = _states(inventory)
        if states != self._states:
            self._states = states
            for each in self._made.values():
                each.look()


@implementer(IComponents)
class Switched(Service):
    """A service that runs while it is on.

    Attributes:
        on: whether it is.
    """

    def __init__(self, clock: IReactorTime, service: SupervisedService, on: bool) -> None:
        self.on = on
        self._clock = clock
        self._service = service
        self._ending: Deferred[None] = succeed(None)

    def startService(self) -> Deferred[None]:
        """Start it, if it is on."""
        super().startService()
        return self._service.startService() if self.on else succeed(None)

    def stopService(self) -> Deferred[None]:
        """Stop it."""
        super().stopService()
        return self._service.stopService()

    async def turn(self, on: bool) -> None:
        """Switch it. It has started then, or begun to stop."""
        if on == self.on:
            return
        self.on = on
        if not self.running:
            return
        if not on:
            self._ending = self._service.stopService()
            return
        await self._ending
        # Its end was told from within its machine, which cannot begin anew before it has ended that.
        await deferLater(self._clock, 0)
        if self.running and self.on:
            await self._service.startService()

    def tree(self) -> tuple[Component, ...]:
        """See :class:`pair.supervision.components.IComponents`."""
        return self._service.tree()


def _states(inventory: NodeInventory) -> Mapping[str, str]:
    return {each.status.id: each.status.state for each in inventory.engines}
