"""The reactor that a node runs on where the system has ``epoll``: Twisted's own, with two things that differ.

Twisted wraps each event of a socket in a logging context, which costs more
than everything that PAIR does to pass on a chunk. Nothing here reads that
context: our log lines name the module that they come from (OP-28).

Twisted's timers go by the time of day, so that none of them fires for an hour
when that is put back by one. Here they go by a clock that nobody sets.

Which sockets there are and what they do is not known here.
"""

from __future__ import annotations

import time

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.main import installReactor

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""One that goes on while the machine sleeps, so that what is due by then is due when it wakes."""

_BEGAN = time.time() - time.clock_gettime(_CLOCK)


class LeanEPollReactor(EPollReactor):
    """Twisted's reactor over ``epoll``, without a logging context for each event, and with a steady clock."""

    def seconds(self) -> float:
        """Seconds since the epoch, but for what the time of day was put right by since the process began."""
        return _BEGAN + time.clock_gettime(_CLOCK)

    def doPoll(self, timeout: float | None) -> None:
        """Wait for events, ``timeout`` seconds at most, or until there is one; then let the sockets deal with them."""
        selectables = self._selectables
        try:
            ready = self._poller.poll(-1 if timeout is None else timeout, len(selectables))
        except InterruptedError:
            return
        for descriptor, event in ready:
            selectable = selectables.get(descriptor)
            # One that an event before has closed is gone by now.
            if selectable is not None:
                self._doReadOrWrite(selectable, descriptor, event)

    doIteration = doPoll


def install() -> None:
    """Make it the reactor of this process, which must not have one yet."""
    installReactor(LeanEPollReactor())
