"""The lines of a stream, and what a follower asks for. Pure.

A line is one JSON object whose ``kind`` says what it is. Unknown kinds and
unknown fields are passed over, so that a later PAIR may say more (JB-23).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LINE_MAX = 128 * 1024
"""Octets of a line, without its LF."""

KEY_MAX = 256
RECORD_MAX = 64 * 1024
"""Octets of a key in UTF-8, and of an encoded record (JB-5)."""

BEAT_SECONDS = 5.0

Mode = Literal["delta", "snapshot"]
ByeReason = Literal["shutdown", "slow", "replaced"]

_Count = Annotated[int, Meta(ge=0)]
_Generation = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_GENERATION = re.compile(rb"[0-9a-f]{16}")
_DIGITS = re.compile(rb"[0-9]{1,18}")


class Protocols(Struct, frozen=True):
    """The numbers of the protocol that a node speaks, both ends included (OP-57)."""

    min: int
    max: int

    def meets(self, other: Protocols) -> bool:
        """Whether there is a number that both speak."""
        return self.min <= other.max and other.min <= self.max


PROTOCOLS: Final = Protocols(1, 1)


class Hello(Struct, frozen=True, rename="camel", tag_field="kind", tag="hello"):
    """The first line. ``count`` is the number of lines up to ``end``, ``revision`` what they lead to (JB-8)."""

    protocol: Protocols
    version: str
    feed: str
    node: str
    generation: _Generation
    revision: _Count
    mode: Mode
    count: _Count
    heartbeat_ms: int


class Put(Struct, frozen=True, tag_field="kind", tag="put"):
    """The record of ``key`` from ``revision`` on, encoded."""

    revision: _Count
    key: str
    record: Raw


class Del(Struct, frozen=True, tag_field="kind", tag="del"):
    """There is no record of ``key`` any more."""

    revision: _Count
    key: str


class End(Struct, frozen=True, tag_field="kind", tag="end"):
    """The follower now has what the origin had at ``hello``; what comes from here on is news."""

    revision: _Count


class Beat(Struct, frozen=True, tag_field="kind", tag="beat"):
    """The stream is alive. ``revision`` is that of the last line before it; ``at`` is in epoch milliseconds."""

    revision: _Count
    at: int


class Bye(Struct, frozen=True, tag_field="kind", tag="bye"):
    """Nothing follows (JB-10)."""

    reason: str


class Document(Struct, frozen=True):
    """The whole table at one instant (JB-11)."""

    protocol: Protocols
    feed: str
    node: str
    generation: str
    revision: int
    records: dict[str, Raw]


Change = Put | Del
Line = Hello | Put | Del | End | Beat | Bye

_DECODERS = {
    "hello": msgspec.json.Decoder(Hello),
    "put": msgspec.json.Decoder(Put),
    "del": msgspec.json.Decoder(Del),
    "end": msgspec.json.Decoder(End),
    "beat": msgspec.json.Decoder(Beat),
    "bye": msgspec.json.Decoder(Bye),
}


class _Kind(Struct):
    kind: str


class _Greeting(Struct):
    protocol: Protocols


_kind = msgspec.json.Decoder(_Kind)
_greeting = msgspec.json.Decoder(_Greeting)
_encoder = msgspec.json.Encoder()


def write_line(line: Line) -> bytes:
    """``line`` as it is sent, LF included."""
    return _encoder.encode(line) + b"\n"


def read_line(line: bytes) -> Line | None:
    """What a line says; None where its kind is unknown.

    Raises:
        ValueError: It is no JSON object with a kind, or lacks a field of its kind.
        RecursionError: It is nested too deeply.
    """
    decoder = _DECODERS.get(_kind.decode(line).kind)
    return None if decoder is None else decoder.decode(line)  # type: ignore[attr-defined]


def read_protocols(line: bytes) -> Protocols:
    """What the sender of a first line speaks: the one thing in it that no later protocol may change.

    Raises:
        ValueError: It does not say.
        RecursionError: It is nested too deeply.
    """
    return _greeting.decode(line).protocol


def is_key(key: str) -> bool:
    """Whether ``key`` may be one (JB-5)."""
    try:
        return 0 < len(key.encode()) <= KEY_MAX and _CONTROLS.search(key) is None
    except UnicodeEncodeError:
        return False


class Position(Struct, frozen=True):
    """How far a follower has read: up to ``revision``, of the process called ``generation``."""

    generation: str
    revision: int

    @property
    def query(self) -> str:
        """The query by which a stream is asked to go on from here."""
        return f"generation={self.generation}&since={self.revision}"


def read_position(arguments: Mapping[bytes, Sequence[bytes]]) -> Position | None:
    """The position in a query; None where it names none, and a snapshot is wanted (JB-14).

    Args:
        arguments: The values of the query's names, decoded.

    Raises:
        ValueError: One of them is malformed, or given twice.
    """
    generation = _only(arguments, b"generation", _GENERATION)
    since = _only(arguments, b"since", _DIGITS)
    if generation is None or since is None:
        return None
    return Position(generation.decode("ascii"), int(since))


def _only(arguments: Mapping[bytes, Sequence[bytes]], name: bytes, form: re.Pattern[bytes]) -> bytes | None:
    values = arguments.get(name)
    if not values:
        return None
    if len(values) > 1 or form.fullmatch(values[0]) is None:
        raise ValueError("bad position")
    return values[0]
