"""Services that start one after another and stop in reverse, each with a deadline (AR-11, OP-46, OP-53).

``MultiService`` neither waits for starts nor orders stops; this does both. It
does not restart: a part that may fail while it runs goes in as a
:class:`pair.supervision.child.SupervisedService`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.application.service import IService, Service
from twisted.internet.defer import Deferred, maybeDeferred
from zope.interface import implementer

from pair.logs import Logger
from pair.supervision.components import Component, ComponentState, IComponents, shown
from pair.supervision.deadline import settled

if TYPE_CHECKING:
    from twisted.internet.interfaces import IReactorTime
    from twisted.python.failure import Failure

START_DEADLINE = 10.0
"""Seconds that one step of the start may take (OP-46)."""

log = Logger()


class StartFailed(Exception):  # noqa: N818 - a fact, as it is told
    """A required part did not start. ``reason`` is None when it overran its deadline."""

    def __init__(self, name: str, reason: Failure | None) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        why = shown(self.reason) or f"it took more than {START_DEADLINE:g} s"
        return f"the start of {self.name} failed ({why})"


class StopFailed(Exception):  # noqa: N818 - likewise
    """Some parts did not stop in order: each raised, or was left behind at its deadline."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(names)
        self.names = names

    def __str__(self) -> str:
        return f"the stop of {', '.join(self.names)} failed"


@implementer(IComponents)
class OrderedServices(Service):
    """A sequence of services with names.

    Every service whose start was begun is stopped again, also one whose start
    failed or is still under way; the latter is cancelled first.

    Args:
        stop_deadline: seconds in which the whole stop ends, whatever its steps do.
    """

    def __init__(self, clock: IReactorTime, stop_deadline: float = 10.0) -> None:
        self._clock = clock
        self._stop_deadline = stop_deadline
        self._steps: list[_Step] = []
        self._starting: Deferred[None] | None = None

    def add(self, name: str, service: IService, *, required: bool = False, stop_deadline: float = 1.0) -> None:
        """Put ``service`` behind those added before; only before the start.

        Args:
            name: of the component, as it is shown.
            service: need not have a parent; it is started and stopped from here alone.
            required: whether the whole start fails with it. An optional one
                that fails or overruns is logged, and does not hold the later
                ones; after an overrun its start goes on by itself.
            stop_deadline: seconds after which its stop is left behind.
        """
        self._steps.append(_Step(name, service, required, stop_deadline))

    def tree(self) -> tuple[Component, ...]:
        """All parts in the order of their start, those of nested sequences in their place."""
        return tuple(component for step in self._steps for component in step.tree())

    def startService(self) -> Deferred[None]:
        """Start all, in order.

        Returns:
            A Deferred that fires when the last one is up, failed or has
            overrun. It fails with :exc:`StartFailed`, and with
            ``CancelledError`` when a stop comes in between; what had started
            then waits for :meth:`stopService`.
        """
        super().startService()
        self._starting = Deferred.fromCoroutine(self._start())
        return self._starting

    async def _start(self) -> None:
        for step in self._steps:
            in_time = await settled(self._clock, step.start(), START_DEADLINE)
            if not in_time:
                log.warn("{component} takes more than {limit} s to start.", component=step.name, limit=START_DEADLINE)
            if step.required and step.state != "up":
                raise StartFailed(step.name, step.failure)

    def stopService(self) -> Deferred[None]:
        """Stop in reverse all whose start was begun.

        Returns:
            A Deferred that fires within the stop's deadline; with
            :exc:`StopFailed` when not all went well. What went wrong is logged.
        """
        super().stopService()
        if self._starting is not None:
            self._starting.cancel()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        end = self._clock.seconds() + self._stop_deadline
        begun = [step for step in reversed(self._steps) if step.state != "stopped"]
        for step in begun:
            left = max(0.0, end - self._clock.seconds())
            if not await settled(self._clock, step.stop(), min(step.stop_deadline, left)):
                log.error("{component} did not stop in time; it is left behind.", component=step.name)
        failed = tuple(step.name for step in begun if step.state != "stopped")
        if failed:
            raise StopFailed(failed)


class _Step:
    """One service of the sequence and how far it is."""

    def __init__(self, name: str, service: IService, required: bool, stop_deadline: float) -> None:
        self.name = name
        self.required = required
        self.stop_deadline = stop_deadline
        self.state: ComponentState = "stopped"
        self.failure: Failure | None = None
        self._service = service
        self._starting: Deferred[None] | None = None

    def start(self) -> Deferred[None]:
        """Begin the start; what comes of it is kept in ``state`` and ``failure``, and the Deferred never fails."""
        self.state, self.failure = "starting", None
        self._starting = maybeDeferred(self._service.startService).addCallbacks(self._came_up, self._start_failed)
        return self._starting

    def stop(self) -> Deferred[None]:
        """Begin the stop, likewise; ``state`` is ``stopped`` only after a good end."""
        self.state = "stopping"
        if self._starting is not None:
            self._starting.cancel()
        return maybeDeferred(self._service.stopService).addCallbacks(self._came_down, self._stop_failed)

    def tree(self) -> tuple[Component, ...]:
        if IComponents.providedBy(self._service):
            return tuple(IComponents(self._service).tree())
        return (Component(self.name, self.state, int(self.failure is not None), last_error=shown(self.failure)),)

    def _came_up(self, _: object) -> None:
        if self.state == "starting":
            self.state = "up"

    def _start_failed(self, failure: Failure) -> None:
        if self.state == "starting":
            self.state, self.failure = "failed", failure
            log.failure("{component} did not start.", failure, component=self.name)

    def _came_down(self, _: object) -> None:
        self.state = "stopped"

    def _stop_failed(self, failure: Failure) -> None:
        self.state, self.failure = "failed", failure
        log.failure("{component} failed in its stop.", failure, component=self.name)
