"""HTTP/1.1 server: what a listener needs, and what an application sees (PX-7 to PX-11, PX-61).

The factory keeps the open connections: it watches their limits by one sweep a
second for all, counts them, and ends them. It knows nothing of paths, models
or engines: what a request means is for ``received`` to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import Protocol, ServerFactory

from pair.protocols.http_connection import HTTPServerProtocol, Limits
from pair.protocols.http_exchange import BodyReceiver, Exchange, Framing
from pair.protocols.http_reader import RequestHead

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IAddress, IDelayedCall, IReactorTime

    from pair.protocols.http1 import Fields

__all__ = ["BodyReceiver", "Exchange", "Framing", "HTTPServerFactory", "HTTPServerProtocol", "Limits", "RequestHead"]

_SWEEP_SECONDS = 1.0


class HTTPServerFactory(ServerFactory):
    """Makes the connections of one listener, or of several that stop together.

    Args:
        clock: For the limits.
        received: Called with each exchange when its head is complete.
        refusal: Makes the fields and the body of an answer of ours to a
            request that never became an exchange, or whose handling raised:
            from its status and code (400 ``bad_request``, 408
            ``request_timeout``, 500 ``internal``).
        limits: What a client is allowed.
    """

    noisy = False

    def __init__(
        self,
        clock: IReactorTime,
        received: Callable[[Exchange], None],
        refusal: Callable[[int, str], tuple[Fields, bytes]],
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        self.clock = clock
        self.received = received
        self.refusal = refusal
        self.limits = limits
        self.draining = False
        self._open: dict[HTTPServerProtocol, None] = {}
        self._sweep: IDelayedCall | None = None
        self._emptied: list[Deferred[None]] = []

    def buildProtocol(self, addr: IAddress | None) -> Protocol:
        """The protocol of one client."""
        return HTTPServerProtocol(self)

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._open)

    def drain(self) -> Deferred[None]:
        """Close idle connections now and busy ones after their exchange; new ones at once.

        Returns:
            Fires when none is left, which may take as long as the longest
            answer: see :meth:`abort_all`.
        """
        self.draining = True
        for each in list(self._open):
            each.drain()
        if not self._open:
            return succeed(None)
        emptied: Deferred[None] = Deferred()
        self._emptied.append(emptied)
        return emptied

    def abort_all(self) -> None:
        """Reset every connection; open exchanges are lost."""
        for each in list(self._open):
            each.abort()

    def opened(self, connection: HTTPServerProtocol) -> None:
        """Count ``connection``, and watch its deadline."""
        self._open[connection] = None
        if self._sweep is None:
            self._sweep = self.clock.callLater(_SWEEP_SECONDS, self._look)

    def closed(self, connection: HTTPServerProtocol) -> None:
        """Forget ``connection``."""
        self._open.pop(connection, None)
        if not self._open:
            if self._sweep is not None:
                self._sweep.cancel()
                self._sweep = None
            emptied, self._emptied = self._emptied, []
            for each in emptied:
                each.callback(None)

    def _look(self) -> None:
        self._sweep = self.clock.callLater(_SWEEP_SECONDS, self._look)
        now = self.clock.seconds()
        for each in [each for each in self._open if each.deadline <= now]:
            each.timed_out()
