"""Jobs and their attempts (jobs page, section 4). Nothing here may hold text of a person (JB-38).

Thousands of these are kept, and none can be part of a cycle: the collector
need not look at them (``gc=False``).
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict

JobState = Literal["queued", "running", "completed", "failed", "cancelled"]
TERMINAL: frozenset[JobState] = frozenset({"completed", "failed", "cancelled"})

Instant = Annotated[int, Meta(ge=0, le=2**53 - 1)]
"""Epoch milliseconds, as exact in every program that reads JSON."""

Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""How many; the disk takes no more. Of a record of another node, both are checked as it is read."""

Outcome = Literal[
    "active",
    "won",
    "connect",
    "tls",
    "timeout",
    "silent",
    "stalled",
    "status",
    "empty",
    "broken",
    "aborted",
    "cancelled",
]
"""How an attempt ended (JB-36)."""


class Attempt(Struct, frozen=True, rename="camel", gc=False):
    """One dispatch of a job to one engine of one node."""

    n: Number
    node: str
    engine: str
    started_at: Instant
    first_byte_at: Instant | None = None
    ended_at: Instant | None = None
    outcome: Outcome = "active"
    status: Number | None = None
    error: str | None = None


class JobError(Struct, frozen=True, gc=False):
    """Why a job did not complete: a code of JB-37 and its fixed text."""

    code: str
    message: str


class Usage(Struct, frozen=True, rename="camel", gc=False):
    """Token counts as the engine itself gave them at the end of its answer."""

    prompt_tokens: Number | None = None
    output_tokens: Number | None = None


class Job(Struct, frozen=True, rename="camel", gc=False):
    """One inference request. ``attempts`` holds the last 8, ``attempt_count`` the true number."""

    id: str
    origin: str
    seq: Number
    state: JobState
    facade: str
    dialect: str
    operation: str
    route: str
    stream: bool
    model: str | None
    created_at: Instant
    placed_on: str | None = None
    engine: str | None = None
    started_at: Instant | None = None
    completed_at: Instant | None = None
    attempts: tuple[Attempt, ...] = ()
    attempt_count: Number = 0
    status: Number | None = None
    error: JobError | None = None
    requester: str | None = None
    policy: str | None = None
    why: str | None = None
    usage: Usage = Usage()
    request_bytes: Number = 0
    response_bytes: Number = 0
    unterminated: bool = False

    @property
    def terminal(self) -> bool:
        """True when the job has ended and will never change again (JB-40)."""
        return self.state in TERMINAL


class ShownJob(Job, frozen=True, rename="camel", gc=False):
    """A job as it is shown, with what this node adds to the record of its origin.

    ``inferred``: its origin is lost, so it counts as failed until that says
    otherwise (JB-53). ``stale``: it is under way, and its origin has not been
    heard for a while (JB-54).
    """

    inferred: bool = False
    stale: bool = False

    @classmethod
    def of(cls, job: Job, *, stale: bool = False) -> ShownJob:
        """``job`` as it is shown; one that is shown already stays as it is."""
        return job if isinstance(job, cls) else cls(**asdict(job), stale=stale)


class JobChanged(Struct, frozen=True, gc=False):
    """``job`` is shown in the place of ``previous``; None: there is, or was, none (JB-51)."""

    job: Job | None
    previous: Job | None
