"""Answers of multicast DNS, byte by byte: what tests need of them, well-formed or not."""

from __future__ import annotations

import struct
from ipaddress import ip_address

A, PTR, TXT, AAAA, SRV = 1, 12, 16, 28, 33


def name(text: str) -> bytes:
    """``text`` in the form of the wire; its first label may have any characters but the dot."""
    return b"".join(bytes((len(label.encode()),)) + label.encode() for label in text.split(".") if label) + b"\0"


def record(owner: str, kind: int, data: bytes, seconds: int = 120) -> bytes:
    """One record, of class IN with the bit for the flush."""
    return name(owner) + struct.pack("!HHIH", kind, 0x8001, seconds, len(data)) + data


def srv(instance: str, target: str, seconds: int = 120) -> bytes:
    return record(instance, SRV, struct.pack("!3H", 0, 0, 14318) + name(target), seconds)


def address(host: str, ip: str) -> bytes:
    packed = ip_address(ip).packed
    return record(host, A if len(packed) == 4 else AAAA, packed)


def answer(*records: bytes, questions: int = 0, flags: int = 0x8400) -> bytes:
    """A packet with these records."""
    return struct.pack("!6H", 0, flags, questions, len(records), 0, 0) + b"".join(records)


def fields(packet: bytes) -> list[tuple[int, int, int | None]]:
    """Kind, class and TTL of all that a packet has, in its order; a question has no TTL."""
    _, _, questions, *counts = struct.unpack_from("!6H", packet)
    found: list[tuple[int, int, int | None]] = []
    at = 12
    for _ in range(questions):
        at = _after_name(packet, at)
        found.append((*struct.unpack_from("!HH", packet, at), None))
        at += 4
    for _ in range(sum(counts)):
        at = _after_name(packet, at)
        kind, space, seconds, length = struct.unpack_from("!HHIH", packet, at)
        found.append((kind, space, seconds))
        at += 10 + length
    return found


def _after_name(packet: bytes, at: int) -> int:
    while 0 < packet[at] < 0xC0:
        at += 1 + packet[at]
    return at + (1 if packet[at] == 0 else 2)
