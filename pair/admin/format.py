"""The answers of the API as tables for a person. Pure: values in, something for rich out.

A field that an older or a newer service does not have is shown as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from pair.admin.job_format import jobs_under_way
from pair.admin.tables import section, state, table
from pair.admin.words import EXCLUDED, HEADS, NOTHING, REFUSED, ago, note, reason, size, span, word

if TYPE_CHECKING:
    from pair.admin.naming import Names

Row = Mapping[str, Any]


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


def engines(found: Sequence[Row], names: Names) -> RenderableType:
    """The engines, each with its node where that may be another one (UI-37)."""
    where = _nodes([each["node"] for each in found], names)
    rows: list[tuple[str | Text, ...]] = [
        (
            word(each["id"]),
            *at,
            _state(each["state"], each["node"], names),
            word(each.get("health")) if names.is_offline(each["node"]) else state(each.get("health")),
            word(each.get("version")),
            word(each.get("address")),
            _models(each),
            note(each.get("detail")),
        )
        for each, at in zip(found, where, strict=True)
    ]
    titles = ("ENGINE", *_node_title(where), "STATE", "HEALTH", "VERSION", "ADDRESS", "MODELS", "NOTE")
    return table(titles, rows, "No engine is known.", spare=("VERSION", "ADDRESS", "HEALTH"))


def _nodes(found: Sequence[str], names: Names) -> list[tuple[str, ...]]:
    """A cell for each of these nodes; none where all of them are this one."""
    return [(names.of(each),) for each in found] if any(map(names.is_other, found)) else [()] * len(found)


def _node_title(cells: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return ("NODE",) if any(cells) else ()


def _state(value: str, node: str, names: Names) -> Text:
    """A state as its node told it, which may be gone since."""
    return Text(f"{word(value)} (stale)", style="dim") if names.is_offline(node) else state(value)


def _models(engine: Row) -> str:
    if engine.get("models") == "unknown":
        return NOTHING
    total, loaded = engine.get("modelCount", 0), engine.get("loadedCount", 0)
    return f"{total} ({loaded} loaded)" if loaded else str(total)


def models(found: Iterable[Row], names: Names) -> RenderableType:
    """The models, a line for every copy, with its node where that may be another one (UI-41)."""
    copies = [(row["name"], copy) for row in found for copy in row["copies"]]
    where = _nodes([copy["node"] for _, copy in copies], names)
    rows: list[tuple[str | Text, ...]] = [
        (
            word(name),
            *at,
            word(copy["engine"]),
            _state("loaded" if copy.get("loaded") else "on disk", copy["node"], names),
            size(copy.get("sizeBytes")),
            word(copy.get("quantization")),
            word(copy.get("contextMax")),
            ", ".join(word(each) for each in copy.get("capabilities", ())) or NOTHING,
        )
        for (name, copy), at in zip(copies, where, strict=True)
    ]
    titles = ("MODEL", *_node_title(where), "ENGINE", "STATE", "SIZE", "QUANT", "CONTEXT", "CAN")
    return table(titles, rows, "No model is known.", spare=("CONTEXT", "QUANT", "SIZE", "CAN"))


def routing(found: Row, now: int, names: Names) -> RenderableType:
    """Where each facade would send a chat, and what is held (UI-54)."""
    orders = [
        section(_facade(each, names), _candidates(each["candidates"], now, each.get("wouldAnswer"), names))
        for each in found["facades"]
    ]
    held = [
        (
            names.of(each.get("node")),
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


def _facade(order: Row, names: Names) -> str:
    """A facade, with the node that a person selected for it."""
    name, selected = word(order["facade"]), order.get("selection")
    if selected is None:
        return name
    doubt = "" if order.get("head") == "selection" else ", but cannot serve"
    return f"{name}: {names.of(selected)} is selected{doubt}"


def policies(found: Row) -> RenderableType:
    """The routing policies (UI-54)."""
    rows = [(word(each), "in force" if each == found.get("policy") else "") for each in found.get("policies", ())]
    return table(("POLICY", ""), rows, "No policy can be chosen now.")


def explanation(found: Row, now: int, names: Names) -> RenderableType:
    """Where one request would go (UI-56)."""
    drawn = _candidates(found["candidates"], now, found.get("wouldAnswer"), names)
    head = HEADS.get(found.get("head") or "")
    return drawn if head is None else Group(drawn, Text(head, style="dim"))


def _candidates(found: Iterable[Row], now: int, answer: str | None, names: Names) -> RenderableType:
    rows = []
    for each in found:
        terms = [f"{word(name)} {number:g}" for name, number in each.get("terms", {}).items()]
        hold = each.get("hold")
        if hold:
            terms.append(f"held ({word(hold.get('kind'))}) for {span(hold['until'] - now)}")
        if each.get("telemetryAgeMs") is not None:
            terms.append(f"GPU seen {span(each['telemetryAgeMs'])} ago")
        excluded, score = reason(EXCLUDED, each.get("excludedBy")), each.get("score")
        rows.append(
            (
                word(each.get("rank")),
                names.of(each.get("node")),
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


def errors(found: Iterable[Row], hidden: int, now: int, names: Names) -> RenderableType:
    """What is wrong now, and that some of it is out of sight (UI-47)."""
    rows = [
        (
            state(each["severity"]),
            word(each["id"]),
            names.of(each.get("node")) + (" (stale)" if each.get("stale") else ""),
            ago(each.get("firstAt"), now),
            word(each.get("count")),
            note(each["message"]),
        )
        for each in found
    ]
    titles = ("SEVERITY", "ID", "NODE", "SINCE", "TIMES", "WHAT")
    empty = "Nothing else is wrong." if hidden else "Nothing is wrong."
    shown = table(titles, rows, empty, spare=("TIMES", "SINCE", "NODE"))
    if not hidden:
        return shown
    more = f"{hidden} more hold, and were" if hidden > 1 else "One more holds, and was"
    return Group(shown, Text(f"{more} dismissed or hidden here.", style="dim"))


def status(view: Row, now: int, names: Names) -> RenderableType:
    """The whole node on a screen, with its own engines; jobs and errors are those of all nodes."""
    service, ready = view["service"], view["readiness"]
    own = [each for each in view["engines"] if each["node"] == service["node"]]
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
        section("Engines", engines(own, names)),
        section("Jobs under way", jobs_under_way(view["jobs"], now, names)),
        section("Errors", errors(view["errors"], view["hiddenErrors"], now, names)),
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
