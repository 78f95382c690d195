"""What the tests of the server share: a transport in memory, a receiver of bodies, an application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IPushProducer
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from pair.protocols.eager import IUnsent
from pair.protocols.http_server import Exchange, HTTPServerFactory, HTTPServerProtocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GET = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"
OLD_GET = b"GET /a HTTP/1.0\r\n\r\n"
HEAD = b"HEAD /a HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"
CHUNKED = b"POST /a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
EXPECTING = POST[:-2] + b"Expect: 100-continue\r\n\r\n"
BAD = b"GET /a HTTP/1.1\r\nHost localhost\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
OK_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
PEER = IPv4Address("TCP", "127.0.0.1", 4000)


def refusal(status: int, code: str) -> tuple[Sequence[tuple[bytes, bytes]], bytes]:
    return [(b"X-Code", code.encode())], code.encode()


def refused(status: bytes, code: bytes) -> bytes:
    length = b"%d" % len(code)
    return (
        b"HTTP/1.1 " + status + b"\r\nX-Code: " + code + b"\r\nContent-Length: " + length + b"\r\nConnection: close"
        b"\r\n\r\n" + code
    )


BAD_REQUEST = refused(b"400 Bad Request", b"bad_request")


@implementer(IUnsent)
class Wire(StringTransport):
    """A transport in memory that notes how it is closed."""

    unsent = 0
    half_closed = False
    writes = 0

    def write(self, data: bytes) -> None:
        self.writes += 1
        super().write(data)

    def loseWriteConnection(self) -> None:
        self.half_closed = True

    @property
    def aborted(self) -> bool:
        return self.disconnected


@implementer(IPushProducer)
class Producer:
    def pauseProducing(self) -> None:
        """Nothing to pause."""

    resumeProducing = stopProducing = pauseProducing


class Body:
    """Receives a body into ``log``; calls ``then`` at its end."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.log: list[object] = []
        self.then = then

    def body_received(self, data: bytes) -> None:
        self.log.append(data)

    def body_ended(self) -> None:
        self.log.append("end")
        self.then()

    def body_stalled(self) -> None:
        self.log.append("stalled")


class ServerCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.exchanges: list[Exchange] = []
        self.lost: list[bytes] = []
        self.application: Callable[[Exchange], None] = lambda exchange: None
        self.factory = HTTPServerFactory(self.clock, self.received, refusal)
        self.server, self.wire = self.connect()

    def received(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)
        target = exchange.head.target
        exchange.lost = lambda: self.lost.append(target)
        self.application(exchange)

    def connect(self) -> tuple[HTTPServerProtocol, Wire]:
        server = self.factory.buildProtocol(PEER)
        assert isinstance(server, HTTPServerProtocol)
        wire = Wire(peerAddress=PEER)
        server.makeConnection(wire)
        return server, wire

    def receive(self, data: bytes) -> None:
        self.server.dataReceived(data)

    def sent(self) -> bytes:
        """What was written since the last call."""
        data: bytes = self.wire.value()
        self.wire.clear()
        return data

    def assert_lingers(self) -> None:
        """Our half is closed; the rest follows when the client closes, or 2 s after all is sent."""
        self.assertTrue(self.wire.half_closed)
        self.assertFalse(self.wire.disconnecting)


def answer_ok(exchange: Exchange) -> None:
    exchange.respond(200, [], b"ok")


def read_then_answer(exchange: Exchange) -> None:
    exchange.read_body(Body(lambda: answer_ok(exchange)))
