"""The life cycle of this node's own jobs (JB-31 to JB-49). Pure, but for its log lines.

The data path tells a job what happened; the job makes a new record of it, and
the ledger keeps and emits the record. It must not know who looks at it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace
from zope.interface import implementer

from pair.events import Signal
from pair.interfaces import IJob, IJobLedger
from pair.jobs.bounds import ATTEMPTS, WHY_LIMIT, own_model_name, own_word
from pair.jobs.codes import job_error
from pair.logs import Logger
from pair.metrics import Counter
from pair.privacy import clean_text
from pair.records.jobs import Attempt, Job, JobError, JobState, Outcome, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

KEPT_TERMINALS = 2000
KEPT_MS = 10 * 60 * 1000
"""Ended jobs stay in the table for 10 min, at most 2,000 of them (JB-48)."""

_Stage = Literal["waiting", "trying", "running", "ended"]
"""Where a job stands: ``queued`` without and with an open attempt, ``running``, or any terminal state."""

_Event = Literal["attempt_began", "attempt_ended", "committed", "completed", "failed", "cancelled"]

_UNDER_WAY: frozenset[_Stage] = frozenset({"waiting", "trying", "running"})

# A table and no state machine object: it is asked five times in each request.
_LEGAL: Mapping[_Event, frozenset[_Stage]] = {
    "attempt_began": frozenset({"waiting"}),
    "attempt_ended": frozenset({"trying"}),
    "committed": frozenset({"trying"}),
    "completed": _UNDER_WAY,
    "failed": _UNDER_WAY,
    "cancelled": _UNDER_WAY,
}
"""In which stages an event changes a job; in all others it is refused (JB-40)."""

_CUT: Mapping[str, Outcome] = {"engine_status": "status", "internal": "aborted"}
"""How an open attempt ends when its job fails with a code; with any other it is ``broken``."""

log = Logger()


@implementer(IJobLedger)
class JobLedger:
    """Owns this node's jobs.

    Args:
        origin: UUID of this node.
        run: 16 hex digits, random per process (JB-31).
        now: epoch milliseconds.

    Attributes:
        changed: Emits each new version of a job, its first one among them.
        retired: Emits each job that leaves the table; it has ended (JB-48).
        ended_total: Counts the jobs that ended, by the engine of the last attempt (``none`` without one) and state.
    """

    def __init__(self, origin: str, run: str, now: Callable[[], int]) -> None:
        self.changed: Signal[Job] = Signal()
        self.retired: Signal[Job] = Signal()
        self.ended_total = Counter()
        self._origin = origin
        self._run = run
        self._now = now
        self._count = 0
        self._active: dict[str, Job] = {}
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
        record = Job(
            id=f"{self._run}.{self._count}",
            origin=self._origin,
            seq=1,
            state="queued",
            facade=facade,
            dialect=dialect,
            operation=operation,
            route=own_word(route),
            stream=stream,
            model=None if model is None else own_model_name(model),
            created_at=self._now(),
            request_bytes=request_bytes,
        )
        self._keep(record)
        return OpenJob(record, self._now, self._keep)

    def __len__(self) -> int:
        return len(self._active) + len(self._ended)

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
        while self._ended:
            self._let_go()

    def active(self) -> tuple[Job, ...]:
        """Jobs that have not ended, oldest first."""
        return tuple(self._active.values())

    def ended(self) -> tuple[Job, ...]:
        """Jobs that ended within the last 10 min, oldest first (JB-48)."""
        self._retire(self._now())
        return tuple(self._ended.values())

    def get(self, id: str) -> Job | None:
        """A job of the table by its id."""
        self._retire(self._now())
        return self._active.get(id) or self._ended.get(id)

    def counts(self) -> Mapping[JobState, int]:
        """How many jobs are under way, by state."""
        running = sum(job.state == "running" for job in self._active.values())
        return {"queued": len(self._active) - running, "running": running}

    def _keep(self, job: Job) -> None:
        if job.terminal:
            self._active.pop(job.id, None)
            self._ended[job.id] = job
            self.ended_total.inc((job.attempts[-1].engine if job.attempts else "none", job.state))
            if len(self._ended) > KEPT_TERMINALS:
                self._let_go()
        else:
            self._active[job.id] = job
        if log.debugging:
            _tell(job)
        self.changed.emit(job)

    def _retire(self, now: int) -> None:
        """Let go of what ended too long ago. A clock set back keeps more, up to the cap on their number."""
        oldest = now - KEPT_MS
        ended = self._ended
        while ended:
            first = next(iter(ended.values()))
            if len(ended) <= KEPT_TERMINALS and (first.completed_at or 0) >= oldest:
                break
            self._let_go()

    def _let_go(self) -> None:
        _, job = self._ended.popitem(last=False)
        self.retired.emit(job)


@implementer(IJob)
class OpenJob:
    """One job while its request is being handled: what happens to it becomes its next record.

    Attributes:
        record: The newest one.
    """

    __slots__ = ("_keep", "_now", "_stage", "id", "record")

    def __init__(self, record: Job, now: Callable[[], int], keep: Callable[[Job], None]) -> None:
        self.id = record.id
        self.record = record
        self._stage: _Stage = "waiting"
        self._now = now
        self._keep = keep

    def attempt_began(self, node: str, engine: str, policy: str, why: str) -> None:
        """See :class:`pair.interfaces.IJob`."""
        if not self._allows("attempt_began"):
            return
        node, engine = own_word(node), own_word(engine)
        n = self.record.attempt_count + 1
        attempt = Attempt(n=n, node=node, engine=engine, started_at=self._now())
        self._stage = "trying"
        self._change(
            "queued",
            placed_on=node,
            engine=engine,
            attempts=(*self.record.attempts, attempt)[-ATTEMPTS:],
            attempt_count=n,
            policy=own_word(policy),
            why=clean_text(why, WHY_LIMIT),
        )

    def attempt_ended(self, outcome: Outcome, status: int | None = None, error: str | None = None) -> None:
        """See :class:`pair.interfaces.IJob`."""
        if not self._allows("attempt_ended"):
            return
        code = None if error is None else job_error(error).code
        attempts = self._last_attempt(outcome=outcome, ended_at=self._now(), status=status, error=code)
        self._stage = "waiting"
        self._change("queued", placed_on=None, engine=None, attempts=attempts)

    def committed(self, status: int) -> None:
        """See :class:`pair.interfaces.IJob`."""
        if not self._allows("committed"):
            return
        now = self._now()
        attempts = self._last_attempt(first_byte_at=now, status=status)
        self._stage = "running"
        self._change("running", started_at=now, status=status, attempts=attempts)

    def completed(self, status: int, response_bytes: int, usage: Usage, unterminated: bool = False) -> None:
        """See :class:`pair.interfaces.IJob`."""
        if not 200 <= status < 300:
            self.failed("engine_status", status, response_bytes)
            return
        self._end(
            "completed",
            "won",
            status,
            None,
            response_bytes=response_bytes,
            usage=usage,
            unterminated=unterminated,
        )

    def failed(self, code: str, status: int | None = None, response_bytes: int = 0) -> None:
        """See :class:`pair.interfaces.IJob`."""
        error = job_error(code)
        self._end("failed", _CUT.get(error.code, "broken"), status, error, response_bytes=response_bytes)

    def cancelled(self, code: str, response_bytes: int = 0) -> None:
        """See :class:`pair.interfaces.IJob`."""
        self._end("cancelled", "cancelled", None, job_error(code), response_bytes=response_bytes)

    def close(self) -> None:
        """See :class:`pair.interfaces.IJob`."""
        if self._stage != "ended":
            log.error("The handling of job {job} ended, and the job had no end.", job=self.id)
            self.failed("internal")

    def _allows(self, event: _Event) -> bool:
        if self._stage in _LEGAL[event]:
            return True
        log.error("Job {job} is {stage}: {event} was refused.", job=self.id, stage=self._stage, event=event)
        return False

    def _last_attempt(self, **values: Any) -> tuple[Attempt, ...]:
        """All attempts, the last one with new values."""
        attempts = self.record.attempts
        return (*attempts[:-1], replace(attempts[-1], **values))

    def _end(
        self,
        state: Literal["completed", "failed", "cancelled"],
        outcome: Outcome,
        status: int | None,
        error: JobError | None,
        **values: Any,
    ) -> None:
        if not self._allows(state):
            return
        job, now = self.record, self._now()
        if job.placed_on is not None:
            closed: dict[str, Any] = {"outcome": outcome, "ended_at": now, "error": error and error.code}
            if outcome in ("won", "status"):  # else the status may be one of ours and not the engine's
                closed["status"] = status
            values["attempts"] = self._last_attempt(**closed)
        if status is not None:
            values["status"] = status
        self._stage = "ended"
        self._change(state, completed_at=now, error=error, **values)

    def _change(self, state: JobState, **values: Any) -> None:
        self.record = replace(self.record, state=state, seq=self.record.seq + 1, **values)
        self._keep(self.record)


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
