"""A service that is made anew when it fails, after a while (OP-45, AR-14).

The machine: ``Stopped`` → ``Starting`` → ``Up``; a failure of either leads to
``Clearing``, in which what is left of the try is stopped, then to ``Waiting``,
and from there to ``Starting`` again. A stop leads through ``Stopping`` to
``Stopped``. It knows nothing of what the service does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from automat import TypeMachineBuilder
from twisted.application.service import IService, Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.python.failure import Failure  # noqa: TC002 - Automat evaluates the annotations of the inputs
from zope.interface import Attribute, Interface, implementer

from pair.logs import Logger
from pair.records.errors import Subject
from pair.supervision.components import Component, ComponentState, IComponents, shown
from pair.supervision.conditions import DOWN
from pair.supervision.deadline import settled
from pair.supervision.policy import RESTARTS, Streak

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.events import Signal
    from pair.interfaces import IErrorBook

CLEARING_DEADLINE = 10.0
"""Seconds that the stop of a failed service may take before the next try is planned."""

log = Logger()


class IFailable(Interface):
    """A service that can fail while it runs, and says so."""

    failed: Signal[Failure] = Attribute("Emits when it cannot do its duty any more, and has to be made anew.")


@implementer(IComponents)
class SupervisedService(Service):
    """Keeps one component up.

    Args:
        name: of the component, as it is shown and as the subject of its entry.
        make: a new service, not started. It fails by its start, or later by
            :class:`IFailable`. Each is stopped once, also after a failed start.
        errors: where ``supervision:down:<name>`` is raised, and cleared once
            it has been up for a minute.
    """

    def __init__(self, name: str, make: Callable[[], IService], clock: IReactorTime, errors: IErrorBook) -> None:
        self._core = _Core(name, make, clock, errors)
        self._machine = _machine(self._core)

    def startService(self) -> Deferred[None]:
        """Begin. The Deferred fires when the first try has ended, well or badly; it does not fail."""
        super().startService()
        return self._machine.start()

    def stopService(self) -> Deferred[None]:
        """End. The Deferred fires when the service has stopped."""
        super().stopService()
        return self._machine.stop()

    def tree(self) -> tuple[Component, ...]:
        """The one component."""
        core = self._core
        return (
            Component(
                core.name,
                core.state,
                failures=core.streak.failures,
                restarts=core.restarts,
                next_retry_at=core.next_retry_at,
                last_error=core.last_error,
            ),
        )


class _Try:
    """One service that was made, from its start to its end."""

    def __init__(self, up: Callable[[], None], failed: Callable[[Failure], None]) -> None:
        self._up = up
        self._failed = failed
        self._service: IService | None = None
        self._starting: Deferred[None] = succeed(None)
        self._over = False

    def begin(self, make: Callable[[], IService]) -> None:
        self._starting = maybeDeferred(self._start, make).addCallbacks(lambda _: self._tell_up(), self._tell_failed)

    def _start(self, make: Callable[[], IService]) -> object:
        self._service = service = make()
        if IFailable.providedBy(service):
            IFailable(service).failed.subscribe(self._tell_failed)
        return service.startService()

    def _tell_up(self) -> None:
        if not self._over:
            self._up()

    def _tell_failed(self, failure: Failure) -> None:
        if not self._over:
            self._failed(failure)

    def end(self) -> Deferred[None]:
        """Stop it, wherever it is, and hear no more of it. The Deferred does not fail."""
        self._over = True
        self._starting.cancel()
        return self._starting.addCallback(self._stop).addErrback(self._stop_failed)

    def _stop(self, _: None) -> Deferred[None]:
        stopped = succeed(None) if self._service is None else maybeDeferred(self._service.stopService)
        return stopped.addCallback(lambda _: None)

    def _stop_failed(self, failure: Failure) -> None:
        log.failure("A supervised service failed in its stop.", failure)


@dataclass
class _Core:
    """What the machine works on."""

    name: str
    make: Callable[[], IService]
    clock: IReactorTime
    errors: IErrorBook

    state: ComponentState = "stopped"
    streak: Streak = field(default_factory=Streak)
    restarts: int = 0
    next_retry_at: int | None = None
    last_error: str | None = None
    delay: float = 0.0
    current: _Try | None = None
    first_try: Deferred[None] | None = None
    stopping: list[Deferred[None]] = field(default_factory=list)

    @property
    def entry(self) -> str:
        return f"{DOWN.stem}:{self.name}"

    def begin_try(self, machine: _Supervised) -> None:
        self.state = "starting"
        self.next_retry_at = None
        self.current = _Try(machine.came_up, machine.failed)
        self.current.begin(self.make)

    def end_try(self, machine: _Supervised) -> None:
        assert self.current is not None
        ended, self.current = self.current.end(), None
        settled(self.clock, ended, CLEARING_DEADLINE).addCallback(lambda _: machine.cleared())

    def first_try_over(self) -> None:
        first_try, self.first_try = self.first_try, None
        if first_try is not None:
            first_try.callback(None)


class _Supervised(Protocol):
    """The machine's inputs."""

    def start(self) -> Deferred[None]: ...

    def stop(self) -> Deferred[None]: ...

    def came_up(self) -> None:
        """The present try's start is done."""

    def failed(self, failure: Failure) -> None:
        """The present try failed, in its start or later."""

    def cleared(self) -> None:
        """What was left of the last try is stopped, or was given up."""

    def retry(self) -> None:
        """The wait is over."""

    def healthy(self) -> None:
        """The present try has been up for so long that past failures are forgotten."""


