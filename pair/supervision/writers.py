"""Threads that write, watched from the reactor (OP-50)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pair.records.errors import Subject
from pair.supervision.conditions import WRITER_STALLED
from pair.supervision.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twisted.internet.interfaces import IReactorTime

    from pair.interfaces import IErrorBook

LIMIT = 20.0
"""Seconds that a writer may be at one item."""

_INTERVAL = 1.0


class Writer(Protocol):
    """A thread that works off a queue."""

    @property
    def busy_seconds(self) -> float:
        """For how long it has been at its present item; 0 while it has none."""


class WriterWatch(Repeating):
    """Looks at the writers each second, and keeps their entries true.

    Args:
        writers: by the name they have in ``supervision:writer_stalled:<thread>``.

    Attributes:
        stalled: names of those that hang now, for ``/readyz``.
    """

    def __init__(self, clock: IReactorTime, writers: Mapping[str, Writer], errors: IErrorBook) -> None:
        super().__init__(clock, _INTERVAL, self._look, "the look at the writers")
        self.stalled: tuple[str, ...] = ()
        self._writers = writers
        self._errors = errors

    def _look(self) -> None:
        before = self.stalled
        self.stalled = tuple(name for name, writer in self._writers.items() if writer.busy_seconds > LIMIT)
        for name in self.stalled:
            if name not in before:
                self._errors.raise_entry(
                    f"{WRITER_STALLED.stem}:{name}",
                    subject=Subject(component=name),
                    thread=name,
                    seconds=f"{LIMIT:g}",
                )
        for name in before:
            if name not in self.stalled:
                self._errors.clear(f"{WRITER_STALLED.stem}:{name}")
