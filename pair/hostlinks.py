"""The network interfaces of this host, as they are now, and from which addresses it reaches the world.

What follows from them is pure: :mod:`pair.addresses` and
:mod:`pair.discovery.addresses`. A reading takes about a millisecond, and is
made anew for each question, since a host's interfaces change while PAIR runs.
"""

from __future__ import annotations

import socket
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from pair.addresses import Interface, InterfaceAddress

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_WORLD = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses for documentation (RFC 5737, RFC 3849): nobody's, and so reached by the default routes."""

_TEMPORARY = 0x01
"""The kernel's flag of a privacy address (IFA_F_TEMPORARY)."""


def interfaces(
    system: Path = Path("/sys/class/net"), ipv6: Path = Path("/proc/net/if_inet6")
) -> tuple[Interface, ...]:
    """Those of this host that are up.

    Args:
        system: Where Linux describes interfaces; what is not there is not known.
        ipv6: Where Linux lists IPv6 addresses with their flags.
    """
    stats = psutil.net_if_stats()
    temporary = _temporary(ipv6)
    return tuple(
        Interface(
            name,
            tuple(_address(each, temporary) for each in addresses if each.family in _FAMILIES),
            point_to_point="pointopoint" in stats[name].flags,
            type=_type(system / name),
            driver=_target(system / name / "device" / "driver"),
            master=_target(system / name / "master"),
        )
        for name, addresses in psutil.net_if_addrs().items()
        if name in stats and stats[name].isup
    )


def default_sources() -> tuple[str, ...]:
    """The addresses from which the kernel would send to the world: an IPv4, an IPv6 one, both or none."""
    return tuple(source for family, address in _WORLD if (source := _source(family, address)) is not None)


def _source(family: socket.AddressFamily, address: str) -> str | None:
    # To connect a UDP socket asks the routing table, and sends nothing.
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asking:
            asking.connect((address, 9))
            return str(asking.getsockname()[0]).partition("%")[0]
    except OSError:
        return None


def _address(found: Any, temporary: Collection[str]) -> InterfaceAddress:
    ip = ip_address(found.address.partition("%")[0])
    return InterfaceAddress(str(ip), _prefix(found.netmask), str(ip) in temporary)


def _prefix(netmask: str | None) -> int | None:
    try:
        return None if netmask is None else int(ip_address(netmask)).bit_count()
    except ValueError:
        return None


def _temporary(listing: Path) -> frozenset[str]:
    try:
        lines = listing.read_text("ascii").splitlines()
    except OSError:
        return frozenset()
    rows = (line.split() for line in lines)
    return frozenset(str(IPv6Address(bytes.fromhex(row[0]))) for row in rows if int(row[4], 16) & _TEMPORARY)


def _type(described: Path) -> str:
    """The kernel's word for the sort of interface, empty for an ordinary one."""
    if (described / "tun_flags").exists():
        return "tun"
    try:
        lines = (described / "uevent").read_text("utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition("=")[2] for line in lines if line.startswith("DEVTYPE=")), "")


def _target(link: Path) -> str:
    try:
        return link.readlink().name
    except OSError:
        return ""
