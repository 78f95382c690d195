"""The HTTP client on real sockets: what only they can show."""

from __future__ import annotations

import gc
import socket
from typing import TYPE_CHECKING, Any

from service_identity import CertificateError
from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import wrapClientTLS
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.protocol import Factory, Protocol, ServerFactory
from twisted.internet.ssl import CertificateOptions, KeyPair, optionsForClientTLS
from twisted.internet.tcp import Connector
from twisted.trial.unittest import TestCase

from pair.protocols.calls import Target, UpstreamFailure
from pair.protocols.eager import EagerClient, _Dial, _EagerConnector, eager_endpoint
from pair.protocols.pool import ClientPool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twisted.internet.interfaces import IStreamClientEndpoint

    from pair.protocols.response import ResponseHead

reactor: Any = global_reactor

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Engine(Protocol):
    """Answers each request head with the next answer of its factory; None closes instead."""

    factory: EngineFactory
    transport: Any

    def connectionMade(self) -> None:
        self.factory.connections.append(self)

    def dataReceived(self, data: bytes) -> None:
        self.factory.received += data
        if not data.endswith(b"\r\n\r\n"):
            return
        answer = self.factory.answers.pop(0)
        if answer is None:
            self.transport.loseConnection()
        else:
            self.transport.write(answer)


class EngineFactory(ServerFactory):
    noisy = False
    protocol: Any = Engine

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.connections: list[Engine] = []
        self.received = b""


class Outcome:
    """A receiver whose Deferred fires with the body or the failure."""

    def __init__(self) -> None:
        self.done: Deferred[bytes | UpstreamFailure] = Deferred()
        self.body = b""

    def head_received(self, head: ResponseHead) -> None:
        """Any head will do."""

    def body_received(self, raw: bytes, parts: Sequence[bytes]) -> None:
        self.body += b"".join(parts)

    def response_ended(self) -> None:
        self.done.callback(self.body)

    def response_lost(self, failure: UpstreamFailure) -> None:
        self.done.callback(failure)


def endpoint_of(target: Target) -> IStreamClientEndpoint:
    endpoint = eager_endpoint(reactor, target.host, target.port)
    return wrapClientTLS(optionsForClientTLS(target.host), endpoint) if target.tls else endpoint


class ClientTests(TestCase):
    def setUp(self) -> None:
        self.pool = ClientPool(reactor, endpoint_of)
        self.addCleanup(self.pool.close)

    def listen(self, factory: EngineFactory, tls: bool = False) -> int:
        if tls:
            key = KeyPair.generate()
            certificate = key.selfSignedCert(1, CN=b"localhost")
            options = CertificateOptions(privateKey=key.original, certificate=certificate.original)
            port = reactor.listenSSL(0, factory, options, interface="127.0.0.1")
        else:
            port = reactor.listenTCP(0, factory, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        return int(port.getHost().port)

    async def send(self, port: int, tls: bool = False, body: bytes = b"") -> bytes | UpstreamFailure:
        outcome = Outcome()
        self.pool.send(Target("engine", "127.0.0.1", port, b"localhost", tls), GET, body, outcome)
        return await outcome.done

    async def test_given_up(self) -> None:
        """A connection that nobody waits for any more is not made."""
        port = self.listen(EngineFactory())
        connecting = eager_endpoint(reactor, "127.0.0.1", port).connect(Factory())
        connecting.cancel()
        await self.assertFailure(connecting, ConnectingCancelledError)

    async def test_nothing_left(self) -> None:
        """Of what made a connection nothing stays with it, and nothing waits for the collector."""
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        self.assertEqual(await self.send(self.listen(EngineFactory(OK))), b"ok")
        self.assertEqual(len(self.pool._open), 1)
        left = {type(each) for each in gc.get_objects()}
        self.assertEqual(left & {_Dial, _EagerConnector}, set())

    async def test_reused(self) -> None:
        """Two requests share one eager connection, undelayed and kept alive (AR-8, PX-52, PX-67)."""
        engine = EngineFactory(OK, OK)
        port = self.listen(engine)
        self.assertEqual([await self.send(port), await self.send(port)], [b"ok", b"ok"])
        self.assertEqual(len(engine.connections), 1)
        (connection,) = self.pool._open
        transport = connection.transport
        assert isinstance(transport, EagerClient)
        self.assertEqual(transport.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), 1)
        self.assertEqual(transport.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE), 30)
        self.assertIn("_makeTransport", vars(Connector))  # Else Twisted moved what we replace.

    async def test_closed_under_us(self) -> None:
        """An engine that closes the used connection on the next request sees that request again, once (PX-50)."""
        engine = EngineFactory(OK, None, OK)
        port = self.listen(engine)
        self.assertEqual([await self.send(port), await self.send(port)], [b"ok", b"ok"])
        self.assertEqual((len(engine.connections), engine.received), (2, GET * 3))

    async def test_long_body(self) -> None:
        """A body of many pieces arrives whole."""
        engine = EngineFactory(OK)
        port = self.listen(engine)
        body = bytes(range(256)) * 20_000 + b"\r\n\r\n"
        self.assertEqual(await self.send(port, body=body), b"ok")
        self.assertEqual(engine.received, GET + body)

    async def test_nobody(self) -> None:
        """A port where nobody listens: ``connect``."""
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            self.assertEqual(await self.send(unused.getsockname()[1]), UpstreamFailure("connect"))

    async def test_tls_not_trusted(self) -> None:
        """A certificate that nobody vouches for: ``tls``, and no byte of the request leaves."""
        engine = EngineFactory()
        self.assertEqual(await self.send(self.listen(engine, tls=True), tls=True), UpstreamFailure("tls"))
        self.assertEqual(engine.received, b"")
        self.flushLoggedErrors(CertificateError)  # Twisted logs why.

    async def test_no_tls(self) -> None:
        """A plain answer to a handshake: ``tls``."""

        class Plain(Protocol):
            transport: Any

            def dataReceived(self, data: bytes) -> None:
                self.transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        engine = EngineFactory()
        engine.protocol = Plain
        self.assertEqual(await self.send(self.listen(engine), tls=True), UpstreamFailure("tls"))

    async def test_reset(self) -> None:
        """A reset after part of the answer: ``broken``."""
        engine = EngineFactory(OK[:-1])
        port = self.listen(engine)
        outcome = Outcome()
        self.pool.send(Target("engine", "127.0.0.1", port, b"localhost"), GET, b"", outcome)
        seen: Deferred[None] = Deferred()
        outcome.head_received = lambda head: reactor.callLater(0, seen.callback, None)  # type: ignore[method-assign]
        await seen
        engine.connections[0].transport.abortConnection()
        self.assertEqual(await outcome.done, UpstreamFailure("broken"))
