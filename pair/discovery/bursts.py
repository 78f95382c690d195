"""When the own record is announced (DS-7, DS-23, DS-26). Pure: instants are seconds on one monotonic clock."""

from __future__ import annotations

REGULAR_SECONDS = 60.0
"""From the last announcement to the next, though nothing has changed."""

GATHER_SECONDS = 0.2
"""Changes of ports and the like within so long are one."""

SETTLE_SECONDS = 1.0
SETTLE_MAX_SECONDS = 2.0
"""An interface that changed may change again: so long it is waited for that, and for all such changes together."""

_WINDOW_SECONDS = 3.0
_BURSTS = 2


class Bursts:
    """How often a record is announced: on each change, but at most twice within any 3 seconds."""

    def __init__(self, now: float) -> None:
        """The first announcement is due at once."""
        self._due = now
        self._pending = True
        self._sent: tuple[float, ...] = ()

    @property
    def due(self) -> float:
        """When to announce next."""
        if len(self._sent) < _BURSTS:
            return self._due
        return max(self._due, self._sent[0] + _WINDOW_SECONDS)

    def changed(self, now: float) -> None:
        """There is something new to announce; what changes shortly after goes with it."""
        if not self._pending:
            self._due = now + GATHER_SECONDS
        self._pending = True

    def sent(self, now: float) -> None:
        """It is being announced now."""
        self._sent = (*self._sent, now)[-_BURSTS:]
        self._due = now + REGULAR_SECONDS
        self._pending = False


class Settling:
    """When interfaces that change have come to rest, so that sockets and addresses may follow (DS-26)."""

    def __init__(self) -> None:
        """Nothing changes yet."""
        self._first: float | None = None
        self._last = 0.0

    @property
    def due(self) -> float | None:
        """When to act on the changes; None: there are none."""
        if self._first is None:
            return None
        return min(self._last + SETTLE_SECONDS, self._first + SETTLE_MAX_SECONDS)

    def changed(self, now: float) -> None:
        """An interface is not as it was."""
        self._first = now if self._first is None else self._first
        self._last = now

    def settled(self) -> None:
        """The changes so far are acted on."""
        self._first = None
