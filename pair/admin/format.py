"""The answers of the API as tables for a person. Pure: values in, something for rich out.

A field that an older or a newer service does not have is shown as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from pair.admin.words import EXCLUDED, NOTHING, REFUSED, ago, note, reason, short, size, span, word

Row = Mapping[str, Any]

_GAP = 2
_NARROWEST = 16
"""Characters that the last column of a table has at least."""

_STYLES = {
    **dict.fromkeys(
        ("online", "ready", "bound", "running", "ok", "completed", "up", "loaded", "valid", "paired"), "green"
    ),
    **dict.fromkeys(("bypassed", "moved", "pending", "starting", "stopping", "busy", "degraded", "queued"), "yellow"),
    **dict.fromkeys(("suspect", "backoff", "occupied", "needs_credential", "warning", "cancelled"), "yellow"),
    **dict.fromkeys(("waiting", "confirming"), "yellow"),
    **dict.fromkeys(("offline", "not ready", "failed", "unhealthy", "error", "invalid", "voided"), "red"),
    **dict.fromkeys(("absent", "stopped", "off", "unknown", "on disk", "info", "declined", "expired", NOTHING), "dim"),
}


def state(value: Any) -> Text:
    """A state in its colour; the word itself says it too."""
    text = word(value)
    return Text(text, style=_STYLES.get(text, ""))


class Uncut:
    """A table that is wider than a narrow terminal rather than lose columns: half of an id is of no use."""

    def __init__(self, drawn: Table, least: int) -> None:
        self._drawn = drawn
        self._least = least

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Called by rich."""
        yield from console.render(self._drawn, options.update_width(max(options.max_width, self._least)))


def table(titles: Iterable[str], rows: Iterable[Iterable[str | Text]], empty: str) -> RenderableType:
    """``rows`` under ``titles``, the last column wrapped if need be; ``empty`` where there is none."""
    cells = [[Text(each) if isinstance(each, str) else each for each in row] for row in rows]
    if not cells:
        return Text(empty, style="dim")
    drawn = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    *first, last = titles
    least = _NARROWEST
    for number, title in enumerate(first):
        drawn.add_column(title, no_wrap=True)
        least += max(len(title), *(row[number].cell_len for row in cells)) + _GAP
    drawn.add_column(last, overflow="fold")
    for row in cells:
        drawn.add_row(*row)
    return Uncut(drawn, least)


def endpoints(found: Iterable[Row]) -> RenderableType:
    """The facades (UI-59)."""
    rows = [
        (
            word(each["facade"]),
            word(each.get("url")),
            state(each["state"]),
            word(each.get("defaultModel")),
            note(each.get("detail")),
        )
        for each in found
    ]
    return table(("FACADE", "URL", "STATE", "MODEL", "NOTE"), rows, "No facade is served.")


def snippets(found: Iterable[Row], client: str) -> list[str]:
    """The commands of ``found`` for one client."""
    return [
        str(snippet["text"]) for each in found for snippet in each.get("snippets", ()) if snippet["client"] == client
    ]


def engines(found: Iterable[Row]) -> RenderableType:
    """The engines (UI-37)."""
    rows = [
        (
            word(each["id"]),
            state(each["state"]),
            state(each.get("health")),
            word(each.get("version")),
            word(each.get("address")),
            _models(each),
            note(each.get("detail")),
        )
        for each in found
    ]
    titles = ("ENGINE", "STATE", "HEALTH", "VERSION", "ADDRESS", "MODELS", "NOTE")
    return table(titles, rows, "No engine is known.")


def _models(engine: Row) -> str:
    if engine.get("models") == "unknown":
        return NOTHING
    total, loaded = engine.get("modelCount", 0), engine.get("loadedCount", 0)
    return f"{total} ({loaded} loaded)" if loaded else str(total)


def models(found: Iterable[Row]) -> RenderableType:
    """The models, a line for every copy (UI-41)."""
    rows = [
        (
            word(row["name"]),
            short(copy.get("node")),
            word(copy["engine"]),
            state("loaded" if copy.get("loaded") else "on disk"),
            size(copy.get("sizeBytes")),
            word(copy.get("quantization")),
            word(copy.get("contextMax")),
            ", ".join(word(each) for each in copy.get("capabilities", ())) or NOTHING,
        )
        for row in found
        for copy in row["copies"]
    ]
    titles = ("MODEL", "NODE", "ENGINE", "STATE", "SIZE", "QUANT", "CONTEXT", "CAN")
    return table(titles, rows, "No model is known.")


