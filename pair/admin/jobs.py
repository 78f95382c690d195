"""``job``: requests that are under way, and those that ended, of all nodes."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

import click

from pair.admin.api import decoded, segment
from pair.admin.asking import confirm, yes_option
from pair.admin.directory import listed, names
from pair.admin.failures import Failed
from pair.admin.following import Table, followed
from pair.admin.grammar import Noun, with_session
from pair.admin.naming import entry_of, uuid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pair.admin.naming import Names
    from pair.admin.session import Session

    Row = Mapping[str, Any]

_STATES = ("queued", "running", "completed", "failed", "cancelled")
_ENDED = ("completed", "failed", "cancelled")

_SEARCHED = 500
"""Jobs among which one is searched whose origin was not said."""

job = Noun("job", help="Requests that are under way, and those that ended.")

_origin = click.option("--origin", metavar="NODE", help="The node that it came to; it is found if it is not given.")


@job.command("list")
@click.option("--state", type=click.Choice(_STATES), multiple=True, help="Only those in this state; may be repeated.")
@click.option("--node", metavar="NODE", help="Only those that came to, or ran on, this node.")
@click.option("--engine", metavar="ID", help="Only those of this engine.")
@click.option("--model", metavar="NAME", help="Only those for this model.")
@click.option("--limit", type=click.IntRange(1, 500), metavar="N", help="At most so many; 100 if not given.")
@click.option("--cursor", metavar="CURSOR", help="Go on where an earlier list ended.")
@with_session
def job_list(
    session: Session,
    state: tuple[str, ...] = (),
    node: str | None = None,
    engine: str | None = None,
    model: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> None:
    """List jobs: running, queued, then those that ended, newest first."""
    body = session.api.get(
        "/jobs",
        state=",".join(state) or None,
        node=None if node is None else _node(session, node),
        engine=engine,
        model=model,
        limit=limit,
        cursor=cursor,
    )
    found = decoded(body)
    session.show(body, lambda: _tables().jobs(found["jobs"], session.now(), names(session)))
    if found.get("nextCursor"):
        session.hint(f"There are more: --cursor {found['nextCursor']}")


@job.command("show")
@click.argument("id")
@_origin
@with_session
def job_show(session: Session, id: str, origin: str | None) -> None:
    """Show one job with its attempts."""
    body = session.api.get(_path(session, id, origin))
    session.show(body, lambda: _tables().job(decoded(body), session.now(), names(session)))


@job.command("watch")
@click.argument("id", required=False)
@_origin
@with_session
def job_watch(session: Session, id: str | None, origin: str | None) -> int:
    """Print a job whenever it changes, until it ends; exit 1 if it does not complete. Without ID: all, without end."""
    if id is not None:
        return _watch_one(session, _path(session, id, origin))
    called = cache(partial(names, session))
    for change in followed(session, "jobs"):
        for row in change.rows.values() if isinstance(change, Table) else (change.value,):
            if row is not None:
                _tell(session, row, called)
    return 0


@job.command("cancel")
@click.argument("id")
@_origin
@with_session
def job_cancel(session: Session, id: str, origin: str | None) -> None:
    """End a job that came to this node; its client is told."""
    body = session.api.post(f"{_path(session, id, origin)}/cancel")
    session.show(body, lambda: _tables().jobs([decoded(body)], session.now(), names(session)))


@job.command("clear")
@yes_option
@with_session
def job_clear(session: Session, yes: bool) -> None:
    """Delete what this node remembers of jobs that ended."""
    confirm(session, "Delete the history of jobs on this node? Jobs under way go on.", yes)
    body = session.api.delete("/jobs/history")
    session.show(body, lambda: "The history is deleted.")


def _watch_one(session: Session, path: str) -> int:
    last = decoded(session.api.get(path))
    key = f"{last['origin']}/{last['id']}"
    called = cache(partial(names, session))
    _tell(session, last, called)
    changes = followed(session, "jobs")
    while last["state"] not in _ENDED:
        change = next(changes)
        if isinstance(change, Table):
            row = change.rows.get(key) or decoded(session.api.get(path))
        elif change.key == key:
            row = change.value
        else:
            continue
        if row is None:
            raise Failed("no_such_job", "The node that it came to is no member any more, and the job is gone with it.")
        if row != last:
            last = row
            _tell(session, last, called)
    return 0 if last["state"] == "completed" else 1


def _tell(session: Session, job: Row, called: Callable[[], Names]) -> None:
    session.line(job, lambda: _tables().job_line(job, session.now(), called()))


def _path(session: Session, id: str, origin: str | None) -> str:
    """The path of a job, where it came in being given or found."""
    if origin is not None:
        return f"/jobs/{segment(_node(session, origin))}/{segment(id)}"
    found = [each for each in decoded(session.api.get("/jobs", limit=_SEARCHED))["jobs"] if each["id"] == id]
    if len(found) > 1:
        raise Failed("ambiguous", "Several nodes have a job of that id. Say which is meant: --origin NODE.")
    return f"/jobs/{segment(found[0]['origin'] if found else 'self')}/{segment(id)}"


def _node(session: Session, text: str) -> str:
    """What the API calls the node that ``text`` means."""
    return "self" if text == "self" else uuid_of(text) or str(entry_of(text, listed(session))["key"])


def _tables() -> Any:
    """The module that draws; it is slow to load, and with ``--json`` nothing is drawn."""
    from pair.admin import job_format

    return job_format
