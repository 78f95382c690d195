"""Addresses: which of its own a node publishes, and where it dials another (discovery page, sections 5, 6 and 12).

Pure. Interfaces, and what the kernel would send from, are arguments; who
answered where is told by others. No address is judged by its range: a network
of containers and somebody's LAN may have the same.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from itertools import chain, islice, zip_longest
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from pair.addresses import Place, PlaceError, PlaceFault, bare_ip, is_own, parse_place
from pair.authority import is_loopback
from pair.records.nodes import DEFAULT_PORTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pair.addresses import Interface, InterfaceAddress

Kind = Literal["physical", "bridge", "virtual"]
"""``virtual`` are the interfaces of containers and virtual machines, and tunnels."""

MANUAL_MAX = 64
"""Manual nodes that a person may add (DS-71)."""

ADDRESSES_MAX = 16
"""Addresses that are kept of what one record says."""

PLACES_MAX = 16
STRANGER_PLACES_MAX = 8
"""Places at which a node is looked for, and one that multicast alone tells of: a record may name machines of others,
and each is dialled for it."""

_READ_MAX = 2 * ADDRESSES_MAX
"""Those that are looked at for that: a record is anybody's, and may have hundreds that are of no use."""

_VIRTUAL_NAMES = re.compile(
    r"docker.*|br-[0-9a-f]{12}|veth.*|cni.*|flannel.*|ovn-k8s-.*|virbr.*|vmnet.*|tun.*|tap.*|wg.*|utun.*|tailscale.*"
)
_VIRTUAL_TYPES = frozenset(("geneve", "gre", "ipip", "ppp", "sit", "tun", "veth", "vxlan", "wireguard"))
_BRIDGES = frozenset(("bridge", "openvswitch"))
_ANY = ("0.0.0.0", "::")  # noqa: S104 - compared with, not listened on


class ManualError(ValueError):
    """An address that cannot be added, and why (DS-71)."""

    def __init__(self, reason: PlaceFault | Literal["is_self", "too_many"]) -> None:
        super().__init__(reason)
        self.reason = reason


class NoZoneError(ManualError):
    """It is link-local, and so means nothing without the interface by which it is reached."""

    def __init__(self) -> None:
        super().__init__("bad_address")


class Reach(Struct, frozen=True):
    """What is known of where one service of one node is (DS-36).

    ``confirmed`` answered last, at whatever port, and ``earlier`` before that;
    at ``met`` other services of the node answered. ``published`` is what the
    node says, the best first; ``roster`` what its note says; ``records`` are
    the A and AAAA of its record. ``typed`` is where a person said that its
    node-info is. ``port`` is the service's, of the newest proven source.
    """

    confirmed: tuple[Place, ...] = ()
    published: tuple[str, ...] = ()
    roster: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    typed: tuple[Place, ...] = ()
    port: int | None = None
    met: tuple[str, ...] = ()
    earlier: tuple[Place, ...] = ()


def kind_of(interface: Interface, found: Iterable[Interface] = ()) -> Kind:
    """What sort of interface it is, by what the system says and by its name (DS-33).

    Args:
        interface: The one in question.
        found: All of this host: what is part of a virtual one is virtual too.
    """
    if _VIRTUAL_NAMES.fullmatch(interface.name) or not _VIRTUAL_TYPES.isdisjoint((interface.type, interface.driver)):
        return "virtual"
    if not _BRIDGES.isdisjoint((interface.type, interface.driver)):
        return "bridge"
    master = next((each for each in found if each.name == interface.master), None)
    return "physical" if master is None or kind_of(master) != "virtual" else "virtual"


def rank(
    found: Sequence[Interface],
    sources: Collection[str],
    advertised: Sequence[str] = (),
    bind: Sequence[str] = _ANY,
) -> tuple[str, ...]:
    """The addresses that this node publishes, the best first (DS-31, DS-32).

    Args:
        found: The interfaces of this host.
        sources: What the kernel would send from over its default routes: an IPv4, an IPv6 literal, both or none.
        advertised: The addresses of ``node.advertise``, published as given.
        bind: Where this node listens (``node.bind``).
    """
    bound = [bare_ip(each) for each in bind]
    everywhere = {each.version for each in bound if each.is_unspecified}
    ranked = []
    for interface in found:
        for each in _publishable(interface):
            ip = ip_address(each.ip)
            if ip in bound or ip.version in everywhere:
                ranked.append((_rank(ip, each, interface, found, sources), str(ip)))
    return tuple(dict.fromkeys((*advertised, *(ip for _, ip in sorted(ranked)))))


