"""A facade's hold on its port: taken when free, stood in for when not, taken over when it frees (EN-42 to EN-50).

The machine tries, waits and looks; what it aims at is
:func:`pair.engines.ports.plan`, and the sockets are :mod:`pair.proxy.listeners`.
It must not know what is served behind them, nor start or stop an engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from automat import TypeMachineBuilder
from msgspec.structs import replace

from pair.engines.ports import Plan, Wish, plan
from pair.events import Signal
from pair.logs import Logger
from pair.proxy.listeners import Listeners, PortDenied, PortTaken, Sockets
from pair.proxy.portwords import detail
from pair.proxy.witness import Watch, Witness
from pair.records.endpoints import Endpoint
from pair.records.errors import Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.engines.ports import Holder
    from pair.hostports import Holder as Program
    from pair.interfaces import IErrorBook
    from pair.records.endpoints import BypassReason, ClaimState

RETRY = 5.0
"""Seconds between two tries for a port that is held, or at which another program answers (EN-50)."""

WATCH = 30.0
"""Seconds between two looks at whether it is us whom clients reach (EN-48)."""

log = Logger()


@dataclass(frozen=True)
class Host:
    """What a claim asks about this host.

    Attributes:
        engine_at: whether an engine that we use has a port of this machine.
        program_at: which program has it; None where that cannot be told.
        reserved: the ports that stand in for none (EN-43).
        reaches_us: whether clients who dial these sockets reach us (EN-48).
    """

    engine_at: Callable[[int], bool]
    program_at: Callable[[int], Deferred[Program | None]]
    reserved: Callable[[], Container[int]]
    reaches_us: Callable[[Listeners], Deferred[bool]]


@dataclass(frozen=True)
class Entries:
    """The error entries of a claim: their ids by state, and the reason that is no trouble to report."""

    ids: Mapping[ClaimState, str]
    quiet: BypassReason


class ClaimInputs(Protocol):
    """What can happen to a claim."""

    def begin(self) -> None:
        """The facade starts."""

    def end(self) -> None:
        """The facade stops."""

    def look(self) -> None:
        """It is time to look again."""

    def wish(self, wish: Wish) -> None:
        """A person wishes another port."""

    def _got(self, listeners: Listeners) -> None:
        """The wanted port is ours."""

    def _held(self, stand_in: Listeners, plan: Plan) -> None:
        """We cannot have it; we have another one instead."""

    def _lost(self, plan: Plan) -> None:
        """No port is to be had."""

    def _shadowed(self, listeners: Listeners, stand_in: Listeners, plan: Plan) -> None:
        """It is ours, and clients reach another program there."""

    def _dialled(self, ours: bool) -> None:
        """We saw whom clients reach."""


@dataclass
class _Core:
    """The claim's surroundings, and what is shown of it."""

    clock: IReactorTime
    facade: str
    name: str
    wanted: Wish
    sockets: Sockets
    host: Host
    errors: IErrorBook
    entries: Entries
    changed: Signal[Endpoint]
    shown: Endpoint

    def __post_init__(self) -> None:
        self.plan: Plan | None = None
        self.denied: PortDenied | None = None
        self.watch = Watch(self.clock, self.host.reaches_us)
        self.witness = Witness(self.clock, self.host.program_at, self._named)

    def seek(self, claim: ClaimInputs) -> None:
        """Try for the wanted port, and do what the plan says."""
        listeners, holder = self._try() if self.wanted.tries else (None, None)
        aim = self._plan(holder)
        if aim.state == "bound":
            assert listeners is not None, "it is bound when nobody holds it"
            claim._got(listeners)
        elif aim.port is not None:
            claim._held(self.sockets.listen(aim.port), aim)
        else:
            claim._lost(aim)

    def yield_to_shadow(self, claim: ClaimInputs, listeners: Listeners) -> None:
        """Stand in for a port at which clients reach another program; what reaches us there is served."""
        aim = self._plan("shadowed")
        assert aim.port is not None, "at worst it is the wanted port itself"
        claim._shadowed(listeners, self.sockets.listen(aim.port), aim)

    def _try(self) -> tuple[Listeners | None, Holder | None]:
        self.denied = None
        try:
            return self.sockets.listen(self.wanted.port), None
        except PortTaken:
            return None, "engine" if self.host.engine_at(self.wanted.port) else "foreign"
        except PortDenied as denied:
            self.denied = denied
            return None, "foreign"

    def _plan(self, holder: Holder | None) -> Plan:
        # Where clients are sent now stands in best.
        present = next((each.port for each in self.sockets.kept[-1:] if each.port != self.wanted.port), None)
        wish = self.wanted if present is None else replace(self.wanted, base=present)
        return plan(wish, holder, self.host.reserved(), self.sockets.can_listen)

    def show(self, aim: Plan) -> None:
        """Tell of the claim's state, once for each change."""
        self.plan = aim
        port, addresses = next(((each.port, each.addresses) for each in self.sockets.kept[-1:]), (None, ()))
        words = detail(self.wanted, aim, self.witness.words, self.denied)
        endpoint = Endpoint(self.facade, aim.state, self.wanted.port, port, addresses, aim.reason, words)
        before, self.shown = self.shown, endpoint
        if endpoint == before:
            return
        self._report(endpoint)
        if (endpoint.state, port) != (before.state, before.port):
            if port is None:
                log.warn("The {claim} has no port. {detail}", claim=self.name, detail=words)
            else:
                log.info("The {claim} is {state}, on port {port}.", claim=self.name, state=endpoint.state, port=port)
        self.changed.emit(endpoint)

    def _report(self, endpoint: Endpoint) -> None:
        entry = None if endpoint.reason == self.entries.quiet else self.entries.ids.get(endpoint.state)
        for other in set(self.entries.ids.values()) - {entry}:
            self.errors.clear(other)
        if entry is not None:
            subject = Subject(port=endpoint.wanted_port)
            self.errors.raise_entry(entry, subject=subject, facade=self.facade, detail=endpoint.detail)

    def _named(self) -> None:
        assert self.plan is not None, "nobody is asked for before something is in the way"
        self.show(self.plan)

    def close_all(self) -> Deferred[None]:
        """Accept nowhere any more, and report nothing; fires when all sockets are closed."""
        for id in set(self.entries.ids.values()):
            self.errors.clear(id)
        return self.sockets.close_all()


