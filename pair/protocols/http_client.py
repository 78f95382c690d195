"""HTTP/1.1 as a client: a call, and the connection that carries it.

Between the socket and the receiver of a response there is one parser feed and
one call a read; nothing is logged, timed or looked up there. Which connection
carries a call is the pool's (:mod:`pair.protocols.pool`); what a failure means
is the caller's.
"""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, TCPTimedOutError
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.internet.interfaces import IHandshakeListener, IPushProducer
from twisted.internet.protocol import Protocol, connectionDone
from zope.interface import implementer

from pair.protocols.calls import FailureKind, ResponseReceiver, Target, UpstreamFailure
from pair.protocols.eager import keep_alive
from pair.protocols.response import MalformedResponseError, ResponseReader
from pair.protocols.upload import PIECE, Pieces, Upload

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IReactorTime
    from twisted.python.failure import Failure

    from pair.protocols.upload import IDuplex


class DialTimeoutError(Exception):
    """There was no connection, or no finished handshake, in time."""


class HandshakeError(Exception):
    """The connection ended before TLS was agreed on."""


class ConnectionOwner(typing.Protocol):
    """Who is told of a connection."""

    def served(self, connection: ClientConnection, resting: bytes | None) -> None:
        """A response has ended, and another call may follow; ``resting`` is the value of its ``Keep-Alive``."""

    def gone(self, connection: ClientConnection) -> None:
        """It is closed."""


