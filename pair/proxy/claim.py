"""A facade's hold on its port: taken when free, stood in for when not, taken over when it frees (EN-42 to EN-50).

The machine tries, waits and looks; what it aims at is
:func:`pair.engines.ports.plan`, and the sockets are :mod:`pair.proxy.listeners`.
It must not know what is served behind them, nor start or stop an engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from automat import TypeMachineBuilder
from msgspec.structs import replace
from twisted.internet.defer import CancelledError, Deferred, gatherResults

from pair.engines.ports import Plan, Wish, plan
from pair.events import Signal
from pair.logs import Logger
from pair.proxy.listeners import Listeners, PortDenied, PortTaken
from pair.proxy.portwords import detail
from pair.records.endpoints import ClaimState, Endpoint
from pair.records.errors import Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Mapping

    from twisted.internet.interfaces import IDelayedCall, IReactorTime
    from twisted.python.failure import Failure

    from pair.engines.ports import Holder
    from pair.hostports import Holder as Program
    from pair.interfaces import IErrorBook
    from pair.records.endpoints import BypassReason

RETRY = 5.0
"""Seconds between two tries for a port that is held, or at which another program answers (EN-50)."""

WATCH = 30.0
"""Seconds between two looks at whether it is us whom clients reach (EN-48)."""

LINGER = 60.0
"""Seconds that sockets accept on after others took their place (EN-50)."""

NAMING = 60.0
"""Seconds between two questions for the name of the holder, which take a look at all sockets of this host."""

log = Logger()


@dataclass(frozen=True)
class Host:
    """What a claim asks about this host.

    Attributes:
        engine_at: whether an engine that we use has a port of this machine.
        program_at: which program has it; takes a while, and is None where it cannot be told.
        reserved: the ports that stand in for none (EN-43).
        reaches_us: whether clients who dial these sockets reach us (EN-48).
    """

    engine_at: Callable[[int], bool]
    program_at: Callable[[int], Deferred[Program | None]]
    reserved: Callable[[], Container[int]]
    reaches_us: Callable[[Listeners], Deferred[bool]]


@dataclass(frozen=True)
class Entries:
    """The error entries of a claim: their ids by state, and the reasons that are no trouble to report."""

    ids: Mapping[ClaimState, str]
    quiet: Collection[BypassReason]


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
    """The claim's surroundings, its sockets, and what is shown of it."""

    clock: IReactorTime
    facade: str
    name: str
    wanted: Wish
    bind: Callable[[int], Listeners]
    host: Host
    errors: IErrorBook
    entries: Entries
    changed: Signal[Endpoint]
    shown: Endpoint
    open: dict[Listeners, IDelayedCall | None] = field(default_factory=dict)
    """All sockets of this claim; those that only linger have the timer that ends them."""
    kept: tuple[Listeners, ...] = ()
    """Those that do not only linger; the last one is shown."""
    plan: Plan | None = None
    denied: bool = False
    program: str | None = None
    named_at: float | None = None
    naming: Deferred[None] | None = None
    watching: IDelayedCall | Deferred[None] | None = None

    # The port

    def seek(self, claim: ClaimInputs) -> None:
        """Try for the wanted port, and do what the plan says."""
        listeners, holder = self._try() if self.wanted.tries else (None, None)
        aim = self._plan(holder)
        if aim.state == "bypassed":
            assert aim.port is not None, "such a plan has a port"
            claim._held(self.listen(aim.port), aim)
        elif listeners is None:
            claim._lost(aim)
        else:
            claim._got(listeners)

    def yield_to_shadow(self, claim: ClaimInputs, listeners: Listeners) -> None:
        """Stand in for a port at which clients reach another program; what still reaches us there is served."""
        aim = self._plan("shadowed")
        assert aim.port is not None, "at worst it is the wanted port itself"
        claim._shadowed(listeners, self.listen(aim.port), aim)

    def listen(self, port: int) -> Listeners:
        """Sockets on ``port``: those that we have, or new ones. Raises ``PortTaken`` or ``PortDenied``."""
        listeners = next((each for each in self.open if each.port == port), None) or self.bind(port)
        self.open.setdefault(listeners, None)
        return listeners

    def _try(self) -> tuple[Listeners | None, Holder | None]:
        self.denied = False
        try:
            return self.listen(self.wanted.port), None
        except PortTaken:
            return None, "engine" if self.host.engine_at(self.wanted.port) else "foreign"
        except PortDenied:
            self.denied = True
            return None, "foreign"

    def _plan(self, holder: Holder | None) -> Plan:
        # Whatever is shown now stands in best: clients may have learnt its port.
        present = self.kept[-1:]
        wish = replace(self.wanted, base=present[0].port) if present else self.wanted
        return plan(wish, holder, self.host.reserved(), self._can_listen)

    def _can_listen(self, port: int) -> bool:
        try:
            self.listen(port)
        except (PortTaken, PortDenied):
            return False
        return True

    def keep(self, *listeners: Listeners) -> None:
        """Let all other sockets accept a while more, and no longer: a client may have learnt their port."""
        self.kept = listeners
        for each, timer in self.open.items():
            if each not in listeners and timer is None:
                self.open[each] = self.clock.callLater(LINGER, self.close, each)
            elif each in listeners and timer is not None:
                timer.cancel()
                self.open[each] = None

    def close(self, listeners: Listeners) -> Deferred[None]:
        """Accept there no more."""
        timer = self.open.pop(listeners, None)
        if timer is not None and timer.active():
            timer.cancel()
        return listeners.close()

    def close_all(self) -> Deferred[list[None]]:
        """Accept nowhere any more; fires when all sockets are closed."""
        self.kept = ()
        self.forget_program()
        for id in set(self.entries.ids.values()):
            self.errors.clear(id)
        return gatherResults([self.close(each) for each in tuple(self.open)], consumeErrors=True)

    # Whom clients reach

    def watch(self, claim: ClaimInputs, listeners: Listeners, delay: float) -> None:
        """Dial ``listeners`` after ``delay`` seconds."""
        self.watching = self.clock.callLater(delay, self._dial, claim, listeners)

    def unwatch(self) -> None:
        """Do so no more."""
        watching, self.watching = self.watching, None
        if watching is not None:
            watching.cancel()

    def _dial(self, claim: ClaimInputs, listeners: Listeners) -> None:
        dialling = self.host.reaches_us(listeners)
        self.watching = dialling.addCallback(lambda ours: self._seen(claim, ours)).addErrback(_failed)

    def _seen(self, claim: ClaimInputs, ours: bool) -> None:
        self.watching = None
        claim._dialled(ours)

    # Who is in the way

    def name_program(self) -> None:
        """Have the program named that holds the wanted port."""
        now = self.clock.seconds()
        if self.naming is None and (self.named_at is None or now - self.named_at >= NAMING):
            self.named_at = now
            naming = self.host.program_at(self.wanted.port).addCallback(self._named).addErrback(_failed)
            self.naming = None if naming.called else naming

    def _named(self, program: Program | None) -> None:
        self.naming = None
        self.program = None if program is None else program.described
        if self.plan is not None:
            self.show(self.plan)

    def forget_program(self) -> None:
        """Another one may be in the way the next time."""
        naming, self.naming = self.naming, None
        self.program = self.named_at = None
        if naming is not None:
            naming.cancel()

    # What is shown

    def show(self, aim: Plan) -> None:
        """Tell of the claim's state, once for each change."""
        self.plan = aim
        at = self.kept[-1] if self.kept else None
        port, addresses = (None, ()) if at is None else (at.port, at.addresses)
        words = detail(self.wanted, aim, self.program, self.denied)
        endpoint = Endpoint(self.facade, aim.state, self.wanted.port, port, addresses, aim.reason, words)
        before, self.shown = self.shown, endpoint
        if endpoint == before:
            return
        self._report(endpoint)
        if (endpoint.state, port) != (before.state, before.port):
            log.info("The {claim} is {state}, on port {port}.", claim=self.name, state=endpoint.state, port=port)
        self.changed.emit(endpoint)

    def _report(self, endpoint: Endpoint) -> None:
        entry = None if endpoint.reason in self.entries.quiet else self.entries.ids.get(endpoint.state)
        for other in set(self.entries.ids.values()) - {entry}:
            self.errors.clear(other)
        if entry is not None:
            subject = Subject(port=endpoint.wanted_port)
            self.errors.raise_entry(entry, subject=subject, facade=self.facade, detail=endpoint.detail)


