"""From packets to claims: what was heard of each node by multicast (discovery page, sections 3 and 7).

Pure. A packet has not always all of a record: what it lacks is remembered from
those before it. It must not know which claims are believed, nor since when a
node was not heard.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, TypeVar

from pair.addresses import parse_node
from pair.discovery.addresses import ADDRESSES_MAX, usable
from pair.discovery.claims import Claim
from pair.discovery.txt import Record, decode, shown_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.addresses import Interface
    from pair.discovery.packets import Packet

KEPT_MAX = 1024
"""Records, and hosts, that are remembered; the oldest give way."""

AT_ONCE_MAX = 1024
A_SECOND_MAX = 256.0
"""Records that are looked at: of all that come at once, as when 256 nodes answer one question, and of more in time."""

K = TypeVar("K")
V = TypeVar("V")


class Hearing:
    """What the last packets said, by instance and by host."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], Record] = {}
        self._hosts: dict[str, dict[str | None, tuple[str, ...]]] = {}

    def take(self, packet: Packet, zone: str | None, found: Sequence[Interface]) -> tuple[Claim, ...]:
        """What a packet claims: one claim for each instance whose SRV or TXT it has (DS-55).

        Args:
            packet: As it was read.
            zone: The interface by which it came; None where that cannot be told.
            found: The interfaces of this host.
        """
        for host, addresses in packet.addresses.items():
            uuid = _uuid(host)
            if uuid is not None:
                heard = {**self._hosts.get(uuid, {}), zone: usable(addresses, zone, found)}
                _keep(self._hosts, uuid, heard)
        claims = []
        for instance in dict.fromkeys((*packet.texts, *packet.targets)):
            record = self._record(instance, packet)
            if record is not None:
                claims.append(self._claim(instance, record, zone, found))
        return tuple(claims)

    def forget_addresses(self) -> None:
        """The interfaces are others now: what came by the old ones may lead nowhere."""
        self._hosts.clear()

    def _record(self, instance: str, packet: Packet) -> Record | None:
        text = packet.texts.get(instance)
        if text is None:
            uuid = _uuid(packet.targets[instance])
            return None if uuid is None else self._records.get((instance, uuid))
        record = decode(text)
        if record is not None:
            _keep(self._records, (instance, record.uuid), record)
        return record

    def _claim(self, instance: str, record: Record, zone: str | None, found: Sequence[Interface]) -> Claim:
        by_zone = self._hosts.get(record.uuid, {})
        records = dict.fromkeys(address for each in by_zone.values() for address in each)
        return Claim(
            "mdns",
            record.uuid,
            instance,
            name=shown_name(instance, record.uuid),
            addresses=usable(record.addresses, zone, found),
            records=tuple(records)[:ADDRESSES_MAX],
            services=record.services,
            cluster=record.cluster,
        )


class Allowance:
    """How much of what anybody may send is looked at; the rest is as if it had been lost on the way."""

    def __init__(self) -> None:
        self._left = float(AT_ONCE_MAX)
        self._at = 0.0

    def covers(self, packet: Packet, now: float) -> bool:
        """Whether a packet that comes now, in seconds that do not go back, is to be looked at."""
        self._left = min(self._left + (now - self._at) * A_SECOND_MAX, AT_ONCE_MAX)
        self._at = now
        cost = len(packet.texts) + len(packet.targets) + len(packet.gone) + sum(map(len, packet.addresses.values()))
        if cost > self._left:
            return False
        self._left -= cost
        return True


def zone_of(source: str, found: Sequence[Interface]) -> str | None:
    """The interface whose network ``source``, an IP literal without zone, is in; None where it is not exactly one.

    The system names the interface only for link-local sources.
    """
    ip = ip_address(source)
    names = {
        interface.name
        for interface in found
        for each in interface.addresses
        if each.prefix is not None and ip in ip_network(f"{each.ip}/{each.prefix}", strict=False)
    }
    return names.pop() if len(names) == 1 else None


def _uuid(host: str) -> str | None:
    """That of the node whose host name this is, see :func:`pair.discovery.txt.target_name`."""
    return parse_node(host.removeprefix("pair-").removesuffix(".local."))


def _keep(kept: dict[K, V], key: K, value: V) -> None:
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > KEPT_MAX:
        del kept[next(iter(kept))]
