"""How the records of a feed become bytes, and records of another node again. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")
S = TypeVar("S", bound=Struct)


class Codec(Protocol[R]):
    """For the records of one feed."""

    def encode(self, record: R) -> bytes:
        """``record`` as JSON, without a line break."""

    def decode(self, origin: str, key: str, data: bytes | msgspec.Raw) -> R:
        """The record that ``origin`` published under ``key``.

        Raises:
            ValueError: It is none of this feed, or not of that key.
        """


class StructCodec(Generic[S]):
    """For records of one type, which name their key and their owner themselves.

    Args:
        type: Of the records.
        key: The attribute that is the key.
        owner: The attribute that is the owner's UUID. What another node says
            there does not count: it is the node that is connected to (JB-28).
        bound: What is kept of a record of another node; a ``ValueError`` where it is none at all.
    """

    def __init__(self, type: type[S], key: str, owner: str, bound: Callable[[S], S] = lambda record: record) -> None:
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(type)
        self._key = key
        self._owner = owner
        self._bound = bound

    def encode(self, record: S) -> bytes:
        """See :class:`Codec`."""
        return self._encoder.encode(record)

    def decode(self, origin: str, key: str, data: bytes | msgspec.Raw) -> S:
        """See :class:`Codec`."""
        record = self._bound(self._decoder.decode(data))
        if getattr(record, self._key) != key:
            raise ValueError("another key")
        if getattr(record, self._owner) != origin:
            record = replace(record, **{self._owner: origin})
        return record
