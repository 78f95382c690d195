"""The thread that notices when the reactor stands still, or a stop never ends (OP-48, OP-49, OP-53)."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from twisted.application.service import Service

from pair.events import Signal
from pair.logs import Logger
from pair.supervision.conditions import REACTOR_STALL
from pair.supervision.repeating import Repeating
from pair.supervision.stacks import all_stacks, stack
from pair.supervision.stalls import PERIOD, Judge, Limits, News

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IReactorTime

    from pair.interfaces import IErrorBook

log = Logger()


def boot_time() -> float:
    """Seconds on a clock that cannot be set and, where the system has such a one, runs on in sleep."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _in_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="pair-watchdog", daemon=True).start()


class StallWatchdog(Service):
    """Watches the thread in which it is started.

    It starts first and stops last, and goes on after its stop when
    :meth:`end_within` was called: then only the end of the process ends it.

    Args:
        clock: the reactor, whose turns are counted.
        in_reactor: calls a function with arguments in the reactor thread, as ``callFromThread`` does.
        die: ends the process at once, with 70 and the line it is given; as :func:`pair.supervision.process.die`.
        now: seconds on a clock that only goes forward.
        in_thread: runs what it is given in a thread of its own.

    Attributes:
        woke: emits the seconds for which the process did not run, in the
            reactor thread, once it runs again (OP-49).
        stalls: how many there were.
        longest: the longest of them, in seconds.
        last_at: when the last one was over, in epoch milliseconds.
    """

    def __init__(
        self,
        clock: IReactorTime,
        in_reactor: Callable[..., object],
        errors: IErrorBook,
        limits: Limits,
        die: Callable[[str], object],
        now: Callable[[], float] = boot_time,
        in_thread: Callable[[Callable[[], None]], object] = _in_thread,
    ) -> None:
        self.woke: Signal[float] = Signal()
        self.stalls = 0
        self.longest = 0.0
        self.last_at: int | None = None
        self._in_reactor = in_reactor
        self._errors = errors
        self._limits = limits
        self._die = die
        self._now = now
        self._in_thread = in_thread
        self._judge = Judge(limits, now())
        self._turns = 0
        self._end_by: float | None = None
        self._quit = threading.Event()
        self._watched = 0
        self._counter = Repeating(clock, PERIOD, self._turn, "The count of the reactor's turns")

    def startService(self) -> None:
        """Begin to count, and to look."""
        super().startService()
        self._watched = threading.get_ident()
        self._counter.startService()
        self._judge = Judge(self._limits, self._now())
        self._in_thread(self._watch)

    def stopService(self) -> None:
        """Stop counting; stalls are no matter any more."""
        super().stopService()
        self._counter.stopService()
        if self._end_by is None:
            self._quit.set()

    def end_within(self, seconds: float) -> None:
        """End the process with 70 if it still lives in ``seconds`` from now (OP-53)."""
        self._end_by = self._now() + seconds

    def _turn(self) -> None:
        self._turns += 1

    # In the watchdog's own thread.

    def _watch(self) -> None:
        while not self._quit.wait(PERIOD):
            self.look()

    def look(self) -> None:
        """Look at the counter once, and do what follows from it."""
        now, judge = self._now(), self._judge
        if self._end_by is not None and now >= self._end_by:
            self._end_process("the stop did not end in time; what the service had started may still run")
            return
        if not self.running:
            return
        stalled = judge.stalled
        for news in judge.look(now, self._turns):
            match news:
                case News.STALLED:
                    log.error(
                        "The reactor has not turned for {seconds} s. It is here:\n{stack}",
                        seconds=self._limits.stall,
                        stack=stack(self._watched),
                    )
                case News.SHOWN:
                    self._in_reactor(self._errors.raise_entry, REACTOR_STALL.id, seconds=f"{self._limits.entry:g}")
                case News.FATAL:
                    self._end_process(f"the service stood still for {self._limits.end:g} s; start it again")
                case News.OVER:
                    self.stalls += 1
                    self.longest = max(self.longest, stalled)
                    self.last_at = round(time.time() * 1000)
                    log.warn("The reactor turns again, after {seconds:.1f} s.", seconds=stalled)
                case News.WOKE:
                    log.info("The process did not run for {seconds:.0f} s: it woke.", seconds=judge.gap)
                    self._in_reactor(self.woke.emit, judge.gap)

    def _end_process(self, why: str) -> None:
        for thread, text in all_stacks().items():
            log.critical("Thread {thread} is here:\n{stack}", thread=thread, stack=text)
        self._die(why)
