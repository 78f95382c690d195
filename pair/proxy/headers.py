"""The fields of a request on its way to an engine and of the answer on its way back (PX-20, PX-66, PX-78 to PX-82).

Pure, bytes in and bytes out. What is about one connection, about proxies
before us, or about the web page behind the request ends here; framing and Host
are always made anew, so that a request leaves with one of each.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pair.proxy.replies import Fields

Field = tuple[bytes, bytes]
Notes = dict[Any, Any]
"""Of a head, as its connection keeps them; see :mod:`pair.protocols.known`."""

_HOP: Final = frozenset((b"connection", b"keep-alive", b"te", b"transfer-encoding", b"upgrade"))
_REQUEST_NAMES: Final = _HOP | {
    b"trailer",
    # Made anew, or answered by us already (PX-30).
    b"host",
    b"content-length",
    b"expect",
    # What proxies before us say (PX-14), and what the page behind it is (PX-20).
    b"forwarded",
    b"x-real-ip",
    b"origin",
    b"referer",
    b"cookie",
}
_REQUEST_PREFIXES: Final = (b"proxy-", b"x-forwarded-", b"x-pair-", b"sec-fetch-", b"access-control-")
_RESPONSE_PREFIXES: Final = (b"proxy-", b"x-pair-", b"access-control-")
_CREDENTIALS: Final = frozenset((b"authorization", b"x-api-key"))
_NONE: Final[frozenset[bytes]] = frozenset()
_STREAMS: Final = frozenset((b"text/event-stream", b"application/x-ndjson"))


def request_head(
    method: bytes,
    target: bytes,
    fields: Iterable[Field],
    *,
    authority: bytes,
    length: int | Literal["chunked"] | None,
    hop: int,
    credential: bytes | None = None,
    upgrade: bytes | None = None,
    member: Sequence[bytes] = (),
    notes: Notes | None = None,
) -> bytes:
    """The head of the request that an engine of this node, or a member, is sent.

    Args:
        method: The client's.
        target: Path and query.
        fields: The client's fields, as sent.
        authority: The engine's own ``host:port``, or the member's UUID and port (PX-79).
        length: Bytes of the body, ``"chunked"`` where they are not known, None where there is no body.
        hop: 1 from the node where the request arrived, 2 from an ingress (PX-80).
        credential: The token stored for this engine. It takes the place of whatever
            the client sent; without one the client's own pass (PX-81).
        upgrade: The protocol that the engine is asked to switch to (PX-75).
        member: The lines that a member is sent besides, of which none is empty (PX-53). It is told no
            credentials: they are for a local engine alone (PX-81).
        notes: Of the head that the fields are from: which of them travel is noted there.

    Raises:
        ValueError: A value would end its line: nothing may leave.
    """
    replaced = _CREDENTIALS if member or credential is not None else _NONE
    travelling = None if notes is None else notes.get(replaced)
    if travelling is None:
        travelling = [b"%b: %b" % field for field in _travelling(fields, replaced)]
        if notes is not None:
            notes[replaced] = travelling
    lines = [b"%b %b HTTP/1.1" % (method, target), b"Host: " + authority, *travelling]
    if length == "chunked":
        lines.append(b"Transfer-Encoding: chunked")
    elif length is not None:
        lines.append(b"Content-Length: %d" % length)
    lines.append(b"X-Pair-Hop: %d" % hop)
    lines += member
    if upgrade is not None:
        lines += (b"Connection: Upgrade", b"Upgrade: " + upgrade)
    if credential is not None:
        lines.append(b"Authorization: Bearer " + credential)
    head = b"\r\n".join(lines) + b"\r\n\r\n"
    ends = len(lines) + 1
    if head.count(b"\n") != ends or head.count(b"\r") != ends or b"\0" in head:
        raise ValueError("a field of the request holds a line end")
    return head


def _travelling(fields: Iterable[Field], replaced: frozenset[bytes]) -> list[Field]:
    """The ``fields`` that go on to the engine; of what we say in their place, none."""
    travelling = []
    dropped = replaced
    for field in fields:
        if _travels(field[0]):
            travelling.append(field)
        elif _is_connection(field[0]):
            dropped |= _options(field[1])
    return _without(travelling, dropped) if dropped else travelling


@lru_cache(maxsize=1024)
def _travels(name: bytes) -> bool:
    """Whether a field of this name goes on to the engine. The same few names come with every request."""
    low = name.lower()
    return low not in _REQUEST_NAMES and not low.startswith(_REQUEST_PREFIXES)


def origin_form(target: bytes) -> bytes:
    """The path and query of a target, whatever its form (RFC 9112, section 3.2)."""
    if target[:1] in (b"/", b"*"):
        return target
    rest = target.partition(b"://")[2]
    path = rest.find(b"/")
    query = rest.find(b"?")
    if path < 0 or 0 <= query < path:
        return b"/" + (rest[query:] if query >= 0 else b"")
    return rest[path:]


def response_fields(fields: Sequence[Field], *, chunked: bool, status: int = 200, extra: Fields = ()) -> list[Field]:
    """The fields that a client gets of an engine's answer.

    Args:
        fields: The engine's, as sent.
        chunked: The body is handed on with the chunks it came in, so that the fields must say so.
        status: Of the answer. A 204 has no body, and nothing may say that it has (RFC 9110, section 8.6).
        extra: Ours: those of CORS, and those that explain.
    """
    kept: list[Field] = []
    named = _NONE
    content_type = b""
    for field in fields:
        low = field[0].lower()
        if low in _HOP:
            if low == b"connection":
                named |= _options(field[1])
        elif low == b"content-type":
            content_type = field[1]
            kept.append(field)
        elif not (
            low.startswith(_RESPONSE_PREFIXES)
            or (low == b"vary" and _about_origin(field[1]))
            or (low == b"content-length" and (chunked or status == 204))
        ):
            kept.append(field)
    if named:
        # What frames the body is ours to keep, whatever Connection says.
        kept = _without(kept, named - {b"content-length"})
    if content_type and content_type.partition(b";")[0].strip().lower() in _STREAMS:
        # Whatever stands between us and the client must not hold back or keep a stream (PX-66).
        seen = {name.lower() for name, _ in kept}
        if b"x-accel-buffering" not in seen:
            kept.append((b"X-Accel-Buffering", b"no"))
        if b"cache-control" not in seen:
            kept.append((b"Cache-Control", b"no-cache"))
    if chunked:
        kept.append((b"Transfer-Encoding", b"chunked"))
    kept.extend(extra)
    return kept


def _is_connection(name: bytes) -> bool:
    return len(name) == 10 and name.lower() == b"connection"


@lru_cache(maxsize=64)
def _options(connection: bytes) -> frozenset[bytes]:
    """The names, in lower case, of the fields that are for this connection only (RFC 9110, section 7.6.1)."""
    return frozenset(each.strip(b" \t") for each in connection.lower().split(b","))


def _without(fields: Iterable[Field], names: frozenset[bytes]) -> list[Field]:
    return [field for field in fields if field[0].lower() not in names]


def _about_origin(vary: bytes) -> bool:
    """Whether a Vary is the engine's own CORS speaking, and no more."""
    members = [each.strip(b" \t") for each in vary.lower().split(b",")]
    return all(each == b"origin" or each.startswith(b"access-control-request-") for each in members)
