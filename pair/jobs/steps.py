"""What happens to a job, and the record that comes of it (JB-31 to JB-44). Pure.

A request tells of its job in a few steps, each at a moment when there is
something better to do. So a step is only noted, and becomes part of the record
when one is wanted: for most jobs once, among many others, when they have ended.
That a step fits the state of its job was seen to before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pair.jobs.bounds import ATTEMPTS, WHY_LIMIT, own_model_name, own_word
from pair.jobs.codes import job_error
from pair.privacy import clean_text
from pair.records.jobs import Attempt, Job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pair.records.jobs import JobState, Outcome, Usage

_CUT: Mapping[str, Outcome] = {"engine_status": "status", "internal": "aborted"}
"""How an open attempt ends when its job fails with a code; with any other it is ``broken``."""


class Draft:
    """A record in the making.

    Attributes:
        values: What differs from the record before.
        last: What differs in its last attempt, or all of a new one.
    """

    __slots__ = ("_attempts", "_count", "_placed", "last", "values")

    def __init__(self, job: Job | None) -> None:
        self.values: dict[str, Any] = {}
        self.last: dict[str, Any] = {}
        self._attempts = () if job is None else job.attempts
        self._count = 0 if job is None else job.attempt_count
        self._placed = job is not None and job.placed_on is not None

    def admitted(
        self,
        at: int,
        id: str,
        origin: str,
        facade: str,
        dialect: str,
        operation: str,
        route: str,
        stream: bool,
        model: str | None,
        request_bytes: int,
    ) -> None:
        """The first step."""
        self.values = {
            "id": id,
            "origin": origin,
            "state": "queued",
            "facade": facade,
            "dialect": dialect,
            "operation": operation,
            "route": own_word(route),
            "stream": stream,
            "model": None if model is None else own_model_name(model),
            "created_at": at,
            "request_bytes": request_bytes,
        }

    def attempt_began(self, at: int, node: str, engine: str, policy: str, why: str) -> None:
        """See :class:`pair.interfaces.IJob`, as for those that follow."""
        self._attempts = self.attempts()
        self._count += 1
        self._placed = True
        node, engine = own_word(node), own_word(engine)
        self.last = {"n": self._count, "node": node, "engine": engine, "started_at": at}
        self.values.update(
            state="queued",
            placed_on=node,
            engine=engine,
            attempt_count=self._count,
            policy=own_word(policy),
            why=clean_text(why, WHY_LIMIT),
        )

    def attempt_ended(self, at: int, outcome: Outcome, status: int | None, error: str | None) -> None:
        """It did not win."""
        code = None if error is None else job_error(error).code
        self._placed = False
        self.last.update(outcome=outcome, ended_at=at, status=status, error=code)
        self.values.update(state="queued", placed_on=None, engine=None)

    def committed(self, at: int, status: int) -> None:
        """Its answer began."""
        self.last.update(first_byte_at=at, status=status)
        self.values.update(state="running", started_at=at, status=status)

    def completed(self, at: int, status: int, response_bytes: int, usage: Usage, unterminated: bool) -> None:
        """Its answer is whole."""
        self.values.update(response_bytes=response_bytes, usage=usage, unterminated=unterminated)
        self._end(at, "completed", "won", status, None)

    def failed(self, at: int, code: str, status: int | None, response_bytes: int) -> None:
        """It ended in an error."""
        self.values["response_bytes"] = response_bytes
        self._end(at, "failed", _CUT.get(job_error(code).code, "broken"), status, code)

    def cancelled(self, at: int, code: str, response_bytes: int) -> None:
        """Somebody ended it."""
        self.values["response_bytes"] = response_bytes
        self._end(at, "cancelled", "cancelled", None, code)

    def attempts(self) -> tuple[Attempt, ...]:
        """Those that a record keeps, as they are now."""
        last = self.last
        if not last:
            return self._attempts
        if "n" in last:
            return (*self._attempts, Attempt(**last))[-ATTEMPTS:]
        return (*self._attempts[:-1], replace(self._attempts[-1], **last))

    def _end(self, at: int, state: JobState, outcome: Outcome, status: int | None, code: str | None) -> None:
        error = None if code is None else job_error(code)
        if self._placed:
            self.last.update(outcome=outcome, ended_at=at, error=error and error.code)
            if outcome in ("won", "status"):  # else the status may be one of ours and not the engine's
                self.last["status"] = status
        if status is not None:
            self.values["status"] = status
        self.values.update(state=state, completed_at=at, error=error)


Step = tuple[Callable[..., None], int, tuple[Any, ...]]
"""A method of :class:`Draft`, when it happened (epoch milliseconds), and what else is to be said of it."""


def advance(job: Job | None, steps: Sequence[Step]) -> Job:
    """The record after ``steps``, from the record before; None: the first step is the admission."""
    draft = Draft(job)
    for happened, at, facts in steps:
        happened(draft, at, *facts)
    attempts = draft.attempts()
    if job is None:
        return Job(seq=len(steps), attempts=attempts, **draft.values)
    return replace(job, seq=job.seq + len(steps), attempts=attempts, **draft.values)
