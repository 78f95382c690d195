"""Services and an error book that these tests watch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.application.service import IService, Service
from twisted.python.failure import Failure
from zope.interface import implementer
from zope.interface.verify import verifyObject

from pair.events import Signal
from pair.interfaces import IErrorBook
from pair.supervision.child import IFailable

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from pair.records.errors import ServiceError, Subject


class PartError(Exception):
    """What a part fails with."""


@implementer(IErrorBook)
class Entries:
    """The ids that hold, with the values they were raised with last, and everything that was called."""

    def __init__(self) -> None:
        self.changed: Signal[ServiceError] = Signal()
        self.removed: Signal[str] = Signal()
        self.held: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []

    def raise_entry(self, id: str, *, subject: Subject | None = None, **values: Any) -> None:
        self.calls.append(f"raise {id}")
        self.held[id] = values

    def clear(self, id: str) -> None:
        self.calls.append(f"clear {id}")
        self.held.pop(id, None)


@implementer(IFailable)
class Part(Service):
    """A service that writes down what is asked of it, and does what the test says.

    ``start`` and ``stop`` are what its methods return, or the exceptions they raise.
    """

    def __init__(
        self,
        name: str,
        diary: list[str],
        start: Deferred[None] | Exception | None = None,
        stop: Deferred[None] | Exception | None = None,
    ) -> None:
        self.part = name
        self.failed: Signal[Failure] = Signal()
        self.diary = diary
        self._start = start
        self._stop = stop

    def startService(self) -> Deferred[None] | None:
        self.diary.append(f"start {self.part}")
        return _answer(self._start)

    def stopService(self) -> Deferred[None] | None:
        self.diary.append(f"stop {self.part}")
        return _answer(self._stop)

    def fail(self, error: Exception) -> None:
        """Tell that it cannot go on."""
        self.failed.emit(Failure(error))


def _answer(planned: Deferred[None] | Exception | None) -> Deferred[None] | None:
    if isinstance(planned, Exception):
        raise planned
    return planned


verifyObject(IErrorBook, Entries())
verifyObject(IFailable, Part("", []))
verifyObject(IService, Part("", []))
