"""Work that is done again and again, and survives its own mistakes (AR-14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import LoopingCall

from pair.logs import Logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IReactorTime
    from twisted.python.failure import Failure

log = Logger()


class Repeating(Service):
    """Calls ``work`` at once and then every ``interval`` seconds, while it runs.

    A call that takes longer than the interval delays the next one; two never
    overlap. One that fails is counted, and logged with its stack if the one
    before it was good; the next is made all the same.

    Args:
        work: may return a Deferred, which :meth:`stopService` cancels and
            waits for.

    Attributes:
        failures: how many calls have failed since the object was made.
    """

    def __init__(self, clock: IReactorTime, interval: float, work: Callable[[], object], name: str) -> None:
        self.failures = 0
        self._interval = interval
        self._work = work
        self._name = name
        self._failing = False
        self._call: Deferred[None] | None = None
        self._loop = LoopingCall(self._turn)
        self._loop.clock = clock

    def startService(self) -> None:
        """Begin, with a call in this very turn."""
        super().startService()
        self._loop.start(self._interval)

    def stopService(self) -> Deferred[None]:
        """End. The Deferred fires when no call is under way any more."""
        super().stopService()
        if self._loop.running:
            self._loop.stop()
        call = self._call
        if call is None:
            return succeed(None)
        gone: Deferred[None] = Deferred()
        call.addCallback(gone.callback)
        call.cancel()
        return gone

    def _turn(self) -> Deferred[None]:
        self._call = maybeDeferred(self._work).addCallbacks(self._went_well, self._went_badly)
        return self._call.addCallback(self._ended)

    def _went_well(self, _: object) -> None:
        self._failing = False

    def _went_badly(self, failure: Failure) -> None:
        if not self.running:
            return  # cancelled by the stop
        self.failures += 1
        if not self._failing:
            log.failure("{work} failed; it goes on.", failure, work=self._name)
        self._failing = True

    def _ended(self, _: None) -> None:
        self._call = None