def usable(addresses: Iterable[str], zone: str | None, found: Sequence[Interface]) -> tuple[str, ...]:
    """Those of a record's addresses that may lead to its node (DS-13), without repeats.

    Args:
        addresses: As the record has them.
        zone: The interface by which it came; None where that is not known.
        found: The interfaces of this host: an address of theirs leads to ourselves.
    """
    shown: dict[str, None] = {}
    not_its = _not_its(tuple(found))
    for text in islice(addresses, _READ_MAX):
        try:
            ip = bare_ip(text)
        except ValueError:
            continue
        if ip.is_unspecified or ip.is_multicast or ip.is_loopback or ip in not_its:
            continue
        if not isinstance(ip, IPv6Address) or not ip.is_link_local:
            shown[str(ip)] = None
        elif zone is not None:
            shown[f"{ip}%{zone}"] = None
    return tuple(shown)[:ADDRESSES_MAX]


def candidates(service: str, reach: Reach, most: int = PLACES_MAX) -> tuple[Place, ...]:
    """Where to dial ``service`` of a node, in order and without repeats, and not more than ``most`` (DS-36).

    After what answered last each source has its turn, again and again: a
    record, which is anybody's, does not put off what the node has signed, or
    where it was met, until the time is over. A typed address has the port of
    node-info; other services are looked for at that host, on their own port.
    """
    port = DEFAULT_PORTS[service] if reach.port is None else reach.port
    met, published, roster, records = (
        [Place(each, port) for each in said] for said in (reach.met, reach.published, reach.roster, reach.records)
    )
    typed = [each if service == "ni" else Place(each.host, port) for each in reach.typed]
    turns = chain.from_iterable(zip_longest(met, published, roster, reach.earlier, records, typed))
    every = dict.fromkeys((*reach.confirmed, *(each for each in turns if each is not None)))
    return tuple(every)[:most]


def storable(places: Iterable[Place]) -> tuple[Place, ...]:
    """Those that mean something after a restart, or at another node: no link-local ones (DS-39)."""
    return tuple(each for each in places if "%" not in each.host)


def parse_manual(text: str, found: Sequence[Interface], own_port: int, present: Collection[Place]) -> Place:
    """Where a person says that a node is (DS-70, DS-71).

    Args:
        text: As typed.
        found: The interfaces of this host.
        own_port: That of our own node-info.
        present: The manual nodes that there are; one of them may be named again.

    Raises:
        ManualError: It is no address, or ours, or there are too many.
    """
    try:
        place = parse_place(text, DEFAULT_PORTS["ni"])
    except PlaceError as error:
        raise ManualError(error.reason) from None
    if _lacks_zone(place.host):
        raise NoZoneError
    if place.port == own_port and (is_loopback(place.host) or is_own(place.host, found)):
        raise ManualError("is_self")
    if place not in present and len(present) >= MANUAL_MAX:
        raise ManualError("too_many")
    return place


def _lacks_zone(host: str) -> bool:
    try:
        ip = ip_address(host)
    except ValueError:
        return False
    return isinstance(ip, IPv6Address) and ip.is_link_local and ip.scope_id is None


def _publishable(interface: Interface) -> list[InterfaceAddress]:
    """What of an interface may be published at all, whatever its rank."""
    if not interface.up:
        return []
    routed = any(ip.version == 4 and not ip.is_link_local for ip in (ip_address(at.ip) for at in interface.addresses))
    return [
        each for each in interface.addresses if not each.temporary and _is_publishable(ip_address(each.ip), routed)
    ]


def _is_publishable(ip: IPv4Address | IPv6Address, routed: bool) -> bool:
    if ip.is_loopback or ip.is_unspecified or ip.is_multicast:
        return False
    return not ip.is_link_local or (ip.version == 4 and not routed)


def _rank(
    ip: IPv4Address | IPv6Address,
    address: InterfaceAddress,
    interface: Interface,
    found: Sequence[Interface],
    sources: Collection[str],
) -> tuple[bool, bool, bool, int, bytes]:
    """What sorts before what, in the order of DS-32."""
    length = ip.max_prefixlen
    narrow = address.prefix is not None and address.prefix >= (length - 2 if ip.version == 4 else length - 1)
    kind = kind_of(interface, found)
    carries = any(each.ip in sources for each in interface.addresses)
    real = kind == "physical" or (kind == "bridge" and carries)
    return interface.point_to_point or narrow, address.ip not in sources, not real, ip.version, ip.packed


@lru_cache(4)
def _not_its(found: tuple[Interface, ...]) -> frozenset[IPv4Address | IPv6Address]:
    """What leads to no node, or to this one. Worked out once, not for each address of each packet."""
    own = [(ip_address(each.ip), each.prefix) for interface in found for each in interface.addresses]
    broadcast = (
        ip_network(f"{ip}/{prefix}", strict=False).broadcast_address
        for ip, prefix in own
        if prefix is not None and prefix < 31 and ip.version == 4
    )
    return frozenset((IPv4Address("255.255.255.255"), *broadcast, *(ip for ip, _ in own)))
