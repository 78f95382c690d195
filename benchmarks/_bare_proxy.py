"""The least that a proxy on Twisted and httptools does: ``python _bare_proxy.py PORT ENGINE_PORT``.

It parses a request, sends it on a kept connection, and passes the answer on
until its parser says that it is whole. Nothing is checked, chosen, counted,
kept or retried: what PAIR costs beyond this is PAIR.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from httptools import HttpRequestParser, HttpResponseParser

from pair.protocols.reactor import install

install()

from twisted.internet import reactor  # noqa: E402 - after the one of PAIR is installed
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol  # noqa: E402
from twisted.internet.protocol import Protocol, ServerFactory, connectionDone  # noqa: E402

if TYPE_CHECKING:
    from twisted.python.failure import Failure

IDLE: list[Engine] = []


class Engine(Protocol):
    """A connection to the engine."""

    def __init__(self) -> None:
        self.client: Client | None = None
        self._begin()

    def _begin(self) -> None:
        self._whole = False
        self._parser = HttpResponseParser(self)

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)  # type: ignore[union-attr]

    def on_message_complete(self) -> None:
        self._whole = True

    def dataReceived(self, data: bytes) -> None:
        assert self.client is not None
        self._parser.feed_data(data)
        self.client.transport.write(data)  # type: ignore[union-attr]
        if self._whole:
            self._begin()
            self.client = None
            IDLE.append(self)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self in IDLE:
            IDLE.remove(self)


class Client(Protocol):
    """A client's connection."""

    def connectionMade(self) -> None:
        self.transport.setTcpNoDelay(True)  # type: ignore[union-attr]
        self._parser = HttpRequestParser(self)
        self._url = b""
        self._fields: list[bytes] = []
        self._body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append(name + b": " + value)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        first = b"%b %b HTTP/1.1" % (self._parser.get_method(), self._url)
        sent = b"\r\n".join((first, *self._fields, b"", b"".join(self._body)))
        self._fields, self._body = [], []
        if IDLE:
            self._send(IDLE.pop(), sent)
        else:
            endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", int(sys.argv[2]))
            connectProtocol(endpoint, Engine()).addCallback(self._send, sent)

    def _send(self, engine: Engine, sent: bytes) -> None:
        engine.client = self
        engine.transport.write(sent)  # type: ignore[union-attr]

    def dataReceived(self, data: bytes) -> None:
        self._parser.feed_data(data)


if __name__ == "__main__":
    clients = ServerFactory()
    clients.protocol = Client
    reactor.listenTCP(int(sys.argv[1]), clients, 4096, "127.0.0.1")
    reactor.run()
