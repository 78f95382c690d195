"""What the API says of jobs, and does to them for people (UI-45, UI-46)."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Annotated, get_args

from msgspec import Meta, Struct

from pair.control.views import Collection
from pair.jobs.service import JobFinished, NoSuchJob, NotOrigin
from pair.jobs.view import BadCursor, JobFilter
from pair.records.jobs import JobState, ShownJob
from pair.store import StoreClosed
from pair.surfaces.refusals import Refused

if TYPE_CHECKING:
    from pair.control.sources import JobCommands, Jobs

Limit = Annotated[int, Meta(ge=1, le=500)]
Instant = Annotated[int, Meta(ge=0)]

_STATES: frozenset[JobState] = frozenset(get_args(JobState))


class JobQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of ``GET /jobs``; ``state`` may hold several, with commas. ``since`` is in epoch milliseconds."""

    state: str | None = None
    node: str | None = None
    engine: str | None = None
    model: str | None = None
    since: Instant | None = None
    limit: Limit = 100
    cursor: str | None = None


class JobList(Collection, frozen=True, rename="camel"):
    """``GET /jobs`` (UI-45)."""

    jobs: tuple[ShownJob, ...]
    next_cursor: str | None


class Cleared(Struct, frozen=True):
    """The answer to a clearing of the history."""

    cleared: bool = True


def listed(jobs: Jobs, asked: JobQuery, node: str | None, stamp: tuple[str, int]) -> JobList:
    """A page of jobs (JB-58).

    Args:
        jobs: of all nodes.
        asked: which.
        node: the node that is meant there.
        stamp: generation and revision of the answer.

    Raises:
        Refused: A filter is none.
    """
    wanted = JobFilter(
        state=None if asked.state is None else _states(asked.state),
        node=node,
        engine=asked.engine,
        model=asked.model,
        since=asked.since,
    )
    try:
        page = jobs.page(wanted, asked.limit, asked.cursor)
    except BadCursor:
        message = "The cursor is none that this API gave."
        raise Refused(422, "invalid_value", message, path="cursor") from None
    return JobList(*stamp, tuple(map(ShownJob.of, page.jobs)), page.next_cursor)


def one(jobs: Jobs, origin: str, id: str) -> ShownJob:
    """One job.

    Raises:
        Refused: There is none, or it is forgotten.
    """
    job = jobs.get(origin, id)
    if job is None:
        raise _unknown()
    return ShownJob.of(job)


def cancelled(jobs: Jobs, commands: JobCommands, origin: str, id: str) -> ShownJob:
    """It, ended by a person (JB-47). Where it ended already, that is said, whosever it is.

    Raises:
        Refused: There is none, it is another node's, or it has ended by itself.
    """
    try:
        commands.cancel(origin, id)
    except NoSuchJob:
        raise _unknown() from None
    except NotOrigin as other:
        known = one(jobs, origin, id)
        if known.terminal and not known.inferred:
            raise _finished() from None
        message = "Only the node that took the request can cancel it. Do it there."
        raise Refused(409, "not_origin", message, node=other.node) from None
    except JobFinished:
        raise _finished() from None
    return one(jobs, origin, id)


async def cleared(commands: JobCommands) -> Cleared:
    """The history of this node, deleted.

    Raises:
        Refused: It could not be.
    """
    try:
        await commands.clear()
    except (sqlite3.Error, StoreClosed):
        raise Refused(503, "store", "It could not be written to the disk; nothing has changed.") from None
    return Cleared()


def _finished() -> Refused:
    return Refused(409, "finished", "This job has ended already.")


def _unknown() -> Refused:
    return Refused(404, "no_such_job", "No such job is known here; ended ones are kept for a while only.")


def _states(text: str) -> frozenset[JobState]:
    states = frozenset(state for state in _STATES if state in text.split(","))
    if len(states) != len(set(text.split(","))):
        message = f"The states are {', '.join(sorted(_STATES))}."
        raise Refused(422, "invalid_value", message, path="state")
    return states
