"""One client's connection: bytes to exchanges, one at a time and in order (PX-9 to PX-11, PX-61).

What to read next, what a silent client is allowed, back-pressure of the body
and the loss of the client are decided here; framing is the reader's business
and the answer the exchange's. What a request means is the application's.

A connection is no Automat machine, though it has states and limits: it passes
through three of them with each request, so they cost an attribute each.
"""

from __future__ import annotations

from enum import Enum
from ipaddress import IPv6Address
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from twisted.internet.interfaces import IHalfCloseableProtocol, ISSLTransport
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from zope.interface import implementer

from pair.protocols.eager import IUnsent
from pair.protocols.http1 import field_lines, status_line
from pair.protocols.http_exchange import Exchange
from pair.protocols.http_reader import Malformed, RequestReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.python.failure import Failure

    from pair.protocols.http_exchange import BodyReceiver
    from pair.protocols.http_server import HTTPServerFactory

log = Logger()

# A refused client may have much to send before it looks for the answer: what is thrown away of it, and for how long.
_DRAIN_BYTES, _DRAIN_SECONDS = 128 * 2**20, 2.0


class Limits(Struct, frozen=True):
    """What a client is allowed; kept to within a second."""

    head_bytes: int = 16384
    """The longest head (PX-9)."""
    fields: int = 100
    """The most fields in a head (PX-9)."""
    head_seconds: float = 10.0
    """From the first byte of a head to its last."""
    idle_seconds: float = 90.0
    """Between two requests, and without any progress in taking the last of an answer."""
    body_gap_seconds: float = 120.0
    """Without a byte of a body that is being read (PX-31)."""
    held_bytes: int = 65536
    """Bytes kept that are not to be understood yet (PX-11)."""


class _Phase(Enum):
    IDLE = "idle"  # Between two requests.
    HEAD = "head"  # Part of a head has come.
    BODY = "body"  # An exchange is open, and its body is being read.
    ANSWER = "answer"  # An exchange is open; nothing is expected of the client.
    SWITCHED = "switched"  # It carries another protocol.
    CLOSING = "closing"  # What still comes is thrown away.


