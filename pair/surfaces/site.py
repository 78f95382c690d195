"""The web server in front of every Klein app: rules first, then routing, bodies in memory (AR-19).

``twisted.web`` calls a resource only when the whole body is here, and keeps a
large one in a temporary file; so the rules are applied in ``gotLength``, where
the head is complete and nothing else has been read. It must not know what a
surface serves: that is its resource, and who may ask is its guard.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import ISSLTransport
from twisted.web import http
from twisted.web.server import Request, Site

from pair.authority import unwrap
from pair.cluster.limits import Sparing, source_of
from pair.logs import Logger
from pair.privacy import clean_text
from pair.surfaces.refusals import Refusal, error_body, new_error_id
from pair.surfaces.rules import BAD_REQUEST, SECURITY_FIELDS, Guard, Head, Peer, check_body, path_of, too_large

if TYPE_CHECKING:
    from twisted.internet.interfaces import IDelayedCall, IReactorTime, ITCPTransport, ITransport
    from twisted.python.failure import Failure
    from twisted.web.resource import IResource

DISCARDED = 4 * 1024 * 1024
"""Octets of a refused body that are read and thrown away, so that a reset does not overtake our answer."""

GRACE = 0.4
"""Seconds that connections have to take what was written to them when the site closes."""

REQUEST_SECONDS = 20.0
"""For the whole of a first request, from the beginning of its connection."""

IDLE_SECONDS = 60.0
"""For a further one on the same connection, from the end of the last answer."""

CONNECTIONS_MAX = 256
"""Open ones to one site: other programs here, or strangers, must not take all descriptors of this process."""

CONNECTIONS_OF_ONE = 64
"""Those of one source, so that a stranger does not shut the members out."""


class Room(Struct, frozen=True):
    """How many connections a site may have, and of one source, which is what ``source`` makes of an IP literal."""

    most: int = CONNECTIONS_MAX
    of_one: int = CONNECTIONS_OF_ONE
    source: Callable[[str], str] = source_of


ROOM = Room()

log = Logger()


def peer_of(transport: ITransport) -> Peer:
    """Who is at the other end of a connection; if it is under TLS, the handshake must be done."""
    address = transport.getPeer()
    assert isinstance(address, IPv4Address | IPv6Address), "sites are served over TCP"
    host = unwrap(address.host)
    if isinstance(address, IPv6Address) and address.scopeID:
        host = f"{host.partition('%')[0]}%{_zone(address.scopeID)}"
    return Peer(host, ISSLTransport.providedBy(transport), getattr(transport, "peerLeaf", None))


def _zone(number: int | str) -> str:
    """The name of an interface; its number as text where it has gone."""
    try:
        return socket.if_indextoname(int(number))
    except (OSError, ValueError):
        return str(number)


class SurfaceChannel(http.HTTPChannel):
    """A connection. Beyond its base it is known to its site, and its own 400 looks like every other refusal."""

    site: SurfaceSite
    requests: list[SurfaceRequest]
    transport: ITCPTransport
    source: str
    _peer: Peer | None = None
    _deadline: IDelayedCall | None = None

    def connectionMade(self) -> None:
        """Begin to serve."""
        super().connectionMade()
        self.source = self.site.room.source(unwrap(self.transport.getPeer().host))
        self.site.channels.add(self)
        self._expect_request(REQUEST_SECONDS)

    @property
    def peer(self) -> Peer:
        """Who is at the other end. Over TLS it is known from the first request on, as the handshake is done then."""
        if self._peer is None:
            self._peer = peer_of(self.transport)
        return self._peer

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        """Let the request in flight know."""
        self.expect_nothing()
        super().connectionLost(reason)
        self.site.lost(self)

    def expect_nothing(self) -> None:
        """The request is here: its answer may take as long as it takes."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expect_request(self, seconds: float) -> None:
        self.expect_nothing()
        self._deadline = self.site.reactor.callLater(seconds, self._too_late)

    def _too_late(self) -> None:
        self._deadline = None
        self.transport.abortConnection()

    def head(self, request: SurfaceRequest, length: int | None) -> Head | None:
        """The head just read, or None where its target is none."""
        path = path_of(self._path)
        if path is None:
            return None
        fields = tuple(
            (name.lower(), value) for name, values in request.requestHeaders.getAllRawHeaders() for value in values
        )
        return Head(self._command.decode("latin-1"), path, fields, length, self.peer)

    def requestDone(self, request: SurfaceRequest) -> None:  # noqa: N802 - Twisted's
        """An answer is complete; the connection ends with one that says so."""
        if request.responseHeaders.getRawHeaders(b"Connection") == [b"close"]:
            self.persistent = False
        self._expect_request(IDLE_SECONDS)
        super().requestDone(request)

    def lineLengthExceeded(self, line: bytes) -> None:  # noqa: N802 - Twisted's
        """A line of the head is too long."""
        self._respondToBadRequestAndDisconnect()

    def _respondToBadRequestAndDisconnect(self) -> None:  # noqa: N802 - Twisted's, and private: a test sees that it is still called
        if self.requests and self.requests[-1].refused:
            self.loseConnection()
            return
        request = self.requests[-1] if self.requests else SurfaceRequest(self)
        request.refuse(BAD_REQUEST)
        self.loseConnection()


