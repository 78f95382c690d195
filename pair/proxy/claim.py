"""A facade's hold on its port: taken when free, stood in for when not, taken over when it frees (EN-42 to EN-50).

The machine decides; the sockets are :mod:`pair.proxy.listeners`. It must not
know what is served behind them, nor start or stop an engine.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from automat import TypeMachineBuilder
from twisted.internet.defer import Deferred, gatherResults

from pair.events import Signal
from pair.logs import Logger
from pair.proxy.listeners import Listeners, PortDenied, PortTaken
from pair.records.endpoints import BypassReason, Endpoint
from pair.records.errors import Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.interfaces import IErrorBook

RETRY = 5.0
"""Seconds between two tries for a port that is held (EN-50)."""

LINGER = 60.0
"""Seconds that a stand-in accepts on after the wanted port was taken over (EN-50)."""

log = Logger()


class ClaimInputs(Protocol):
    """What can happen to a claim."""

    def begin(self) -> None:
        """The facade starts."""

    def end(self) -> None:
        """The facade stops."""

    def tick(self) -> None:
        """It is time to try again."""

    def _got(self, listeners: Listeners) -> None:
        """The wanted port is ours."""

    def _held(self, stand_in: Listeners, reason: BypassReason, problem: str) -> None:
        """We cannot have it; we have another one instead."""

    def _lost(self, detail: str) -> None:
        """No port is to be had."""


@dataclass
class _Core:
    """The claim's surroundings, and what is shown of it."""

    clock: IReactorTime
    facade: str
    wanted: int
    chosen: bool
    takes_over: bool
    bind: Callable[[int], Listeners]
    stand_ins: Callable[[], Iterator[int]]
    holder: Callable[[int], BypassReason]
    errors: IErrorBook
    changed: Signal[Endpoint]
    shown: Endpoint
    open: dict[Listeners, IDelayedCall | None] = field(default_factory=dict)
    """All sockets of this claim; those that only linger have the timer that ends them."""
    standing_in: Listeners | None = None

    def seek(self, claim: ClaimInputs) -> None:
        """Try for the wanted port; else, unless a person chose it, for one that stands in for it."""
        if not (self.takes_over or self.chosen):
            self._stand_aside(claim, "setting", f"The setting proxy.takeover leaves port {self.wanted} alone.")
            return
        try:
            claim._got(self._bind(self.wanted))
            return
        except PortTaken:
            reason = self.holder(self.wanted)
            who = "the engine itself" if reason == "engine" else "another program"
            problem = f"Port {self.wanted} is held by {who}; once that stops, PAIR takes it."
        except PortDenied:
            reason = "foreign"
            problem = f"The system does not let PAIR listen on port {self.wanted}; it may lie in a reserved range."
        if self.chosen:
            claim._lost(f"{problem} It was chosen in the settings, so no other is taken.")
            return
        self._stand_aside(claim, reason, problem)

    def _stand_aside(self, claim: ClaimInputs, reason: BypassReason, problem: str) -> None:
        if self.standing_in is None:
            self.standing_in = self._stand_in()
        if self.standing_in is None:
            claim._lost(f"{problem} No other port was free.")
        else:
            claim._held(self.standing_in, reason, problem)

    def _stand_in(self) -> Listeners | None:
        for port in self.stand_ins():
            with suppress(PortTaken, PortDenied):
                return self._bind(port)
        return None

    def _bind(self, port: int) -> Listeners:
        listeners = self.bind(port)
        self.open[listeners] = None
        return listeners

    def retire_stand_in(self) -> None:
        """Let the stand-in accept a while more: a client may have learnt its port."""
        listeners, self.standing_in = self.standing_in, None
        if listeners is not None:
            self.open[listeners] = self.clock.callLater(LINGER, self._close, listeners)

    def _close(self, listeners: Listeners) -> Deferred[None]:
        self.open.pop(listeners)
        return listeners.close()

    def close_all(self) -> Deferred[list[None]]:
        """Accept nowhere any more; fires when all sockets are closed."""
        for timer in self.open.values():
            if timer is not None:
                timer.cancel()
        self.standing_in = None
        return gatherResults([self._close(each) for each in tuple(self.open)], consumeErrors=True)

    def show(self, endpoint: Endpoint) -> None:
        """Tell of the claim's state, once for each change."""
        if endpoint == self.shown:
            return
        self.shown = endpoint
        conditions = {"bypassed": f"proxy:port_bypassed:{self.facade}", "failed": f"proxy:port_taken:{self.facade}"}
        for state, id in conditions.items():
            if state == endpoint.state and endpoint.reason != "setting":
                subject = Subject(port=self.wanted)
                self.errors.raise_entry(id, subject=subject, facade=self.facade, detail=endpoint.detail)
            else:
                self.errors.clear(id)
        log.info(
            "The {facade} facade is {state}, on port {port}.",
            facade=self.facade,
            state=endpoint.state,
            port=endpoint.port,
        )
        self.changed.emit(endpoint)


