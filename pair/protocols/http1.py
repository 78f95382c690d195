"""What the two ends of HTTP/1.1 share: fields, framing, status lines.

Pure. The parser of both ends is llhttp (``httptools``); here is what it leaves
to its caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

Fields = Sequence[tuple[bytes, bytes]]
Named = dict[bytes, list[bytes]]
"""The values of fields by their names in lower case, those of one name in the order sent."""

LENGTH_DIGITS = 19
"""The largest ``Content-Length`` believed, in digits: what surely fits 64 bits, for us and for all behind us."""

_REASONS = {each.value: each.phrase.encode("ascii") for each in HTTPStatus}


class FramingError(ValueError):
    """The fields do not say, or say twice, how long the body is. Its text is fixed."""


class FieldLookup:
    """Gives the values of fields by name: mixed into the heads of both ends."""

    __slots__ = ()

    named: Named

    def values(self, name: bytes) -> list[bytes]:
        """All values of the fields called ``name`` (in lower case), in the order sent."""
        return list(self.named.get(name, ()))

    def value(self, name: bytes) -> bytes | None:
        """The value of the first field called ``name`` (in lower case), or None."""
        found = self.named.get(name)
        return None if found is None else found[0]


def body_framing(named: Named, minor: int) -> tuple[int | None, bool]:
    """How the body of a message is framed, as strictly as PX-10 asks.

    Args:
        named: The fields of the head.
        minor: The minor version of HTTP/1.

    Returns:
        The ``Content-Length``, or None without one, and whether the body is chunked.

    Raises:
        FramingError: Two lengths, even equal ones; a length beside a transfer
            coding; any transfer coding but the one word ``chunked``, or one in
            HTTP/1.0 (RFC 9112, 6.1); a length that is not 1 to 19 digits.
    """
    lengths = named.get(b"content-length")
    codings = named.get(b"transfer-encoding")
    if codings is not None:
        if lengths is not None:
            raise FramingError("a length and a transfer coding")
        if len(codings) > 1 or minor == 0 or codings[0].lower() != b"chunked":
            raise FramingError("bad transfer coding")
        return None, True
    if lengths is None:
        return None, False
    if len(lengths) > 1:
        raise FramingError("two lengths")
    if not lengths[0].isdigit() or len(lengths[0]) > LENGTH_DIGITS:
        raise FramingError("bad length")
    return int(lengths[0]), False


def keeps_alive(named: Named, minor: int) -> bool:
    """Whether another message may follow on the connection, by the fields of this one (RFC 9112, section 9.3).

    Args:
        named: The fields of the head.
        minor: The minor version of HTTP/1.
    """
    connection = named.get(b"connection")
    asked = () if connection is None else options(b",".join(connection))
    return b"close" not in asked and (minor == 1 or b"keep-alive" in asked)


def options(connection: bytes) -> list[bytes]:
    """What a ``Connection`` field names, in lower case."""
    return [each.strip(b" \t") for each in connection.lower().split(b",")]


def status_line(status: int, reason: bytes | None = None) -> bytes:
    """The first line of an answer, line end included; the usual reason phrase unless ``reason`` is given."""
    return b"HTTP/1.1 %d %b\r\n" % (status, _REASONS.get(status, b"") if reason is None else reason)


def field_lines(fields: Fields) -> bytes:
    """``fields`` as lines of a head. Names and values are written as they are: the caller vouches for them."""
    return b"".join([b"%b: %b\r\n" % field for field in fields])
