"""One HTTP/1.1 response, found in the bytes of a connection. No I/O.

Framing is followed and not rebuilt: body bytes come out as they came in (PX-58).
Knows nothing of connections, and nothing of what a response means.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from msgspec import Struct

from pair.protocols.http1 import FieldLookup, FramingError, Named, body_framing, keeps_alive
from pair.protocols.known import MOST_BYTES, Known

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HEAD_LIMIT = 64 * 1024
"""Octets of one response head, status line included; and of chunk framing and trailers without a body byte between."""

_LF = 10
_CONTROLS = bytes(each for each in range(32) if each != 9) + b"\x7f"


class ResponseHead(FieldLookup, Struct, frozen=True):
    """A final response head. ``fields`` are as sent, in order; trailers never join them.
    ``reason`` is without control characters, which a terminal would obey.

    ``content_length`` and ``chunked`` are what the fields say, also where the
    response has no body (HEAD, 204, 304). ``notes`` is for who relays it, as
    that of a request's head is.
    """

    status: int
    reason: bytes
    minor: int
    fields: tuple[tuple[bytes, bytes], ...]
    named: Named
    content_length: int | None
    chunked: bool
    notes: dict[Any, Any] = {}


class MalformedResponseError(ValueError):
    """What came cannot be relayed. Holds no text of it."""


class _HeadSink:
    """What the parser found in a head. It does not hold the parser: no cycle, so no garbage for each response."""

    __slots__ = ("ends", "fields", "named", "reason")

    def __init__(self) -> None:
        self.reason = b""
        self.fields: list[tuple[bytes, bytes]] = []
        self.named: Named = {}
        self.ends = 0

    def on_status(self, reason: bytes) -> None:
        self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        value = value.rstrip(b" \t")
        self.fields.append((name, value))
        self.named.setdefault(name.lower(), []).append(value)

    def on_headers_complete(self) -> None:
        self.ends += 1


class _ChunkSink:
    """What the parser found in chunks; all that it calls for each of them is no Python code.

    Attributes:
        parts: What they held.
        between: Not empty where a chunk was the last that was found, and no other has begun.
        over: The last chunk was found, and the end behind it.
    """

    __slots__ = ("between", "on_body", "on_chunk_complete", "on_chunk_header", "over", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.between: list[None] = []
        self.over = False
        self.on_body = self.parts.append
        self.on_chunk_header = self.between.clear
        self.on_chunk_complete = partial(self.between.append, None)

    def on_message_begin(self) -> None:
        """What is raised here leaves ``feed_data`` as an ``HttpParserError``."""
        if self.over:
            raise MalformedResponseError

    def on_message_complete(self) -> None:
        self.between.clear()
        self.over = True


class _Chunks(NamedTuple):
    """A parser that reads chunks. Where a chunk may begin, it is as good for any other body as for its last one."""

    feed: Callable[[bytes], None]
    parts: list[bytes]
    between: list[None]
    sink: _ChunkSink


_BEFORE_CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_RESTING_MOST = 16
_resting: list[_Chunks] = []
"""Those that no body needs now. A silent stream stands between two chunks, so a thousand of them need but one."""


def _new_chunks() -> _Chunks:
    sink = _ChunkSink()
    parser = HttpResponseParser(sink)
    chunks = _Chunks(parser.feed_data, sink.parts, sink.between, sink)
    chunks.feed(_BEFORE_CHUNKS)
    _resting.append(chunks)
    return chunks


def _rest(chunks: _Chunks) -> None:
    if len(_resting) < _RESTING_MOST:
        _resting.append(chunks)


def _begin_anew(chunks: _Chunks) -> None:
    """Let what has read a whole body read others, unless its trailer said that nothing follows."""
    chunks.sink.over = False
    with suppress(HttpParserError):
        chunks.feed(_BEFORE_CHUNKS)
        _rest(chunks)


class ResponseReader:
    """Reads the answer to one request, and after :meth:`begin` that to the next one on the same connection.

    Interim responses (1xx) are swallowed, however many; 101 is an error where
    nobody asked for it. After a HEAD the response ends at its head. After a 101
    all that comes is its body, as it comes, until the connection ends. From the
    second response on it keeps a head, to know it again.

    Attributes:
        headless: There is no final head yet.
        head: That one. Whoever takes it may put None in its place: it is not needed here any more.
        keep_alive: It leaves the connection open for another request.
        resting: For how long, as its ``Keep-Alive`` has it.
        complete: The response has come to its end.
        surplus: More came than the response: the connection is of no further use.
        received: Octets of the body so far, chunk framing included.
        began: Something came, be it an interim response.
    """

    __slots__ = (
        "_bare",
        "_chunked",
        "_chunks",
        "_end",
        "_head_only",
        "_head_size",
        "_in_head",
        "_known",
        "_length",
        "_repeats",
        "_upgrade",
        "began",
        "complete",
        "head",
        "headless",
        "keep_alive",
        "received",
        "resting",
        "surplus",
    )

    def __init__(self, head_only: bool = False, upgrade: bool = False) -> None:
        """As for :meth:`begin`."""
        self._known: Known[ResponseHead] | None = None
        self._repeats = False
        self.begin(head_only, upgrade)

    def begin(self, head_only: bool = False, upgrade: bool = False) -> None:
        """The answer to another request comes next; the one before is complete, without ``surplus``.

        Args:
            head_only: The request was a HEAD.
            upgrade: It asked for another protocol.
        """
        self.headless = True
        self.head: ResponseHead | None = None
        self.keep_alive = False
        self.resting: bytes | None = None
        self.complete = False
        self.surplus = False
        self.received = 0
        self.began = False
        self._head_only = head_only
        self._upgrade = upgrade
        self._head_size = 0
        self._in_head: tuple[_HeadSink, HttpResponseParser] | None = None
        self._length: int | None = None
        self._chunked = False
        self._chunks: _Chunks | None = None
        self._bare = 0  # Octets of framing since the last body byte.
        # The last bytes fed, as many as it takes to see an end that began in the read before.
        self._end = b""

    @property
    def until_close(self) -> bool:
        """Only the end of the connection can end this body."""
        return not (self.headless or self.complete or self._chunked) and self._length is None

    def feed(self, data: bytes) -> tuple[bytes, Sequence[bytes]]:
        """Take what one read gave.

        Returns:
            Those bytes of it that belong to the body, as they are, and the
            same without chunk framing; the latter is good until the next call.

        Raises:
            MalformedResponseError: Not HTTP/1, a head or framing over ``HEAD_LIMIT``,
                framing that is unsafe to relay, or a second response. Nothing of
                this read is to be used.
        """
        if not self._chunked:
            return self._feed_unchunked(data)
        held = self._chunks
        feed, parts, between, _ = held or (_resting[-1] if _resting else _new_chunks())
        parts.clear()
        try:
            feed(data)
        except HttpParserError:
            if held is None:
                _resting.pop()
            raise MalformedResponseError from None
        # Where a chunk was the last, what has come of the next would be more than a line end.
        if held is not None or not between or data[-1] != _LF:
            data = self._change_hands(held or _resting.pop(), data)
        self.received += len(data)
        return data, parts

    def at_boundary(self) -> bool:
        """Whether what was fed may be followed by a chunk of ours.

        So it is between two chunks, and in a body that only the close ends.
        """
        if self._chunked:
            return self._chunks is None and not self.complete
        return self.until_close

    def _change_hands(self, chunks: _Chunks, data: bytes) -> bytes:
        """Keep the parser that read ``data`` as long as it stands within a chunk, or behind the last."""
        _, parts, between, sink = chunks
        # A chunk's extension and a trailer may go on for ever, and the parser keeps the latter.
        self._bare = 0 if parts else self._bare + len(data)
        if self._bare > HEAD_LIMIT:
            raise MalformedResponseError
        if between and data[-1] == _LF:
            self._chunks = None
            self._bare = 0
            _rest(chunks)
        elif not sink.over:
            self._chunks = chunks
            self._end = (self._end + data[-5:])[-5:]
        else:
            self.complete = True
            self._chunks = None
            seen = self._end + data
            data = self._without(len(seen) - len(seen.rstrip(b"\r\n")) - len(b"\r\n\r\n"), data)
            if not self.surplus:
                _begin_anew(chunks)
        return data

    def _feed_unchunked(self, data: bytes) -> tuple[bytes, Sequence[bytes]]:
        if self.headless:
            data = self._feed_head(data)
            if not data:
                return b"", ()
            if self._chunked:
                return self.feed(data)
        if self._length is not None:
            data = self._feed_length(data, self._length)
        self.received += len(data)
        return data, (data,)

    def _feed_length(self, data: bytes, length: int) -> bytes:
        surplus = self.received + len(data) - length
        if surplus < 0:
            return data
        self.complete = True
        if surplus and data[-surplus:].strip(b"\r\n"):
            raise MalformedResponseError
        return self._without(surplus, data)

    def _without(self, surplus: int, data: bytes) -> bytes:
        """``data``, the read that completed the response, without the blank lines behind it, which mean nothing."""
        if not surplus:
            return data
        self.surplus = True
        return data[:-surplus]

    def _feed_head(self, data: bytes) -> bytes:
        """Feed the head and no more, for the parser does not tell where it ends; give what stands behind it."""
        again = None if self._known is None or self.began else self._known.again(data)
        self.began = True
        if again is not None:
            self._take_head(again[0])
            return b"" if self._head_only else data[again[1] :]
        raw = data
        while data:
            seen = self._end + data
            found = seen.find(b"\r\n\r\n")
            size = len(data) if found < 0 else found + 4 - len(self._end)
            self._head_size += size
            if self._head_size > HEAD_LIMIT:
                raise MalformedResponseError
            if self._in_head is None:
                sink = _HeadSink()
                self._in_head = sink, HttpResponseParser(sink)
            sink, parser = self._in_head
            switched = False
            try:
                parser.feed_data(data[:size])
            except HttpParserUpgrade:
                switched = True
            except HttpParserError:
                raise MalformedResponseError from None
            data = data[size:]
            self._end = seen[-3:] if found < 0 else b""
            if sink.ends:
                whole = self._head_size == len(raw) - len(data)
                self._in_head = None
                self._head_size = 0
                self._head_came(sink, parser, switched)
                if self.head is not None:
                    self._remember(self.head, raw[: len(raw) - len(data)] if whole else b"")
                    return b"" if self._head_only else data
        return data

    def _head_came(self, sink: _HeadSink, parser: HttpResponseParser, switched: bool) -> None:
        status = parser.get_status_code()
        major, _, digits = parser.get_http_version().partition(".")
        if major != "1" or status < 100 or sink.ends > 1 or self._end:
            raise MalformedResponseError
        if status == 101:
            if not (switched and self._upgrade):
                raise MalformedResponseError
        elif status < 200:
            return
        minor, named = int(digits), sink.named
        try:
            length, chunked = (None, False) if switched else body_framing(named, minor)
        except FramingError:
            raise MalformedResponseError from None
        reason = sink.reason.translate(None, _CONTROLS)
        self._take_head(ResponseHead(status, reason, minor, tuple(sink.fields), named, length, chunked))

    def _take_head(self, head: ResponseHead) -> None:
        self.head = head
        self.headless = False
        self._length = 0 if self._head_only or head.status in (204, 304) else head.content_length
        self._chunked = head.chunked and self._length is None
        self.complete = self._length == 0
        self.keep_alive = keeps_alive(head.named, head.minor)
        self.resting = head.value(b"keep-alive")

    def _remember(self, head: ResponseHead, raw: bytes) -> None:
        """Know ``head`` again if it came in one read; not from the first on, for many connections bring only one."""
        plain = 0 < len(raw) <= MOST_BYTES and head.status != 101
        self._known = Known.of(head, raw) if plain and self._repeats else None
        self._repeats = True
