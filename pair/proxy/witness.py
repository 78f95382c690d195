"""What a claim learns of the host while time passes: whom clients reach, and who is in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from pair.logs import Logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.hostports import Holder
    from pair.proxy.listeners import Listeners

NAMING = 60.0
"""Seconds between two questions for a name: each takes a look at all sockets of this host."""

log = Logger()


class Watch:
    """Looks whether clients reach us at our sockets, each time it is told to (EN-48).

    Args:
        clock: for the wait before a look.
        reaches_us: dials the sockets.
    """

    def __init__(self, clock: IReactorTime, reaches_us: Callable[[Listeners], Deferred[bool]]) -> None:
        self._clock = clock
        self._reaches_us = reaches_us
        self._pending: IDelayedCall | Deferred[bool] | None = None

    def look(self, listeners: Listeners, delay: float, tell: Callable[[bool], None]) -> None:
        """Look in ``delay`` seconds, and ``tell`` what was seen; a look that was asked for before is not taken."""
        self.end()
        self._pending = self._clock.callLater(delay, self._dial, listeners, tell)

    def end(self) -> None:
        """Look no more."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.cancel()

    def _dial(self, listeners: Listeners, tell: Callable[[bool], None]) -> None:
        self._pending = dialling = self._reaches_us(listeners)

        def seen(ours: bool) -> None:
            self._pending = None
            tell(ours)

        dialling.addCallback(seen).addErrback(_not_told)


class Witness:
    """Names the program that is in the way.

    Args:
        clock: it is not asked more often than once a minute.
        program_at: which program has a port.
        named: called when there is news.

    Attributes:
        words: what is known of it.
    """

    def __init__(
        self, clock: IReactorTime, program_at: Callable[[int], Deferred[Holder | None]], named: Callable[[], None]
    ) -> None:
        self.words: str | None = None
        self._clock = clock
        self._program_at = program_at
        self._named = named
        self._asked_at: float | None = None
        self._asking: Deferred[Holder | None] | None = None

    def ask(self, port: int) -> None:
        """Who has ``port``?"""
        now = self._clock.seconds()
        if self._asking is None and (self._asked_at is None or now - self._asked_at >= NAMING):
            self._asked_at = now
            self._asking = asking = self._program_at(port)
            asking.addBoth(self._answered).addErrback(_not_told)

    def forget(self) -> None:
        """The next one may be another."""
        asking, self._asking = self._asking, None
        self._asked_at = self.words = None
        if asking is not None:
            asking.cancel()

    def _answered(self, answer: Holder | Failure | None) -> Failure | None:
        self._asking = None
        if isinstance(answer, Failure):
            return answer
        words = None if answer is None else answer.described
        if words != self.words:
            self.words = words
            self._named()
        return None


def _not_told(failure: Failure) -> None:
    if failure.check(CancelledError) is None:
        log.failure("A question about this host's ports failed.", failure)
