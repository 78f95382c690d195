"""The same warning again and again, told once a minute (OP-32). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

QUIET_SECONDS = 60.0

_KEPT = 1000

_SUBJECTS = ("subject", "component", "engine", "facade", "model", "node", "port", "surface")
"""Fields that say what a warning is about: of two engines each has its own."""


class Repeats:
    """Remembers when each warning was last written, and how many were left out since."""

    def __init__(self) -> None:
        self._last: dict[tuple[Any, ...], tuple[float, int]] = {}

    def admit(self, event: Mapping[str, Any]) -> int | None:
        """How many like ``event`` were left out since the last that was written; None: leave this out too."""
        now: float = event.get("log_time", 0.0)
        key = (
            event.get("log_namespace"),
            event.get("log_format"),
            *(str(event.get(name)) for name in _SUBJECTS),
        )
        written, left_out = self._last.get(key, (None, 0))
        if written is not None and 0 <= now - written < QUIET_SECONDS:
            self._last[key] = (written, left_out + 1)
            return None
        # Taken out and put in again, so that the oldest are always in front.
        self._last.pop(key, None)
        if len(self._last) >= _KEPT:
            del self._last[next(iter(self._last))]
        self._last[key] = (now, 0)
        return left_out
