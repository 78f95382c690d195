"""The jobs of all nodes as a person asks for them: those under way, then those that ended, newest first (JB-58)."""

from __future__ import annotations

from heapq import nsmallest
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from pair.jobs.history import Place
from pair.jobs.merging import ClusterJobs
from pair.records.jobs import TERMINAL, Job, JobState, ShownJob

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

    jobs: tuple[ShownJob, ...]
    next_cursor: str | None = None


class BadCursor(ValueError):  # noqa: N818 - what it is, in one word
    """The cursor is none of ours."""


class JobView:
    """Joins the jobs of this process, those of other nodes, and the history on the disk.

    Of a job that is in several of these, what this process or its origin says
    beats what is on the disk (JB-50).

    Args:
        ledger: the jobs of this process.
        history: ended jobs of all origins, of this process and of earlier ones.
        origin: UUID of this node.
        others: the jobs of other nodes; None: there are none.
    """

    def __init__(
        self, ledger: JobLedger, history: HistoryService, origin: str, others: ClusterJobs | None = None
    ) -> None:
        self._ledger = ledger
        self._history = history
        self._origin = origin
        self._others = ClusterJobs() if others is None else others

    def get(self, origin: str, id: str) -> ShownJob | None:
        """One job by its origin and id."""
        job = self._ledger.get(id) if origin == self._origin else None
        job = job or self._others.get(origin, id) or self._history.find(origin, id)
        return None if job is None else ShownJob.of(job)

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
        behind = None if cursor is None else _read(cursor)
        own = {job.id: job for job in (*self._ledger.ended(), *self._ledger.active())}

        def told(job: Job) -> bool:
            return (job.origin == self._origin and job.id in own) or self._others.get(job.origin, job.id) is not None

        stored = (job for job in self._stored(wanted, behind, limit + 1) if not told(job))
        places = ((_place(job), job) for job in chain(stored, own.values(), self._others) if wanted.matches(job))
        found = nsmallest(limit + 1, (each for each in places if behind is None or each[0] > behind), itemgetter(0))
        shown = tuple(ShownJob.of(job) for _, job in found[:limit])
        return JobPage(shown, _text(found[limit - 1][0]) if len(found) > limit else None)

    def _stored(self, wanted: JobFilter, behind: _Place | None, number: int) -> Sequence[Job]:
        if wanted.state is not None and not wanted.state & TERMINAL:
            return ()
        if behind is None or behind[0] < _ENDED:
            return self._history.before(None, wanted.matches, number)
        _, at, origin, id = behind
        return self._history.before(Place(-at, origin, id), wanted.matches, number)


_Place = tuple[int, int, str, str]
"""Where a job stands in the list: by its state, by when it began or, negative, when it ended, by origin and id."""


def _place(job: Job) -> _Place:
    rank = _RANK[job.state]
    return rank, -(job.completed_at or 0) if rank == _ENDED else job.created_at, job.origin, job.id


def _text(place: _Place) -> str:
    """The cursor behind it."""
    rank, at, origin, id = place
    return f"{rank}.{abs(at)}.{origin}.{id}"


def _read(cursor: str) -> _Place:
    rank, _, rest = cursor.partition(".")
    at, _, rest = rest.partition(".")
    origin, _, id = rest.partition(".")
    if not (rank in ("0", "1", "2") and at.isdecimal() and at.isascii() and len(at) < 19 and origin and id):
        raise BadCursor("The cursor is none that this API gave.")
    return int(rank), -int(at) if rank == str(_ENDED) else int(at), origin, id
