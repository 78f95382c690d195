"""Which addresses of this host others are told in a note (CL-84). Pure."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

from pair.cluster.statements import ADDRESSES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from ipaddress import IPv4Address

    from pair.addresses import Interface


def published(bind: Sequence[str], found: Iterable[Interface]) -> tuple[str, ...]:
    """What other nodes are told of where this one listens: IPv4 first, at most 8.

    Link-local addresses are left out: they mean nothing without the zone,
    which is another one at each reader. Loopback is told only where there is
    nothing else, for nodes on one host.

    Args:
        bind: Where this node listens (``node.bind``).
        found: The interfaces.
    """
    bound = [ip_address(each.partition("%")[0]) for each in bind]
    there = [ip_address(each.ip) for interface in found for each in interface.addresses]
    every = {each.version for each in bound if each.is_unspecified}
    own = [each for each in bound if not each.is_unspecified] + [each for each in there if each.version in every]
    useful = [each for each in own if not (each.is_loopback or each.is_link_local)]
    ordered = sorted(dict.fromkeys(useful or [each for each in own if each.is_loopback]), key=_rank)
    return tuple(str(each) for each in ordered[:ADDRESSES_MAX])


def _rank(ip: IPv4Address | IPv6Address) -> bool:
    return isinstance(ip, IPv6Address)
