"""One port for TLS and plain HTTP: the first byte decides (PX-6, PX-7).

A connection's first protocol looks at one byte, puts the right protocol in its
own place on the transport, replays what it has read, and is forgotten. It
knows nothing of what the two speak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.protocol import Protocol, ServerFactory, connectionDone

if TYPE_CHECKING:
    from twisted.internet.interfaces import IAddress, IDelayedCall, IProtocolFactory, IReactorTime, ITCPTransport
    from twisted.python.failure import Failure

_TLS_HANDSHAKE = 0x16
# A TLS record: alert, version 1.2 as all records say, two octets: fatal, handshake_failure (RFC 8446, 5.1 and 6).
_HANDSHAKE_FAILURE = bytes((0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 0x28))


class FirstByteFactory(ServerFactory):
    """Gives each connection to ``plain`` or ``tls``, as its first byte asks.

    Args:
        clock: For the limit.
        plain: Serves whatever does not begin as TLS does.
        tls: Serves TLS, the ClientHello included; None: TLS is refused with
            an alert.
        limit: Seconds in which the first byte must have come; then the
            connection is aborted.
        most: Connections that may wait for it; of more the oldest is aborted,
            so that those who say nothing take not all descriptors of this
            process, and shut nobody out. None: any number.
    """

    noisy = False

    def __init__(
        self,
        clock: IReactorTime,
        plain: IProtocolFactory,
        tls: IProtocolFactory | None = None,
        limit: float = 10.0,
        most: int | None = None,
    ) -> None:
        self._clock = clock
        self._plain = plain
        self._tls = tls
        self._limit = limit
        self._most = most
        self._waiting: dict[FirstByte, None] = {}

    def doStart(self) -> None:
        """Start the factories behind this one with it."""
        super().doStart()
        for each in self._behind():
            each.doStart()

    def doStop(self) -> None:
        """Stop the factories behind this one with it."""
        for each in self._behind():
            each.doStop()
        super().doStop()

    def _behind(self) -> list[IProtocolFactory]:
        return [each for each in (self._plain, self._tls) if each is not None]

    def buildProtocol(self, addr: IAddress | None) -> Protocol:
        """A protocol that waits for the first byte from ``addr``."""
        assert addr is not None
        return FirstByte(self._clock, self._plain, self._tls, self._limit, addr, self._waiting, self._most)


class FirstByte(Protocol):
    """Waits for the first byte and gives its place away."""

    transport: ITCPTransport
    _silence: IDelayedCall | None = None

    def __init__(
        self,
        clock: IReactorTime,
        plain: IProtocolFactory,
        tls: IProtocolFactory | None,
        limit: float,
        address: IAddress,
        waiting: dict[FirstByte, None],
        most: int | None,
    ) -> None:
        self._clock = clock
        self._plain = plain
        self._tls = tls
        self._limit = limit
        self._address = address
        self._waiting = waiting
        self._most = most

    def connectionMade(self) -> None:
        """Wait no longer than the limit."""
        if self._most is not None and len(self._waiting) >= self._most:
            next(iter(self._waiting)).give_way()
        self._waiting[self] = None
        self._silence = self._clock.callLater(self._limit, self._give_up)

    def dataReceived(self, data: bytes) -> None:
        """Decide by the first byte, then hand over the transport and all that was read."""
        self._stop_waiting()
        chosen = self._tls if data[0] == _TLS_HANDSHAKE else self._plain
        transport = self.transport
        if chosen is None:
            transport.write(_HANDSHAKE_FAILURE)
            transport.loseConnection()
            return
        protocol = chosen.buildProtocol(self._address)
        if protocol is None:
            transport.loseConnection()
            return
        transport.protocol = protocol  # type: ignore[attr-defined]
        protocol.makeConnection(transport)
        protocol.dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The client left before it said anything."""
        self._stop_waiting()

    def give_way(self) -> None:
        """Close, though the time is not over."""
        self._stop_waiting()
        self.transport.abortConnection()

    def _give_up(self) -> None:
        self._silence = None
        self.give_way()

    def _stop_waiting(self) -> None:
        self._waiting.pop(self, None)
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
