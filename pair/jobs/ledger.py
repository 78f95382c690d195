"""The life cycle of this node's own jobs (JB-31 to JB-49). Pure, but for its log lines.

The data path tells a job what happened; the job makes a record of it when
somebody wants to see one. Those who listen hear of a job now and then, of
several changes the last, so that most requests cost them one record. It must
not know who looks at it.
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
        stirred: Emits when there is something to :meth:`tell` again.
        changed: Emits, when told to, the newest version of each job that is another than before.
        retired: Emits each job that leaves the table; it has ended (JB-48).
        ended_total: Counts the jobs that ended, by the engine of the last attempt (``none`` without one) and state.
    """

    def __init__(self, origin: str, run: str, now: Callable[[], int]) -> None:
        self.stirred: Signal[None] = Signal()
        self.changed: Signal[Job] = Signal()
        self.retired: Signal[Job] = Signal()
        self.ended_total = Counter()
        self._origin = origin
        self._run = run
        self._now = now
        self._count = 0
        self._active: dict[str, OpenJob] = {}
        self._untold: dict[str, OpenJob] = {}
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
        facts = {
            "id": id,
            "origin": self._origin,
            "state": "queued",
            "facade": facade,
            "dialect": dialect,
            "operation": operation,
            "route": own_word(route),
            "stream": stream,
            "model": None if model is None else own_model_name(model),
            "created_at": self._now(),
            "request_bytes": request_bytes,
        }
        job = self._active[id] = OpenJob(id, facts, self._now, self._keep)
        if log.debugging:
            _tell(job.record)
        self._keep(job)
        return job

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

    def tell(self) -> None:
        """Emit what has changed since the last time; to be called a moment after ``stirred``."""
        untold, self._untold = self._untold, {}
        for job in untold.values():
            job.untold = False
            self.changed.emit(job.record)

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

    def counts(self) -> Mapping[JobState, int]:
        """How many jobs are under way, by state."""
        running = sum(job.stage == "running" for job in self._active.values())
        return {"queued": len(self._active) - running, "running": running}

    def _keep(self, job: OpenJob) -> None:
        """``job`` is another than before: it has begun, has changed since it was told of, or has ended."""
        if job.stage == "ended":
            record = self._ended[job.id] = job.record
            del self._active[job.id]
            self.ended_total.inc((record.attempts[-1].engine if record.attempts else "none", record.state))
            if len(self._ended) > KEPT_TERMINALS:
                self._let_go()
        job.untold = True
        stirred = not self._untold
        self._untold[job.id] = job
        if stirred:
            self.stirred.emit(None)

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

    __slots__ = (
        "_attempts",
        "_fresh",
        "_keep",
        "_latest",
        "_now",
        "_number",
        "_record",
        "_seq",
        "id",
        "stage",
        "untold",
    )

    def __init__(
        self, id: str, facts: dict[str, Any], now: Callable[[], int], keep: Callable[[OpenJob], None]
    ) -> None:
        self.id = id
        self.stage: _Stage = "waiting"
        self.untold = False
        self._now = now
        self._keep = keep
        self._seq = 1
        self._record: Job | None = None
        self._fresh = facts  # What the record does not have yet.
        self._number = 0
        self._attempts: tuple[Attempt, ...] = ()
        self._latest: dict[str, Any] = {}  # What the last of them does not have yet.

    @property
    def record(self) -> Job:
        """What is known of it now."""
        fresh = self._fresh
        if fresh:
            self._fresh = {}
            fresh["attempts"] = self._up_to_date()
            fresh["seq"] = self._seq
            self._record = Job(**fresh) if self._record is None else replace(self._record, **fresh)
        assert self._record is not None, "it had facts from its beginning"
        return self._record

    def attempt_began(self, node: str, engine: str, policy: str, why: str) -> None:
        """See :class:`pair.interfaces.IJob`."""
        if not self._allows("attempt_began"):
            return
        node, engine = own_word(node), own_word(engine)
        self._number += 1
        attempt = Attempt(n=self._number, node=node, engine=engine, started_at=self._now())
        self._attempts = (*self._up_to_date(), attempt)[-ATTEMPTS:]
        self.stage = "trying"
        self._change(
            state="queued",
            placed_on=node,
            engine=engine,
            attempt_count=self._number,
            policy=own_word(policy),
            why=clean_text(why, WHY_LIMIT),
        )

    def attempt_ended(self, outcome: Outcome, status: int | None = None, error: str | None = None) -> None:
        """See :class:`pair.interfaces.IJob`."""
        if not self._allows("attempt_ended"):
            return
        code = None if error is None else job_error(error).code
        self._latest.update(outcome=outcome, ended_at=self._now(), status=status, error=code)
        self.stage = "waiting"
        self._change(state="queued", placed_on=None, engine=None)

    def committed(self, status: int) -> None:
        """See :class:`pair.interfaces.IJob`."""
        if not self._allows("committed"):
            return
        now = self._now()
        self._latest.update(first_byte_at=now, status=status)
        self.stage = "running"
        self._change(state="running", started_at=now, status=status)

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
        if self.stage != "ended":
            log.error("The handling of job {job} ended, and the job had no end.", job=self.id)
            self.failed("internal")

    def _allows(self, event: _Event) -> bool:
        if self.stage in _LEGAL[event]:
            return True
        log.error("Job {job} is {stage}: {event} was refused.", job=self.id, stage=self.stage, event=event)
        return False

    def _up_to_date(self) -> tuple[Attempt, ...]:
        """All attempts, with what is known of the last."""
        if self._latest:
            self._attempts = (*self._attempts[:-1], replace(self._attempts[-1], **self._latest))
            self._latest = {}
        return self._attempts

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
        now = self._now()
        if self.stage != "waiting":
            self._latest.update(outcome=outcome, ended_at=now, error=error and error.code)
            if outcome in ("won", "status"):  # else the status may be one of ours and not the engine's
                self._latest["status"] = status
        if status is not None:
            values["status"] = status
        self.stage = "ended"
        self._change(state=state, completed_at=now, error=error, **values)

    def _change(self, **values: Any) -> None:
        self._seq += 1
        self._fresh.update(values)
        if log.debugging:
            _tell(self.record)
        if not self.untold or self.stage == "ended":
            self._keep(self)


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
