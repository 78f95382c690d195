"""The life cycle of this node's own jobs (JB-31 to JB-49). Pure, but for its log lines.

The data path tells a job what happened, which is noted; its record is made when
somebody wants to see one (:mod:`pair.jobs.steps`). Those who listen hear of a
job now and then, of several changes the last. It must not know who looks at it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from zope.interface import implementer

from pair.events import Signal
from pair.interfaces import IJob, IJobLedger
from pair.jobs.steps import Draft, Step, advance
from pair.logs import Logger
from pair.metrics import Counter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pair.records.jobs import Job, JobState, Outcome, Usage

BATCH = 500
"""Jobs that have ended are told of at once when so many wait for it."""

KEPT_TERMINALS = 2000
KEPT_MS = 10 * 60 * 1000
"""Ended jobs stay in the table for 10 min, at most 2,000 of them (JB-48)."""

_Stage = Literal["waiting", "trying", "running", "ended"]
"""Where a job stands: ``queued`` without and with an open attempt, ``running``, or any terminal state."""

_Event = Literal["attempt_began", "attempt_ended", "committed", "completed", "failed", "cancelled"]

_UNDER_WAY: frozenset[_Stage] = frozenset({"waiting", "trying", "running"})


class _Transition(NamedTuple):
    """In which stages an event changes a job; in all others it is refused (JB-40). And what it does."""

    stages: frozenset[_Stage]
    to: _Stage
    happened: Callable[..., None]


# A table and no state machine object: it is asked three times in each request.
_TRANSITIONS: Mapping[_Event, _Transition] = {
    "attempt_began": _Transition(frozenset({"waiting"}), "trying", Draft.attempt_began),
    "attempt_ended": _Transition(frozenset({"trying"}), "waiting", Draft.attempt_ended),
    "committed": _Transition(frozenset({"trying"}), "running", Draft.committed),
    "completed": _Transition(_UNDER_WAY, "ended", Draft.completed),
    "failed": _Transition(_UNDER_WAY, "ended", Draft.failed),
    "cancelled": _Transition(_UNDER_WAY, "ended", Draft.cancelled),
}

log = Logger()


@implementer(IJobLedger)
class JobLedger:
    """Owns this node's jobs.

    Args:
        origin: UUID of this node.
        run: 16 hex digits, random per process (JB-31).
        now: epoch milliseconds.

    Attributes:
        stirred: Emits when there is something to :meth:`tell` again.
        changed: Emits, when told to, the newest version of each job that is another than before.
        retired: Emits each job that leaves the table; it has ended (JB-48).
    """

    def __init__(self, origin: str, run: str, now: Callable[[], int]) -> None:
        self.stirred: Signal[None] = Signal()
        self.changed: Signal[Job] = Signal()
        self.retired: Signal[Job] = Signal()
        self._totals = Counter()
        self._origin = origin
        self._run = run
        self._now = now
        self._count = 0
        self._active: dict[str, OpenJob] = {}
        self._untold: dict[str, OpenJob] = {}
        self._over: list[OpenJob] = []
        self._ended: OrderedDict[str, Job] = OrderedDict()

    def admit(
        self,
        facade: str,
        dialect: str,
        operation: str,
        route: str,
        stream: bool,
        model: str | None,
        request_bytes: int,
    ) -> OpenJob:
        """See :class:`pair.interfaces.IJobLedger`."""
        self._count += 1
        id = f"{self._run}.{self._count}"
        job = self._active[id] = OpenJob(id, self)
        job.admitted(self._origin, facade, dialect, operation, route, stream, model, request_bytes)
        return job

    def __len__(self) -> int:
        return len(self._active) + len(self._over) + len(self._ended)

    def recall(self, jobs: Iterable[Job]) -> None:
        """Jobs of this node that ended in an earlier process, the oldest first: they belong to the table too (JB-48).

        Before the first of this process ends.
        """
        for job in jobs:
            self._ended[job.id] = job
        self.retire()

    def retire(self) -> None:
        """Let go of what ended too long ago; to be called now and then, for a node that has nothing to do."""
        self._retire(self._now())

    def clear(self) -> None:
        """Let go of all that has ended."""
        self._enter()
        while self._ended:
            self._let_go()

    def tell(self) -> None:
        """Emit what has changed since the last time; to be called a moment after ``stirred``."""
        untold, self._untold = self._untold, {}
        for job in untold.values():
            job.untold = False
            self.changed.emit(job.record)
        self._enter()

    def active(self) -> tuple[Job, ...]:
        """Jobs that have not ended, oldest first."""
        return tuple(job.record for job in self._active.values())

    def ended(self) -> tuple[Job, ...]:
        """Jobs that ended within the last 10 min, oldest first (JB-48)."""
        self._retire(self._now())
        return tuple(self._ended.values())

    def get(self, id: str) -> Job | None:
        """A job of the table by its id."""
        self._retire(self._now())
        open = self._active.get(id)
        return self._ended.get(id) if open is None else open.record

    def totals(self) -> Mapping[tuple[str, ...], float]:
        """How many jobs have ended, by the engine of the last attempt (``none`` without one) and state."""
        self._enter()
        return self._totals.values

    def counts(self) -> Mapping[JobState, int]:
        """How many jobs are under way, by state."""
        running = sum(job.stage == "running" for job in self._active.values())
        return {"queued": len(self._active) - running, "running": running}

    def _changed(self, job: OpenJob) -> None:
        """``job`` has begun, has changed since it was told of, or has ended."""
        if job.stage == "ended":
            del self._active[job.id]
            self._over.append(job)
        first = not self._untold
        self._untold[job.id] = job
        job.untold = True
        if first:
            self.stirred.emit(None)
        elif len(self._over) >= BATCH:
            self.tell()

    def _enter(self) -> None:
        """Take those that are over into the table of what has ended."""
        over, self._over = self._over, []
        for job in over:
            record = self._ended[job.id] = job.record
            self._totals.inc((record.attempts[-1].engine if record.attempts else "none", record.state))
        while len(self._ended) > KEPT_TERMINALS:
            self._let_go()

    def _retire(self, now: int) -> None:
        """Let go of what ended too long ago. A clock set back keeps more, up to the cap on their number."""
        self._enter()
        oldest = now - KEPT_MS
        ended = self._ended
        while ended:
            first = next(iter(ended.values()))
            if len(ended) <= KEPT_TERMINALS and (first.completed_at or 0) >= oldest:
                break
            self._let_go()

    def _let_go(self) -> None:
        _, job = self._ended.popitem(last=False)
        if job.id in self._untold:
            self.tell()
        self.retired.emit(job)


@implementer(IJob)
class OpenJob:
    """One job while its request is being handled.

    Attributes:
        stage: Where it stands.
        untold: For the ledger's use: the ledger will tell of it anyhow.
    """

    __slots__ = ("_ledger", "_record", "_steps", "id", "stage", "untold")

    def __init__(self, id: str, ledger: JobLedger) -> None:
        self.id = id
        self.stage: _Stage = "waiting"
        self.untold = False
        self._ledger = ledger
        self._record: Job | None = None
        self._steps: list[Step] = []

    @property
    def record(self) -> Job:
        """What is known of it now."""
        if self._steps:
            self._record, self._steps = advance(self._record, self._steps), []
        assert self._record is not None, "it was admitted"
        return self._record

    def admitted(self, *facts: Any) -> None:
        """The first of all; see :meth:`pair.jobs.steps.Draft.admitted`."""
        self._note(Draft.admitted, self.id, *facts)

    def attempt_began(self, node: str, engine: str, policy: str, why: str) -> None:
        """See :class:`pair.interfaces.IJob`."""
        self._go_on("attempt_began", node, engine, policy, why)

    def attempt_ended(self, outcome: Outcome, status: int | None = None, error: str | None = None) -> None:
        """See :class:`pair.interfaces.IJob`."""
        self._go_on("attempt_ended", outcome, status, error)

    def committed(self, status: int) -> None:
        """See :class:`pair.interfaces.IJob`."""
        self._go_on("committed", status)

    def completed(self, status: int, response_bytes: int, usage: Usage, unterminated: bool = False) -> None:
        """See :class:`pair.interfaces.IJob`."""
        if 200 <= status < 300:
            self._go_on("completed", status, response_bytes, usage, unterminated)
        else:
            self.failed("engine_status", status, response_bytes)

    def failed(self, code: str, status: int | None = None, response_bytes: int = 0) -> None:
        """See :class:`pair.interfaces.IJob`."""
        self._go_on("failed", code, status, response_bytes)

    def cancelled(self, code: str, response_bytes: int = 0) -> None:
        """See :class:`pair.interfaces.IJob`."""
        self._go_on("cancelled", code, response_bytes)

    def close(self) -> None:
        """See :class:`pair.interfaces.IJob`."""
        if self.stage != "ended":
            log.error("The handling of job {job} ended, and the job had no end.", job=self.id)
            self.failed("internal")

    def _go_on(self, event: _Event, *facts: Any) -> None:
        stages, to, happened = _TRANSITIONS[event]
        if self.stage in stages:
            self.stage = to
            self._note(happened, *facts)
        else:
            log.error("Job {job} is {stage}: {event} was refused.", job=self.id, stage=self.stage, event=event)

    def _note(self, happened: Callable[..., None], *facts: Any) -> None:
        self._steps.append((happened, self._ledger._now(), facts))
        if log.debugging:
            _tell(self.record)
        if not self.untold or self.stage == "ended":
            self._ledger._changed(self)


def _tell(job: Job) -> None:
    """One debug line for each change (JB-84)."""
    last = job.attempts[-1] if job.attempts else None
    log.debug(
        "Job {job} is {state}: model {model}, engine {engine}, attempt {outcome}, error {error}.",
        job=job.id,
        state=job.state,
        node=last and last.node,
        engine=last and last.engine,
        model=job.model,
        route=job.route,
        stream=job.stream,
        outcome=last and last.outcome,
        error=job.error and job.error.code,
    )
