"""One request and its answer, as the application sees them.

An exchange writes the answer; the request's body and the end of the exchange
are the connection's business (:mod:`pair.protocols.http_server`).
"""

from __future__ import annotations

import typing
from enum import Enum
from typing import TYPE_CHECKING, Any

from pair.protocols.http1 import field_lines, status_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IPushProducer

    from pair.protocols.http1 import Fields
    from pair.protocols.http_reader import RequestHead

_BODILESS = frozenset((204, 304))


class Framing(Enum):
    """How the body of an answer is delimited."""

    PASSED = "passed"
    """The fields given say it (``Content-Length`` or ``Transfer-Encoding``), and what is written is framed so."""
    CHUNKED = "chunked"
    """Each write becomes a chunk; for a client of HTTP/1.0 the same as ``CLOSE``."""
    CLOSE = "close"
    """By the end of the connection."""


class BodyReceiver(typing.Protocol):
    """Takes the body of a request."""

    def body_received(self, data: bytes) -> None:
        """More of the payload; at least one octet."""

    def body_ended(self) -> None:
        """The payload is complete."""

    def body_stalled(self) -> None:
        """Nothing came for the limit of PX-31; called once, an answer is expected."""


class Connection(typing.Protocol):
    """What an exchange asks of the connection it is on."""

    transport: Any
    peer: str

    @property
    def unsent(self) -> int:
        """Octets written that the socket has not taken."""

    @property
    def reusable(self) -> bool:
        """Whether another request may follow the present one."""

    def whole_body(self) -> bytes | None:
        """The body of the present request, if all of it has come."""

    def read_body(self, receiver: BodyReceiver) -> None:
        """Deliver the body of the present request."""

    def pause_body(self) -> None:
        """Deliver no more for now."""

    def resume_body(self) -> None:
        """Deliver again."""

    def switch(self, received: Callable[[bytes], None]) -> None:
        """Give what comes from now on to ``received``, as it comes."""

    def answered(self, reuse: bool) -> None:
        """The answer has been written to its end."""

    def abort(self) -> None:
        """Break off."""


def _discard(data: bytes) -> None:
    pass


