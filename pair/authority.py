"""Authorities and origins: ``host:port`` and ``scheme://host:port`` as they stand in requests and settings.

Pure. Knows nothing of who may call; that is the business of the proxy's
browser rules and of the control API.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from msgspec import Struct

_HOST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-._")
_SCHEME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789+.-")
_PORTS = {"http": 80, "https": 443}


# Both are asked at every request, of the same few names.
@lru_cache(maxsize=64)
def parse_authority(text: str) -> tuple[str, int | None] | None:
    """The host and port of ``text``, or None where it is no ``host[:port]`` (RFC 9110, section 7.2).

    The host comes in lower case, without a final dot and without the brackets
    of an IPv6 literal. User information, a zone and percent-escapes are refused.
    """
    if text.startswith("["):
        literal, bracket, rest = text[1:].partition("]")
        if not bracket or rest[:1] not in ("", ":"):
            return None
        host = _ipv6(literal)
        port = rest[1:]
    else:
        name, _, port = text.partition(":")
        host = name.lower().removesuffix(".")
        if not _HOST_CHARACTERS.issuperset(host):
            return None
    if not host:
        return None
    if not port:
        return host, None
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        return None
    return host, int(port)


@lru_cache(maxsize=64)
def is_loopback(host: str) -> bool:
    """Whether ``host`` (as :func:`parse_authority` gives it, or a peer's address) is this machine.

    That is ``localhost``, a whole dotted literal in 127.0.0.0/8, or ``::1``;
    names below ``localhost`` and short forms such as ``127.1`` are not.
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(unwrap(host)).is_loopback
    except ValueError:
        return False


def unwrap(literal: str) -> str:
    """The IPv4 address in an IPv4-mapped literal (AR-10); any other text as it is."""
    if not literal.lower().startswith("::ffff:"):
        return literal
    try:
        mapped = ipaddress.IPv6Address(literal).ipv4_mapped
    except ValueError:
        return literal
    return literal if mapped is None else str(mapped)


class Origin(Struct, frozen=True):
    """Where a web page comes from (RFC 6454). A ``port`` not written is the scheme's own, or 0 where it has none."""

    scheme: str
    host: str
    port: int


def parse_origin(text: str) -> Origin | None:
    """The origin in ``text``, or None where it is none: ``null``, a path, user information."""
    scheme, separator, rest = text.partition("://")
    authority = parse_authority(rest)
    scheme = scheme.lower()
    if not separator or authority is None or not _SCHEME_CHARACTERS.issuperset(scheme) or not scheme[:1].isalpha():
        return None
    host, port = authority
    return Origin(scheme, host, _PORTS.get(scheme, 0) if port is None else port)


class OriginPattern(Struct, frozen=True):
    """An entry of a setting that allows origins (EN-73).

    ``host`` is None for any host, ``port`` None for any port; with
    ``below`` the names below ``host`` are meant, and not ``host`` itself.
    """

    scheme: str
    host: str | None
    port: int | None
    below: bool = False

    @classmethod
    def parse(cls, text: str) -> OriginPattern:
        """The pattern written as ``text``.

        ``scheme://host[:port]``; the host of a web scheme may begin with
        ``*.``, that of any other scheme may be ``*``, the port may be ``*``.

        Raises:
            ValueError: It is none. The message says what is wrong with it.
        """
        scheme, separator, rest = text.partition("://")
        if not separator:
            raise ValueError("an origin has the form scheme://host[:port]")
        any_port = rest.endswith(":*")
        rest = rest.removesuffix(":*") if any_port else rest
        any_host = rest == "*"
        below = rest.startswith("*.")
        origin = parse_origin(f"{scheme}://{'any' if any_host else rest.removeprefix('*.')}")
        if origin is None:
            raise ValueError("an origin is scheme://host[:port] without user, path or other wildcards")
        if any_host and origin.scheme in _PORTS:
            raise ValueError("the host * is allowed for the schemes of browser extensions only")
        return cls(origin.scheme, None if any_host else origin.host, None if any_port else origin.port, below)

    def matches(self, origin: Origin) -> bool:
        """Whether ``origin`` is one of those that the pattern means."""
        if origin.scheme != self.scheme or self.port not in (None, origin.port):
            return False
        if self.host is None:
            return True
        return origin.host.endswith("." + self.host) if self.below else origin.host == self.host


def _ipv6(literal: str) -> str:
    """``literal`` in its shortest form, or nothing where it is no plain IPv6 address."""
    if "%" in literal:
        return ""
    try:
        return str(ipaddress.IPv6Address(literal))
    except ValueError:
        return ""
