"""One sweep serves every slow limit of the data path (PX-58).

What is open is looked at every 5 s; nothing is timed per chunk. A limit of this
kind ends up to one period late, which is far below any of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pair.supervision.repeating import Repeating

if TYPE_CHECKING:
    from twisted.internet.interfaces import IReactorTime

PERIOD = 5.0
"""Seconds between two sweeps."""


class Swept(Protocol):
    """What has limits to be looked after."""

    def swept(self, now: float) -> None:
        """Look at the limits; ``now`` is in seconds of the reactor's clock."""


class Sweep(Repeating):
    """Looks at all that watches its limits, each :data:`PERIOD`, while it runs."""

    def __init__(self, clock: IReactorTime) -> None:
        super().__init__(clock, PERIOD, self.look, "The sweep of the data path")
        self._clock = clock
        self._watched: dict[Swept, None] = {}

    def watch(self, it: Swept) -> None:
        """Include ``it`` from the next sweep on."""
        self._watched[it] = None

    def leave(self, it: Swept) -> None:
        """Include it no more; one that is not watched: nothing."""
        self._watched.pop(it, None)

    def look(self) -> None:
        """Look at all of them once."""
        now = self._clock.seconds()
        for it in tuple(self._watched):
            if it in self._watched:
                it.swept(now)
