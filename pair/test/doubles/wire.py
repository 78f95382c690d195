"""Doubles without sockets: connections in memory, and a client for what is asked directly. All by a clock."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from twisted.internet import error
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IConsumer, IProtocol, IPushProducer, IStreamClientEndpoint, ITCPTransport
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from pair.test.doubles.site import DoubleSite

if TYPE_CHECKING:
    from twisted.internet.interfaces import IProtocolFactory, IReactorTime

    from pair.test.doubles.serving import Double

BUFFER = 64 * 1024
"""Octets that wait before the one who writes is asked to pause."""


@implementer(ITCPTransport, IConsumer, IPushProducer)
class End:
    """One end of a connection. What is written arrives a turn later."""

    disconnecting = False

    def __init__(self, clock: IReactorTime, host: int, peer: int) -> None:
        self.protocol: IProtocol
        self.other: End
        self._clock = clock
        self._addresses = [IPv4Address("TCP", "127.0.0.1", port) for port in (host, peer)]
        self._inbox: deque[bytes] = deque()
        self._end: Failure | None = None
        self._lost = False
        self._paused = False
        self._producer: Any = None
        self._producer_paused = False

    # ITransport

    def write(self, data: bytes) -> None:
        if not (self._lost or self.disconnecting):
            self.other._arrive(data)
            if self._producer is not None and not self._producer_paused and self.other._waiting > BUFFER:
                self._producer_paused = True
                self._producer.pauseProducing()

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def loseConnection(self, *_: object) -> None:
        if not self.disconnecting:
            self.disconnecting = True
            self.other._close(Failure(error.ConnectionDone()))
            self._clock.callLater(0, self._lose, Failure(error.ConnectionDone()))

    def abortConnection(self) -> None:
        self.disconnecting = True
        self.other._close(Failure(error.ConnectionLost()), at_once=True)
        self._clock.callLater(0, self._lose, Failure(error.ConnectionLost()))

    def loseWriteConnection(self) -> None:
        self.loseConnection()

    def getHost(self) -> IPv4Address:
        return self._addresses[0]

    def getPeer(self) -> IPv4Address:
        return self._addresses[1]

    def getTcpNoDelay(self) -> bool:
        return True

    def setTcpNoDelay(self, enabled: bool) -> None: ...

    def getTcpKeepAlive(self) -> bool:
        return True

    def setTcpKeepAlive(self, enabled: bool) -> None: ...

    # IConsumer

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self._producer, self._producer_paused = producer, False

    def unregisterProducer(self) -> None:
        self._producer = None

    # IPushProducer

    def pauseProducing(self) -> None:
        self._paused = True

    def resumeProducing(self) -> None:
        self._paused = False
        self._clock.callLater(0, self._deliver)

    def stopProducing(self) -> None:
        self.loseConnection()

    # Within

    @property
    def _waiting(self) -> int:
        return sum(map(len, self._inbox))

    def _arrive(self, data: bytes) -> None:
        self._inbox.append(data)
        self._clock.callLater(0, self._deliver)

    def _close(self, reason: Failure, *, at_once: bool = False) -> None:
        if self._end is None:
            self._end = reason
        if at_once:
            self._inbox.clear()
        self._clock.callLater(0, self._deliver)

    def _deliver(self) -> None:
        while self._inbox and not (self._paused or self._lost):
            self.protocol.dataReceived(self._inbox.popleft())
        if self._lost or self._inbox:
            return
        if self.other._producer_paused and self.other._producer is not None:
            self.other._producer_paused = False
            self.other._producer.resumeProducing()
        if self._end is not None and not self._inbox:
            self._lose(self._end)

    def _lose(self, reason: Failure) -> None:
        if not self._lost:
            self._lost = self.disconnecting = True
            producer, self._producer = self._producer, None
            if producer is not None:
                producer.stopProducing()
            self.protocol.connectionLost(reason)


@implementer(IStreamClientEndpoint)
class Line:
    """Connects to a double.

    Attributes:
        made: how many connections.
    """

    def __init__(self, double: Double) -> None:
        self.made = 0
        self._double = double
        self._site = DoubleSite(double)

    def connect(self, factory: IProtocolFactory) -> Deferred[Any]:
        """See :class:`~twisted.internet.interfaces.IStreamClientEndpoint`."""
        if self._double.faults.refusing:
            return fail(error.ConnectionRefusedError())
        self.made += 1
        near, far = End(self._double.clock, 40_000, 80), End(self._double.clock, 80, 40_000)
        near.other, far.other = far, near
        client = factory.buildProtocol(near.getPeer())
        assert client is not None
        near.protocol, far.protocol = client, self._site.buildProtocol(far.getPeer())
        far.protocol.makeConnection(far)
        client.makeConnection(near)
        return succeed(client)


class Got(Struct):
    """What was answered, as far as it came.

    ``pieces`` are the parts of the body as they came; ``ended`` is whether it
    is complete by its own framing.
    """

    status: int = 0
    fields: dict[str, str] = {}
    pieces: list[bytes] = []
    ended: bool = False
    lost: bool = False

    @property
    def body(self) -> bytes:
        """All of it."""
        return b"".join(self.pieces)

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return msgspec.json.decode(self.body)

    @property
    def lines(self) -> list[Any]:
        """The documents of NDJSON."""
        return [msgspec.json.decode(each) for each in self.body.splitlines()]

    @property
    def events(self) -> list[tuple[str, Any]]:
        """The events of a stream, by name; what is no JSON as text."""
        found = []
        for block in self.body.decode().split("\n\n"):
            named = dict(each.split(": ", 1) for each in block.split("\n") if each)
            if "data" in named:
                told = named["data"]
                found.append((named.get("event", ""), told if told == "[DONE]" else msgspec.json.decode(told)))
        return found


class Asking(Protocol):
    """One request on one connection.

    Attributes:
        got: what came.
        begun: fires when the first piece of the body has come, or none will.
        over: fires with what came, when the answer is complete or the connection is gone.
    """

    def __init__(self, method: str, path: str, body: bytes, fields: dict[str, str]) -> None:
        self.got = Got()
        self.begun: Deferred[None] = Deferred()
        self.over: Deferred[Got] = Deferred()
        self._body = body
        self._head = f"{method} {path} HTTP/1.1\r\n" + "".join(
            f"{name}: {value}\r\n" for name, value in fields.items()
        )
        self._bodiless = method == "HEAD"
        self._raw = b""
        self._left: int | None = None
        self._chunked = False

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(self._head.encode() + b"\r\n" + self._body)

    def leave(self) -> None:
        """Close the connection."""
        assert self.transport is not None
        self.transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        self._raw += data
        if not self.got.status and not self._read_head():
            return
        if self._chunked:
            self._read_chunks()
        elif self._left is not None:
            taken, self._raw = self._raw[: self._left], self._raw[self._left :]
            self._left -= len(taken)
            if taken:
                self._take(taken)
            if not self._left:
                self._finish(True)

    def _read_head(self) -> bool:
        head, found, rest = self._raw.partition(b"\r\n\r\n")
        if not found or not head.startswith(b"HTTP/1.1 "):
            return False
        first, *lines = head.decode("latin-1").split("\r\n")
        self.got.status = int(first.split(" ")[1])
        self.got.fields = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
        self._raw = rest
        self._chunked = self.got.fields.get("transfer-encoding") == "chunked"
        self._left = 0 if self._bodiless else int(self.got.fields.get("content-length", 0))
        return True

    def _read_chunks(self) -> None:
        while True:
            size, found, rest = self._raw.partition(b"\r\n")
            if not found or len(rest) < int(size, 16) + 2:
                return
            piece, self._raw = rest[: int(size, 16)], rest[int(size, 16) + 2 :]
            if not piece:
                self._finish(True)
                return
            self._take(piece)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.got.lost = True
        self._finish(False)

    def _take(self, piece: bytes) -> None:
        self.got.pieces.append(piece)
        if not self.begun.called:
            self.begun.callback(None)

    def _finish(self, ended: bool) -> None:
        self.got.ended = self.got.ended or ended
        if not self.over.called:
            if not self.begun.called:
                self.begun.callback(None)
            self.over.callback(self.got)


def ask(
    endpoint: IStreamClientEndpoint, method: str, path: str, body: object = b"", **fields: str
) -> Deferred[Asking]:
    """Ask one thing at ``endpoint``; a body that is no bytes goes as JSON, ``_`` in a field's name stands for ``-``.

    Returns:
        Fires with the request when it is on its way.
    """
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    named = {"Host": "localhost", "Content-Length": str(len(data)), "Connection": "close"}
    named |= {name.replace("_", "-"): value for name, value in fields.items()}
    asking = Asking(method, path, data, named)
    factory = Factory.forProtocol(lambda: asking)
    factory.noisy = False
    return endpoint.connect(factory).addCallback(lambda _: asking)
