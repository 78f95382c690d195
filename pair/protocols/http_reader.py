"""Requests out of a stream of bytes, strictly (PX-8 to PX-10).

Pure: bytes in, heads and payloads out. Two things are ours beside llhttp:

* It is never fed past the end of a message, for it does not tell where that
  was. A head and a chunked body both end with an empty line, and a body with a
  length ends where the length says; so bytes are fed up to each such place.
* It is more lenient than we may be (request lines, transfer codings, sizes).
"""

from __future__ import annotations

import re

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from msgspec import Struct

from pair.protocols.http1 import FieldLookup, Fields, FramingError, Named, body_framing, field_lines

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
    ``upgrade`` is what it named.
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

    @property
    def has_body(self) -> bool:
        """Whether any payload byte is to be expected."""
        return self.chunked or bool(self.content_length)


class _Sink:
    """What the parser found. It does not hold the parser: no cycle, so no garbage for each connection."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.on_body = self.parts.append
        self.begin()

    def begin(self) -> None:
        """A head comes next."""
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


class RequestReader:
    """Reads one request after another: its head, then its body until ``ended``.

    The caller keeps the bytes: each call is given all that is at hand and
    tells how much of it is done with.

    Args:
        head_bytes: The longest head, in octets, its empty line included.
        fields: The most fields in a head.
    """

    def __init__(self, head_bytes: int, fields: int) -> None:
        self._head_bytes = head_bytes
        self._fields = fields
        self._sink = _Sink()
        self._parser = HttpRequestParser(self._sink)
        self._searched = 0
        self._remaining: int | None = None
        self._overhead = 0
        self._tail = b""

    @property
    def ended(self) -> bool:
        """Whether the request whose head was read last is complete; never so once it was found malformed."""
        return self._sink.ended

    def read_head(self, data: bytes) -> tuple[RequestHead, int] | None:
        """The head at the start of ``data``.

        Returns:
            The head and its size in octets; None while it is incomplete: then
            call again with the same bytes and more.

        Raises:
            Malformed: It is none, or over the limits.
        """
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
        try:
            return self._parse(data[:size]), size
        except (HttpParserError, FramingError):
            raise Malformed("head") from None

    def _parse(self, raw: bytes) -> RequestHead:
        line = raw[: raw.index(b"\n")].rstrip(b"\r").split(b" ")
        minor = _VERSIONS.get(line[-1])
        if minor is None or len(line) != 3:
            raise Malformed("request line")
        method, target, _ = line
        upgrade = None
        sink = self._sink
        sink.begin()
        self._overhead = 0
        try:
            self._parser.feed_data(raw)
        except HttpParserUpgrade:
            if method == b"CONNECT":
                raise Malformed("CONNECT") from None
            upgrade = self._parse_without_upgrade(raw)
            sink = self._sink
        # llhttp passes over a CR before the method.
        if sink.heads != 1 or self._parser.get_method() != method or len(sink.fields) > self._fields:
            raise Malformed("head")
        fields = tuple(sink.fields)
        named, sink.named = sink.named, {}  # Trailers are no fields of it.
        length, chunked = body_framing(named, minor)
        self._remaining = length
        self._tail = b""
        connection, expect = named.get(b"connection"), named.get(b"expect")
        asked = () if connection is None else _options(b",".join(connection))
        keep_alive = b"close" not in asked and (minor == 1 or b"keep-alive" in asked)
        expects_continue = expect is not None and minor == 1 and expect[-1].lower() == b"100-continue"
        return RequestHead(
            method, target, minor, fields, named, length, chunked, keep_alive, expects_continue, upgrade
        )

    def _parse_without_upgrade(self, raw: bytes) -> bytes:
        """Feed the head anew, less what asks for an upgrade: llhttp would take the body for another protocol.

        Returns:
            The protocol that it asks for.
        """
        fields, upgrade = _without_upgrade(self._sink.fields)
        self._sink = _Sink()
        self._parser = HttpRequestParser(self._sink)
        self._parser.feed_data(raw[: raw.index(b"\n") + 1] + field_lines(fields) + b"\r\n")
        return upgrade

    def read_body(self, data: bytes) -> tuple[bytes, int]:
        """The payload in ``data``, as far as it belongs to the present request.

        Returns:
            The payload and how many octets of ``data`` it and its framing
            took: all of them unless the request has ended.

        Raises:
            Malformed: The chunks are none, or more framing than payload
                (PX-10). Nothing of ``data`` is to be used.
        """
        parts = self._sink.parts
        parts.clear()
        try:
            if self._remaining is None:
                used = self._feed_chunked(data)
            else:
                used = min(len(data), self._remaining)
                self._remaining -= used
                self._parser.feed_data(data[:used])
        except HttpParserError:
            raise Malformed("body") from None
        return parts[0] if len(parts) == 1 else b"".join(parts), used

    def _feed_chunked(self, data: bytes) -> int:
        sink, parts, tail = self._sink, self._sink.parts, self._tail
        used = 0
        # The empty line may have begun in the read before.
        begun = (tail + data[:3]).find(b"\r\n\r\n")
        end = begun + 4 - len(tail) if begun >= 0 else 0
        while used < len(data) and not sink.ended:
            if end <= used:
                found = data.find(b"\r\n\r\n", used)
                end = found + 4 if found >= 0 else len(data)
            self._parser.feed_data(data[used:end])
            used = end
        self._overhead += used - sum(map(len, parts))
        if self._overhead > _OVERHEAD + _OVERHEAD_PER_CHUNK * sink.chunks:
            sink.ended = False  # Though the parser thinks so: nothing is to follow it.
            raise Malformed("chunk framing")
        self._tail = (tail + data[-3:])[-3:]
        return used


def _options(value: bytes) -> list[bytes]:
    return [each.strip(b" \t") for each in value.lower().split(b",")]


def _without_upgrade(fields: Fields) -> tuple[list[tuple[bytes, bytes]], bytes]:
    kept = []
    asked = []
    for name, value in fields:
        match name.lower():
            case b"upgrade":
                asked.append(value)
            case b"connection":
                options = [each for each in _options(value) if each != b"upgrade"]
                if options:
                    kept.append((name, b", ".join(options)))
            case _:
                kept.append((name, value))
    return kept, b", ".join(asked)