def jobs(found: Iterable[Row], now: int) -> RenderableType:
    """The jobs (UI-45)."""
    rows = [
        (
            word(job["id"]),
            _job_state(job),
            word(job.get("model")),
            word(job.get("engine")),
            short(job.get("origin")),
            short(job.get("placedOn")),
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
    return table(titles, rows, "There are no such jobs.")


def jobs_under_way(found: Iterable[Row], now: int) -> RenderableType:
    """Jobs that have not ended, in few words."""
    rows = [
        (
            word(job["id"]),
            _job_state(job),
            word(job.get("model")),
            word(job.get("engine")),
            short(job.get("origin")),
            short(job.get("placedOn")),
            span(_between(job, "createdAt", "completedAt", now)),
        )
        for job in found
    ]
    return table(("JOB", "STATE", "MODEL", "ENGINE", "FROM", "ON", "FOR"), rows, "None.")


def job_line(found: Row, now: int) -> Text:
    """One job as it is now, in a line."""
    error = (found.get("error") or {}).get("code")
    on = f", {word(found.get('engine'))} on {short(found['placedOn'])}" if found.get("placedOn") else ""
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


def job(found: Row, now: int) -> RenderableType:
    """One job, all of it."""
    error = found.get("error") or {}
    usage = _usage(found)
    about: list[tuple[str, str | Text]] = [
        ("job", word(found["id"])),
        ("state", _job_state(found)),
        ("error", f"{word(error.get('message'))} ({word(error.get('code'))})" if error else NOTHING),
        ("model", word(found.get("model"))),
        ("asked for", f"{word(found.get('operation'))} by {word(found.get('facade'))}, {word(found.get('route'))}"),
        ("from", word(found.get("origin"))),
        ("on", f"{word(found.get('placedOn'))}, {word(found.get('engine'))}"),
        ("created", ago(found.get("createdAt"), now)),
        ("first byte", span(_between(found, "createdAt", "startedAt"))),
        ("took", span(_between(found, "createdAt", "completedAt", now))),
        (
            "tokens",
            f"{word(usage.get('promptTokens'))} in, {word(usage.get('outputTokens'))} out, {_rate(found)} a second",
        ),
        ("bytes", f"{size(found.get('requestBytes'))} in, {size(found.get('responseBytes'))} out"),
        ("why here", word(found.get("why"))),
    ]
    attempts = [
        (
            str(each["n"]),
            short(each.get("node")),
            word(each.get("engine")),
            word(each.get("outcome")),
            word(each.get("status")),
            span(_between(each, "startedAt", "firstByteAt")),
            span(_between(each, "startedAt", "endedAt", now)),
            word(each.get("error")),
        )
        for each in found.get("attempts", ())
    ]
    titles = ("ATTEMPT", "NODE", "ENGINE", "OUTCOME", "STATUS", "FIRST BYTE", "TOOK", "ERROR")
    return Group(facts(about), "", table(titles, attempts, "It was never sent to an engine."))


def routing(found: Row, now: int) -> RenderableType:
    """Where each facade would send a chat, and what is held (UI-54)."""
    orders = [
        section(word(each["facade"]), _candidates(each["candidates"], now, each.get("wouldAnswer")))
        for each in found["facades"]
    ]
    held = [
        (
            short(each.get("node")),
            word(each.get("engine")),
            word(each.get("model")),
            word(each.get("kind")),
            word(each.get("count")),
            span(each["until"] - now),
        )
        for each in found.get("penalties", ())
    ]
    drawn = table(("NODE", "ENGINE", "MODEL", "KIND", "TIMES", "FOR"), held, "Nothing is held.")
    return Group(Text(f"policy {word(found.get('policy'))}", style="dim"), *orders, section("Held", drawn))


def explanation(found: Row, now: int) -> RenderableType:
    """Where one request would go (UI-56)."""
    return _candidates(found["candidates"], now, found.get("wouldAnswer"))


def _candidates(found: Iterable[Row], now: int, answer: str | None) -> RenderableType:
    rows = []
    for each in found:
        terms = [f"{word(name)} {number:g}" for name, number in each.get("terms", {}).items()]
        hold = each.get("hold")
        if hold:
            terms.append(f"held ({word(hold.get('kind'))}) for {span(hold['until'] - now)}")
        excluded, score = reason(EXCLUDED, each.get("excludedBy")), each.get("score")
        rows.append(
            (
                word(each.get("rank")),
                short(each.get("node")),
                word(each.get("engine")),
                NOTHING if score is None else f"{score:g}",
                ", ".join(terms) if each["eligible"] else Text(excluded, style="yellow"),
            )
        )
    drawn = table(("RANK", "NODE", "ENGINE", "LOAD", "WHY"), rows, "No node is known.")
    return (
        drawn
        if answer is None
        else Group(drawn, Text(f"It would be refused: {reason(REFUSED, answer)}.", style="red"))
    )


def errors(found: Iterable[Row], now: int) -> RenderableType:
    """What is wrong now (UI-47)."""
    rows = [
        (
            state(each["severity"]),
            word(each["id"]),
            short(each.get("node")) + (" (stale)" if each.get("stale") else ""),
            ago(each.get("firstAt"), now),
            word(each.get("count")),
            note(each["message"]),
        )
        for each in found
    ]
    return table(("SEVERITY", "ID", "NODE", "SINCE", "TIMES", "WHAT"), rows, "Nothing is wrong.")


def status(view: Row, now: int) -> RenderableType:
    """The whole node on a screen."""
    service, ready = view["service"], view["readiness"]
    title = Text.assemble(
        (word(service["name"]), "bold"),
        f"  {word(service['node'])}  ",
        state("ready" if ready.get("ready") else "not ready"),
    )
    if ready.get("reasons"):
        title.append(": " + ", ".join(word(each) for each in ready["reasons"]), style="red")
    up = span(now - service["startedAt"])
    about = Text(f"PAIR {word(service['version'])}, up {up}, pid {word(service['pid'])}", style="dim")
    down = [each for each in service.get("components", ()) if each["state"] != "up"]
    parts = [
        section("Endpoints", endpoints(view["endpoints"])),
        section("Engines", engines(view["engines"])),
        section("Jobs under way", jobs_under_way(view["jobs"], now)),
        section("Errors", errors(view["errors"], now)),
    ]
    if down:
        parts.append(section("Parts that are not up", _components(down)))
    return Group(title, about, _among_others(view), *parts)


def _among_others(view: Row) -> Text:
    """In which cluster the node is, and where others reach it."""
    roster = view.get("cluster") or {}
    name, members = (roster.get("cluster") or {}).get("name"), len(roster.get("members", ()))
    place = "in no cluster" if name is None else f"in the cluster {word(name)} of {members}"
    listeners = view["service"].get("listeners", ())
    address = next((each["address"] for each in listeners if each["name"] == "cluster"), None)
    reached = "no port open for other nodes" if address is None else f"open for other nodes at {word(address)}"
    return Text(f"{place[0].upper()}{place[1:]}; {reached}", style="dim")


def health(found: Row) -> RenderableType:
    """Whether all is well, and if not, why."""
    if found.get("ready") is False:
        return Text.assemble(state("not ready"), ": ", ", ".join(word(each) for each in found.get("reasons", ())))
    return state("ready") if "ready" in found else state(found.get("status"))


def _components(found: Iterable[Row]) -> RenderableType:
    rows = [
        (word(each["name"]), state(each["state"]), word(each.get("failures")), word(each.get("lastError")))
        for each in found
    ]
    return table(("PART", "STATE", "FAILURES", "LAST ERROR"), rows, "All parts are up.")


def section(title: str, content: RenderableType) -> RenderableType:
    """``content`` under a title."""
    return Group("", Text(title, style="bold cyan"), content)


def facts(found: Iterable[tuple[str, str | Text]]) -> RenderableType:
    """What is to be said of one thing, a line for each."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    drawn.add_column(style="dim", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in found:
        drawn.add_row(name, Text(value) if isinstance(value, str) else value)
    return drawn


def _between(record: Row, first: str, last: str, now: int | None = None) -> int | None:
    """Milliseconds from one instant of ``record`` to the other, or to ``now`` where that is not yet."""
    begin, end = record.get(first), record.get(last)
    end = now if end is None else end
    return None if begin is None or end is None else end - begin


def _usage(job: Row) -> Row:
    return job.get("usage") or {}


def _rate(job: Row) -> str:
    """Tokens a second, from the first to the last."""
    tokens, took = _usage(job).get("outputTokens"), _between(job, "startedAt", "completedAt")
    return f"{tokens * 1000 / took:.1f}" if tokens and took else NOTHING
