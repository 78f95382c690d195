"""Where a double listens: ``twisted.web``'s server, with a clock that may be a test's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.protocol import connectionDone
from twisted.web.http import HTTPChannel, Request
from twisted.web.server import Site

if TYPE_CHECKING:
    from twisted.python.failure import Failure

    from pair.test.doubles.serving import Double


class DoubleSite(Site):
    """Serves one double."""

    noisy = False

    def __init__(self, double: Double) -> None:
        super().__init__(double, reactor=double.clock, timeout=double.idle)
        self.double = double

    def buildProtocol(self, addr: object) -> Any:
        """HTTP/1.1 alone, on the double's clock."""
        channel = _Channel(self.double)
        channel.requestFactory = self.requestFactory
        channel.site = self
        channel.factory = self
        channel.timeOut = self.timeOut
        channel.callLater = self.reactor.callLater
        return channel

    def log(self, request: Request) -> None:
        """Nobody reads it."""


class _Channel(HTTPChannel):
    """Known to its double while it is open."""

    callLater: Any
    timeOut: Any  # noqa: N815 - Twisted's name
    site: Any

    def __init__(self, double: Double) -> None:
        super().__init__()
        self._double = double

    def connectionMade(self) -> None:
        self._double.open.add(self.transport)
        super().connectionMade()
        if self._double.faults.refusing:
            self.transport.abortConnection()  # type: ignore[union-attr]

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._double.open.discard(self.transport)
        super().connectionLost(reason)
