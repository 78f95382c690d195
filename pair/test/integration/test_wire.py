"""The server on real sockets: what only they can show."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from pair.protocols.eager import EagerServer, listen_eager
from pair.protocols.firstbyte import FirstByteFactory
from pair.protocols.http_server import Exchange, Framing, HTTPServerFactory

if TYPE_CHECKING:
    from twisted.internet.interfaces import IListeningPort

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
reactor: Any = global_reactor


class Client(Protocol):
    """Collects until the server closes."""

    transport: Any

    def __init__(self) -> None:
        self.data = b""
        self.closed: Deferred[bytes] = Deferred()
        self.awaited: tuple[bytes, Deferred[None]] | None = None

    def dataReceived(self, data: bytes) -> None:
        self.data += data
        if self.awaited is not None and self.awaited[0] in self.data:
            (_, seen), self.awaited = self.awaited, None
            seen.callback(None)

    def connectionLost(self, reason: object = None) -> None:
        self.closed.callback(self.data)

    def sees(self, data: bytes) -> Deferred[None]:
        seen: Deferred[None] = Deferred()
        self.awaited = (data, seen)
        self.dataReceived(b"")
        return seen


def upload_then_read(port: IListeningPort, head: bytes, size: int) -> bytes:
    """What a blocking client gets that looks for an answer when it has sent all. Runs in a thread."""
    address = port.getHost()
    with socket.create_connection((address.host, address.port), 10) as connection:  # type: ignore[attr-defined]
        connection.sendall(head)
        connection.sendall(bytes(size))
        received = b""
        while data := connection.recv(65536):
            received += data
        return received


class ServerTests(TestCase):
    timeout = 20

    def setUp(self) -> None:
        self.exchanges: list[Exchange] = []
        self.lost: Deferred[None] = Deferred()
        self.served: Deferred[Exchange] = Deferred()
        self.http = HTTPServerFactory(reactor, self.received, lambda status, code: ((), code.encode()))
        self.port: IListeningPort = listen_eager(reactor, 0, FirstByteFactory(reactor, self.http), "127.0.0.1")

    async def tear_down(self) -> None:
        await maybeDeferred(self.port.stopListening)
        self.http.abort_all()
        await self.http.drain()

    def tearDown(self) -> Deferred[None]:  # type: ignore[override]
        return Deferred.fromCoroutine(self.tear_down())

    def received(self, exchange: Exchange) -> None:
        exchange.lost = lambda: self.lost.callback(None)
        self.exchanges.append(exchange)
        self.served.callback(exchange)

    async def connect(self) -> Client:
        client: Client = await connectProtocol(
            TCP4ClientEndpoint(reactor, "127.0.0.1", self.port.getHost().port),  # type: ignore[attr-defined]
            Client(),
        )
        return client

    async def test_accepted_socket(self) -> None:
        """An accepted socket has inherited the options of its port (PX-67), and is eager."""
        client = await self.connect()
        client.transport.write(GET)
        exchange = await self.served
        transport = exchange._connection.transport
        self.assertIsInstance(transport, EagerServer)
        for name, value in ((socket.TCP_NODELAY, 1), (socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPCNT, 3)):
            self.assertEqual(transport.getHandle().getsockopt(socket.IPPROTO_TCP, name), value)
        self.assertTrue(transport.getTcpKeepAlive())

    async def test_answer_survives_an_unread_body(self) -> None:
        """A client that sends all of a refused upload before it looks finds the answer, not a reset."""
        answer = deferToThread(
            upload_then_read, self.port, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 30000000\r\n\r\n", 30_000_000
        )
        (await self.served).respond(413, [], b"too large")
        data = await answer
        self.assertTrue(data.startswith(b"HTTP/1.1 413 "))
        self.assertTrue(data.endswith(b"too large"))

    async def test_half_close(self) -> None:
        """A client that half-closes in mid-answer is noticed at once (PX-61)."""
        client = await self.connect()
        client.transport.write(GET)
        exchange = await self.served
        exchange.begin(200, None, [], Framing.CHUNKED, b"token")
        await client.sees(b"token")
        client.transport.loseWriteConnection()
        await self.lost
        await client.closed

    async def test_reset(self) -> None:
        """So is one whose connection breaks."""
        client = await self.connect()
        client.transport.write(GET)
        exchange = await self.served
        exchange.begin(200, None, [], Framing.CHUNKED, b"token")
        await client.sees(b"token")
        client.transport.abortConnection()
        await self.lost

    async def test_tls_is_refused(self) -> None:
        """A ClientHello gets an alert and the close."""
        client = await self.connect()
        client.transport.write(bytes.fromhex("160301000548656c6c6f"))
        self.assertEqual(await client.closed, bytes.fromhex("15030300020228"))

    async def test_big_answer(self) -> None:
        """An answer of more than the socket takes arrives whole, and the connection serves on."""
        client = await self.connect()
        client.transport.write(GET)
        exchange = await self.served
        exchange.respond(200, [], bytes(5_000_000) + b"end")
        await client.sees(b"end")
        self.served = Deferred()
        client.transport.write(GET)
        (await self.served).respond(200, [], b"second")
        await client.sees(b"second")