@dataclass
class _Held:
    """The wanted port is ours."""

    listeners: Listeners


@dataclass
class _Waiting:
    """It is not; we look again when the timer fires."""

    timer: IDelayedCall


def _hold(claim: ClaimInputs, core: _Core, listeners: Listeners) -> _Held:
    core.keep(listeners)
    core.forget_program()
    core.show(Plan("bound", listeners.port))
    core.watch(claim, listeners, 0)
    return _Held(listeners)


def _share(claim: ClaimInputs, core: _Core, listeners: Listeners, stand_in: Listeners, plan: Plan) -> _Held:
    core.keep(listeners, stand_in)
    core.show(plan)
    core.watch(claim, listeners, RETRY)
    return _Held(listeners)


def _stand_aside(claim: ClaimInputs, core: _Core, stand_in: Listeners, plan: Plan) -> _Waiting:
    core.keep(stand_in)
    return _wait(claim, core, plan)


def _do_without(claim: ClaimInputs, core: _Core, plan: Plan) -> _Waiting:
    core.keep()
    return _wait(claim, core, plan)


def _wait(claim: ClaimInputs, core: _Core, plan: Plan) -> _Waiting:
    core.show(plan)
    if plan.reason == "foreign" and not core.denied:
        core.name_program()
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
    idle.upon(ClaimInputs.end).loop().returns(None)
    idle.upon(ClaimInputs.look).loop().returns(None)
    bound.upon(ClaimInputs.look).loop().returns(None)

    @idle.upon(ClaimInputs.begin).to(seeking)
    def begin(claim: ClaimInputs, core: _Core) -> None:
        core.seek(claim)

    @idle.upon(ClaimInputs.wish).loop()
    def remember(claim: ClaimInputs, core: _Core, wish: Wish) -> None:
        core.wanted = wish
        core.close_all()

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
        core.forget_program()
        again(claim, core, waiting)

    @bound.upon(ClaimInputs.wish).to(seeking)
    @shadowed.upon(ClaimInputs.wish).to(seeking)
    def leave(claim: ClaimInputs, core: _Core, held: _Held, wish: Wish) -> None:
        core.wanted = wish
        core.unwatch()
        core.seek(claim)

    @bound.upon(ClaimInputs._dialled).to(seeking)
    def judge(claim: ClaimInputs, core: _Core, held: _Held, ours: bool) -> None:
        if ours:
            core.watch(claim, held.listeners, WATCH)
        else:
            core.yield_to_shadow(claim, held.listeners)

    @shadowed.upon(ClaimInputs.look).loop()
    def hurry(claim: ClaimInputs, core: _Core, held: _Held) -> None:
        core.unwatch()
        core.watch(claim, held.listeners, 0)

    @shadowed.upon(ClaimInputs._dialled).to(seeking)
    def judge_again(claim: ClaimInputs, core: _Core, held: _Held, ours: bool) -> None:
        if ours:
            claim._got(held.listeners)
        else:
            core.yield_to_shadow(claim, held.listeners)

    @bypassed.upon(ClaimInputs.end).to(idle)
    @failed.upon(ClaimInputs.end).to(idle)
    def give_up(claim: ClaimInputs, core: _Core, waiting: _Waiting) -> None:
        waiting.timer.cancel()

    @bound.upon(ClaimInputs.end).to(idle)
    @shadowed.upon(ClaimInputs.end).to(idle)
    def let_go(claim: ClaimInputs, core: _Core, held: _Held) -> None:
        core.unwatch()

    return builder.build()