@dataclass
class _Held:
    """The wanted port is ours."""

    listeners: Listeners


@dataclass
class _Waiting:
    """It is not; we look again when the timer fires."""

    timer: IDelayedCall


def _hold(claim: ClaimInputs, core: _Core, listeners: Listeners) -> _Held:
    core.retire_stand_in()
    core.show(Endpoint(core.facade, "bound", core.wanted, listeners.port, listeners.addresses))
    return _Held(listeners)


def _stand_aside(claim: ClaimInputs, core: _Core, stand_in: Listeners, reason: BypassReason, problem: str) -> _Waiting:
    detail = f"{problem} PAIR listens on port {stand_in.port}: point your applications there."
    core.show(Endpoint(core.facade, "bypassed", core.wanted, stand_in.port, stand_in.addresses, reason, detail))
    return _Waiting(core.clock.callLater(RETRY, claim.tick))


def _do_without(claim: ClaimInputs, core: _Core, detail: str) -> _Waiting:
    core.show(Endpoint(core.facade, "failed", core.wanted, detail=detail))
    return _Waiting(core.clock.callLater(RETRY, claim.tick))


def _machine() -> Callable[[_Core], ClaimInputs]:
    builder = TypeMachineBuilder(ClaimInputs, _Core)
    idle = builder.state("Idle")
    seeking = builder.state("Seeking")
    bound = builder.state("Bound", _hold)
    bypassed = builder.state("Bypassed", _stand_aside)
    failed = builder.state("Failed", _do_without)

    seeking.upon(ClaimInputs._got).to(bound).returns(None)
    seeking.upon(ClaimInputs._held).to(bypassed).returns(None)
    seeking.upon(ClaimInputs._lost).to(failed).returns(None)
    idle.upon(ClaimInputs.end).loop().returns(None)

    @idle.upon(ClaimInputs.begin).to(seeking)
    def begin(claim: ClaimInputs, core: _Core) -> None:
        core.seek(claim)

    @bypassed.upon(ClaimInputs.tick).to(seeking)
    @failed.upon(ClaimInputs.tick).to(seeking)
    def again(claim: ClaimInputs, core: _Core, waiting: _Waiting) -> None:
        core.seek(claim)

    @bypassed.upon(ClaimInputs.end).to(idle)
    @failed.upon(ClaimInputs.end).to(idle)
    def give_up(claim: ClaimInputs, core: _Core, waiting: _Waiting) -> None:
        waiting.timer.cancel()

    bound.upon(ClaimInputs.end).to(idle).returns(None)
    return builder.build()


_make_claim = _machine()


class Claim:
    """One facade's port.

    Args:
        clock: for the tries and the lingering.
        facade: its name.
        wanted: its port; 0 lets the kernel choose.
        chosen: a person chose the port: no other stands in for it (EN-46).
        takes_over: without it the wanted port is left to the engine, unless it was chosen (EN-47).
        bind: opens all listeners of the facade on a port; raises ``PortTaken`` or ``PortDenied``.
        stand_ins: the ports that may stand in, best first.
        holder: who holds a port that is taken.
        errors: where ``proxy:port_bypassed`` and ``proxy:port_taken`` are raised.
    """

    def __init__(
        self,
        clock: IReactorTime,
        facade: str,
        wanted: int,
        chosen: bool,
        takes_over: bool,
        bind: Callable[[int], Listeners],
        stand_ins: Callable[[], Iterator[int]],
        holder: Callable[[int], BypassReason],
        errors: IErrorBook,
    ) -> None:
        self.changed: Signal[Endpoint] = Signal()
        self._core = _Core(
            clock,
            facade,
            wanted,
            chosen,
            takes_over,
            bind,
            stand_ins,
            holder,
            errors,
            self.changed,
            Endpoint(facade, "pending", wanted),
        )
        self._machine = _make_claim(self._core)

    @property
    def endpoint(self) -> Endpoint:
        """What is to be shown of it now."""
        return self._core.shown

    @property
    def ports(self) -> frozenset[int]:
        """The port numbers on which it accepts now, lingering ones too."""
        return frozenset(each.port for each in self._core.open)

    def begin(self) -> None:
        """Take the port, or a stand-in; whatever comes of it shows in ``endpoint`` at once."""
        self._machine.begin()

    def end(self) -> Deferred[list[None]]:
        """Accept no more; fires when all sockets are closed."""
        self._machine.end()
        return self._core.close_all()