@implementer(IHalfCloseableProtocol)
class HTTPServerProtocol(Protocol):
    """One client's connection: one exchange at a time, in the order of the requests."""

    factory: HTTPServerFactory
    transport: Any
    peer = ""
    deadline = inf
    """When the present phase has lasted too long, by the factory's clock."""

    def __init__(self, factory: HTTPServerFactory) -> None:
        self.factory = factory
        self._limits = factory.limits
        self._reader = RequestReader(factory.limits.head_bytes, factory.limits.fields)
        self._phase = _Phase.IDLE
        self._exchange: Exchange | None = None
        self._receiver: BodyReceiver | None = None
        self._switched: Callable[[bytes], None] | None = None
        self._held = b""  # Came, and is not understood yet.
        self._advancing = False
        self._paused = False
        self._drained = 0
        self._unsent_before = 0
        self._buffer: IUnsent | None = None

    # What the transport tells.

    def connectionMade(self) -> None:
        """A client has come; while the factory drains it is sent away."""
        self.peer = _unmapped(self.transport.getPeer().host)
        self._buffer = IUnsent(self.transport, None)
        self.factory.opened(self)
        self._enter(_Phase.IDLE, self._limits.idle_seconds)
        if self.factory.draining:
            self._close()

    def dataReceived(self, data: bytes) -> None:
        """Understand as much as may be understood now; keep the rest."""
        if self._phase is _Phase.CLOSING:
            self._drained += len(data)
            if self._drained > _DRAIN_BYTES:
                self.transport.abortConnection()
            return
        self._held = self._held + data if self._held else data
        self._advance()

    def readConnectionLost(self) -> None:
        """The client sends no more. With an exchange open that counts as gone (PX-61)."""
        if self._exchange is None:
            self._close()
        else:
            self.abort()

    def writeConnectionLost(self) -> None:
        """The last answer is sent and our half closed: wait a little for the client to close its own."""
        self.deadline = self.factory.clock.seconds() + _DRAIN_SECONDS

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The connection is gone, and with it the exchange that was open."""
        self._enter(_Phase.CLOSING)
        self._held = b""
        self._lose_exchange()
        self.factory.closed(self)

    # What the exchange asks.

    @property
    def unsent(self) -> int:
        """Octets written that the socket has not taken; 0 where the transport does not tell."""
        return 0 if self._buffer is None else self._buffer.unsent

    @property
    def reusable(self) -> bool:
        """Whether another request may follow: this one's body has been read, and nobody is stopping."""
        return self._reader.ended and not self.factory.draining

    def whole_body(self) -> bytes | None:
        """The body of the open exchange if it is here already; else nothing of it is taken."""
        if self._reader.ended:
            return b""
        if not self._reader.whole_in(len(self._held)):
            return None
        payload, used = self._reader.read_body(self._held)
        self._held = self._held[used:]
        return payload

    def read_body(self, receiver: BodyReceiver) -> None:
        """Begin to deliver the body of the open exchange."""
        exchange = self._exchange
        assert exchange is not None
        if self._reader.ended:
            self._call(receiver.body_ended)
            return
        if not exchange.begun and exchange.head.expects_continue and not self._held:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._receiver = receiver
        self.resume_body()

    def pause_body(self) -> None:
        """Stop reading while the body is not wanted."""
        if self._phase is _Phase.BODY:
            self._enter(_Phase.ANSWER)
            self._set_paused(True)
        elif self._phase is _Phase.SWITCHED:
            self._set_paused(True)

    def resume_body(self) -> None:
        """Read on, first what is held."""
        if self._phase is _Phase.SWITCHED:
            self._set_paused(False)
        elif self._receiver is not None:
            self._enter(_Phase.BODY, self._limits.body_gap_seconds)
            self._set_paused(False)
            self._advance()

    def switch(self, received: Callable[[bytes], None]) -> None:
        """The client's bytes are ``received``'s from now on, first those that are held."""
        self._switched = received
        self._enter(_Phase.SWITCHED)
        self._advance()

    def answered(self, reuse: bool) -> None:
        """The answer to the open exchange is written: close, or go on to the next request."""
        exchange, self._exchange, self._receiver = self._exchange, None, None
        assert exchange is not None
        if not reuse or self.factory.draining:
            # Where the client asked for the end it sends no more; else it was our choice, and it may.
            self._close(linger=exchange.keep_alive or not self._reader.ended)
            return
        self._set_paused(False)
        self._enter(_Phase.IDLE, self._limits.idle_seconds)
        self._advance()

    def abort(self) -> None:
        """Tell the open exchange that it is lost, and reset the connection."""
        self._enter(_Phase.CLOSING)
        self._lose_exchange()
        self.transport.abortConnection()

    # What the factory asks.

    def drain(self) -> None:
        """Close at the next moment at which no request is under way."""
        if self._phase is _Phase.IDLE:
            self._close()

    def timed_out(self) -> None:
        """The present phase has lasted too long."""
        self.deadline = inf
        match self._phase:
            case _Phase.HEAD:
                self._refuse(408, "request_timeout")
            case _Phase.BODY:
                assert self._receiver is not None
                self._call(self._receiver.body_stalled)
            case _:
                self._time_out_idle()

    def _time_out_idle(self) -> None:
        unsent = self.unsent
        if unsent and unsent != self._unsent_before:
            self._unsent_before = unsent
            self.deadline = self.factory.clock.seconds() + self._limits.idle_seconds
        elif unsent or self._phase is _Phase.CLOSING:
            self.transport.abortConnection()
        else:
            self._close()

    # From bytes to exchanges.

    def _enter(self, phase: _Phase, seconds: float = inf) -> None:
        self._phase = phase
        self.deadline = inf if seconds == inf else self.factory.clock.seconds() + seconds

    def _advance(self) -> None:
        """Understand what is held, step by step. A call from within a step is left to the loop that runs."""
        if self._advancing:
            return
        self._advancing = True
        while self._held and self._step():
            pass
        self._advancing = False

    def _step(self) -> bool:
        """Do one thing with what is held; whether there may be another."""
        phase = self._phase
        if phase is _Phase.IDLE or phase is _Phase.HEAD:
            return self._read_head()
        if phase is _Phase.BODY:
            return self._read_body()
        if phase is _Phase.SWITCHED:
            assert self._switched is not None
            data, self._held = self._held, b""
            self._call(self._switched, data)
        elif phase is _Phase.ANSWER and len(self._held) > self._limits.held_bytes:
            if self._reader.ended:
                self.abort()
            else:
                self._set_paused(True)
        return False

    def _read_head(self) -> bool:
        try:
            found = self._reader.read_head(self._held)
        except Malformed:
            self._refuse(400, "bad_request")
            return False
        if found is None:
            if self._phase is _Phase.IDLE:
                self._enter(_Phase.HEAD, self._limits.head_seconds)
            return False
        head, size = found
        self._held = self._held[size:]
        self._exchange = exchange = Exchange(head, self)
        self._phase, self.deadline = _Phase.ANSWER, inf
        try:
            self.factory.received(exchange)
        except Exception:  # noqa: BLE001 - it costs one request, not the connection's state
            self._failed(exchange)
        return True

    def _read_body(self) -> bool:
        exchange, receiver = self._exchange, self._receiver
        assert exchange is not None
        assert receiver is not None
        try:
            payload, used = self._reader.read_body(self._held)
        except Malformed:
            self._refuse(400, "bad_request")
            return False
        self._held = self._held[used:]
        ended = self._reader.ended
        if ended:
            self._receiver = None
            self._phase, self.deadline = _Phase.ANSWER, inf
        else:
            self._enter(_Phase.BODY, self._limits.body_gap_seconds)
        if payload:
            self._call(receiver.body_received, payload)
        if ended and not exchange.done:
            self._call(receiver.body_ended)
        return True

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        exchange = self._exchange
        assert exchange is not None
        try:
            function(*arguments)
        except Exception:  # noqa: BLE001 - as above
            self._failed(exchange)

    # Ends.

    def _failed(self, exchange: Exchange) -> None:
        """The application raised: its exchange ends, with 500 if the answer has not begun (PX-3)."""
        log.failure("A request failed.")
        if not exchange.done:
            self._refuse(500, "internal")

    def _refuse(self, status: int, code: str) -> None:
        """Answer for the application and close; where its own answer has begun, only break off."""
        exchange = self._exchange
        if exchange is not None and exchange.begun:
            self.abort()
            return
        fields, body = self.factory.refusal(status, code)
        if exchange is not None:
            lost = exchange.lost
            exchange.respond(status, fields, body)
            _tell(lost)
            return
        framing = (b"Content-Length", b"%d" % len(body)), (b"Connection", b"close")
        self.transport.write(b"".join((status_line(status), field_lines((*fields, *framing)), b"\r\n", body)))
        self._close(linger=True)

    def _lose_exchange(self) -> None:
        exchange, self._exchange, self._receiver = self._exchange, None, None
        if exchange is not None and not exchange.done:
            lost = exchange.lost
            exchange.end()
            _tell(lost)

    def _close(self, linger: bool = False) -> None:
        """Close when all is sent.

        Args:
            linger: The client may still be sending. Closing outright would
                answer that with a reset, which can overtake and destroy our
                answer; so only our half is closed and what comes is thrown away.
        """
        self._set_paused(False)
        self._enter(_Phase.CLOSING, self._limits.idle_seconds)
        self._held = b""
        if linger and not ISSLTransport.providedBy(self.transport):
            self.transport.loseWriteConnection()
        else:
            self.transport.loseConnection()

    def _set_paused(self, paused: bool) -> None:
        if paused is not self._paused:
            self._paused = paused
            if paused:
                self.transport.pauseProducing()
            else:
                self.transport.resumeProducing()


def _unmapped(host: str) -> str:
    """``host`` as it is, or the IPv4 address that an IPv6 one stands for (AR-10)."""
    if ":" in host:
        mapped = IPv6Address(host).ipv4_mapped
        if mapped is not None:
            return str(mapped)
    return host


def _tell(lost: Callable[[], None] | None) -> None:
    """Tell the application that an exchange of its is lost, if it asked to be told."""
    if lost is not None:
        try:
            lost()
        except Exception:  # noqa: BLE001 - as above
            log.failure("A request failed to end.")
