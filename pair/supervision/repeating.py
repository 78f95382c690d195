"""Work that is done again and again, and survives its own mistakes (AR-14).

A node at rest does little else, and what that costs is mostly to wake up, not
the work. So whatever repeats does so at the same instants, and a call that is
over when it returns costs no Deferred.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.python.failure import Failure

from pair.logs import Logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

GRID = 0.25
"""Seconds. All that repeats in that time or a longer one does so at multiples of it, by the clock."""

_NEARLY = 0.001
"""The part of an interval by which a call may come too early, and is still that of the next instant."""

log = Logger()


class Repeating(Service):
    """Calls ``work`` at once and then every ``interval`` seconds, while it runs.

    The second call comes up to ``GRID`` earlier than that. A call that takes
    longer than the interval delays the next one; two never overlap. One that
    fails is counted, and logged with its stack if the one before it was good;
    the next is made all the same.

    Args:
        work: may return a Deferred, which :meth:`stopService` cancels and
            waits for.

    Attributes:
        failures: how many calls have failed since the object was made.
    """

    def __init__(self, clock: IReactorTime, interval: float, work: Callable[[], object], name: str) -> None:
        self.failures = 0
        self._clock = clock
        self._interval = interval
        self._work = work
        self._name = name
        self._failing = False
        self._began = 0.0
        self._due: IDelayedCall | None = None
        self._call: Deferred[None] | None = None

    def startService(self) -> None:
        """Begin, with a call in this very turn."""
        super().startService()
        now = self._clock.seconds()
        self._began = now - now % GRID if self._interval >= GRID else now
        self._turn()

    def stopService(self) -> Deferred[None]:
        """End. The Deferred fires when no call is under way any more."""
        super().stopService()
        if self._due is not None:
            self._due.cancel()
            self._due = None
        call = self._call
        if call is None:
            return succeed(None)
        gone: Deferred[None] = Deferred()
        call.addCallback(gone.callback)
        call.cancel()
        return gone

    def _turn(self) -> None:
        self._due = None
        try:
            result = self._work()
        except Exception:  # noqa: BLE001 - whatever it is, the next call is made
            self._went_badly(Failure())
            self._wait()
            return
        if result is None:
            self._failing = False
            self._wait()
            return
        self._call = maybeDeferred(lambda: result).addCallbacks(self._went_well, self._went_badly)
        self._call.addCallback(self._ended)

    def _wait(self) -> None:
        if not self.running or self._due is not None:
            return
        now, interval = self._clock.seconds(), self._interval
        passed = (now - self._began) / interval + _NEARLY
        self._due = self._clock.callLater(self._began + (passed // 1 + 1) * interval - now, self._turn)

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
        self._wait()
