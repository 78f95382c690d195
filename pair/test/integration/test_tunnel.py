"""Tunnels on real sockets: what only they can show."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol
from twisted.trial.unittest import TestCase

from pair.protocols.eager import eager_endpoint, listen_eager
from pair.protocols.http_server import HTTPServerFactory
from pair.protocols.pool import ClientPool
from pair.proxy.admission import Admission
from pair.proxy.browser import BrowserPolicy
from pair.proxy.identity import Banners
from pair.proxy.listings import Listings
from pair.test.proxy.bench import Bench
from pair.test.routing.facts import engine

if TYPE_CHECKING:
    from twisted.internet.interfaces import IListeningPort, IStreamClientEndpoint

    from pair.protocols.calls import Target

reactor: Any = global_reactor

ASK = b"GET /llm HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
AGREED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
MIB = 1024 * 1024


class Echo(Protocol):
    """An engine that agrees to anything and, unless it is mute, says it all again.

    ``bye`` makes it close when that is sent.
    """

    transport: Any

    def __init__(self) -> None:
        self.agreed = self.mute = False
        self.received = b""
        self.closed: Deferred[None] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        if not self.agreed:
            self.agreed = True
            self.transport.write(AGREED)
            return
        self.received += data
        if not self.mute:
            self.transport.write(data)
        if data.endswith(b"bye"):
            self.transport.loseConnection()

    def connectionLost(self, reason: object = None) -> None:
        self.closed.callback(None)


class Client(Protocol):
    """A client that keeps what it gets."""

    transport: Any

    def __init__(self) -> None:
        self.received = b""
        self.closed: Deferred[None] = Deferred()
        self.awaited: tuple[int, Deferred[None]] = (0, Deferred())

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        size, seen = self.awaited
        if len(self.received) >= size and not seen.called:
            seen.callback(None)

    def connectionLost(self, reason: object = None) -> None:
        self.closed.callback(None)

    def has(self, size: int) -> Deferred[None]:
        """Fires when so much has come."""
        self.awaited = (size, Deferred())
        self.dataReceived(b"")
        return self.awaited[1]


class TunnelTests(TestCase):
    timeout = 20

    def setUp(self) -> None:
        self.engines: list[Echo] = []
        self.bench = bench = Bench(engine("lmstudio", name="s"), facade="lmstudio")
        self.pool = ClientPool(reactor, self.endpoint)
        self.plane = dataclasses.replace(bench.plane, clock=reactor, pool=self.pool)
        listings = Listings(reactor, bench.engines, bench.scheduling.catalogue.nodes, 1.5, False)
        admission = Admission(self.plane, "lmstudio", BrowserPolicy(), listings, Banners(bench.engines), "n", "run")
        self.http = HTTPServerFactory(reactor, admission.received, lambda status, code: ((), b""))
        self.engine_port: Any = reactor.listenTCP(0, Factory.forProtocol(self.echo), interface="127.0.0.1")
        self.port: Any = listen_eager(reactor, 0, self.http, "127.0.0.1")

    def echo(self) -> Echo:
        self.engines.append(Echo())
        return self.engines[-1]

    def endpoint(self, target: Target) -> IStreamClientEndpoint:
        return eager_endpoint(reactor, "127.0.0.1", self.engine_port.getHost().port)

    async def tear_down(self) -> None:
        ports: list[IListeningPort] = [self.port, self.engine_port]
        for port in ports:
            await maybeDeferred(port.stopListening)
        self.http.abort_all()
        await self.http.drain()
        await self.pool.close()
        self.bench.close()

    def tearDown(self) -> Deferred[None]:  # type: ignore[override]
        return Deferred.fromCoroutine(self.tear_down())

    async def open(self) -> Client:
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", self.port.getHost().port)
        client: Client = await connectProtocol(endpoint, Client())
        client.transport.write(ASK)
        await client.has(len(AGREED))
        self.assertEqual(client.received, AGREED)
        return client

    async def test_a_mebibyte_and_the_engine_closes(self) -> None:
        """1 MiB goes there and comes back whole, with the end right behind it (PX-75)."""
        client = await self.open()
        data = bytes(range(256)) * (MIB // 256) + b"bye"
        client.transport.write(data)
        await client.closed
        self.assertEqual(client.received, AGREED + data)
        self.assertEqual(self.plane.underway, {})

    async def test_the_client_closes_behind_its_last_bytes(self) -> None:
        """The engine has them before the end."""
        client = await self.open()
        self.engines[0].mute = True  # What a client leaves unread would make a reset of its close.
        data = bytes(MIB)
        client.transport.write(data)
        client.transport.loseConnection()
        await self.engines[0].closed
        self.assertEqual(len(self.engines[0].received), len(data))

    async def test_the_client_is_cut(self) -> None:
        """The engine sees it too."""
        client = await self.open()
        client.transport.write(b"hi")
        await client.has(len(AGREED) + 2)
        client.transport.abortConnection()
        await self.engines[0].closed
        self.assertEqual(self.plane.underway, {})
