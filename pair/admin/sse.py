"""The events of a ``text/event-stream``, whatever the pieces in which they come. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 64 * 1024 * 1024
"""Octets of one event. A snapshot has all that a node shows, and what has no end is none."""


class Event(Struct, frozen=True):
    """One event. ``id`` is that of the last event that had one."""

    event: str
    data: str
    id: str


class TooLongError(ValueError):
    """An event does not end."""


class EventParser:
    """Takes octets, gives events."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._after_return = False
        self._data: list[str] = []
        self._size = 0
        self._event = ""
        self._id = ""

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events that ``data`` completes.

        Raises:
            TooLongError: One is longer than any of PAIR's.
        """
        # A line ends with LF, CR or both; the two may come apart.
        if self._after_return and data:
            self._after_return = False
            data = data.removeprefix(b"\n")
        self._after_return = data.endswith(b"\r")
        self._line += data
        if len(self._line) + self._size > LIMIT:
            raise TooLongError("An event of the stream does not end.")
        if b"\n" not in data and b"\r" not in data:
            return
        *lines, rest = self._line.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._line = bytearray(rest)
        for line in lines:
            event = self._take(line.decode("utf-8", "replace"))
            if event is not None:
                yield event

    def _take(self, line: str) -> Event | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._size += len(value)
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        return None

    def _dispatch(self) -> Event | None:
        data, event = self._data, self._event
        self._data, self._event, self._size = [], "", 0
        return Event(event or "message", "\n".join(data), self._id) if data else None
