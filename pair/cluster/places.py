"""Where a node that is invited may be: addresses as people write them and as the directory knows them (CL-56, CL-58).

Pure. Which interfaces are up is an argument.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec import Struct

from pair.authority import parse_authority, unwrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Place(Struct, frozen=True):
    """An IP literal, with a zone where it has one, or a host's name; and a port."""

    host: str
    port: int


class PlaceError(ValueError):
    """A text names no place."""


def parse_node(text: str) -> str | None:
    """The UUID in ``text``, in any spelling of CL-4; None where it is none."""
    try:
        return str(UUID(text.strip()))
    except ValueError:
        return None


def parse_place(text: str, port: int) -> Place:
    """The place that ``text`` names: ``host[:port]``, ``[IPv6]:port`` or a bare IPv6 literal, which may have a zone.

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
    bracketed, bracket, rest = text.removeprefix("[").partition("]")
    if text.startswith("[") and bracket and "%" in bracketed:
        literal, authority = _literal(bracketed), parse_authority(f"zone{rest}")
    else:
        authority = parse_authority(text)
        literal = None if authority is None else authority[0]
    if literal is None or authority is None or authority[1] == 0:
        raise PlaceError("it is no address")
    return Place(literal, port if authority[1] is None else authority[1])


def spread(places: Iterable[Place], zones: Sequence[str]) -> tuple[Place, ...]:
    """The places to try, in order and without repeats.

    Args:
        places: As known.
        zones: The interfaces that are up: a link-local address without a zone is tried on each of them.
    """
    every = (each for place in places for each in _zoned(place, zones))
    return tuple(dict.fromkeys(every))


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
        return str(ip_address(unwrap(text)))
    except ValueError:
        return None
