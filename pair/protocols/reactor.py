"""The reactor that a node runs on where the system has ``epoll``: Twisted's own, less what it does for each event.

Twisted wraps each event of a socket in a logging context, which costs more
than everything that PAIR does to pass on a chunk. Nothing here reads that
context: our log lines name the module that they come from (OP-28). Which
sockets there are and what they do is not known here.
"""

from __future__ import annotations

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.main import installReactor


class LeanEPollReactor(EPollReactor):
    """Twisted's reactor over ``epoll``, without a logging context for each event."""

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
