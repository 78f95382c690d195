"""What the bytes of a multicast DNS answer say of records of ours (discovery page, sections 3 and 4).

Pure. The library's own reader drops a record without data, which a goodbye may
well be (DS-61): so this one reads what we need, and nothing else. It must not
know from whom a packet is, nor what to make of it.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from ipaddress import ip_address

from msgspec import Struct

from pair.discovery.txt import TYPE

_LABEL = b"_nvpair-node"
_IN = 1
_A, _PTR, _TXT, _AAAA, _SRV = 1, 12, 16, 28, 33
_HEADER = struct.Struct("!6H")
_RECORD = struct.Struct("!HHIH")
_SRV_HEAD = 6
_ADDRESS_BYTES = {_A: 4, _AAAA: 16}
_NAME_BYTES = 255

SIZE_MAX = 9000
"""Octets of a packet that is read (RFC 6762, section 17)."""

_JUMPS_MAX = 16
_RECORDS_MAX = 128
"""Pointers in one name, and records of one packet, that are followed: anybody sends packets, and what one costs must
not grow with the square of its length. An answer of a node has a dozen records, in which a name has one pointer."""


class Packet(Struct, frozen=True):
    """The records of our type in one answer, and the addresses of hosts.

    ``texts`` are TXT data, ``targets`` the host names in SRV, both by the name
    of the instance. ``gone`` are the instances that a goodbye names. Host names
    are in lower case; their ``addresses`` are sorted, since their order means
    nothing and is not kept by those who send them.
    """

    texts: dict[str, bytes] = {}
    targets: dict[str, str] = {}
    gone: tuple[str, ...] = ()
    addresses: dict[str, tuple[str, ...]] = {}


def is_ours(data: bytes) -> bool:
    """Whether it is an answer that can have anything to do with us; a cheap look at each packet of the network."""
    if not _HEADER.size < len(data) <= SIZE_MAX:
        return False
    return data[2] & 0xF8 == 0x80 and data[3] & 0x0F == 0 and _LABEL in data.lower()


def read(data: bytes) -> Packet:
    """What an answer says, as far as it can be read, and is to be. Any bytes will do."""
    found = _Found()
    with suppress(ValueError, IndexError, struct.error):
        _, _, questions, *counts = _HEADER.unpack_from(data)
        at = _HEADER.size
        if questions > _RECORDS_MAX:
            raise ValueError("it is rather a question")
        for _ in range(questions):
            at = _name(data, at)[1] + 4
        for _ in range(min(sum(counts), _RECORDS_MAX)):
            name, at = _name(data, at)
            kind, space, seconds, length = _RECORD.unpack_from(data, at)
            at += _RECORD.size
            end = at + length
            if end > len(data):
                break
            if space & 0x7FFF == _IN:  # the highest bit is that of the flush
                with suppress(ValueError, IndexError):
                    found.take(data, name, kind, seconds, at, end)
            at = end
    return found.packet()


class _Found:
    """What was read so far."""

    def __init__(self) -> None:
        self._texts: dict[str, bytes] = {}
        self._targets: dict[str, str] = {}
        self._gone: dict[str, None] = {}
        self._addresses: dict[str, set[str]] = {}

    def packet(self) -> Packet:
        gone = tuple(self._gone)
        texts = {name: text for name, text in self._texts.items() if name not in self._gone}
        targets = {name: host for name, host in self._targets.items() if name not in self._gone}
        return Packet(texts, targets, gone, {host: _sorted(each) for host, each in self._addresses.items()})

    def take(self, data: bytes, name: str, kind: int, seconds: int, at: int, end: int) -> None:
        """One record of ``kind``, with its data at ``at`` to ``end``; those of no use to us are passed over."""
        if kind == _PTR and name.lower() == TYPE and seconds == 0:
            self._goodbye(_name(data, at)[0])
        elif kind in (_SRV, _TXT) and seconds == 0:
            self._goodbye(name)
        elif kind == _TXT and _is_instance(name):
            self._texts.setdefault(name, data[at:end])
        elif kind == _SRV and _is_instance(name):
            self._targets.setdefault(name, _name(data, at + _SRV_HEAD)[0].lower())
        elif end - at == _ADDRESS_BYTES.get(kind) and seconds > 0:
            self._addresses.setdefault(name.lower(), set()).add(str(ip_address(data[at:end])))

    def _goodbye(self, name: str) -> None:
        if _is_instance(name):
            self._gone[name] = None


def _is_instance(name: str) -> bool:
    return name.lower().endswith(f".{TYPE}")


def _sorted(addresses: set[str]) -> tuple[str, ...]:
    ips = sorted(map(ip_address, addresses), key=lambda each: (each.version, each.packed))
    return tuple(map(str, ips))


def _name(data: bytes, at: int) -> tuple[str, int]:
    """The name at ``at``, with a final dot, and where what follows it begins.

    Raises:
        ValueError, IndexError: There is none.
    """
    labels: list[str] = []
    size, end, before, jumps = 0, 0, at, 0
    while length := data[at]:
        if length >= 0xC0:
            end = end or at + 2
            at = (length & 0x3F) << 8 | data[at + 1]
            if at >= before:
                raise ValueError("a name points forward, or in a circle")
            before, jumps = at, jumps + 1
            if jumps > _JUMPS_MAX:
                raise ValueError("a name points from one place to the next")
            continue
        size += 1 + length
        if length >= 0x40 or size > _NAME_BYTES:
            raise ValueError("a name is too long")
        labels.append(data[at + 1 : at + 1 + length].decode(errors="replace"))
        at += 1 + length
    return "".join(f"{each}." for each in labels), end or at + 1
