"""Telling a reactor that stands still from a process that was put to sleep (OP-48, OP-49). Pure."""

from __future__ import annotations

from enum import Enum, auto

from msgspec import Struct

PERIOD = 0.25
"""Seconds between two turns of the counter, and between two looks at it."""

SLEEP = 5.0
"""A gap between two looks, in seconds, from which on the machine or the process was asleep (DS-27)."""


class Limits(Struct, frozen=True):
    """Seconds without a turn: from ``stall`` on it is logged, from ``entry`` on shown, from ``end`` on fatal."""

    stall: float = 2.0
    entry: float = 5.0
    end: float = 60.0


class News(Enum):
    """What a look at the counter may tell."""

    STALLED = auto()
    SHOWN = auto()
    FATAL = auto()
    OVER = auto()
    WOKE = auto()


class Judge:
    """Looks at the counter again and again, and tells each thing once.

    A stall is counted in looks, not by the clock: time in which the looker
    itself did not run says nothing of the reactor.

    Attributes:
        stalled: how long the reactor has not turned, in seconds.
        gap: seconds between the last two looks.
    """

    def __init__(self, limits: Limits, now: float) -> None:
        self.stalled = 0.0
        self.gap = 0.0
        self._limits = limits
        self._seen = now
        self._turns = -1

    def look(self, now: float, turns: int) -> list[News]:
        """The counter stands at ``turns``, at the instant ``now`` in seconds."""
        self.gap, self._seen = now - self._seen, now
        news = [News.WOKE] if self.gap >= SLEEP else []
        before = self.stalled
        if turns != self._turns:
            self._turns = turns
            self.stalled = 0.0
            return [*news, News.OVER] if before >= self._limits.stall else news
        self.stalled += min(self.gap, 2 * PERIOD)
        thresholds = (
            (self._limits.stall, News.STALLED),
            (self._limits.entry, News.SHOWN),
            (self._limits.end, News.FATAL),
        )
        return news + [what for limit, what in thresholds if before < limit <= self.stalled]
