"""The far side of the HTTP client, in memory: endpoint, transport, receiver."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from pair.protocols.calls import Target, UpstreamFailure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twisted.internet.task import Clock

    from pair.protocols.http_client import ClientConnection
    from pair.protocols.response import ResponseHead

TARGET = Target("engine", "127.0.0.1", 11435, b"127.0.0.1:11435")
GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:11435\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: 127.0.0.1:11435\r\nContent-Length: 4\r\n\r\n"


class Transport(StringTransport):
    """Closes a turn after it is told to, as a socket does, and tells its protocol.

    With ``room`` set it takes that many octets and then is full until :meth:`drain`.
    """

    protocol: ClientConnection
    room: int | None = None
    closed = False
    aborted = False

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def write(self, data: bytes) -> None:
        if self.closed:
            return
        super().write(data)
        if self.room is not None and len(self.value()) > self.room and self.producer is not None:
            self.producer.pauseProducing()

    def drain(self) -> bytes:
        """All that was written; the transport is empty then."""
        written: bytes = self.value()
        self.clear()
        if self.producer is not None:
            self.producer.resumeProducing()
        return written

    def loseConnection(self) -> None:
        if not self.disconnecting:
            self.disconnecting = True
            self._clock.callLater(0, self.close)

    def abortConnection(self) -> None:
        if not self.aborted:
            self.aborted = True
            self._clock.callLater(0, self.close, ConnectionAborted())

    def close(self, error: Exception | None = None) -> None:
        """The other end closed, or the connection broke by ``error``."""
        if not self.closed:
            self.closed = True
            if self.producer is not None:
                self.producer.stopProducing()
            self.protocol.connectionLost(Failure(error or ConnectionDone()))

    def receive(self, data: bytes) -> None:
        """``data`` comes in one read."""
        self.protocol.dataReceived(data)


class Dial:
    """One attempt to connect."""

    def __init__(self, clock: Clock, factory: IProtocolFactory) -> None:
        self._clock = clock
        self._factory = factory
        self.cancelled = False
        self.done: Deferred[IProtocol] = Deferred(self._cancel)

    def _cancel(self, done: Deferred[IProtocol]) -> None:
        self.cancelled = True

    def accept(self) -> Transport:
        """The connection is made."""
        transport = Transport(self._clock)
        protocol = self._factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 11435))
        assert protocol is not None
        transport.protocol = cast("ClientConnection", protocol)
        protocol.makeConnection(transport)
        self.done.callback(protocol)
        return transport

    def refuse(self, error: Exception) -> None:
        """The connection cannot be made."""
        self.done.errback(Failure(error))


@implementer(IStreamClientEndpoint)
class Endpoint:
    """Records the attempts to connect."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.dials: list[Dial] = []

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        self.dials.append(Dial(self._clock, factory))
        return self.dials[-1].done

    def accept(self) -> Transport:
        """The newest attempt succeeds."""
        return self.dials[-1].accept()


class Receiver:
    """Records what it is told."""

    def __init__(self) -> None:
        self.head: ResponseHead | None = None
        self.raw = b""
        self.parts: list[bytes] = []
        self.reads = 0
        self.ended = 0
        self.failure: UpstreamFailure | None = None

    def head_received(self, head: ResponseHead) -> None:
        assert self.head is None
        self.head = head

    def body_received(self, raw: bytes, parts: Sequence[bytes]) -> None:
        assert raw
        assert not self.ended
        self.reads += 1
        self.raw += raw
        self.parts += parts

    def response_ended(self) -> None:
        self.ended += 1

    def response_lost(self, failure: UpstreamFailure) -> None:
        assert self.failure is None
        self.failure = failure
