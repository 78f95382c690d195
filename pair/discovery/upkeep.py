"""Keeps an airing open while the interfaces, and the library, come and go (DS-20, DS-22, DS-26, DS-30).

The machine: ``Opening`` → ``Open``; from there anew to ``Opening`` when the
interfaces have changed, and to ``Waiting`` when the library fails, as when an
opening does. ``Outdated`` is an opening that the interfaces have overtaken. A
stop leads through ``Closing`` to ``Closed``. It must not know what is announced
or heard.

An airing is never mended, but made anew: it takes milliseconds. A socket that
is kept for its address would be deaf if that address came back on another
interface, since its membership in the group is bound to the old one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from automat import TypeMachineBuilder
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure  # noqa: TC002 - Automat evaluates the annotations of the inputs

from pair.discovery.airing import PORT, Airing, is_port_taken
from pair.logs import Logger
from pair.records.errors import Subject
from pair.supervision.conditions import DOWN
from pair.supervision.policy import Streak

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.discovery.worker import Worker
    from pair.interfaces import IErrorBook

PORT_TAKEN = "discovery:multicast_port_taken"

_NAME = "multicast"
_TAKEN_SECONDS = 60.0
_FAULTS = 3
_FAULTS_SECONDS = 60.0

_TENTATIVE_SECONDS = 3.0
"""An IPv6 address cannot be used before the system knows that nobody else has it, which takes a second or two."""

log = Logger()


class Upkeep(Protocol):
    """What can happen. What means nothing in the present state is ignored."""

    def begin(self) -> None:
        """Open, once."""

    def renew(self) -> None:
        """The interfaces have changed."""

    def fault(self, failure: Failure) -> None:
        """The library raised."""

    def end(self) -> Deferred[None]:
        """Say goodbye and close, for good. Fires when that is done, well or badly."""

    def _opened(self, airing: Airing | None) -> None:
        """The opening is done; None where there is no interface."""

    def _failed(self, failure: Failure) -> None:
        """The opening failed."""

    def _broken(self, failure: Failure) -> None:
        """The library raised too often."""

    def _again(self) -> None:
        """A wait is over."""

    def _closed(self) -> None:
        """The airing is closed."""


@dataclass
class _Core:
    """What the machine works on."""

    clock: IReactorTime
    worker: Worker
    prepare: Callable[[], Callable[[], Airing | None]]
    changed: Callable[[Airing | None], None]
    errors: IErrorBook

    airing: Airing | None = None
    streak: Streak = field(default_factory=Streak)
    faults: deque[float] = field(default_factory=lambda: deque(maxlen=_FAULTS))
    patient: bool = True
    down: str | None = None
    ended: Deferred[None] = field(default_factory=Deferred)

    def open(self, machine: Upkeep) -> None:
        """Close what is open, and open what is to be."""
        old = self.let_go()
        make = self.prepare()

        def reopen() -> Airing | None:
            if old is not None:
                old.close(goodbye=False)
            return make()

        self.worker.do(reopen).addCallbacks(machine._opened, machine._failed)

    def let_go(self) -> Airing | None:
        """The airing, which is of no use to others from now on."""
        old, self.airing = self.airing, None
        if old is not None:
            self.changed(None)
        return old

    def close(self, machine: Upkeep) -> None:
        """Close what is open, for good."""
        old = self.let_go()
        if old is None:
            machine._closed()
        else:
            closing = self.worker.do(lambda: old.close(goodbye=True))
            closing.addErrback(lambda failure: log.failure("The end of multicast failed.", failure))
            closing.addCallback(lambda _: machine._closed())

    def report(self, failure: Failure) -> float:
        """Say why there is no airing.

        Returns:
            In how many seconds to try again.
        """
        if is_port_taken(failure.value):
            if self.down != PORT_TAKEN:
                log.warn("Another program holds UDP port {port} for itself.", port=PORT)
            self.show(PORT_TAKEN, Subject(port=PORT), port=PORT)
            return _TAKEN_SECONDS
        self.streak, delay, _ = self.streak.failed(self.clock.seconds())
        log.failure("Multicast failed; next try in {delay} s.", failure, delay=delay)
        self.show(f"{DOWN.stem}:{_NAME}", Subject(component=_NAME), component=_NAME, delay=f"{delay:g} seconds")
        return delay

    def show(self, id: str | None, subject: Subject | None = None, **values: object) -> None:
        """Keep one entry, or none."""
        if self.down is not None and self.down != id:
            self.errors.clear(self.down)
        if id is not None:
            self.errors.raise_entry(id, subject=subject, **values)
        self.down = id


def _opened(machine: Upkeep, core: _Core, airing: Airing | None) -> IDelayedCall | None:
    core.airing = airing
    core.streak = core.streak.up(core.clock.seconds())
    core.faults.clear()
    core.show(None)
    if airing is None:
        return None
    core.changed(airing)
    if airing.complete or not core.patient:
        return None
    core.patient = False
    return core.clock.callLater(_TENTATIVE_SECONDS, machine._again)


def _wait(machine: Upkeep, core: _Core, failure: Failure) -> IDelayedCall | None:
    return core.clock.callLater(core.report(failure), machine._again)


def _make_machine() -> Callable[[_Core], Upkeep]:
    builder = TypeMachineBuilder(Upkeep, _Core)
    idle = builder.state("Idle")
    opening = builder.state("Opening")
    outdated = builder.state("Outdated")
    open_ = builder.state("Open", _opened)
    waiting = builder.state("Waiting", _wait)
    closing = builder.state("Closing")
    closed = builder.state("Closed")

    opening.upon(Upkeep._opened).to(open_).returns(None)
    opening.upon(Upkeep._failed).to(waiting).returns(None)
    for state in (opening, outdated, waiting, closing, closed):
        state.upon(Upkeep.fault).loop().returns(None)
    for state in (closing, closed):
        state.upon(Upkeep.renew).loop().returns(None)

    @idle.upon(Upkeep.begin).to(opening)
    def begin(machine: Upkeep, core: _Core) -> None:
        core.open(machine)

    @opening.upon(Upkeep.renew).to(outdated)
    @outdated.upon(Upkeep.renew).loop()
    def remember(machine: Upkeep, core: _Core) -> None:
        core.patient = True

    @outdated.upon(Upkeep._opened).to(opening)
    def overtake(machine: Upkeep, core: _Core, airing: Airing | None) -> None:
        core.airing = airing
        core.open(machine)

    @outdated.upon(Upkeep._failed).to(opening)
    def forgive(machine: Upkeep, core: _Core, failure: Failure) -> None:
        core.open(machine)

    @open_.upon(Upkeep._again).to(opening)
    @waiting.upon(Upkeep._again).to(opening)
    def again(machine: Upkeep, core: _Core, timer: IDelayedCall | None) -> None:
        _cancel(timer)
        core.open(machine)

    @open_.upon(Upkeep.renew).to(opening)
    @waiting.upon(Upkeep.renew).to(opening)
    def renew(machine: Upkeep, core: _Core, timer: IDelayedCall | None) -> None:
        core.patient = True
        again(machine, core, timer)

    @open_.upon(Upkeep.fault).loop()
    def count(machine: Upkeep, core: _Core, timer: IDelayedCall | None, failure: Failure) -> None:
        now = core.clock.seconds()
        core.faults.append(now)
        if len(core.faults) == _FAULTS and now - core.faults[0] <= _FAULTS_SECONDS:
            machine._broken(failure)
        else:
            log.failure("The library for multicast failed; it goes on.", failure)

    @open_.upon(Upkeep._broken).to(waiting)
    def give_up(machine: Upkeep, core: _Core, timer: IDelayedCall | None, failure: Failure) -> None:
        _cancel(timer)
        old = core.let_go()
        if old is not None:
            core.worker.do(lambda: old.close(goodbye=False)).addErrback(_log_close)

    # The end, from wherever it comes.

    @open_.upon(Upkeep.end).to(closing)
    @waiting.upon(Upkeep.end).to(closing)
    def end(machine: Upkeep, core: _Core, timer: IDelayedCall | None) -> Deferred[None]:
        _cancel(timer)
        core.show(None)
        core.close(machine)
        return core.ended

    @opening.upon(Upkeep.end).to(closing)
    @outdated.upon(Upkeep.end).to(closing)
    def end_early(machine: Upkeep, core: _Core) -> Deferred[None]:
        core.show(None)
        return core.ended

    @closing.upon(Upkeep._opened).loop()
    def close_late(machine: Upkeep, core: _Core, airing: Airing | None) -> None:
        core.airing = airing
        core.close(machine)

    @closing.upon(Upkeep._failed).loop()
    def never_opened(machine: Upkeep, core: _Core, failure: Failure) -> None:
        machine._closed()

    @closing.upon(Upkeep._closed).to(closed)
    def finish(machine: Upkeep, core: _Core) -> None:
        core.ended.callback(None)

    @idle.upon(Upkeep.end).to(closed)
    @closed.upon(Upkeep.end).loop()
    def stay(machine: Upkeep, core: _Core) -> Deferred[None]:
        return succeed(None)

    return builder.build()


_machine = _make_machine()


def upkeep(
    clock: IReactorTime,
    worker: Worker,
    prepare: Callable[[], Callable[[], Airing | None]],
    changed: Callable[[Airing | None], None],
    errors: IErrorBook,
) -> Upkeep:
    """A new one.

    Args:
        clock: for the waits.
        worker: makes the calls that block.
        prepare: called in the reactor thread; what it returns opens an airing, in the worker's thread.
        changed: told of each airing that is open, and None when it is not any more.
        errors: where ``discovery:multicast_port_taken`` and ``supervision:down:multicast`` are raised, and cleared.
    """
    return _machine(_Core(clock, worker, prepare, changed, errors))


def _cancel(timer: IDelayedCall | None) -> None:
    if timer is not None and timer.active():
        timer.cancel()


def _log_close(failure: Failure) -> None:
    log.failure("Sockets for multicast failed to close.", failure)
