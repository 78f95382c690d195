"""The forms of single values: addresses, origins, URLs of engines, sizes. Pure.

A function that reads a text raises ValueError with words of its own, never
with the text: it may hold a credential.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from pair.addresses import PlaceError, parse_advertised, parse_place
from pair.authority import OriginPattern, is_loopback, parse_authority, parse_origin
from pair.records.engines import EngineAddress
from pair.records.nodes import DEFAULT_PORTS

ENGINE_ID = re.compile(r"[a-z][a-z0-9-]{0,31}")
LABEL = r"\A[a-z0-9][a-z0-9._=-]{0,62}\Z"
VARIABLE = r"\A[A-Za-z_][A-Za-z0-9_]*\Z"

_SIZE = re.compile(r"(\d{1,15}) ?(KiB|MiB|GiB)")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_WEB = {"http": 80, "https": 443}
_PLACE_FAULTS = {"bad_address": "it is neither a host nor host:port", "bad_port": "the port is from 1 to 65535"}


def size(text: str) -> int:
    """Bytes of a text such as ``64 MiB`` (OP-10)."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("a size is bytes, or a number with KiB, MiB or GiB")
    return int(match[1]) * _UNITS[match[2]]


def size_text(count: int) -> str:
    """``count`` bytes in the largest unit that divides it."""
    for unit, factor in reversed(_UNITS.items()):
        if count and count % factor == 0:
            return f"{count // factor} {unit}"
    return str(count)


def bind_address(text: str) -> None:
    """Check an IP address that a machine may have as its own; IPv6 may have a zone."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError("it is not an IP address") from None
    if address.is_multicast or text == "255.255.255.255":
        raise ValueError("no machine has a multicast or broadcast address as its own")


def advertised(text: str) -> None:
    """Check an entry of ``node.advertise`` (DS-32)."""
    parse_advertised((text,))


def peer_place(text: str) -> None:
    """Check an entry of ``discovery.static_peers`` (DS-70)."""
    try:
        parse_place(text, DEFAULT_PORTS["ni"])
    except PlaceError as error:
        raise ValueError(_PLACE_FAULTS[error.reason]) from None


def host_name(text: str) -> None:
    """Check a ``host[:port]`` (PX-17)."""
    if parse_authority(text) is None:
        raise ValueError("it is not host[:port]")


def alias_place(text: str) -> None:
    """Check a value of ``facade.ollama.alias`` (EN-54)."""
    authority = parse_authority(text)
    if text not in ("env", "off") and (authority is None or not authority[1] or not is_loopback(authority[0])):
        raise ValueError("the host must be this machine, and the port is needed")


def origin_pattern(text: str) -> None:
    """Check an entry of ``proxy.origins``: ``null``, or a pattern of EN-73."""
    if text != "null":
        OriginPattern.parse(text)


def full_origin(text: str) -> None:
    """Check an origin of the web without wildcards."""
    origin = parse_origin(text)
    if origin is None or origin.scheme not in _WEB:
        raise ValueError("it is not http[s]://host[:port]")


def engine_address(url: str) -> EngineAddress:
    """Where the engine of ``url`` answers (EN-4).

    Raises:
        ValueError: Not http or https, or user information, a query, a fragment or a path other than ``/v1``.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("it is not a URL") from None
    if parts.scheme not in _WEB:
        raise ValueError("the scheme must be http or https")
    if "@" in parts.netloc:
        raise ValueError("user information is not allowed; use credential_file or credential_env")
    if "?" in url or "#" in url:
        raise ValueError("a query or a fragment is not allowed")
    if parts.path not in ("", "/", "/v1", "/v1/"):
        raise ValueError("no path but /v1 is allowed")
    authority = parse_authority(parts.netloc)
    if authority is None or authority[1] == 0:
        raise ValueError("it must name a host and may name a port")
    host, port = authority
    return EngineAddress(host, _WEB[parts.scheme] if port is None else port, parts.scheme == "https")


def is_local(address: EngineAddress) -> bool:
    """Whether an engine's address is a loopback literal or ``localhost``."""
    return is_loopback(address.host)
