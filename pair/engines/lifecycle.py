"""The run state of one engine, as a typed machine (engines page, Run state).

It decides; the runner, which it knows as :class:`Effects`, does. It knows
neither kinds nor processes nor ports. Its timers are data of the states that
own them and come from the clock it is given.

``backoff`` and ``failed`` are one state here, ``waiting``: they differ in the
length of the wait and in what people are shown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from automat import TypeMachineBuilder

from pair.supervision.policy import RESTARTS, RestartPolicy, Streak

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.records.engines import EngineState


class Lifecycle(Protocol):
    """What can happen to an engine. An input that means nothing in the present state is ignored."""

    # What the host shows

    def found(self) -> None:
        """A program that can be started is on this host."""

    def lost(self) -> None:
        """There is none (any more)."""

    def identified(self) -> None:
        """The engine answers, and it is no child of ours."""

    def foreign(self) -> None:
        """Its port answers, and that is not the engine."""

    def silent(self) -> None:
        """Nothing answers at its port."""

    # What is wanted

    def start(self) -> None:
        """It is to run."""

    def stop(self) -> None:
        """It is not to run; what others started is left running and no longer used (EN-19)."""

    # What becomes of our child

    def taken_back(self) -> None:
        """A child of our former self was found alive (EN-23)."""

    def ready(self) -> None:
        """The child answers as the engine (EN-25)."""

    def exited(self) -> None:
        """The child ended, or could not be started."""

    def wedged(self, since: float) -> None:
        """The child lives and has not answered since that instant (EN-31)."""

    def closed(self) -> None:
        """Stopped, and proven: no process, no port (EN-35)."""

    def lingering(self) -> None:
        """Stopped, and its port still answers (EN-36)."""

    # Timers of the machine itself

    def overdue(self) -> None:
        """It is not ready in time."""

    def due(self) -> None:
        """The wait is over."""

    def steady(self) -> None:
        """It has been running for long enough to be trusted again."""


class Effects(Protocol):
    """What the machine has done for it. None of these may call back at once but by an input of the machine."""

    def entered(self, state: EngineState) -> None:
        """The state that is shown is now ``state``."""

    def spawn(self) -> None:
        """Start a child; answered by ``ready`` or ``exited``."""

    def kill(self) -> None:
        """End the child, which did not become ready; answered by ``exited``."""

    def end(self) -> None:
        """Drain, stop and prove (EN-35); answered by ``closed`` or ``lingering``."""

    def recovered(self) -> None:
        """The child has been up for ``healthy_after`` seconds."""


@dataclass
class Core:
    """What the machine of one engine knows.

    Attributes:
        ready_seconds: from the start of a child until it must answer.
        retry_at: when it is started again, on ``clock``; None when it is not.
        restarts: how often it was started again after a failure.
    """

    clock: IReactorTime
    effects: Effects
    ready_seconds: float
    policy: RestartPolicy = RESTARTS
    state: EngineState = "absent"
    streak: Streak = field(default_factory=Streak)
    failed_at: float | None = None
    retry_at: float | None = None
    restarts: int = 0

    def enter(self, state: EngineState) -> None:
        """``state`` is what is shown from now on."""
        self.state = state
        self.effects.entered(state)


def _shown(state: EngineState) -> Callable[[Lifecycle, Core], None]:
    """What entering a state without timer or effect comes to."""

    def enter(machine: Lifecycle, core: Core) -> None:
        core.enter(state)

    return enter


def _start(machine: Lifecycle, core: Core) -> IDelayedCall:
    if core.retry_at is not None:
        core.restarts += 1
    core.retry_at = None
    core.enter("starting")
    core.effects.spawn()
    return core.clock.callLater(core.ready_seconds, machine.overdue)


def _run(machine: Lifecycle, core: Core) -> IDelayedCall:
    core.streak = core.streak.up(core.clock.seconds())
    core.enter("running")
    return core.clock.callLater(core.policy.healthy_after, machine.steady)


def _wait(machine: Lifecycle, core: Core) -> IDelayedCall:
    now = core.clock.seconds()
    retry = core.streak.failed(now if core.failed_at is None else core.failed_at, core.policy)
    core.streak, core.failed_at = retry.streak, None
    core.retry_at = now + retry.delay
    core.enter("failed" if retry.exhausted else "backoff")
    return core.clock.callLater(retry.delay, machine.due)


def _restart(machine: Lifecycle, core: Core, since: float) -> None:
    core.failed_at = since  # the time it hung is no time it was up
    core.enter("stopping")


def _gone(machine: Lifecycle, core: Core, nothing: object) -> None:
    core.enter("absent")


def _cancel(machine: Lifecycle, core: Core, timer: IDelayedCall) -> None:
    if timer.active():
        timer.cancel()


def _end(machine: Lifecycle, core: Core, timer: IDelayedCall, *since: float) -> None:
    _cancel(machine, core, timer)
    core.effects.end()


def _give_up(machine: Lifecycle, core: Core, timer: IDelayedCall) -> None:
    _cancel(machine, core, timer)
    core.retry_at = None


def _kill(machine: Lifecycle, core: Core, timer: IDelayedCall) -> None:
    core.effects.kill()


def _recovered(machine: Lifecycle, core: Core, timer: IDelayedCall) -> None:
    core.effects.recovered()


def _build() -> Callable[[Core], Lifecycle]:
    builder = TypeMachineBuilder(Lifecycle, Core)
    meant: set[tuple[str, str]] = set()

    def upon(state: Any, happening: Callable[..., None]) -> Any:
        meant.add((state.name, happening.__name__))
        return state.upon(happening)

    absent = builder.state("absent")
    stopped = builder.state("stopped", _shown("stopped"))
    occupied = builder.state("occupied", _shown("occupied"))
    adopted = builder.state("adopted", _shown("running"))
    detached = builder.state("detached", _shown("detached"))
    starting = builder.state("starting", _start)
    running = builder.state("running", _run)
    waiting = builder.state("waiting", _wait)
    stopping = builder.state("stopping", _shown("stopping"))
    restarting = builder.state("restarting", _restart)
    stuck = builder.state("stuck", _shown("failed"))

    upon(absent, Lifecycle.found).to(stopped).returns(None)
    upon(absent, Lifecycle.identified).to(adopted).returns(None)
    upon(absent, Lifecycle.foreign).to(occupied).returns(None)
    upon(absent, Lifecycle.taken_back).to(running).returns(None)

    upon(stopped, Lifecycle.lost).to(absent)(_gone)
    upon(stopped, Lifecycle.identified).to(adopted).returns(None)
    upon(stopped, Lifecycle.foreign).to(occupied).returns(None)
    upon(stopped, Lifecycle.taken_back).to(running).returns(None)
    upon(stopped, Lifecycle.start).to(starting).returns(None)

    upon(occupied, Lifecycle.silent).to(stopped).returns(None)
    upon(occupied, Lifecycle.identified).to(adopted).returns(None)

    upon(adopted, Lifecycle.silent).to(stopped).returns(None)
    upon(adopted, Lifecycle.foreign).to(occupied).returns(None)
    upon(adopted, Lifecycle.stop).to(detached).returns(None)

    upon(detached, Lifecycle.start).to(adopted).returns(None)

    upon(starting, Lifecycle.ready).to(running)(_cancel)
    upon(starting, Lifecycle.overdue).loop()(_kill)
    upon(starting, Lifecycle.exited).to(waiting)(_cancel)
    upon(starting, Lifecycle.stop).to(stopping)(_end)

    upon(running, Lifecycle.steady).loop()(_recovered)
    upon(running, Lifecycle.exited).to(waiting)(_cancel)
    upon(running, Lifecycle.wedged).to(restarting)(_end)
    upon(running, Lifecycle.stop).to(stopping)(_end)

    upon(waiting, Lifecycle.due).to(starting)(_cancel)
    upon(waiting, Lifecycle.start).to(starting)(_cancel)
    upon(waiting, Lifecycle.identified).to(adopted)(_give_up)
    upon(waiting, Lifecycle.stop).to(stopped)(_give_up)

    upon(stopping, Lifecycle.closed).to(stopped).returns(None)
    upon(stopping, Lifecycle.lingering).to(stuck).returns(None)

    upon(restarting, Lifecycle.closed).to(waiting).returns(None)
    upon(restarting, Lifecycle.lingering).to(stuck).returns(None)
    upon(restarting, Lifecycle.stop).to(stopping).returns(None)

    upon(stuck, Lifecycle.silent).to(stopped).returns(None)
    upon(stuck, Lifecycle.identified).to(adopted).returns(None)

    happenings = [each for name, each in vars(Lifecycle).items() if not name.startswith("_")]
    for state in (
        absent,
        stopped,
        occupied,
        adopted,
        detached,
        starting,
        running,
        waiting,
        stopping,
        restarting,
        stuck,
    ):
        for happening in happenings:
            if (state.name, happening.__name__) not in meant:
                upon(state, happening).loop().returns(None)
    return builder.build()


machine = _build()
"""Makes the machine of one engine from its :class:`Core`; it begins ``absent``."""
