"""Whether multicast is blocked on the way, though nodes on our networks can be asked directly (DS-29).

Pure: instants are seconds on one monotonic clock.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from pair.addresses import bare_ip

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pair.addresses import Interface

BLOCKED_SECONDS = 60.0
"""For so long nodes have answered and no multicast has come."""

_GAP_SECONDS = 40.0
"""Answers further apart do not make one time; a node that does not answer is asked every 30 s at least."""


def is_near(address: str, found: Iterable[Interface]) -> bool:
    """Whether multicast of the host with this address should reach us: it is another's on a network of ours.

    What nodes of this same host send comes from an address of our own.
    """
    try:
        ip = bare_ip(address)
    except ValueError:
        return False
    found = tuple(found)
    if ip.is_loopback or any(ip == ip_address(each.ip) for interface in found for each in interface.addresses):
        return False
    return any(
        ip.version == ip_address(each.ip).version and ip in ip_network(f"{each.ip}/{each.prefix}", strict=False)
        for interface in found
        if interface.up and not interface.point_to_point
        for each in interface.addresses
        if each.prefix is not None
    )


class Deafness:
    """For how long nodes nearby have been answering."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._last = 0.0

    def answered(self, now: float) -> None:
        """A node on a network of ours has answered by unicast."""
        if self._since is None or now - self._last > _GAP_SECONDS:
            self._since = now
        self._last = now

    def holds(self, heard: float | None, now: float) -> bool:
        """Whether to tell of it.

        Args:
            heard: When the last multicast came from another host.
            now: The instant.
        """
        if self._since is None or now - self._last > _GAP_SECONDS:
            return False
        quiet = self._since if heard is None else max(self._since, heard)
        return now - quiet >= BLOCKED_SECONDS