@implementer(IHandshakeListener)
class ClientConnection(Protocol):
    """One connection to a target. It carries one call, or waits for the next.

    Bytes that come while it waits end it: nobody asked for them.
    """

    transport: IDuplex

    def __init__(self, target: Target, owner: ConnectionOwner) -> None:
        """Not connected yet; ``target`` is what it leads to."""
        self.target = target
        self.reusable = True
        self.idle_until = 0.0
        """For the pool's use while it is parked."""
        self.handshake: Deferred[ClientConnection] | None = Deferred(self._abandon) if target.tls else None
        """Fires with the connection when TLS is agreed on; None where there is nothing to wait for."""
        self._owner = owner
        self._call: Call | None = None
        self._reader = ResponseReader()

    def connectionMade(self) -> None:
        """Implement :class:`IProtocol`."""
        skt = getattr(self.transport, "socket", None)  # TLS passes on what its socket has.
        if skt is not None:
            keep_alive(skt)

    def carry(self, call: Call) -> None:
        """Serve ``call`` from now on."""
        self._call = call
        self._reader.begin(call.head_only, call.upgrade)
        call.reader = self._reader

    def abort(self) -> None:
        """Close at once; a call on it hears nothing more."""
        self._call = None
        self.transport.abortConnection()

    def handshakeCompleted(self) -> None:
        """Implement :class:`IHandshakeListener`."""
        handshake, self.handshake = self.handshake, None
        if handshake is not None:
            handshake.callback(self)

    def dataReceived(self, data: bytes) -> None:
        """Parse first, deliver after (PX-58)."""
        call = self._call
        if call is None:
            self.reusable = False
            self.transport.abortConnection()
            return
        reader = self._reader
        headless = reader.headless
        try:
            raw, parts = reader.feed(data)
        except MalformedResponseError:
            self.abort()
            call.lost("framing")
            return
        if headless:
            head, reader.head = reader.head, None
            if head is None:
                if call.stirred is not None:
                    call.stirred()
                return
            call.forget_request()
            call.receiver.head_received(head)
            if self._call is not call:
                return
        if raw:
            call.receiver.body_received(raw, parts)
        if reader.complete and self._call is call:
            self._response_ended(call)

    def _response_ended(self, call: Call) -> None:
        reader = self._reader
        self._call = None
        if self.reusable and reader.keep_alive and call.sent and not reader.surplus and not call.head_only:
            if call.paused:
                self.transport.resumeProducing()
            self._owner.served(self, reader.resting)
        elif call.sent:
            self.transport.loseConnection()
        else:
            self.transport.abortConnection()
        call.ended()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Implement :class:`IProtocol`."""
        self._owner.gone(self)
        handshake, self.handshake = self.handshake, None
        if handshake is not None:
            handshake.errback(HandshakeError())
        call, self._call = self._call, None
        reader = self._reader
        if call is not None:
            if reader.until_close and reason.check(ConnectionDone):
                call.ended()
            else:
                call.lost("broken" if call.sent else "write", reader.at_boundary())

    def _abandon(self, handshake: Deferred[ClientConnection]) -> None:
        self.handshake = None
        self.transport.abortConnection()


class Dialler(typing.Protocol):
    """Makes connections."""

    def dial(self, target: Target) -> Deferred[ClientConnection]:
        """A new connection, ready to carry a call. To cancel it is to give the connection up."""


@implementer(IPushProducer)
class Call:
    """One request and its response, as the caller sees them.

    As a producer it is what a consumer of the response pauses and resumes
    (PX-59). Made by :meth:`pair.protocols.pool.ClientPool.send`.
    """

    __slots__ = (
        "_body",
        "_clock",
        "_complete",
        "_connection",
        "_dialler",
        "_dialling",
        "_head",
        "_over",
        "_received",
        "_reused",
        "_upload",
        "_upload_seconds",
        "head_only",
        "paused",
        "reader",
        "receiver",
        "sent",
        "stirred",
        "target",
        "upgrade",
    )

    def __init__(
        self,
        target: Target,
        head: bytes,
        body: bytes | None,
        receiver: ResponseReceiver,
        head_only: bool,
        upgrade: bool,
        clock: IReactorTime,
        upload_seconds: float,
        dialler: Dialler,
    ) -> None:
        """Not started; see :meth:`start`."""
        self.target = target
        self.receiver = receiver
        """May be replaced while the response comes; the new one hears what follows."""
        self.head_only = head_only
        self.upgrade = upgrade
        self.reader: ResponseReader | None = None
        """Of the connection, while it is this call's."""
        self.sent = False
        """The socket has taken the whole request, or there is no more of it than one write."""
        self.paused = False
        self.stirred: Callable[[], None] | None = None
        """Set by the caller: called when something has come that is no head yet, as an interim response (PX-55)."""
        self._head = head
        self._body = body
        self._clock = clock
        self._upload_seconds = upload_seconds
        self._dialler = dialler
        self._over = False
        self._received = 0
        self._complete = False
        self._reused = False
        self._dialling: Deferred[None] | None = None
        self._connection: ClientConnection | None = None
        self._upload = self._new_upload() if body is None else None

    @property
    def received(self) -> int:
        """Octets of the response's body so far, chunk framing included. Sweeps compare it."""
        return self._received if self.reader is None else self.reader.received

    @property
    def complete(self) -> bool:
        """All of the response has come, though some of it may still be to be told."""
        return self._complete if self.reader is None else self.reader.complete

    @property
    def at_boundary(self) -> bool:
        """As in :class:`UpstreamFailure`, for who is about to abort the call: after this no more of it can be read."""
        return self.reader is not None and self.reader.at_boundary()

    @property
    def switched(self) -> IDuplex:
        """The connection of a call that was answered 101 and has not ended: the caller writes to it and closes it."""
        assert self._connection is not None, "a call that has ended has no connection"
        return self._connection.transport

    def start(self, connection: ClientConnection | None) -> None:
        """Send the request on ``connection``, which has served before, or else on a new one."""
        if connection is not None:
            self._reused = True
            self._send(connection)
        else:
            self._connect()

    def register_producer(self, source: IPushProducer) -> None:
        """Pause and resume ``source`` of a streamed body; it rests until there is a connection, and after the end."""
        if self._upload is not None:
            self._upload.draw_from(source)

    def write_body(self, data: bytes) -> None:
        """Go on with a streamed body: bytes as they go on the wire, chunk framing included."""
        if self._upload is not None and not self._over:
            self._upload.write(data)

    def end_body(self) -> None:
        """A streamed body is whole."""
        if self._upload is not None and not self._over:
            self._upload.end()

    def abort(self) -> None:
        """Give the call up: its connection is closed, or not made, and the receiver hears nothing more."""
        if self._over:
            return
        connection = self._connection
        self._finish()
        del self.receiver  # As in ``ended``.
        if connection is not None:
            connection.abort()
        elif self._dialling is not None:
            self._dialling.cancel()

    def pauseProducing(self) -> None:
        """Stop reading the response."""
        self.paused = True
        if self._connection is not None:
            self._connection.transport.pauseProducing()

    def resumeProducing(self) -> None:
        """Read the response again."""
        self.paused = False
        if self._connection is not None:
            self._connection.transport.resumeProducing()

    def stopProducing(self) -> None:
        """The consumer of the response is gone."""
        self.abort()

    # From its connection.

    def forget_request(self) -> None:
        """The response has begun: a request that was sent whole is never sent again, and takes no more memory."""
        self.stirred = self._dialling = None
        if self.sent:
            self._head, self._body, self._upload = b"", b"", None

    def ended(self) -> None:
        """The response is complete and the connection no longer this call's."""
        self._finish()
        self.stirred = None
        self.receiver.response_ended()
        del self.receiver  # It mostly refers to us; a cycle for each request would be work for the collector.

    def lost(self, kind: FailureKind, at_boundary: bool = False) -> None:
        """The connection is of no more use, and no longer this call's."""
        if self._reused and self._body is not None and not (self.reader is not None and self.reader.began):
            # It died while it was idle, and we learnt of it too late (PX-50).
            self._reused = self.sent = False
            self._connection = self.reader = None
            if self._upload is not None:
                self._upload.stop()
            self._connect()
            return
        self._fail(kind, at_boundary)

    def _connect(self) -> None:
        self._dialling = self._dialler.dial(self.target).addCallbacks(self._send, self._connect_failed)

    def _connect_failed(self, reason: Failure) -> None:
        """Tell of it in a later turn, for this may be within ``send``."""
        kind: FailureKind
        if reason.check(DialTimeoutError, ConnectTimeout, TCPTimedOutError):
            kind = "timeout"
        elif reason.check(HandshakeError):
            kind = "tls"
        else:
            kind = "connect"
        if not self._over:
            self._clock.callLater(0, self._give_up, kind)

    def _send(self, connection: ClientConnection) -> None:
        self._connection = connection
        connection.carry(self)
        transport = connection.transport
        if self.paused:
            transport.pauseProducing()
        body = self._body
        if body is None:
            assert self._upload is not None
            self._upload.start(transport, self._head)
        elif len(body) <= PIECE:
            self.sent = True
            transport.write(self._head + body)
        else:
            self._upload = self._new_upload()
            self._upload.draw_from(Pieces(body, self._upload))
            self._upload.start(transport, self._head)

    def _new_upload(self) -> Upload:
        return Upload(self._clock, self._upload_seconds, self._upload_sent, self._upload_stalled)

    def _upload_sent(self) -> None:
        self.sent = True

    def _upload_stalled(self) -> None:
        assert self._connection is not None
        self._connection.abort()
        self._give_up("write")

    def _give_up(self, kind: FailureKind) -> None:
        if not self._over:
            self._fail(kind)

    def _fail(self, kind: FailureKind, at_boundary: bool = False) -> None:
        self._finish()
        self.receiver.response_lost(UpstreamFailure(kind, at_boundary))
        del self.receiver  # As in ``ended``.

    def _finish(self) -> None:
        self._over = True
        self._received, self._complete = self.received, self.complete
        self._connection = self.reader = None
        upload, self._upload = self._upload, None  # It refers to us.
        if upload is not None and not self.sent:
            upload.stop()
