"""Jobs that have ended, and a history of them on a real disk, for the tests of this package."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from pair.events import Signal
from pair.interfaces import IErrorBook
from pair.jobs.history import FLUSH_EVERY, HistoryService
from pair.records.jobs import Job, JobState
from pair.test.turns import open_store

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pair.records.errors import ServiceError, Subject

NODE = "3f0c9a52-0000-4000-8000-000000000001"
OTHER = "77aa0000-0000-4000-8000-000000000002"
NOW = 1_764_460_800_000
DAY_MS = 24 * 3600 * 1000


def ended(n: int, at: int = NOW, *, origin: str = NODE, state: JobState = "completed", **values: Any) -> Job:
    """Job ``n`` of an earlier process, which ended at ``at``."""
    given = {"seq": 4, "model": "smollm2", "placed_on": origin, "engine": "ollama", **values}
    return Job(
        id=f"00000000000000ff.{n}",
        origin=origin,
        state=state,
        facade="ollama",
        dialect="ollama",
        operation="chat",
        route="/api/chat",
        stream=True,
        created_at=at - 10,
        completed_at=at,
        **given,
    )


@implementer(IErrorBook)
class NotedErrors:
    """Keeps what was raised."""

    def __init__(self) -> None:
        self.changed: Signal[ServiceError] = Signal()
        self.removed: Signal[str] = Signal()
        self.raised: list[tuple[str, dict[str, Any]]] = []

    def raise_entry(self, id: str, *, subject: Subject | None = None, **values: Any) -> None:
        self.raised.append((id, values))

    def clear(self, id: str) -> None:
        raise AssertionError("entries of the history go by their age")


class StoredTestCase(SynchronousTestCase):
    """A store, and a history in it that a test may start."""

    def setUp(self) -> None:
        self.time = NOW
        self.store, self.turns = open_store(self)
        self.errors = NotedErrors()
        self.history = self.make()

    def make(self, rows: int = 10_000, days: int = 7) -> HistoryService:
        return HistoryService(self.turns, self.store, lambda: self.time, rows, days, self.errors)

    def start(self, history: HistoryService | None = None) -> None:
        """Start it; it is stopped when the test ends."""
        started = history or self.history
        started.startService()
        self.addCleanup(lambda: self.turns.wait(started.stopService()))
        self.settle()

    def settle(self) -> None:
        """Let the writer's thread do all that was asked of it, and what follows from that."""
        more = True
        while more:
            done = self.store.flush().addErrback(lambda failure: failure.trap(sqlite3.Error) and None)
            self.turns.wait(done)
            more = self.store.depth > 0

    def tick(self, seconds: float = FLUSH_EVERY) -> None:
        self.turns.advance(seconds)
        self.settle()

    def keep(self, jobs: Iterable[Job]) -> None:
        """Put jobs on the disk."""
        for job in jobs:
            self.history.keep(job)
        self.tick()

    def stored(self) -> list[Job]:
        return self.history.before(None, lambda job: True, 1_000_000)

    def numbers(self) -> list[int]:
        """The numbers of the jobs on the disk, newest first."""
        return [int(job.id.partition(".")[2]) for job in self.stored()]