class SurfaceRequest(Request):
    """A request that its surface's guard must let pass before a byte of its body is taken."""

    channel: SurfaceChannel
    content: BytesIO
    defaultContentType = None  # noqa: N815 - Twisted's
    refused = False
    _discarded = 0
    _limit = 0

    def __init__(self, channel: SurfaceChannel, *args: Any, **kwargs: Any) -> None:
        super().__init__(channel, *args, **kwargs)
        for name, value in SECURITY_FIELDS:
            self.responseHeaders.setRawHeaders(name, [value])

    def gotLength(self, length: int | None) -> None:
        """Decide by the head; a body of ``length`` octets (None: chunked) is yet to come."""
        self.content = BytesIO()
        guard = self.channel.site.guard
        head = self.channel.head(self, length)
        if head is None:
            self.refuse(BAD_REQUEST)
            return
        refusal = guard.check(head)
        if refusal is None:
            self._limit = guard.body_limit(head)
            refusal = check_body(head, self._limit)
        if refusal is not None:
            self.refuse(refusal)

    @property
    def peer(self) -> Peer:
        """Who asks."""
        return self.channel.peer

    def handleContentChunk(self, data: bytes) -> None:
        """Keep ``data`` of the body, as far as the guard allows."""
        if self.refused:
            self._discarded += len(data)
            if self._discarded > DISCARDED:
                self.channel.loseConnection()
        elif self.content.tell() + len(data) > self._limit:
            self.refuse(too_large(self._limit))
        else:
            self.content.write(data)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """The body is complete: hand the request on, or hang up if it was refused."""
        if self.refused:
            self.channel.loseConnection()
        else:
            self.channel.expect_nothing()
            super().requestReceived(command, path, version)

    def refuse(self, refusal: Refusal) -> None:
        """Answer with ``refusal``; the connection is closed as soon as the client has said all.

        The answer goes around ``Request.write`` and ``finish``, which the
        channel does not expect before a request is complete.
        """
        self.refused = True
        # Else the channel sends a 100 behind our answer.
        self.requestHeaders.removeHeader(b"Expect")
        error_id = new_error_id()
        body = error_body(refusal, error_id)
        for name, value in (
            (b"Content-Type", b"application/json"),
            (b"Content-Length", b"%d" % len(body)),
            (b"Connection", b"close"),
            *refusal.fields,
        ):
            self.responseHeaders.setRawHeaders(name, [value])
        reason = http.RESPONSES.get(refusal.status, b"Refused")
        self.channel.writeHeaders(b"HTTP/1.1", b"%d" % refusal.status, reason, self.responseHeaders)
        if getattr(self.channel, "_command", b"") != b"HEAD":
            self.channel.write(body)
        if self.channel.site.worth_a_line(self.channel.peer):
            log.debug(
                "A request was refused: {status} {code} ({id}).", status=refusal.status, code=refusal.code, id=error_id
            )


class SurfaceSite(Site):
    """Serves one Klein app.

    Args:
        resource: the app's resource.
        guard: who may ask what.
        reactor: for the time limits of connections.
        sparing: where strangers may ask: how often a line is written of requests of one source that were refused.
        room: for how many connections there is room.

    Attributes:
        channels: the open connections.
        room: for how many there is room.
    """

    noisy = False
    # Without Twisted's own wrapper, which would switch to HTTP/2 and to a channel that knows none of this.
    protocol = SurfaceChannel  # type: ignore[assignment]
    requestFactory = SurfaceRequest

    def __init__(
        self,
        resource: IResource,
        guard: Guard,
        reactor: IReactorTime,
        sparing: Sparing | None = None,
        room: Room = ROOM,
    ) -> None:
        # A form is no JSON; parsing one reads the Content-Type as an e-mail's.
        super().__init__(resource, parsePOSTFormSubmission=False, reactor=reactor)
        self.guard = guard
        self.room = room
        self.channels: set[SurfaceChannel] = set()
        self._sparing = sparing
        self._closing: Deferred[None] | None = None
        self._abort: IDelayedCall | None = None

    def buildProtocol(self, addr: Any) -> Any:
        """The protocol of a connection; None, so that it is closed, where there are too many."""
        if len(self.channels) >= self.room.most:
            return None
        if isinstance(addr, IPv4Address | IPv6Address):
            source = self.room.source(unwrap(addr.host))
            if sum(each.source == source for each in self.channels) >= self.room.of_one:
                return None
        return super().buildProtocol(addr)

    def startFactory(self) -> None:  # noqa: N802 - Twisted's
        """Nothing to start: there is no access log, and so no clock for its lines."""

    def stopFactory(self) -> None:  # noqa: N802 - Twisted's
        """Nothing was started."""

    def worth_a_line(self, peer: Peer) -> bool:
        """Whether to write that a request of ``peer`` was refused."""
        return self._sparing is None or self._sparing.worth(source_of(peer.address), self.reactor.seconds())

    def log(self, request: http.Request) -> None:
        """One line for an answered request, without its query (OP-34)."""
        assert isinstance(request, SurfaceRequest)
        if request.code >= 400 and not self.worth_a_line(request.peer):
            return
        log.debug(
            "{method} {path} was answered with {status}.",
            method=clean_text(request.method.decode("latin-1"), 16),
            path=clean_text(request.path.decode("latin-1")),
            status=request.code,
        )

    def close(self) -> Deferred[None]:
        """Close all connections; fires when they are gone. Call it when nothing listens for the site any more."""
        if not self.channels:
            return succeed(None)
        self._closing = closing = Deferred[None]()
        self._abort = self.reactor.callLater(GRACE, self._abort_all)
        for channel in tuple(self.channels):
            channel.loseConnection()
        return closing

    def lost(self, channel: SurfaceChannel) -> None:
        """A connection is gone."""
        self.channels.discard(channel)
        closing = self._closing
        if closing is not None and not self.channels:
            self._closing = None
            if self._abort is not None and self._abort.active():
                self._abort.cancel()
            closing.callback(None)

    def _abort_all(self) -> None:
        for channel in tuple(self.channels):
            channel.transport.abortConnection()
