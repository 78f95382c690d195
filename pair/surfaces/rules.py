"""What is decided of a request before its body is read (AR-19, UI-12). Pure.

A surface brings its own :class:`Guard`; the rules for targets and bodies are
the same for all.
"""

from __future__ import annotations

from typing import Protocol
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from pair.cluster.pins import PeerLeaf
from pair.protocols.pairing.messages import Silent
from pair.surfaces.refusals import Fields, Refusal

SECURITY_FIELDS: Fields = (
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Referrer-Policy", b"no-referrer"),
    (b"Cross-Origin-Opener-Policy", b"same-origin"),
    (b"Cross-Origin-Resource-Policy", b"same-origin"),
    (b"Cache-Control", b"no-store"),
)
"""Fields of every answer (UI-10)."""

BAD_REQUEST = Refusal(400, "bad_request", "The request is not well formed.")


class Peer(Silent, Struct, frozen=True):
    """The other end of a connection, the same for all of its requests.

    ``address`` is an IP literal, with a zone where it is link-local; an
    IPv4-mapped one is unwrapped (AR-10). ``leaf`` is what it showed over TLS.
    """

    address: str
    tls: bool = False
    leaf: PeerLeaf | None = None


NOBODY = Peer("")
"""A peer of whom nothing is known."""


class Head(Struct, frozen=True):
    """The head of a request.

    ``path`` is decoded and without the query, exactly as the routes see it;
    ``fields`` have their names in lower case; ``length`` is that of the body
    in octets, None where it comes in chunks. ``peer`` is who sent it.
    """

    method: str
    path: str
    fields: Fields = ()
    length: int | None = 0
    peer: Peer = NOBODY

    def values(self, name: bytes) -> list[bytes]:
        """The values of the fields called ``name``, which is in lower case."""
        return [value for each, value in self.fields if each == name]


class Guard(Protocol):
    """Who may ask what of one surface."""

    def check(self, head: Head) -> Refusal | None:
        """Why the request is refused; None when it may go on."""

    def body_limit(self, head: Head) -> int:
        """The most octets that the body of a request that goes on may have."""


def path_of(target: bytes) -> str | None:
    """The path that the routes will see for a request target; None where it is none that they could see as it is.

    They see it decoded. A second slash at the front, however it is written,
    would be lost on the way, and with it any rule that goes by the path.
    """
    try:
        path = unquote_to_bytes(target.partition(b"?")[0]).decode()
    except UnicodeDecodeError:
        return None
    return path if path.startswith("/") and not path.startswith("//") else None


def check_body(head: Head, limit: int) -> Refusal | None:
    """Why the body that ``head`` announces will not be read; None for a good one and for none (UI-12)."""
    if head.length == 0:
        return None
    if not is_json(head) or head.values(b"content-encoding"):
        return Refusal(415, "unsupported_media_type", "A body must be application/json in UTF-8, not compressed.")
    return too_large(limit) if head.length is not None and head.length > limit else None


def too_large(limit: int) -> Refusal:
    """The refusal of a body of more than ``limit`` octets."""
    return Refusal(413, "too_large", f"A body may have {limit} bytes at most.")


def is_json(head: Head) -> bool:
    """Whether ``head`` announces JSON in UTF-8."""
    types = head.values(b"content-type")
    if len(types) != 1:
        return False
    kind, *parameters = (part.strip().lower() for part in types[0].split(b";"))
    utf8 = (b"charset=utf-8", b'charset="utf-8"')
    return kind == b"application/json" and all(each in utf8 for each in parameters if each)
