"""When people and the service manager are told that the node is ready: once, and not before it is (OP-43, OP-47)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pair.logs import Logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pair.events import Signal
    from pair.supervision.notify import SystemdNotifier

log = Logger()


class Announcement:
    """Waits until nothing keeps the node from being ready.

    Args:
        version: of this software.
        reasons: why the node is not ready; empty when it is.
        summary: where it is found, in one line.
        notifier: the service manager.
        news: emit when ``reasons`` may have changed.
    """

    def __init__(
        self,
        version: str,
        reasons: Callable[[], Sequence[str]],
        summary: Callable[[], str],
        notifier: SystemdNotifier,
        news: Sequence[Signal[Any]],
    ) -> None:
        self._version = version
        self._reasons = reasons
        self._summary = summary
        self._notifier = notifier
        self._news = news
        self._made = False

    def begin(self) -> None:
        """The start is over: announce the node, or say what it lacks and announce it when that is there."""
        self._look(None)
        if not self._made:
            reasons, version = ", ".join(self._reasons()), self._version
            log.warn("PAIR {version} has started, and is not ready: {reasons}.", version=version, reasons=reasons)
            self._notifier.status(f"not ready: {reasons}")
            for each in self._news:
                each.subscribe(self._look)

    def _look(self, _: object) -> None:
        if not self._made and not self._reasons():
            self._made = True
            summary = self._summary()
            log.info("PAIR {version} is ready: {summary}.", version=self._version, summary=summary)
            self._notifier.ready(summary)
