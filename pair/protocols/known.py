"""Heads that come again on a connection, known by their bytes. Pure.

Both ends of HTTP send the same head again and again, but for the length of the
body. What was read of one is true of the next: no parser needs to see it, and
whoever noted on it what follows from it need not find out again.
"""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pair.protocols.http1 import LENGTH_DIGITS

MOST_BYTES = 2048
"""The longest head that is kept to be known again."""

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)(?=\r\n)", re.IGNORECASE)

H = TypeVar("H", bound=Any)
"""A head of either end."""


class Known(Struct, Generic[H], frozen=True):
    """A head that was read, and as it came.

    Attributes:
        head: What was read.
        raw: All of its bytes.
        at: Where among them the digits of its length begin, and end; at both ends of nothing where it has none.
    """

    head: H
    raw: bytes
    at: tuple[int, int]

    @classmethod
    def of(cls, head: H, raw: bytes) -> Known[H]:
        """``head``, as it came."""
        found = _LENGTH.search(raw)
        return cls(head, raw, (0, 0) if found is None else found.span(1))

    def again(self, data: bytes) -> tuple[H, int] | None:
        """The head at the start of ``data`` and its size, if it is this one but for the length."""
        raw = self.raw
        if data.startswith(raw):
            return self.head, len(raw)
        begin, end = self.at
        if begin == end or not data.startswith(raw[:begin]):
            return None
        behind = data.find(b"\r", begin, begin + LENGTH_DIGITS + 1)
        length = data[begin:behind]
        if behind < 0 or not length.isdigit() or not data.startswith(raw[end:], behind):
            return None
        return self._of_length(length), behind + len(raw) - end

    def _of_length(self, length: bytes) -> H:
        head = self.head
        fields = tuple((name, length if name.lower() == b"content-length" else value) for name, value in head.fields)
        named = {**head.named, b"content-length": [length]}
        return replace(head, fields=fields, named=named, content_length=int(length))
