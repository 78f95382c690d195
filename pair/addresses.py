"""Nodes and addresses as text: how people, settings and records write them, and which are this host's own.

Pure. Which interfaces there are is an argument, and no name is resolved here.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from msgspec import Struct

from pair.authority import unwrap
from pair.records.nodes import DEFAULT_PORTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from ipaddress import IPv4Address

PlaceFault = Literal["bad_address", "bad_port"]

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_ZONE = re.compile(r"[A-Za-z0-9._:@~-]{1,64}")
_PORT = re.compile(r"[0-9]{1,5}")
_MEANT_FOR_PORT = re.compile(r"[^/@:?#\s]*")
"""Good or bad, it is no path, no user and no scheme's rest."""

_NAME_MAX = 253


class Place(Struct, frozen=True):
    """An IP literal, with a zone where it has one, or a host's name; and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        """As people write it: ``192.168.1.4:14318``, ``[fe80::1%eth0]:14318``."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class PlaceError(ValueError):
    """A text names no place, and why (DS-71)."""

    def __init__(self, reason: PlaceFault) -> None:
        super().__init__(reason)
        self.reason = reason


class Advertised(Struct, frozen=True):
    """What ``node.advertise`` says: addresses to publish before all others, and ports in place of our own."""

    addresses: tuple[str, ...] = ()
    ports: dict[str, int] = {}


class InterfaceAddress(Struct, frozen=True):
    """An address of this host: an IP literal without zone.

    ``prefix`` is the length of its network's, None where it is not known.
    ``temporary`` is a privacy address, which the system changes by and by.
    """

    ip: str
    prefix: int | None = None
    temporary: bool = False


class Interface(Struct, frozen=True):
    """An interface of this host, as the system describes it.

    ``type`` and ``driver`` are the kernel's words for it (``bridge``, ``veth``),
    empty where it has none. ``master`` is the interface that it is a part of.
    """

    name: str
    addresses: tuple[InterfaceAddress, ...] = ()
    up: bool = True
    point_to_point: bool = False
    type: str = ""
    driver: str = ""
    master: str = ""


def parse_node(text: str) -> str | None:
    """The UUID in ``text``, in any spelling of CL-4; None where it is none."""
    try:
        return str(UUID(text.strip()))
    except ValueError:
        return None


def parse_place(text: str, port: int) -> Place:
    """The place that ``text`` names: ``host[:port]``, ``[IPv6]:port`` or a bare IPv6 literal, which may have a zone.

    Spaces around it do not count (DS-70). A name comes in lower case and
    without a final dot; one that a resolver may take for an IPv4 address in
    another spelling, such as ``127.1``, is refused.

    Args:
        text: From a person or the directory.
        port: For one without.

    Raises:
        PlaceError: It is none.
    """
    text = text.strip()
    bare = _literal(text)
    if bare is not None:
        return Place(bare, port)
    if text.startswith("["):
        literal, bracket, rest = text[1:].partition("]")
        host = _literal(literal) if bracket and ":" in literal and rest[:1] in ("", ":") else None
        number = rest[1:]
    else:
        name, _, number = text.partition(":")
        host = _literal(name) or _name(name)
    if host is None or not _MEANT_FOR_PORT.fullmatch(number):
        raise PlaceError("bad_address")
    if not number:
        return Place(host, port)
    if not _is_port(number):
        raise PlaceError("bad_port")
    return Place(host, int(number))


def parse_advertised(entries: Iterable[str]) -> Advertised:
    """What ``node.advertise`` says.

    Raises:
        ValueError: An entry is neither an IP address nor ``<service key>=<port>``. The message says what is wrong.
    """
    addresses, ports = [], {}
    for entry in entries:
        key, equals, number = entry.partition("=")
        if not equals:
            addresses.append(_advertised_address(entry))
        elif key not in DEFAULT_PORTS:
            raise ValueError(f"the service is one of {', '.join(DEFAULT_PORTS)}")
        elif not _is_port(number):
            raise ValueError("the port is a number from 1 to 65535")
        else:
            ports[key] = int(number)
    return Advertised(tuple(addresses), ports)


def spread(places: Iterable[Place], zones: Sequence[str]) -> tuple[Place, ...]:
    """The places to try, in order and without repeats.

    Args:
        places: As known.
        zones: The interfaces that are up: a link-local address without a zone is tried on each of them.
    """
    every = (each for place in places for each in _zoned(place, zones))
    return tuple(dict.fromkeys(every))


def is_own(address: str, found: Iterable[Interface]) -> bool:
    """Whether an IP literal, which may have a zone, is one of this host with the interfaces ``found``."""
    try:
        ip = bare_ip(address)
    except ValueError:
        return False
    return ip.is_loopback or any(ip == ip_address(each.ip) for interface in found for each in interface.addresses)


def zones(found: Iterable[Interface]) -> tuple[str, ...]:
    """The names of the interfaces by which link-local addresses are reached."""
    return tuple(
        each.name
        for each in found
        if any(ip.version == 6 and ip.is_link_local for ip in (ip_address(at.ip) for at in each.addresses))
    )


def bare_ip(address: str) -> IPv4Address | IPv6Address:
    """The IP address in a literal, without its zone, an IPv4-mapped one as IPv4 (AR-10).

    Raises:
        ValueError: It is no literal.
    """
    return ip_address(unwrap(address.partition("%")[0]))


def _advertised_address(text: str) -> str:
    try:
        ip = ip_address(text)
    except ValueError:
        raise ValueError("it is neither an IP address nor service=port") from None
    if "%" in text or ip.is_unspecified or ip.is_multicast:
        raise ValueError("it is no address that others could dial")
    return str(ip)


def _is_port(text: str) -> bool:
    return _PORT.fullmatch(text) is not None and 1 <= int(text) <= 65535


def _zoned(place: Place, zones: Sequence[str]) -> list[Place]:
    try:
        ip = ip_address(place.host)
    except ValueError:
        return [place]
    if isinstance(ip, IPv6Address) and ip.is_link_local and ip.scope_id is None:
        return [Place(f"{place.host}%{zone}", place.port) for zone in zones]
    return [place]


def _literal(text: str) -> str | None:
    try:
        ip = ip_address(unwrap(text))
    except ValueError:
        return None
    if isinstance(ip, IPv6Address) and ip.scope_id is not None and not _ZONE.fullmatch(ip.scope_id):
        return None
    return str(ip)


def _name(text: str) -> str | None:
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > _NAME_MAX or not all(map(_LABEL.fullmatch, labels)) or _NUMBER.fullmatch(labels[-1]):
        return None
    return name
