"""What a web page may do with a facade: Host, Origin, preflight (PX-17 to PX-21).

A facade listens on loopback, and every page in every browser of this machine
can reach loopback. The Host rule stops a page whose name was made to resolve
to 127.0.0.1, the Origin rule one that simply posts. Pure; the caller has
already made sure that the connection comes from this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pair.authority import OriginPattern, is_loopback, parse_authority, parse_origin
from pair.proxy.replies import Fields, Refusal, refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

_EXPOSED = b"X-Pair-Node, X-Pair-Attempts, X-Pair-Why, X-Pair-Error"
_METHODS = b"GET, HEAD, POST, DELETE"
_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


class Head(Protocol):
    """What is read of a request."""

    @property
    def method(self) -> bytes:
        """As sent."""

    @property
    def target(self) -> bytes:
        """As sent, with its query."""

    @property
    def minor(self) -> int:
        """The x of HTTP/1.x."""

    def values(self, name: bytes) -> list[bytes]:
        """The values of the fields of this name, which is in lower case."""


class BrowserPolicy:
    """The rules of one facade.

    Args:
        allowed_hosts: Names besides loopback, ``host`` (with any port) or ``host:port``.
        origins: Patterns of EN-73 besides loopback, or ``null``.

    Raises:
        ValueError: An entry is neither.
    """

    def __init__(self, allowed_hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        hosts = set()
        for entry in allowed_hosts:
            authority = parse_authority(entry)
            if authority is None:
                raise ValueError("an allowed host has the form host[:port]")
            hosts.add(authority)
        listed = set(origins)
        self._hosts = frozenset(hosts)
        self._null = "null" in listed
        self._patterns = tuple(OriginPattern.parse(each) for each in sorted(listed - {"null"}))

    def check(self, head: Head) -> Refusal | None:
        """Whether the request is refused for its Host or Origin, in this order; None when it may go on."""
        if not self._host_allowed(head):
            return refusal("bad_host")
        origins = head.values(b"origin")
        if origins:
            allowed = len(origins) == 1 and self._origin_allowed(origins[0])
        else:
            allowed = not _sneaks_in(head)
        return None if allowed else refusal("bad_origin")

    def _host_allowed(self, head: Head) -> bool:
        hosts = head.values(b"host")
        if head.target[:1] not in (b"/", b"*"):
            hosts.append(_target_authority(head.target))
        elif len(hosts) != 1:
            # Only HTTP/1.0 may leave it out, and no browser speaks that.
            return not hosts and head.minor == 0
        named = {parse_authority(each.decode("latin-1")) for each in hosts}
        if len(hosts) > 2 or len(named) > 1:
            return False
        (authority,) = named
        if authority is None:
            return False
        return is_loopback(authority[0]) or authority in self._hosts or (authority[0], None) in self._hosts

    def _origin_allowed(self, value: bytes) -> bool:
        if value == b"null":
            return self._null
        origin = parse_origin(value.decode("latin-1"))
        if origin is None:
            return False
        if origin.scheme in ("http", "https") and is_loopback(origin.host):
            return True
        return any(each.matches(origin) for each in self._patterns)


def cors_fields(origin: bytes | None) -> Fields:
    """What lets the page of an allowed ``origin`` read the answer (PX-20); nothing where there is none."""
    if origin is None:
        return ()
    return (
        (b"Access-Control-Allow-Origin", origin),
        (b"Vary", b"Origin"),
        (b"Access-Control-Expose-Headers", _EXPOSED),
    )


def preflight_fields(head: Head) -> Fields | None:
    """The fields of the 204 that answers a preflight (PX-21), or None where the request is none.

    The request must have passed :meth:`BrowserPolicy.check`.
    """
    if head.method != b"OPTIONS":
        return None
    origins = head.values(b"origin")
    if not origins or not head.values(b"access-control-request-method"):
        return None
    fields = [
        (b"Access-Control-Allow-Origin", origins[0]),
        (b"Vary", b"Origin"),
        (b"Access-Control-Allow-Methods", _METHODS),
        (b"Access-Control-Max-Age", b"600"),
    ]
    asked = b",".join(head.values(b"access-control-request-headers")).split(b",")
    names = [name for name in (each.strip(b" \t") for each in asked) if name and _TOKEN.issuperset(name)]
    if names:
        fields.append((b"Access-Control-Allow-Headers", b", ".join(names)))
    if head.values(b"access-control-request-private-network") == [b"true"]:
        fields.append((b"Access-Control-Allow-Private-Network", b"true"))
    return tuple(fields)


def _sneaks_in(head: Head) -> bool:
    """A browser says that another site makes it send this, and it is no navigation: an image, a script (PX-18)."""
    if b"cross-site" not in head.values(b"sec-fetch-site"):
        return False
    return any(mode != b"navigate" for mode in head.values(b"sec-fetch-mode"))


def _target_authority(target: bytes) -> bytes:
    """The authority of an absolute-form target (RFC 9112, section 3.2.2); nothing where it has another form."""
    scheme, separator, rest = target.partition(b"://")
    if not separator or scheme.lower() != b"http":
        return b""
    return rest.partition(b"/")[0].partition(b"?")[0]