def _make_machine() -> Callable[[_Core], _Supervised]:
    builder = TypeMachineBuilder(_Supervised, _Core)

    def when_healthy(machine: _Supervised, core: _Core) -> IDelayedCall:
        core.state = "up"
        core.streak = core.streak.up(core.clock.seconds())
        return core.clock.callLater(RESTARTS.healthy_after, machine.healthy)

    def when_due(machine: _Supervised, core: _Core) -> IDelayedCall:
        # seconds() of a real reactor is the time of day.
        core.next_retry_at = round((core.clock.seconds() + core.delay) * 1000)
        core.errors.raise_entry(
            core.entry,
            subject=Subject(component=core.name),
            component=core.name,
            delay=_in_words(core.delay),
        )
        return core.clock.callLater(core.delay, machine.retry)

    stopped = builder.state("Stopped")
    starting = builder.state("Starting")
    up = builder.state("Up", when_healthy)
    clearing = builder.state("Clearing")
    waiting = builder.state("Waiting", when_due)
    stopping = builder.state("Stopping")

    @stopped.upon(_Supervised.start).to(starting)
    def begin(machine: _Supervised, core: _Core) -> Deferred[None]:
        first_try = core.first_try = Deferred()
        core.begin_try(machine)
        return first_try

    @starting.upon(_Supervised.came_up).to(up)
    def settle_in(machine: _Supervised, core: _Core) -> None:
        log.info("{component} is up.", component=core.name)
        core.first_try_over()

    @up.upon(_Supervised.healthy).loop()
    def forget(machine: _Supervised, core: _Core, timer: IDelayedCall) -> None:
        core.streak = Streak(up_since=core.streak.up_since)
        core.last_error = None
        core.errors.clear(core.entry)

    @starting.upon(_Supervised.failed).to(clearing)
    def start_failed(machine: _Supervised, core: _Core, failure: Failure) -> None:
        core.streak, core.delay, exhausted = core.streak.failed(core.clock.seconds())
        core.state = "failed" if exhausted else "backoff"
        core.last_error = shown(failure)
        log.failure(
            "{component} failed; next try in {delay}.", failure, component=core.name, delay=_in_words(core.delay)
        )
        core.end_try(machine)

    @up.upon(_Supervised.failed).to(clearing)
    def fell(machine: _Supervised, core: _Core, timer: IDelayedCall, failure: Failure) -> None:
        _cancel(timer)
        start_failed(machine, core, failure)

    @clearing.upon(_Supervised.cleared).to(waiting)
    def wait(machine: _Supervised, core: _Core) -> None:
        core.first_try_over()

    @waiting.upon(_Supervised.retry).to(starting)
    def try_again(machine: _Supervised, core: _Core, timer: IDelayedCall) -> None:
        core.restarts += 1
        core.begin_try(machine)

    # The stop, from wherever it comes.

    @stopping.upon(_Supervised.stop).loop()
    @clearing.upon(_Supervised.stop).to(stopping)
    def await_end(machine: _Supervised, core: _Core) -> Deferred[None]:
        core.state = "stopping"
        ended: Deferred[None] = Deferred()
        core.stopping.append(ended)
        return ended

    @starting.upon(_Supervised.stop).to(stopping)
    def stop_starting(machine: _Supervised, core: _Core) -> Deferred[None]:
        ended = await_end(machine, core)
        core.end_try(machine)
        return ended

    @up.upon(_Supervised.stop).to(stopping)
    def stop_up(machine: _Supervised, core: _Core, timer: IDelayedCall) -> Deferred[None]:
        _cancel(timer)
        return stop_starting(machine, core)

    @waiting.upon(_Supervised.stop).to(stopped)
    def stop_waiting(machine: _Supervised, core: _Core, timer: IDelayedCall) -> Deferred[None]:
        timer.cancel()
        core.state, core.next_retry_at = "stopped", None
        return succeed(None)

    @stopped.upon(_Supervised.stop).loop()
    def stay(machine: _Supervised, core: _Core) -> Deferred[None]:
        return succeed(None)

    @stopping.upon(_Supervised.cleared).to(stopped)
    def finish(machine: _Supervised, core: _Core) -> None:
        core.state = "stopped"
        core.first_try_over()
        waiting_for_it, core.stopping = core.stopping, []
        for each in waiting_for_it:
            each.callback(None)

    return builder.build()


_machine = _make_machine()


def _cancel(timer: IDelayedCall) -> None:
    if timer.active():
        timer.cancel()


def _in_words(seconds: float) -> str:
    number, unit = (seconds, "second") if seconds < 60 else (seconds / 60, "minute")
    return f"{number:g} {unit}{'' if number == 1 else 's'}"
