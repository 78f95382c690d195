"""Jobs for a person. Pure: values in, something for rich out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from pair.admin.tables import facts, state, table
from pair.admin.words import NOTHING, ago, size, span, together, word

if TYPE_CHECKING:
    from pair.admin.naming import Names

Row = Mapping[str, Any]


def jobs(found: Iterable[Row], now: int, names: Names) -> RenderableType:
    """The jobs (UI-45)."""
    rows = [
        (
            word(job["id"]),
            _job_state(job),
            word(job.get("model")),
            word(job.get("engine")),
            names.of(job.get("origin")),
            names.of(job.get("placedOn")),
            ago(job.get("createdAt"), now),
            span(_between(job, "createdAt", "startedAt")),
            span(_between(job, "createdAt", "completedAt", now)),
            word(_usage(job).get("outputTokens")),
            _rate(job),
            word((job.get("error") or {}).get("code")),
        )
        for job in found
    ]
    first = ("JOB", "STATE", "MODEL", "ENGINE", "FROM", "ON")
    titles = (*first, "CREATED", "FIRST BYTE", "TOOK", "TOKENS", "TOK/S", "ERROR")
    spare = ("TOK/S", "FIRST BYTE", "TOKENS", "CREATED", "FROM", "ENGINE")
    return table(titles, rows, "There are no such jobs.", spare)


def jobs_under_way(found: Iterable[Row], now: int, names: Names) -> RenderableType:
    """Jobs that have not ended, in few words."""
    rows = [
        (
            word(job["id"]),
            _job_state(job),
            word(job.get("model")),
            word(job.get("engine")),
            names.of(job.get("origin")),
            names.of(job.get("placedOn")),
            span(_between(job, "createdAt", "completedAt", now)),
        )
        for job in found
    ]
    titles = ("JOB", "STATE", "MODEL", "ENGINE", "FROM", "ON", "FOR")
    return table(titles, rows, "None.", spare=("FROM", "ENGINE"))


def job_line(found: Row, now: int, names: Names) -> Text:
    """One job as it is now, in a line."""
    error = (found.get("error") or {}).get("code")
    on = f", {word(found.get('engine'))} on {names.of(found['placedOn'])}" if found.get("placedOn") else ""
    took = span(_between(found, "createdAt", "completedAt", now))
    why = "" if error is None else f", {word(error)}"
    return Text.assemble(f"{word(found['id'])}  ", _job_state(found), f"  {word(found.get('model'))}{on}, {took}{why}")


def _job_state(found: Row) -> Text:
    """Its state, and how sure that is (JB-53, JB-54)."""
    drawn = state(found["state"])
    for doubt in ("inferred", "stale"):
        if found.get(doubt):
            drawn.append(f" ({doubt})", style="dim")
    return drawn


def job(found: Row, now: int, names: Names) -> RenderableType:
    """One job, all of it."""
    error = found.get("error") or {}
    usage = _usage(found)
    about: list[tuple[str, str | Text]] = [
        ("job", word(found["id"])),
        ("state", _job_state(found)),
        ("error", f"{word(error.get('message'))} ({word(error.get('code'))})" if error else NOTHING),
        ("model", word(found.get("model"))),
        ("asked for", f"{word(found.get('operation'))} by {word(found.get('facade'))}, {word(found.get('route'))}"),
        ("from", _node(found.get("origin"), names)),
        ("on", together(", ", _node(found.get("placedOn"), names), word(found.get("engine")))),
        ("created", ago(found.get("createdAt"), now)),
        ("first byte", span(_between(found, "createdAt", "startedAt"))),
        ("took", span(_between(found, "createdAt", "completedAt", now))),
        ("tokens", _tokens(found, usage)),
        ("bytes", f"{size(found.get('requestBytes'))} in, {size(found.get('responseBytes'))} out"),
        ("why here", word(found.get("why"))),
    ]
    attempts = [
        (
            str(each["n"]),
            names.of(each.get("node")),
            word(each.get("engine")),
            _outcome(each, found),
            word(each.get("status")),
            span(_between(each, "startedAt", "firstByteAt")),
            span(_between(each, "startedAt", "endedAt", None if found.get("inferred") else now)),
            word(each.get("error")),
        )
        for each in found.get("attempts", ())
    ]
    titles = ("ATTEMPT", "NODE", "ENGINE", "OUTCOME", "STATUS", "FIRST BYTE", "TOOK", "ERROR")
    return Group(facts(about), "", table(titles, attempts, "It was never sent to an engine."))


def _node(node: str | None, names: Names) -> str:
    """Its name, and the UUID for whoever needs it."""
    return NOTHING if node is None else f"{names.of(node)} ({word(node)})"


def _outcome(attempt: Row, job: Row) -> str:
    """How an attempt ended; where its job is only taken for failed, nobody here knows."""
    return "not known" if job.get("inferred") and attempt.get("outcome") == "active" else word(attempt.get("outcome"))


def _tokens(job: Row, usage: Row) -> str:
    told = word(usage.get("promptTokens")), word(usage.get("outputTokens"))
    if together("", *told) == NOTHING:
        return NOTHING
    rate = _rate(job)
    return f"{told[0]} in, {told[1]} out" + ("" if rate == NOTHING else f", {rate} a second")


def _between(record: Row, first: str, last: str, now: int | None = None) -> int | None:
    """Milliseconds from one instant of ``record`` to the other, or to ``now`` where that is not yet."""
    begin, end = record.get(first), record.get(last)
    end = now if end is None else end
    return None if begin is None or end is None else end - begin


def _usage(job: Row) -> Row:
    return job.get("usage") or {}


def _rate(job: Row) -> str:
    """Tokens a second, from the first to the last; only a stream shows when they were made."""
    if not job.get("stream"):
        return NOTHING
    tokens, took = _usage(job).get("outputTokens"), _between(job, "startedAt", "completedAt")
    return f"{tokens * 1000 / took:.1f}" if tokens and took else NOTHING