@dataclass
class _Held:
    """The wanted port is ours."""

    listeners: Listeners


@dataclass
class _Waiting:
    """It is not; we look again when the timer fires."""

    timer: IDelayedCall


def _hold(claim: ClaimInputs, core: _Core, listeners: Listeners) -> _Held:
    delay = WATCH if listeners in core.sockets.kept else 0.0
    core.sockets.keep(listeners)
    core.witness.forget()
    core.show(Plan("bound", listeners.port))
    core.watch.look(listeners, delay, claim._dialled)
    return _Held(listeners)


def _share(claim: ClaimInputs, core: _Core, listeners: Listeners, stand_in: Listeners, plan: Plan) -> _Held:
    core.sockets.keep(listeners, stand_in)
    core.show(plan)
    core.watch.look(listeners, RETRY, claim._dialled)
    return _Held(listeners)


def _stand_aside(claim: ClaimInputs, core: _Core, stand_in: Listeners, plan: Plan) -> _Waiting:
    core.sockets.keep(stand_in)
    return _wait(claim, core, plan)


def _do_without(claim: ClaimInputs, core: _Core, plan: Plan) -> _Waiting:
    core.sockets.keep()
    return _wait(claim, core, plan)


def _wait(claim: ClaimInputs, core: _Core, plan: Plan) -> _Waiting:
    core.show(plan)
    if plan.reason == "foreign" and core.denied is None:
        core.witness.ask(core.wanted.port)
    return _Waiting(core.clock.callLater(RETRY, claim.look))


