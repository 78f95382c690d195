"""A network in memory: PAIR's sockets, with a client at one end and engines at the other.

What is written is there at once; what closes does so a turn later, as sockets
do. Nothing here knows what the bytes mean, but for what reads best in a test.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from twisted.internet import error
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import (
    CannotListenError,
    ConnectionAborted,
    ConnectionDone,
    ConnectionLost,
)
from twisted.internet.interfaces import IListeningPort, IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from pair.protocols.eager import IUnsent

if TYPE_CHECKING:
    from twisted.internet.task import Clock

INTERIM = b"HTTP/1.1 102 Processing\r\n\r\n"

BUFFER = 64 * 1024
"""What a transport keeps before it pauses its producer, as in Twisted."""


class Served(Protocol):
    """What is on our side of a socket."""

    def dataReceived(self, data: bytes) -> None: ...

    def connectionLost(self, reason: Failure) -> None: ...


@implementer(IUnsent)
class Socket(StringTransport):
    """One socket of PAIR's. The other end is the test.

    Attributes:
        got: What the other end has received.
        writes: The same, write by write, with what it has not taken yet.
        taking: The other end reads.
        paused: We do not read.
        aborted: We reset the connection.
        closed: It is gone, whoever ended it.
    """

    protocol: Served

    def __init__(self, clock: Clock, peer: str) -> None:
        super().__init__(peerAddress=IPv4Address("TCP", peer, 50000))
        self.got = b""
        self.writes: list[bytes] = []
        self.taking = True
        self.paused = False
        self.aborted = False
        self.closed = False
        self._clock = clock
        self._queued = b""
        self._arrived: list[bytes] = []
        self._closing = False
        self._producer_paused = False

    @property
    def unsent(self) -> int:
        """See :class:`IUnsent`."""
        return len(self._queued)

    # Our side.

    def write(self, data: bytes) -> None:
        if self.closed or self._closing or self.aborted:
            return
        self.writes.append(data)
        if self.taking:
            self.got += data
            return
        self._queued += data
        if len(self._queued) > BUFFER and self.producer is not None and not self._producer_paused:
            self._producer_paused = True
            self.producer.pauseProducing()

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False
        self._clock.callLater(0, self._deliver)

    def loseConnection(self) -> None:
        self._closing = True
        self._close_if_sent()

    def loseWriteConnection(self) -> None:
        """The other end closes too when it has seen that we did."""
        self.loseConnection()

    def abortConnection(self) -> None:
        if not self.aborted:
            self.aborted = True
            self._clock.callLater(0, self.lose, ConnectionAborted())

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        super().registerProducer(producer, streaming)
        self._producer_paused = False

    def unregisterProducer(self) -> None:
        self.producer = None

    # The other end.

    def receive(self, data: bytes) -> None:
        """It sends; we read at once, unless we have paused."""
        self._arrived.append(data)
        self._deliver()

    def take(self) -> None:
        """It reads, from now on, what we write."""
        self.taking = True
        self.got += self._queued
        self._queued = b""
        if self._producer_paused and self.producer is not None:
            self._producer_paused = False
            self.producer.resumeProducing()
        if self._closing:
            self._close_if_sent()

    def lose(self, why: Exception) -> None:
        """The connection is gone: it closed it, or it broke."""
        if not self.closed:
            self.closed = True
            producer, self.producer = self.producer, None
            if producer is not None:
                producer.stopProducing()
            self.protocol.connectionLost(Failure(why))

    def _deliver(self) -> None:
        while self._arrived and not (self.paused or self.closed or self.aborted):
            self.protocol.dataReceived(self._arrived.pop(0))

    def _close_if_sent(self) -> None:
        if not self._queued:
            self._clock.callLater(0, self.lose, ConnectionDone())


class Answer(NamedTuple):
    """What a client received, as far as it came. Names of fields are in lower case; the body is as on the wire."""

    status: int
    fields: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return msgspec.json.decode(self.body)

    @classmethod
    def parse(cls, received: bytes) -> Answer:
        while received.startswith(INTERIM):
            received = received[len(INTERIM) :]
        head, found, body = received.partition(b"\r\n\r\n")
        assert found, f"no answer in {received!r}"
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return cls(int(first.split(" ")[1]), fields, body)


class Client:
    """An application on one connection."""

    def __init__(self, socket: Socket) -> None:
        self.socket = socket

    def sends(self, *pieces: bytes) -> None:
        """Each piece is a read of ours."""
        for piece in pieces:
            self.socket.receive(piece)

    def asks(self, method: str, path: str, body: bytes | object = b"", minor: int = 1, **fields: str) -> None:
        """Send a whole request. A body that is no bytes goes as JSON; ``_`` in a field's name stands for ``-``."""
        lines = [f"{method} {path} HTTP/1.{minor}"]
        named = {"Host": "localhost:11434", **{name.replace("_", "-"): value for name, value in fields.items()}}
        if not isinstance(body, bytes):
            body = msgspec.json.encode(body)
            named = {"Content-Type": "application/json", **named}
        if body:
            named["Content-Length"] = str(len(body))
        lines += [f"{name}: {value}" for name, value in named.items()]
        self.sends("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    @property
    def received(self) -> bytes:
        """All that came."""
        return self.socket.got

    @property
    def answer(self) -> Answer:
        """The first answer, as far as it came."""
        return Answer.parse(self.socket.got)

    def leaves(self) -> None:
        """Close the connection."""
        self.socket.lose(ConnectionDone())

    def half_closes(self) -> None:
        """Say that it sends no more."""
        self.socket.protocol.readConnectionLost()  # type: ignore[attr-defined]

    def stops_reading(self) -> None:
        """What we write stays here."""
        self.socket.taking = False

    def reads_on(self) -> None:
        """Take all of it."""
        self.socket.take()


@implementer(IStreamClientEndpoint)
class Engine:
    """An engine, where we connect to it.

    Attributes:
        connections: All that were made, in order.
        refuses: It does not run.
        hangs: It does not even refuse.
        takes: It reads what it is sent.
        given_up: How many connections we stopped waiting for.
    """

    def __init__(self, clock: Clock) -> None:
        self.connections: list[Socket] = []
        self.refuses = False
        self.hangs = False
        self.takes = True
        self.given_up = 0
        self._clock = clock

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        if self.refuses:
            return fail(error.ConnectionRefusedError())
        if self.hangs:
            return Deferred(self._cancelled)
        socket = Socket(self._clock, "127.0.0.1")
        socket.taking = self.takes
        protocol = factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 11435))
        assert protocol is not None
        socket.protocol = protocol
        protocol.makeConnection(socket)
        self.connections.append(socket)
        return succeed(protocol)

    def _cancelled(self, connecting: object) -> None:
        self.given_up += 1

    @property
    def socket(self) -> Socket:
        """The newest connection."""
        return self.connections[-1]

    @property
    def asked(self) -> bytes:
        """All that came on it."""
        return self.socket.got

    @property
    def contacted(self) -> bool:
        """Whether there ever was one."""
        return bool(self.connections)

    def answers(self, *pieces: bytes) -> None:
        """Each piece is a read of ours."""
        for piece in pieces:
            self.socket.receive(piece)

    def closes(self) -> None:
        """End the connection."""
        self.socket.lose(ConnectionDone())

    def breaks(self) -> None:
        """Die: the connection is reset."""
        self.socket.lose(ConnectionLost())