class Exchange:
    """One request and its answer.

    The application answers with :meth:`respond`, or with :meth:`begin`, any
    number of :attr:`write` and :meth:`finish`. Once the exchange is ``done``,
    whatever way it ended, all of them do nothing.

    Attributes:
        head: The request's, until the answer begins: then it is let go, for that may take long.
        keep_alive: The client wants to send more requests on its connection.
        peer: The client's address, an IP literal; an IPv4-mapped one
            unwrapped (AR-10).
        lost: Set by the application; called once when the exchange ends
            before the answer was finished or aborted: the client is gone or
            has half-closed (PX-61), its body was malformed, or a callback of
            the application raised.
        begun: The head of the answer is written.
        done: Over.
        write: Sends more of the answer's body, by one write of the transport.
    """

    __slots__ = (
        "_connection",
        "_framing",
        "_producing",
        "_reuse",
        "begun",
        "done",
        "head",
        "keep_alive",
        "lost",
        "peer",
        "write",
    )

    def __init__(self, head: RequestHead, connection: Connection) -> None:
        self.head = head
        self.keep_alive = head.keep_alive
        self.peer = connection.peer
        self.lost: Callable[[], None] | None = None
        self.begun = False
        self.done = False
        self.write: Callable[[bytes], None] = _discard
        self._connection = connection
        self._framing = Framing.PASSED
        self._producing = False
        self._reuse = False

    @property
    def peer_leaf(self) -> Any:
        """The certificate that a peer showed, as its mutual TLS keeps it (``peerLeaf``); None in the clear."""
        return getattr(self._connection.transport, "peerLeaf", None)

    @property
    def unsent(self) -> int:
        """Octets written that the socket has not taken (PX-60)."""
        return 0 if self.done else self._connection.unsent

    def whole_body(self) -> bytes | None:
        """The request's body, if all of it came with its head, as small ones do. Where it is None: :meth:`read_body`.

        To be called once, and not when any of it was read.
        """
        return None if self.done else self._connection.whole_body()

    def read_body(self, receiver: BodyReceiver) -> None:
        """Deliver the request's body to ``receiver``; it may begin before this returns.

        A client that waits for ``100 Continue`` gets it now (PX-30). Where a
        body is never asked for, the answer closes the connection.
        """
        if not self.done:
            self._connection.read_body(receiver)

    def pause_body(self) -> None:
        """Deliver nothing more until :meth:`resume_body`, but an end that has come with the last bytes."""
        if not self.done:
            self._connection.pause_body()

    def resume_body(self) -> None:
        """Undo :meth:`pause_body`."""
        if not self.done:
            self._connection.resume_body()

    def interim(self) -> None:
        """Say that the request is being worked at (102); nothing to HTTP/1.0, or when the answer has begun."""
        if not (self.done or self.begun) and self.head.minor:
            self._connection.transport.write(b"HTTP/1.1 102 Processing\r\n\r\n")

    def respond(self, status: int, fields: Fields, body: bytes = b"", *, last: bool = False) -> None:
        """Answer in one write.

        Args:
            status: From 200 on.
            fields: All but ``Content-Length`` and ``Connection``, which are
                added here.
            body: Left out of the answer to a HEAD and of 204 and 304.
            last: Close the connection behind it.
        """
        if self.done:
            return
        if status not in _BODILESS:
            fields = [*fields, (b"Content-Length", b"%d" % len(body))]
        self.begin(status, None, fields, Framing.PASSED, body, last=last)
        self.finish()

    def begin(
        self,
        status: int,
        reason: bytes | None,
        fields: Fields,
        framing: Framing,
        data: bytes = b"",
        *,
        last: bool = False,
    ) -> None:
        """Write the head of the answer and its first bytes, in one write.

        Args:
            status: From 200 on.
            reason: The reason phrase; None for the usual one.
            fields: All but ``Connection``, and but ``Transfer-Encoding`` if
                ``framing`` is not ``PASSED``.
            framing: Of what is written; no body is sent in answer to a HEAD
                and with 204 and 304.
            data: As for :attr:`write`.
            last: Close the connection behind the answer.

        Raises:
            RuntimeError: The answer has begun already.
        """
        if self.done:
            return
        if self.begun:
            raise RuntimeError("the answer has begun already")
        self.begun = True
        head, connection = self.head, self._connection
        if framing is Framing.CHUNKED and head.minor == 0:
            framing = Framing.CLOSE
        self._reuse = not last and head.keep_alive and framing is not Framing.CLOSE and connection.reusable
        lines = [status_line(status, reason), field_lines(fields)]
        if not self._reuse:
            lines.append(b"Connection: close\r\n")
        elif head.minor == 0:
            lines.append(b"Connection: keep-alive\r\n")
        transport_write = connection.transport.write
        if head.method == b"HEAD" or status in _BODILESS:
            if framing is Framing.CHUNKED and status not in _BODILESS:
                lines.append(b"Transfer-Encoding: chunked\r\n")
            lines.append(b"\r\n")
        elif framing is Framing.CHUNKED:
            self._framing = framing
            self.write = self._write_chunk
            lines.append(b"Transfer-Encoding: chunked\r\n\r\n")
            if data:
                lines.append(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            self.write = transport_write
            lines += (b"\r\n", data)
        del self.head
        transport_write(b"".join(lines))

    def _write_chunk(self, data: bytes) -> None:
        if data:
            self._connection.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def switch(self, fields: Fields, received: Callable[[bytes], None]) -> None:
        """Answer 101: from now on the connection carries another protocol, without limits of time (PX-75).

        :attr:`write` sends to the client, :meth:`pause_body` and
        :meth:`resume_body` hold for what it sends, and :meth:`cut` and
        :meth:`abort` end it.

        Args:
            fields: All of the head.
            received: Called with what the client sends.
        """
        if self.done:
            return
        self.begun = True
        self.write = self._connection.transport.write
        self.write(status_line(101) + field_lines(fields) + b"\r\n")
        self._connection.switch(received)

    def finish(self) -> None:
        """The answer is complete. With ``PASSED`` the caller has written all that the fields announced."""
        if self.done:
            return
        if self._framing is Framing.CHUNKED:
            self._connection.transport.write(b"0\r\n\r\n")
        self.end()
        self._connection.answered(self._reuse)

    def cut(self) -> None:
        """Send what is written, then close without an end of the body: the client sees an incomplete answer."""
        if not self.done:
            self.end()
            self._connection.answered(False)

    def abort(self) -> None:
        """Break the connection off, so that the client sees an incomplete answer."""
        if not self.done:
            self.end()
            self._connection.abort()

    def register_producer(self, producer: IPushProducer) -> None:
        """Let the client's socket pause and resume ``producer`` until the exchange is done (AR-9)."""
        if not self.done:
            self._producing = True
            self._connection.transport.registerProducer(producer, True)

    def unregister_producer(self) -> None:
        """Undo :meth:`register_producer`."""
        if self._producing:
            self._producing = False
            self._connection.transport.unregisterProducer()

    def end(self) -> None:
        """Over, as the connection or the answer has it. Not for the application."""
        self.done = True
        self.lost = None  # It mostly refers to us; a cycle for each request would be work for the collector.
        self.write = _discard
        self.unregister_producer()
