"""The thread that writes lines, so that a slow disk or reader never holds the reactor (OP-30)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pair.logs.backlog import Backlog
    from pair.logs.sinks import Sink

BATCH = 64
"""Lines of one write: at their longest half of the smallest file that may be set, so that no file is ever larger."""


class LineWriter:
    """One sink with its thread and its backlog. :meth:`put` may be called from any thread.

    Attributes:
        working: False when the last write failed.
        ended: True when the sink is given up, and lines are taken no more (OP-33).
    """

    def __init__(
        self,
        name: str,
        sink: Sink,
        notice: Callable[[int], bytes],
        backlog: Backlog,
        *,
        retry: bool,
        changed: Callable[[bool], object] = lambda working: None,
    ) -> None:
        """Make a writer; :meth:`start` starts it.

        Args:
            name: Of the thread.
            sink: What is written to.
            notice: The line that says how many lines were dropped.
            backlog: Where lines wait.
            retry: Whether the sink may work again after an error.
            changed: Called in the thread with each new value of ``working``.
        """
        self._sink = sink
        self._notice = notice
        self._retry = retry
        self._backlog = backlog
        self._tell_change = changed
        self._changed = threading.Condition()
        self._closing = False
        self._reopen = False
        self._lost = 0
        self.working = True
        self.ended = False
        # A daemon: a reader that takes nothing must not hold the process at its end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def put(self, rank: int, line: bytes) -> None:
        """Queue ``line``; while there is no room the least important line is dropped."""
        with self._changed:
            if not self.ended:
                self._backlog.put(rank, line)
                self._changed.notify()

    def reopen(self) -> None:
        """Open the sink anew before the next line."""
        with self._changed:
            self._reopen = True

    def close(self, seconds: float) -> None:
        """Write what is queued, and end. Blocks until that is done, ``seconds`` at most. Not started: nothing."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        closing = False
        while not (closing or self.ended):
            with self._changed:
                while not (self._backlog or self._closing):
                    self._changed.wait()
                dropped = self._backlog.dropped
                lines = self._backlog.take(BATCH)
                closing = self._closing and not self._backlog
                reopen, self._reopen = self._reopen, False
            if reopen:
                self._sink.reopen()
            self._write(lines, dropped + self._lost)
        self._sink.reopen()

    def _write(self, lines: list[bytes], lost: int) -> None:
        if lost:
            lines = [self._notice(lost), *lines]
        worked = self.working
        try:
            self._sink.write(lines)
            self._lost = 0
            self.working = True
        except OSError:
            self._lost = lost + len(lines)
            self.ended = not self._retry
            self.working = False
        if self.working != worked:
            self._tell_change(self.working)
