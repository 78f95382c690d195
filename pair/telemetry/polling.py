"""Asks one node again and again how busy it is (DS-51, DS-93). A machine.

``Resting`` → ``Asking`` → ``Waiting`` → ``Asking`` …: one question at a time,
and after each that fails a longer wait. It must not know how a node is asked,
nor what is done with an answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from automat import TypeMachineBuilder
from twisted.internet.defer import TimeoutError as AskedTooLong

from pair.logs import Logger
from pair.records.asking import AskFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.defer import Deferred, DeferredSemaphore
    from twisted.internet.interfaces import IDelayedCall, IReactorTime
    from twisted.python.failure import Failure

    from pair.records.asking import Answer

FIRST_SECONDS = 3.0
"""For a question that there is a reason for, as the node is new, or there again (DS-51)."""

ASK_SECONDS = 1.5
"""For each after that; waiting for a place does not count (DS-93)."""

JITTER_SECONDS = 0.25

WAITS = (4.0, 8.0, 16.0, 30.0)
"""After failures in a row; the last for all that follow."""

log = Logger()


class _Polling(Protocol):
    """What can happen."""

    def begin(self) -> None:
        """Ask, from now on. If it is done already there is a reason not to wait longer than the period."""

    def rest(self) -> None:
        """Ask no more."""

    def _due(self) -> None:
        """The wait is over."""

    def _answered(self) -> None:
        """An answer came."""

    def _missed(self) -> None:
        """None came."""


@dataclass
class _Core:
    clock: IReactorTime
    slots: DeferredSemaphore
    ask: Callable[[], Deferred[Answer]]
    take: Callable[[Answer, float], None]
    uniform: Callable[[float, float], float]
    period: float
    failures: int = 0
    prompted: bool = True
    asked_at: float = -math.inf

    @property
    def early(self) -> float:
        """How long it is too early to ask, in seconds: records, which anybody sends, give any number of reasons."""
        return max(0.0, self.asked_at + self.period - self.clock.seconds())

    def wait(self) -> float:
        """How long to wait now, in seconds."""
        wait = self.period
        if self.failures:
            wait = max(wait, WAITS[min(self.failures, len(WAITS)) - 1])
        return wait + self.uniform(-JITTER_SECONDS, JITTER_SECONDS)


class _Question:
    """One that is under way, or waits for a place. Given up, nothing more is heard of it."""

    def __init__(self, machine: _Polling, core: _Core) -> None:
        self._machine = machine
        self._core = core
        self._given_up = False
        self._began = core.clock.seconds()
        self._seconds = FIRST_SECONDS if core.prompted else ASK_SECONDS
        core.prompted = False
        self._going = core.slots.run(self._ask)
        self._going.addCallbacks(self._came, self._failed)
        self._going.addErrback(lambda failure: log.failure("An answer was not taken as it should be.", failure))

    def give_up(self) -> None:
        """It is not wanted any more."""
        self._given_up = True
        self._going.cancel()

    def _ask(self) -> Deferred[Answer]:
        self._began = self._core.asked_at = self._core.clock.seconds()
        return self._core.ask().addTimeout(self._seconds, self._core.clock)

    def _came(self, answer: Answer) -> None:
        self._core.failures = 0
        try:
            self._core.take(answer, self._core.clock.seconds() - self._began)
        finally:
            if not self._given_up:  # By whoever took the answer.
                self._machine._answered()

    def _failed(self, failure: Failure) -> None:
        if self._given_up:
            return
        if not failure.check(AskFailed, AskedTooLong):
            log.failure("A node was not asked as it should be.", failure)
        self._core.failures += 1
        self._machine._missed()


def _wait(machine: _Polling, core: _Core) -> IDelayedCall:
    return core.clock.callLater(core.wait(), machine._due)


def _question(machine: _Polling, core: _Core) -> _Question:
    return _Question(machine, core)


def _build() -> Callable[[_Core], _Polling]:
    builder = TypeMachineBuilder(_Polling, _Core)
    resting = builder.state("Resting")
    waiting = builder.state("Waiting", _wait)
    asking = builder.state("Asking", _question)

    resting.upon(_Polling.begin).to(asking).returns(None)
    resting.upon(_Polling.rest).loop().returns(None)
    # What is heard in the very turn of a rest.
    resting.upon(_Polling._answered).loop().returns(None)
    resting.upon(_Polling._missed).loop().returns(None)

    waiting.upon(_Polling._due).to(asking).returns(None)
    asking.upon(_Polling._answered).to(waiting).returns(None)
    asking.upon(_Polling._missed).to(waiting).returns(None)

    @asking.upon(_Polling.begin).loop()
    def as_it_is(machine: _Polling, core: _Core, question: _Question) -> None:
        core.prompted = False

    @waiting.upon(_Polling.begin).loop()
    def soon(machine: _Polling, core: _Core, timer: IDelayedCall) -> None:
        if core.early:
            timer.reset(min(core.early, timer.getTime() - core.clock.seconds()))
        else:
            timer.cancel()
            machine._due()

    @waiting.upon(_Polling.rest).to(resting)
    def sleep(machine: _Polling, core: _Core, timer: IDelayedCall) -> None:
        timer.cancel()

    @asking.upon(_Polling.rest).to(resting)
    def turn_back(machine: _Polling, core: _Core, question: _Question) -> None:
        question.give_up()

    return builder.build()


_make = _build()


class Poller:
    """Asks one node, once it is told to."""

    def __init__(
        self,
        clock: IReactorTime,
        slots: DeferredSemaphore,
        ask: Callable[[], Deferred[Answer]],
        take: Callable[[Answer, float], None],
        uniform: Callable[[float, float], float],
        period: float,
    ) -> None:
        """It rests.

        Args:
            clock: For time limits and waits.
            slots: Places for questions under way, which others take too.
            ask: Asks; cancelled, it gives up. Fails with :class:`AskFailed`.
            take: Told each answer, with the seconds that it took.
            uniform: A random number between two.
            period: Seconds between two questions.
        """
        self._core = _Core(clock, slots, ask, take, uniform, period)
        self._machine = _make(self._core)

    @property
    def period(self) -> float:
        """Seconds between two questions, from the next one on."""
        return self._core.period

    @period.setter
    def period(self, seconds: float) -> None:
        self._core.period = seconds

    @property
    def slots(self) -> DeferredSemaphore:
        """Places for questions under way, which others take too; from the next one on."""
        return self._core.slots

    @slots.setter
    def slots(self, slots: DeferredSemaphore) -> None:
        self._core.slots = slots

    def begin(self) -> None:
        """Ask, now and from now on; if it is done already, a period after the last time."""
        self._core.prompted = True
        self._machine.begin()

    def rest(self) -> None:
        """Ask no more."""
        self._machine.rest()
