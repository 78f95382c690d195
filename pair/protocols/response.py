"""One HTTP/1.1 response, found in the bytes of a connection. No I/O.

Framing is followed and not rebuilt: body bytes come out as they came in (PX-58).
Knows nothing of connections, and nothing of what a response means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from msgspec import Struct

from pair.protocols.http1 import FieldLookup, Named, body_framing

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD_LIMIT = 64 * 1024
"""Octets of one response head, status line included; and of chunk framing and trailers without a body byte between."""

_CONTROLS = bytes(each for each in range(32) if each != 9) + b"\x7f"


class ResponseHead(FieldLookup, Struct, frozen=True):
    """A final response head. ``fields`` are as sent, in order; trailers never join them.
    ``reason`` is without control characters, which a terminal would obey.

    ``content_length`` and ``chunked`` are what the fields say, also where the
    response has no body (HEAD, 204, 304).
    """

    status: int
    reason: bytes
    minor: int
    fields: tuple[tuple[bytes, bytes], ...]
    named: Named
    content_length: int | None
    chunked: bool
    keep_alive: bool


class MalformedResponseError(ValueError):
    """What came cannot be relayed. Holds no text of it."""


class ResponseReader:
    """Reads the answer to one request, and after :meth:`begin` that to the next one on the same connection.

    Interim responses (1xx) are swallowed, however many; 101 is an error where
    nobody asked for it. After a HEAD the response ends at its head. After a 101
    all that comes is its body, as it comes, until the connection ends.
    """

    def __init__(self, head_only: bool = False, upgrade: bool = False) -> None:
        """As for :meth:`begin`."""
        self.parts: list[bytes] = []
        """The body bytes of the last read without chunk framing. The reader reuses the list."""
        # The parser looks its callbacks up once, here, which is half the cost of a small response.
        self.on_body = self.parts.append
        self._parser = HttpResponseParser(self)
        self.begin(head_only, upgrade)

    def begin(self, head_only: bool = False, upgrade: bool = False) -> None:
        """The answer to another request comes next; the one before is complete, without ``surplus``.

        Args:
            head_only: The request was a HEAD.
            upgrade: It asked for another protocol.
        """
        self.head: ResponseHead | None = None
        self.complete = False
        self.surplus = False
        """More came than the response: the connection is of no further use."""
        self.received = 0
        """Octets of the body so far, chunk framing included."""
        self.began = False
        """Something came, be it an interim response."""
        self._head_only = head_only
        self._upgrade = upgrade
        self._head_size = 0
        self._reason = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._named: Named = {}
        self._length: int | None = None
        self._bare = 0  # Octets of framing since the last body byte.
        # The last bytes fed: five of them or more, where so many came.
        self._end = b""

    def close(self) -> None:
        """Nothing more comes. The parser holds our methods: the two would wait for the garbage collector."""
        del self._parser

    @property
    def until_close(self) -> bool:
        """Only the end of the connection can end this body."""
        head = self.head
        return head is not None and not self.complete and self._length is None and not head.chunked

    def feed(self, data: bytes) -> bytes:
        """Take what one read gave.

        Returns:
            Those bytes of it that belong to the body, as they are; ``parts``
            holds the same without chunk framing.

        Raises:
            MalformedResponseError: Not HTTP/1, a head or framing over ``HEAD_LIMIT``,
                framing that is unsafe to relay, or a second response. Nothing of
                this read is to be used.
        """
        self.parts.clear()
        try:
            if self.head is None:
                data = self._feed_head(data)
            if data:
                self._parser.feed_data(data)
        except HttpParserError:
            raise MalformedResponseError from None
        self.received += len(data)
        if self.parts:
            self._bare = 0
        else:
            # A chunk's extension and a trailer may go on for ever, and the parser keeps the latter.
            self._bare += len(data)
            if self._bare > HEAD_LIMIT:
                raise MalformedResponseError
        if self.complete:
            return self._without_surplus(data)
        self._end = data if len(data) >= 5 else (self._end + data)[-5:]
        return data

    def at_boundary(self) -> bool:
        """Whether what was fed may be followed by a chunk of ours. Asked once, when nothing more will come.

        So it is between two chunks, and in a body that only the close ends.
        """
        if self.until_close:
            return True
        if self.head is None or self.complete or not self.head.chunked or not self._end.endswith(b"\r\n"):
            return False
        # Where a chunk may begin, the last chunk may. (It may also complete a chunk size cut behind a zero, but such
        # bytes do not end with a line.)
        return self._takes_last_chunk()

    def _takes_last_chunk(self) -> bool:
        self.parts.clear()
        try:
            self._parser.feed_data(b"0\r\n\r\n")
        except HttpParserError:
            return False
        return self.complete and not self.parts

    def _feed_head(self, data: bytes) -> bytes:
        """Feed the head and no more, for the parser does not tell where it ends; give what stands behind it."""
        self.began = True
        while data:
            seen = self._end + data
            found = seen.find(b"\r\n\r\n")
            size = len(data) if found < 0 else found + 4 - len(self._end)
            self._head_size += size
            if self._head_size > HEAD_LIMIT:
                raise MalformedResponseError
            try:
                self._parser.feed_data(data[:size])
            except HttpParserUpgrade:
                self.complete = False
                self._parser = cast("HttpResponseParser", _Unparsed(self.on_body))
            data = data[size:]
            if self.head is not None:
                self._end = b"\r\n"
                return b"" if self._head_only else data
            self._end = seen[-3:] if found < 0 else b""
        return data

    def _without_surplus(self, data: bytes) -> bytes:
        """``data``, the read that completed the response, without blank lines behind it, which the parser skips."""
        if self._length is not None:
            surplus = self.received - self._length
        else:
            seen = self._end + data
            surplus = len(seen) - len(seen.rstrip(b"\r\n")) - len(b"\r\n\r\n")
        if not surplus:
            return data
        self.surplus = True
        self.received -= surplus
        return data[:-surplus]

    def on_message_begin(self) -> None:
        """For the parser, as all that follow. What they raise leaves ``feed_data`` as an ``HttpParserError``."""
        if self.complete:
            raise MalformedResponseError

    def on_status(self, reason: bytes) -> None:
        """Part of the reason phrase."""
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head, or a trailer."""
        if self.head is None:
            value = value.rstrip(b" \t")
            self._fields.append((name, value))
            self._named.setdefault(name.lower(), []).append(value)

    def on_headers_complete(self) -> None:
        """A head, interim or final."""
        parser = self._parser
        status = parser.get_status_code()
        major, _, minor = parser.get_http_version().partition(".")
        if major != "1" or status < 100 or (status == 101 and not self._upgrade):
            raise MalformedResponseError
        if status < 200 and status != 101:
            return
        fields, named = tuple(self._fields), self._named
        length, chunked = (None, False) if status == 101 else body_framing(named, int(minor))
        self._length = 0 if self._head_only or status in (204, 304) else length
        keep_alive = parser.should_keep_alive()
        reason = self._reason.translate(None, _CONTROLS)
        self.head = ResponseHead(status, reason, int(minor), fields, named, length, chunked, keep_alive)
        self.complete = self._head_only

    def on_message_complete(self) -> None:
        """The end of an interim response or of the final one."""
        if self.head is not None:
            self.complete = True
            return
        self._fields.clear()
        self._named = {}
        self._reason = b""
        self._head_size = 0


class _Unparsed:
    """Takes the place of the parser when the connection has switched to another protocol."""

    def __init__(self, on_body: Callable[[bytes], None]) -> None:
        self.feed_data = on_body
