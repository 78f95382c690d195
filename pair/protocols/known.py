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
    """A head that was read, cut where the ``length`` of its body stands; one without a length ends ``before``."""

    head: H
    before: bytes
    length: bytes = b""
    behind: bytes = b""

    @classmethod
    def of(cls, head: H, raw: bytes) -> Known[H]:
        """``head``, as it came."""
        found = _LENGTH.search(raw)
        if found is None:
            return cls(head, raw)
        return cls(head, raw[: found.start(1)], found[1], raw[found.end(1) :])

    def again(self, data: bytes) -> tuple[H, int] | None:
        """The head at the start of ``data`` and its size, if it is this one but for the length."""
        before, length, behind = self.before, self.length, self.behind
        if not data.startswith(before):
            return None
        start = len(before)
        if not length:
            return self.head, start
        end = data.find(b"\r", start, start + LENGTH_DIGITS + 1)
        if end < 0 or not data.startswith(behind, end):
            return None
        other = data[start:end]
        if other == length:
            return self.head, end + len(behind)
        return (self._of_length(other), end + len(behind)) if other.isdigit() else None

    def _of_length(self, length: bytes) -> H:
        head = self.head
        fields = tuple((name, length if name.lower() == b"content-length" else value) for name, value in head.fields)
        named = {**head.named, b"content-length": [length]}
        return replace(head, fields=fields, named=named, content_length=int(length))
