"""By which interfaces a node sends its multicasts, and how that goes (DS-18, DS-21, DS-28). Pure."""

from __future__ import annotations

import errno
from ipaddress import ip_address
from typing import TYPE_CHECKING

from msgspec import Struct

from pair.discovery.addresses import kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.addresses import Interface

DENIED = frozenset((errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPERM, errno.EACCES))
"""Errors by which a system says that nothing may, or can, go out."""

DENIED_SECONDS = 15.0
"""So long nothing at all went out before it is reported."""

_LOG_SECONDS = 60.0


class Leg(Struct, frozen=True):
    """One interface to send by: from this IPv4 address, if any, and by IPv6 or not."""

    name: str
    ipv4: str | None
    ipv6: bool


class Sent(Struct, frozen=True):
    """How one multicast went: whether it left by any socket, and the error number of each interface that failed."""

    left: bool
    failed: dict[str, int] = {}


def legs(found: Sequence[Interface], ipv6: bool) -> tuple[Leg, ...]:
    """The interfaces to use: all that are up, one address of each family.

    Loopback counts only on a host that has nothing else. The ends of
    containers' links, which have a link-local address and no other, do not
    count: a host may have hundreds.

    Args:
        found: Those of this host.
        ipv6: Whether IPv6 is to be used at all (``discovery.ipv6``).
    """
    chosen = tuple(leg for each in found if each.up and (leg := _leg(each, found, ipv6)) is not None)
    loopback = next((each for each in found if each.up and _ipv4(each, loopback=True) is not None), None)
    if chosen or loopback is None:
        return chosen
    return (Leg(loopback.name, _ipv4(loopback, loopback=True), ipv6=False),)


def own_records(found: Sequence[Interface], ipv6: bool) -> tuple[str, ...]:
    """What goes into A and AAAA: every address of the interfaces that are sent by, link-local ones too."""
    names = {each.name for each in legs(found, ipv6)}
    return tuple(
        each.ip
        for interface in found
        if interface.name in names
        for each in interface.addresses
        if not each.temporary and not ip_address(each.ip).is_loopback and (ipv6 or ip_address(each.ip).version == 4)
    )


class Sends:
    """How sending goes, over all interfaces."""

    def __init__(self) -> None:
        self._denied_since: float | None = None
        self._logged: dict[str, float] = {}

    def denied(self, now: float) -> bool:
        """Whether for :data:`DENIED_SECONDS` nothing has left by any interface, since the system does not let it."""
        return self._denied_since is not None and now - self._denied_since >= DENIED_SECONDS

    def told(self, sent: Sent, now: float) -> dict[str, int]:
        """Count one multicast.

        Returns:
            The errors that are to be logged: of each interface one a minute.
        """
        if sent.left:
            self._denied_since = None
        elif self._denied_since is None and not DENIED.isdisjoint(sent.failed.values()):
            self._denied_since = now
        self._logged = {name: at for name, at in self._logged.items() if now - at < _LOG_SECONDS}
        news = {name: number for name, number in sent.failed.items() if name not in self._logged}
        self._logged.update(dict.fromkeys(news, now))
        return news

    def forget(self) -> None:
        """The interfaces are others now, or none."""
        self._denied_since = None


def _leg(interface: Interface, found: Sequence[Interface], ipv6: bool) -> Leg | None:
    every = [ip_address(each.ip) for each in interface.addresses]
    if any(each.is_loopback for each in every):
        return None
    ipv4 = _ipv4(interface)
    sixes = [each for each in every if each.version == 6]
    lonely = ipv4 is None and all(each.is_link_local for each in sixes) and kind_of(interface, found) == "virtual"
    uses_ipv6 = ipv6 and bool(sixes) and not lonely
    return Leg(interface.name, ipv4, uses_ipv6) if ipv4 is not None or uses_ipv6 else None


def _ipv4(interface: Interface, loopback: bool = False) -> str | None:
    """The address to send from, one that is routed if there is any."""
    fours = [each for at in interface.addresses if (each := ip_address(at.ip)).version == 4]
    fitting = sorted((each.is_link_local, at) for at, each in enumerate(fours) if each.is_loopback == loopback)
    return str(fours[fitting[0][1]]) if fitting else None
