"""Coroutines under way, so that a stop can end them or wait for them (AR-11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from pair.logs import Logger

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = Logger()


class Tasks:
    """The background work of one part. What fails is logged with its stack and hurts nobody else."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._running: set[Deferred[None]] = set()
        self._waiters: list[Deferred[None]] = []

    def run(self, coroutine: Coroutine[Deferred[Any], Any, None]) -> Deferred[None]:
        """Begin it.

        Returns:
            A Deferred that fires when it is over, well or badly; not to be cancelled.
        """
        running = Deferred.fromCoroutine(coroutine)
        self._running.add(running)
        over: Deferred[None] = Deferred()

        def ended(result: object) -> None:
            self._running.discard(running)
            if isinstance(result, Failure) and not result.check(CancelledError):
                log.failure("Work for {what} failed.", result, what=self._what)
            over.callback(None)
            if not self._running:
                waiters, self._waiters = self._waiters, []
                for waiter in waiters:
                    waiter.callback(None)

        running.addBoth(ended)
        return over

    def cancel(self) -> None:
        """End all of it where it waits."""
        for running in tuple(self._running):
            running.cancel()

    def finished(self) -> Deferred[None]:
        """Fires when none is left."""
        waiter: Deferred[None] = Deferred()
        if self._running:
            self._waiters.append(waiter)
        else:
            waiter.callback(None)
        return waiter