def _machine() -> Callable[[_Core], ClaimInputs]:
    builder = TypeMachineBuilder(ClaimInputs, _Core)
    idle = builder.state("Idle")
    seeking = builder.state("Seeking")
    bound = builder.state("Bound", _hold)
    shadowed = builder.state("Shadowed", _share)
    bypassed = builder.state("Bypassed", _stand_aside)
    failed = builder.state("Failed", _do_without)

    seeking.upon(ClaimInputs._got).to(bound).returns(None)
    seeking.upon(ClaimInputs._held).to(bypassed).returns(None)
    seeking.upon(ClaimInputs._lost).to(failed).returns(None)
    seeking.upon(ClaimInputs._shadowed).to(shadowed).returns(None)
    for state, never_mind in ((idle, ClaimInputs.end), (idle, ClaimInputs.look), (bound, ClaimInputs.look)):
        state.upon(never_mind).loop().returns(None)

    @idle.upon(ClaimInputs.begin).to(seeking)
    def begin(claim: ClaimInputs, core: _Core) -> None:
        core.seek(claim)

    @idle.upon(ClaimInputs.wish).loop()
    def remember(claim: ClaimInputs, core: _Core, wish: Wish) -> None:
        core.wanted = wish
        core.sockets.close_all()

    # Without the wanted port.

    @bypassed.upon(ClaimInputs.look).to(seeking)
    @failed.upon(ClaimInputs.look).to(seeking)
    def again(claim: ClaimInputs, core: _Core, waiting: _Waiting) -> None:
        if waiting.timer.active():
            waiting.timer.cancel()
        core.seek(claim)

    @bypassed.upon(ClaimInputs.wish).to(seeking)
    @failed.upon(ClaimInputs.wish).to(seeking)
    def change(claim: ClaimInputs, core: _Core, waiting: _Waiting, wish: Wish) -> None:
        core.wanted = wish
        core.witness.forget()
        again(claim, core, waiting)

    @bypassed.upon(ClaimInputs.end).to(idle)
    @failed.upon(ClaimInputs.end).to(idle)
    def give_up(claim: ClaimInputs, core: _Core, waiting: _Waiting) -> None:
        waiting.timer.cancel()
        core.witness.forget()

    # With it.

    @bound.upon(ClaimInputs._dialled).to(seeking)
    @shadowed.upon(ClaimInputs._dialled).to(seeking)
    def judge(claim: ClaimInputs, core: _Core, held: _Held, ours: bool) -> None:
        if ours:
            claim._got(held.listeners)
        else:
            core.yield_to_shadow(claim, held.listeners)

    @shadowed.upon(ClaimInputs.look).loop()
    def hurry(claim: ClaimInputs, core: _Core, held: _Held) -> None:
        core.watch.look(held.listeners, 0, claim._dialled)

    @bound.upon(ClaimInputs.wish).to(seeking)
    @shadowed.upon(ClaimInputs.wish).to(seeking)
    def leave(claim: ClaimInputs, core: _Core, held: _Held, wish: Wish) -> None:
        core.wanted = wish
        core.watch.end()
        core.seek(claim)

    @bound.upon(ClaimInputs.end).to(idle)
    @shadowed.upon(ClaimInputs.end).to(idle)
    def let_go(claim: ClaimInputs, core: _Core, held: _Held) -> None:
        core.watch.end()

    return builder.build()


_make_claim = _machine()


class Claim:
    """One facade's port.

    Args:
        clock: for the tries and the lingering.
        facade: its name.
        name: of this claim, for the log.
        wish: where it is to listen; port 0 lets the kernel choose.
        bind: opens all listeners of the facade on a port; raises ``PortTaken`` or ``PortDenied``.
        host: whom to ask about ports.
        errors: where it reports.
        entries: what it reports.
    """

    def __init__(
        self,
        clock: IReactorTime,
        facade: str,
        name: str,
        wish: Wish,
        bind: Callable[[int], Listeners],
        host: Host,
        errors: IErrorBook,
        entries: Entries,
    ) -> None:
        self.changed: Signal[Endpoint] = Signal()
        self._sockets = Sockets(clock, bind)
        pending = Endpoint(facade, "pending", wish.port)
        self._core = _Core(clock, facade, name, wish, self._sockets, host, errors, entries, self.changed, pending)
        self._machine = _make_claim(self._core)

    @property
    def endpoint(self) -> Endpoint:
        """What is to be shown of it now."""
        return self._core.shown

    @property
    def ports(self) -> frozenset[int]:
        """The port numbers on which it accepts now, lingering ones too."""
        return self._sockets.ports

    def begin(self) -> None:
        """Take the port, or a stand-in; whatever comes of it shows in ``endpoint`` at once."""
        self._machine.begin()

    def look(self) -> None:
        """Something changed on this host: try again now, if the port is not had."""
        self._machine.look()

    def wish(self, wish: Wish) -> None:
        """Seek another port. What is had now stands in for it if need be, or accepts for a while."""
        self._machine.wish(wish)

    async def move(self, wish: Wish, keep: Callable[[], Deferred[None]]) -> None:
        """Go to another port, which a person chose (PX-96).

        Args:
            wish: where to.
            keep: stores the choice, once the port is had. If it fails, nothing has changed.

        Raises:
            PortTaken, PortDenied: The port is not to be had; nothing has changed.
        """
        known = wish.port in self.ports
        listeners = self._sockets.listen(wish.port)
        try:
            await keep()
        except BaseException:
            if not known:
                self._sockets.close(listeners)
            raise
        self._machine.wish(wish)

    def end(self) -> Deferred[None]:
        """Accept no more; fires when all sockets are closed."""
        self._machine.end()
        return self._core.close_all()
