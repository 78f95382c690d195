"""The jobs as a person asks for them: those under way, then those that ended, newest first (JB-58)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pair.jobs.history import Place
from pair.records.jobs import TERMINAL, Job, JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.jobs.history import HistoryService
    from pair.jobs.ledger import JobLedger

_RANK: dict[JobState, int] = {"running": 0, "queued": 1, "completed": 2, "failed": 2, "cancelled": 2}
_ENDED = 2


class JobFilter(Struct, frozen=True):
    """Which jobs are wanted; None: any.

    ``node`` is origin or executor. ``since`` is in epoch milliseconds; a job
    counts from its end, or from its beginning while it is under way.
    """

    state: frozenset[JobState] | None = None
    node: str | None = None
    engine: str | None = None
    model: str | None = None
    since: int | None = None

    def matches(self, job: Job) -> bool:
        """Whether ``job`` is one of them."""
        return (
            (self.state is None or job.state in self.state)
            and (self.node is None or self.node in (job.origin, job.placed_on))
            and (self.engine is None or self.engine == job.engine)
            and (self.model is None or self.model == job.model)
            and (self.since is None or (job.completed_at or job.created_at) >= self.since)
        )


class JobPage(Struct, frozen=True):
    """Some jobs, and where the next ones begin; None: there are no more."""

    jobs: tuple[Job, ...]
    next_cursor: str | None = None


class BadCursor(ValueError):  # noqa: N818 - what it is, in one word
    """The cursor is none of ours."""


class JobView:
    """Joins this process's jobs with the history on the disk.

    Args:
        ledger: the jobs of this process.
        history: ended jobs of this process and of earlier ones.
        origin: UUID of this node.
    """

    def __init__(self, ledger: JobLedger, history: HistoryService, origin: str) -> None:
        self._ledger = ledger
        self._history = history
        self._origin = origin

    def get(self, origin: str, id: str) -> Job | None:
        """One job by its origin and id."""
        job = self._ledger.get(id) if origin == self._origin else None
        return job or self._history.find(origin, id)

    def page(self, wanted: JobFilter, limit: int, cursor: str | None = None) -> JobPage:
        """Up to ``limit`` jobs: running, then queued ones, oldest first; then ended ones, newest first.

        A page begins behind the last job of the one before it, so what begins
        or ends in between moves none of the jobs that do neither.

        Args:
            wanted: which jobs.
            limit: at least 1.
            cursor: ``next_cursor`` of the page before.

        Raises:
            BadCursor: ``cursor`` was not given by an earlier page.
        """
        place = None if cursor is None else _Place.read(cursor)
        stored = self._stored(wanted, place, limit + 1)
        # What is in both is told once, as the ledger has it.
        jobs = {(job.origin, job.id): job for job in (*stored, *self._ledger.ended(), *self._ledger.active())}
        places = {_Place.of(job): job for job in jobs.values() if wanted.matches(job)}
        found = sorted(each for each in places if place is None or each > place)
        shown = found[:limit]
        return JobPage(tuple(places[each] for each in shown), shown[-1].text if len(found) > limit else None)

    def _stored(self, wanted: JobFilter, place: _Place | None, number: int) -> Sequence[Job]:
        if wanted.state is not None and not wanted.state & TERMINAL:
            return ()
        behind = None if place is None or place.rank < _ENDED else Place(-place.at, place.origin, place.id)
        return self._history.before(behind, wanted.matches, number)


class _Place(Struct, frozen=True, order=True):
    """Where a job stands in the list. ``at`` is when it began or, negative, when it ended."""

    rank: int
    at: int
    origin: str
    id: str

    @classmethod
    def of(cls, job: Job) -> _Place:
        rank = _RANK[job.state]
        at = -(job.completed_at or 0) if rank == _ENDED else job.created_at
        return cls(rank, at, job.origin, job.id)

    @classmethod
    def read(cls, cursor: str) -> _Place:
        rank, _, rest = cursor.partition(".")
        at, _, rest = rest.partition(".")
        origin, _, id = rest.partition(".")
        if not (rank in ("0", "1", "2") and at.isdecimal() and at.isascii() and len(at) < 19 and origin and id):
            raise BadCursor("The cursor is none that this API gave.")
        return cls(int(rank), -int(at) if rank == str(_ENDED) else int(at), origin, id)

    @property
    def text(self) -> str:
        """The cursor behind it."""
        return f"{self.rank}.{abs(self.at)}.{self.origin}.{self.id}"
