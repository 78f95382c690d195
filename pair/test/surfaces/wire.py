"""A client of a site, without a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import ISSLTransport
from twisted.internet.testing import StringTransportWithDisconnection
from zope.interface import alsoProvides

if TYPE_CHECKING:
    from twisted.internet.interfaces import IAddress

    from pair.cluster.pins import PeerLeaf
    from pair.surfaces.site import SurfaceSite


class Answer(Struct):
    """A parsed answer; names of fields are in lower case."""

    status: int
    fields: list[tuple[str, str]]
    body: bytes

    def field(self, name: str) -> str | None:
        return next((value for each, value in self.fields if each == name), None)

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        code = self.json["error"]["code"]
        assert isinstance(code, str)
        return code


def unchunked(data: bytes) -> bytes:
    """A body from its chunks, the last of which may be yet to come."""
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        body, data = body + data[: int(size, 16)], data[int(size, 16) + 2 :]
    return body


class Transport(StringTransportWithDisconnection):
    """As a socket's, it says that it is closing before it is closed."""

    def loseConnection(self) -> None:
        self.disconnecting = True
        super().loseConnection()


class Secure(Transport):
    """As that of mutual TLS, whose handshake is done."""

    def __init__(self, leaf: PeerLeaf | None, address: IAddress) -> None:
        super().__init__(peerAddress=address)
        self.peerLeaf = leaf
        alsoProvides(self, ISSLTransport)

    def setTcpNoDelay(self, enabled: bool) -> None:
        """There is no socket."""


class Conversation:
    """One connection to ``site``; by default from this host, in the clear."""

    def __init__(self, site: SurfaceSite, transport: Transport | None = None) -> None:
        self.transport = transport or Transport()
        self.channel = site.buildProtocol(IPv4Address("TCP", "127.0.0.1", 40000))
        assert self.channel is not None
        self.transport.protocol = self.channel
        self.channel.makeConnection(self.transport)

    def send(self, data: bytes) -> None:
        self.channel.dataReceived(data)

    @property
    def answers(self) -> list[Answer]:
        """All that came back so far, without interim answers."""
        data, answers = self.transport.value(), []
        while data:
            head, _, data = data.partition(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            status = int(first.split(" ")[1])
            fields = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
            answer = Answer(status, fields, b"")
            length = int(answer.field("content-length") or 0)
            answer.body, data = data[:length], data[length:]
            if status >= 200:
                answers.append(answer)
        return answers

    @property
    def answer(self) -> Answer:
        """The only one."""
        (answer,) = self.answers
        return answer


def request(method: str, path: str, body: bytes | None = None, **fields: str | None) -> bytes:
    """The bytes of a request; ``host`` is ours unless given, an underscore in a name is a dash, None leaves it out."""
    named: dict[str, str | None] = {"host": "127.0.0.1:14300"}
    if body is not None:
        named |= {"content-length": str(len(body)), "content-type": "application/json"}
    named |= {name.replace("_", "-"): value for name, value in fields.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items() if value is not None)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")
