"""What changes around this node: its interfaces come and go, and the machine sleeps (DS-26, DS-27)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from twisted.application.service import MultiService

from pair.discovery.bursts import Settling
from pair.discovery.liveness import Clocks, woke
from pair.events import Signal
from pair.logs import Logger
from pair.supervision.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.addresses import Interface

LOOK_SECONDS = 2.0
"""Between two looks at the interfaces."""

TICK_SECONDS = 1.0
"""Between two readings of the clocks."""

log = Logger()


def system_clocks() -> Clocks:
    """The clocks of this machine, now."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return Clocks(time.time(), time.monotonic(), None if boot is None else time.clock_gettime(boot))


class Surroundings(MultiService):
    """Looks at interfaces and clocks while it runs.

    Args:
        clock: for the looks.
        links: the interfaces of this host, read anew for each call.
        clocks: all its clocks.

    Attributes:
        found: the interfaces as they were last seen.
        moved: emits them when they have changed and come to rest.
        woken: emits when the machine has slept.
    """

    def __init__(
        self, clock: IReactorTime, links: Callable[[], Sequence[Interface]], clocks: Callable[[], Clocks]
    ) -> None:
        super().__init__()
        self.found: tuple[Interface, ...] = ()
        self.moved: Signal[tuple[Interface, ...]] = Signal()
        self.woken: Signal[None] = Signal()
        self._clock = clock
        self._links = links
        self._clocks = clocks
        self._before: Clocks | None = None
        self._settling = Settling()
        self._timer: IDelayedCall | None = None
        self.addService(Repeating(clock, LOOK_SECONDS, self._look, "The look at the interfaces"))
        self.addService(Repeating(clock, TICK_SECONDS, self._tick, "The look at the clocks"))

    def startService(self) -> None:
        """Look for the first time, which is no change."""
        self.found = tuple(self._links())
        self._before = None
        super().startService()

    def stopService(self) -> object:
        """Look no more."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._settling.settled()
        return super().stopService()

    def _look(self) -> None:
        found = tuple(self._links())
        if found != self.found:
            self.found = found
            self._settling.changed(self._clock.seconds())
            self._wait()

    def _wait(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        due = self._settling.due
        if due is not None:
            self._timer = self._clock.callLater(max(0.0, due - self._clock.seconds()), self._settled)

    def _settled(self) -> None:
        self._settling.settled()
        log.info("The network interfaces have changed.")
        self.moved.emit(self.found)

    def _tick(self) -> None:
        before, self._before = self._before, self._clocks()
        if before is not None and woke(before, self._before):
            log.info("This machine has slept.")
            self._look()
            self.woken.emit(None)
