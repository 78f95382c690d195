"""An event as a line: of JSON for the file, of text for a person (OP-27, OP-34). Pure.

What an event may show is decided here, once for both forms: values of our own
events are cleaned before they are put into the text, objects show only their
type, and an exception shows its kind and where it came from, never its words.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec import Struct
from twisted.logger import LogLevel, formatEvent
from twisted.python.failure import Failure

from pair.logs.levels import RANKS
from pair.privacy import Secret, clean_text, normalize_error

LINE_LIMIT = 8192
"""Bytes of a line, its end included."""

_VALUE_LIMIT = 256
_TEXT_LIMIT = 1000
_ITEMS_LIMIT = 20
_FRAMES_LIMIT = 12

_OWN_NAMES = frozenset({"at", "level", "component", "event", "text", "failure", "cut"})
_TWISTED_NAMES = frozenset({"isError", "failure", "why", "message", "system", "time", "format"})


class Trouble(Struct, frozen=True):
    """A failure without its words: its kind, and the places it came through, outermost first."""

    text: str
    frames: tuple[str, ...]


class Line(Struct, frozen=True):
    """An event, ready to be written in either form."""

    rank: int
    at: int
    level: str
    component: str
    event: str
    text: str
    fields: Mapping[str, object]
    failure: Trouble | None = None

    def as_json(self) -> bytes:
        """One JSON object and a newline, at most 8 KiB; a longer one loses its fields and is marked ``cut``."""
        head = {"at": self.at, "level": self.level, "component": self.component, "event": self.event}
        body: dict[str, object] = {**head, "text": self.text, **self.fields}
        if self.failure is not None:
            body["failure"] = self.failure
        line = msgspec.json.encode(body) + b"\n"
        if len(line) > LINE_LIMIT:
            short = {"event": _cut(self.event, 100), "text": _cut(self.text, _VALUE_LIMIT), "cut": True}
            line = msgspec.json.encode({**head, **short}) + b"\n"
        return line

    def as_text(self) -> bytes:
        """Time, level, component and text, then where a failure came from, a line each."""
        at = datetime.fromtimestamp(self.at / 1000)  # the time of this machine: a person at it reads this
        lines = [f"{at:%Y-%m-%d %H:%M:%S} {self.level:<5} {self.component}: {self.text}"]
        if self.failure is not None:
            lines += [f"    {each}" for each in (self.failure.text, *self.failure.frames)]
        return "\n".join(lines).encode(errors="replace") + b"\n"


def line(event: Mapping[str, Any], note: str = "") -> Line:
    """The line of a Twisted log event, with ``note`` behind its text."""
    level = event.get("log_level") or LogLevel.info
    namespace = _clean(str(event.get("log_namespace") or "-"))
    failure = event.get("log_failure")
    fields = {
        (f"{name}_" if name in _OWN_NAMES else name): _value(value)
        for name, value in event.items()
        if not name.startswith("log_") and name not in _TWISTED_NAMES
    }
    text = _text(event, namespace)
    return Line(
        rank=RANKS[level],
        at=int(event.get("log_time", 0.0) * 1000),
        level=level.name,
        component=namespace,
        event=_clean(str(event.get("log_format") or "")),
        text=_cut(text, _TEXT_LIMIT) + note,
        fields=fields,
        failure=_trouble(failure) if isinstance(failure, Failure) else None,
    )


def _text(event: Mapping[str, Any], namespace: str) -> str:
    if namespace == "pair" or namespace.startswith("pair."):
        form = str(event.get("log_format") or "")
        shown = {name: _value(value) for name, value in event.items() if not name.startswith("log_")}
        try:
            return _printable(form.format_map(shown))
        except (LookupError, ValueError, TypeError, AttributeError):
            return f"{_printable(form)} (the fields do not fit)"
    if isinstance(event.get("log_failure"), Failure) and "log_text" in event:
        # An error in the old style: its text is a traceback with the exception's words.
        return _printable(str(event.get("why") or "Unhandled error"))
    return _printable(formatEvent(dict(event)))


def _value(value: object, depth: int = 0) -> Any:
    """``value`` as it may be shown: scalars, texts that are cleaned and cut, and lists and tables of them."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, Secret):
        return str(value)
    if isinstance(value, Failure):
        value = value.value
    if isinstance(value, BaseException):
        return normalize_error(value)
    if isinstance(value, PurePath):
        return _clean(str(value))
    if depth == 0 and isinstance(value, (list, tuple, set, frozenset)):
        return [_value(each, 1) for each in list(value)[:_ITEMS_LIMIT]]
    if depth == 0 and isinstance(value, Mapping):
        return {_clean(str(name)): _value(each, 1) for name, each in list(value.items())[:_ITEMS_LIMIT]}
    return f"<{type(value).__name__}>"


def _trouble(failure: Failure) -> Trouble:
    frames = [
        f"{'/'.join(PurePath(file).parts[-3:])}:{number} {name}"[:_VALUE_LIMIT]
        for name, file, number, _, _ in failure.frames[-_FRAMES_LIMIT:]
    ]
    return Trouble(str(_value(failure)), tuple(frames))


def _printable(text: str) -> str:
    """``text`` on one line, without control and bidirectional characters."""
    return text if text.isprintable() else clean_text(" ".join(text.split()), len(text))


def _clean(text: str) -> str:
    return text if text.isprintable() and len(text) <= _VALUE_LIMIT else clean_text(text, _VALUE_LIMIT)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