@implementer(IListeningPort)
class OpenPort:
    """A listening socket."""

    def __init__(self, ports: Ports, factory: IProtocolFactory, host: str, port: int) -> None:
        self.factory = factory
        self.host = host
        self.port = port
        self._ports = ports

    def startListening(self) -> None:
        """It listens already."""

    def stopListening(self) -> Deferred[None]:
        self._ports.open.remove(self)
        return succeed(None)

    def getHost(self) -> IPv4Address | IPv6Address:
        kind = IPv6Address if ":" in self.host else IPv4Address
        return kind("TCP", self.host, self.port)


class Ports:
    """The ports of this host.

    Attributes:
        open: Where we listen.
        troubles: What listening meets, by port and by address.
    """

    CHOICE = 40_000
    """What the kernel chooses for 0."""

    def __init__(self) -> None:
        self.open: list[OpenPort] = []
        self.troubles: dict[int | str, int] = {}

    def listen(self, port: int, factory: IProtocolFactory, address: str) -> OpenPort:
        """See :data:`pair.proxy.listeners.Listen`."""
        port = port or self.CHOICE
        trouble = self.troubles.get(port) or self.troubles.get(address)
        if (port, address) in self.numbers:
            trouble = errno.EADDRINUSE
        if trouble is not None:
            raise CannotListenError(address, port, OSError(trouble, ""))
        self.open.append(OpenPort(self, factory, address, port))
        return self.open[-1]

    def hold(self, *ports: int) -> None:
        """Another program listens there."""
        self.troubles |= dict.fromkeys(ports, errno.EADDRINUSE)

    def free(self, port: int) -> None:
        """It does so no more."""
        del self.troubles[port]

    @property
    def numbers(self) -> list[tuple[int, str]]:
        """Port and address of all on which we listen."""
        return [(each.port, each.host) for each in self.open]


def response(status: int = 200, body: bytes = b"", *fields: tuple[bytes, bytes]) -> bytes:
    """A whole answer with its length; JSON, if nothing else is said."""
    return head(status, (b"Content-Length", b"%d" % len(body)), *fields) + body


def head(status: int, *fields: tuple[bytes, bytes]) -> bytes:
    """A head with just these fields, and a type."""
    if not any(name == b"Content-Type" for name, _ in fields):
        fields = ((b"Content-Type", b"application/json"), *fields)
    return b"HTTP/1.1 %d Word\r\n" % status + b"".join(b"%b: %b\r\n" % each for each in fields) + b"\r\n"


def stream(content_type: bytes = b"application/x-ndjson") -> bytes:
    """The head of a chunked answer."""
    return head(200, (b"Content-Type", content_type), (b"Transfer-Encoding", b"chunked"))


def chunk(data: bytes) -> bytes:
    """One chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST_CHUNK = b"0\r\n\r\n"
