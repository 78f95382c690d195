"""Requests out of a stream of bytes, strictly (PX-8 to PX-10).

Pure: bytes in, heads and payloads out. Two things are ours beside llhttp:

* It is never fed past the end of a message, for it does not tell where that
  was. A head and a chunked body both end with an empty line, and a body with a
  length ends where the length says; so bytes are fed up to each such place.
* It is more lenient than we may be (request lines, transfer codings, sizes).

A head that comes again needs no parser (:mod:`pair.protocols.known`).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from msgspec import Struct

from pair.protocols.http1 import (
    FieldLookup,
    Fields,
    FramingError,
    Named,
    body_framing,
    field_lines,
    keeps_alive,
    options,
)
from pair.protocols.known import MOST_BYTES, Known

# A lone LF counts as a line end here, so that a head written with them is refused and not waited for.
_EMPTY_LINE = re.compile(rb"\n\r?\n")
_OVERHEAD, _OVERHEAD_PER_CHUNK = 16384, 64
_VERSIONS = {b"HTTP/1.1": 1, b"HTTP/1.0": 0}


class Malformed(ValueError):  # noqa: N818 - said of a request, as the name of its refusal
    """Not a request that we serve. Its text is fixed."""


class RequestHead(FieldLookup, Struct, frozen=True):
    """The head of one request.

    ``target`` and the names in ``fields`` are as sent, values without blanks
    around them; a request to upgrade has been taken out of them (PX-8), and
    ``upgrade`` is what it named. ``notes`` is for who serves it: what follows
    from the head alone, whatever the length of the body, can be found there
    when the connection brings the same head again.
    """

    method: bytes
    target: bytes
    minor: int
    fields: tuple[tuple[bytes, bytes], ...]
    named: Named
    content_length: int | None
    chunked: bool
    keep_alive: bool
    expects_continue: bool
    upgrade: bytes | None = None
    notes: dict[Any, Any] = {}

    @property
    def has_body(self) -> bool:
        """Whether any payload byte is to be expected."""
        return self.chunked or bool(self.content_length)


class _Sink:
    """What the parser found. It does not hold the parser: no cycle, so no garbage for each request."""

    __slots__ = ("chunks", "ended", "fields", "heads", "named", "on_body", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.on_body = self.parts.append
        self.fields: list[tuple[bytes, bytes]] = []
        self.named: Named = {}
        self.heads = 0
        self.chunks = 0
        self.ended = False

    def on_header(self, name: bytes, value: bytes) -> None:
        value = value.rstrip(b" \t")
        self.fields.append((name, value))
        self.named.setdefault(name.lower(), []).append(value)

    def on_headers_complete(self) -> None:
        self.heads += 1

    def on_chunk_header(self) -> None:
        self.chunks += 1

    def on_message_complete(self) -> None:
        self.ended = True


class _Chunked(NamedTuple):
    """A body in chunks that is being read."""

    sink: _Sink
    parser: HttpRequestParser


class RequestReader:
    """Reads one request after another: its head, then its body until ``ended``.

    The caller keeps the bytes: each call is given all that is at hand and
    tells how much of it is done with. Of the first request it keeps nothing
    when that is complete: the answer may take minutes, and thousands may wait
    for one. From the second on it keeps a head, to know it again.

    Args:
        head_bytes: The longest head, in octets, its empty line included.
        fields: The most fields in a head.

    Attributes:
        ended: Whether the request whose head was read last is complete; never so once it was found malformed.
    """

    __slots__ = (
        "_chunked",
        "_fields",
        "_head_bytes",
        "_known",
        "_overhead",
        "_remaining",
        "_repeats",
        "_searched",
        "_tail",
        "ended",
    )

    def __init__(self, head_bytes: int, fields: int) -> None:
        self.ended = False
        self._head_bytes = head_bytes
        self._fields = fields
        self._chunked: _Chunked | None = None
        self._known: Known[RequestHead] | None = None
        self._repeats = False
        self._searched = 0
        self._remaining = 0
        self._overhead = 0
        self._tail = b""

    def read_head(self, data: bytes) -> tuple[RequestHead, int] | None:
        """The head at the start of ``data``.

        Returns:
            The head and its size in octets; None while it is incomplete: then
            call again with the same bytes and more.

        Raises:
            Malformed: It is none, or over the limits.
        """
        again = None if self._known is None else self._known.again(data)
        if again is not None:
            self._searched = 0
            self._remaining = again[0].content_length or 0
            self.ended = not self._remaining
            return again
        found = _EMPTY_LINE.search(data, self._searched)
        if found is None:
            if len(data) > self._head_bytes:
                raise Malformed("long head")
            self._searched = max(0, len(data) - 2)
            return None
        self._searched = 0
        size = found.end()
        if size > self._head_bytes:
            raise Malformed("long head")
        raw = data[:size]
        try:
            head = self._parse(raw)
        except (HttpParserError, FramingError):
            raise Malformed("head") from None
        plain = head.keep_alive and not head.chunked and head.upgrade is None and size <= MOST_BYTES
        self._known = Known.of(head, raw) if plain and self._repeats else None
        self._repeats = True
        return head, size

    def _parse(self, raw: bytes) -> RequestHead:
        line = raw[: raw.index(b"\n")].rstrip(b"\r").split(b" ")
        minor = _VERSIONS.get(line[-1])
        if minor is None or len(line) != 3:
            raise Malformed("request line")
        method, target, _ = line
        upgrade = None
        self.ended = False
        sink = _Sink()
        parser = HttpRequestParser(sink)
        try:
            parser.feed_data(raw)
        except HttpParserUpgrade:
            if method == b"CONNECT":
                raise Malformed("CONNECT") from None
            # Fed anew, less what asks for it: llhttp would take the body for another protocol.
            kept, upgrade = _without_upgrade(sink.fields)
            sink = _Sink()
            parser = HttpRequestParser(sink)
            parser.feed_data(raw[: raw.index(b"\n") + 1] + field_lines(kept) + b"\r\n")
        # llhttp passes over a CR before the method.
        if sink.heads != 1 or parser.get_method() != method or len(sink.fields) > self._fields:
            raise Malformed("head")
        fields = tuple(sink.fields)
        named, sink.named = sink.named, {}  # Trailers are no fields of it.
        length, chunked = body_framing(named, minor)
        self._remaining = length or 0
        self.ended = not (chunked or length)
        if chunked:
            self._chunked = _Chunked(sink, parser)
            self._overhead = 0
            self._tail = b""
        expect = named.get(b"expect")
        expects_continue = expect is not None and minor == 1 and expect[-1].lower() == b"100-continue"
        keep_alive = keeps_alive(named, minor)
        return RequestHead(
            method, target, minor, fields, named, length, chunked, keep_alive, expects_continue, upgrade
        )

    def whole_in(self, size: int) -> bool:
        """Whether ``size`` octets are surely all of the body that is still to come, or more."""
        return self._chunked is None and size >= self._remaining

    def read_body(self, data: bytes) -> tuple[bytes, int]:
        """The payload in ``data``, as far as it belongs to the present request.

        Returns:
            The payload and how many octets of ``data`` it and its framing
            took: all of them unless the request has ended.

        Raises:
            Malformed: The chunks are none, or more framing than payload
                (PX-10). Nothing of ``data`` is to be used.
        """
        if self._chunked is not None:
            try:
                return self._read_chunks(self._chunked, data)
            except HttpParserError:
                raise Malformed("body") from None
        used = min(len(data), self._remaining)
        self._remaining -= used
        self.ended = not self._remaining
        return data[:used], used

    def _read_chunks(self, chunked: _Chunked, data: bytes) -> tuple[bytes, int]:
        sink, parser = chunked
        parts, tail = sink.parts, self._tail
        parts.clear()
        used = 0
        # The empty line may have begun in the read before.
        begun = (tail + data[:3]).find(b"\r\n\r\n")
        end = begun + 4 - len(tail) if begun >= 0 else 0
        while used < len(data) and not sink.ended:
            if end <= used:
                found = data.find(b"\r\n\r\n", used)
                end = found + 4 if found >= 0 else len(data)
            parser.feed_data(data[used:end])
            used = end
        self._overhead += used - sum(map(len, parts))
        if self._overhead > _OVERHEAD + _OVERHEAD_PER_CHUNK * sink.chunks:
            raise Malformed("chunk framing")
        self._tail = (tail + data[-3:])[-3:]
        if sink.ended:
            self.ended = True
            self._chunked = None
        return parts[0] if len(parts) == 1 else b"".join(parts), used


def _without_upgrade(fields: Fields) -> tuple[list[tuple[bytes, bytes]], bytes]:
    kept = []
    asked = []
    for name, value in fields:
        match name.lower():
            case b"upgrade":
                asked.append(value)
            case b"connection":
                others = [each for each in options(value) if each != b"upgrade"]
                if others:
                    kept.append((name, b", ".join(others)))
            case _:
                kept.append((name, value))
    return kept, b", ".join(asked)
