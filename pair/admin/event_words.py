"""Events as lines for a person: of each record what it is, and later what of it has changed. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pair.admin.words import NOTHING, note, share, short, word

if TYPE_CHECKING:
    from pair.admin.naming import Names

Row = Mapping[str, Any]

_ENDED = frozenset(("completed", "failed", "cancelled"))


class Telling:
    """Words the events of one stream, one after the other.

    Args:
        names: How nodes are called.
    """

    def __init__(self, names: Names) -> None:
        self._say: dict[str, Callable[[Row], tuple[str, dict[str, str]]]] = {
            "nodes": _node,
            "jobs": lambda job: _job(job, names),
            "engines": lambda engine: _engine(engine, names),
            "errors": lambda error: _error(error, names),
            "cluster": _cluster,
            "invitations": _invitation,
            "service": _service,
            "routing": lambda found: _routing(found, names),
            "telemetry": lambda nodes: _telemetry(nodes, names),
        }
        self._known: dict[tuple[str, str], Row] = {}

    def line(self, event: str, found: Row, now: int) -> str | None:
        """One event in a line: when, of what, and what is another now.

        Args:
            event: Its name.
            found: Its data.
            now: Epoch milliseconds.

        Returns:
            None where nothing that a person is told of has changed.
        """
        at = time.strftime("%H:%M:%S", time.localtime(now / 1000))
        if event == "snapshot":
            for topic, rows in found["topics"].items():
                self._known |= {(topic, row["key"]): row["value"] for row in rows}
            return f"{at}  " + ", ".join(f"{word(topic)} {len(rows)}" for topic, rows in found["topics"].items())
        topic, key, value = str(found["topic"]), str(found["key"]), found.get("value")
        last = self._known.pop((topic, key), None)
        if value is not None:
            self._known[topic, key] = value
        said = self._change(topic, key, last, value)
        return None if said is None else f"{at}  {word(topic)} {said}"

    def _change(self, topic: str, key: str, last: Row | None, value: Row | None) -> str | None:
        say = self._say.get(topic)
        if say is None:  # of a newer service
            return f"{note(key)}{'' if value is not None else ': gone'}"
        if value is None:
            if topic == "jobs" and last is not None and last["state"] in _ENDED:
                return None  # it only makes room for those that ended later
            return f"{note(key) if last is None else say(last)[0]}: gone"
        label, facts = say(value)
        # What is told for the first time has its name in front already.
        before = {"name": facts.get("name", "")} if last is None else say(last)[1]
        changes = [_compared(name, before.get(name, ""), fact) for name, fact in facts.items()]
        told = ", ".join(each for each in changes if each)
        return f"{label}: {told}" if told else None


def _compared(name: str, before: str, now: str) -> str:
    """A fact that is another, old and new; nothing where it is the same. The chief fact has no name."""
    if before == now:
        return ""
    change = now if before in ("", NOTHING) else f"{before} -> {now or NOTHING}"
    return f"{name} {change}".strip()


def _node(node: Row) -> tuple[str, dict[str, str]]:
    facts = {
        "": word(node["presence"]),
        "relation": "" if node.get("self") else word(node.get("relation")).replace("_", " "),
        "name": word(node["name"]),
        "address": word(node.get("ip")),
        "drained": "yes" if node.get("drained") else "",
        "warning": "; ".join(note(each["text"]) for each in node.get("warnings", ())),
    }
    return f"{word(node['name'])} ({short(node.get('uuid'))})", facts


def _job(job: Row, names: Names) -> tuple[str, dict[str, str]]:
    doubts = "".join(f" ({doubt})" for doubt in ("inferred", "stale") if job.get(doubt))
    facts = {
        "": f"{word(job['state'])}{doubts}",
        "on": names.of(job["placedOn"]) if job.get("placedOn") else "",
        "by": note(job.get("engine")),
        "error": note((job.get("error") or {}).get("code")),
    }
    return f"{word(job['id'])} for {word(job.get('model'))}", facts


def _engine(engine: Row, names: Names) -> tuple[str, dict[str, str]]:
    facts = {
        "": word(engine["state"]),
        "health": word(engine.get("health")),
        "models": word(engine.get("modelCount")),
        "loaded": word(engine.get("loadedCount")),
    }
    return f"{word(engine['id'])} on {names.of(engine['node'])}", facts


def _error(error: Row, names: Names) -> tuple[str, dict[str, str]]:
    stale = " (stale)" if error.get("stale") else ""
    facts = {"": f"{word(error['severity'])}{stale}", "it says:": note(error["message"])}
    return f"{word(error['id'])} of {names.of(error['node'])}", facts


def _cluster(roster: Row) -> tuple[str, dict[str, str]]:
    name = (roster.get("cluster") or {}).get("name")
    members = ", ".join(word(each.get("name")) for each in roster.get("members", ()))
    return "this node", {"": "in none" if name is None else f"in {word(name)}", "members:": members}


def _invitation(invitation: Row) -> tuple[str, dict[str, str]]:
    way = "from" if invitation["direction"] == "in" else "to"
    label = f"{way} {word(invitation['peer'].get('name'))}, tag {word(invitation.get('tag'))}"
    return label, {"": word(invitation["state"]), "reason": note(invitation.get("reason"))}


def _service(service: Row) -> tuple[str, dict[str, str]]:
    down = [word(each["name"]) for each in service.get("components", ()) if each["state"] != "up"]
    listening = [f"{word(each['name'])} {word(each.get('address'))}" for each in service.get("listeners", ())]
    parts = "all parts are up" if not down else f"not up: {', '.join(down)}"
    return word(service["name"]), {"": parts, "listening:": ", ".join(listening)}


def _routing(found: Row, names: Names) -> tuple[str, dict[str, str]]:
    facts = {"": f"policy {word(found.get('policy'))}"}
    for each in found.get("facades", ()):
        facade, selection = word(each["facade"]), each.get("selection")
        first = next((one for one in each.get("candidates", ()) if one.get("eligible")), None)
        goes = "nowhere" if first is None else f"to {word(first.get('engine'))} on {names.of(first.get('node'))}"
        facts |= {facade: goes, f"{facade} selection": "" if selection is None else names.of(selection)}
    return "of requests", facts


def _telemetry(nodes: Row, names: Names) -> tuple[str, dict[str, str]]:
    """How busy each is that has told it, by its name."""
    return "busy", {names.of(node): _busy(sample) for node, sample in nodes.items() if sample is not None}


def _busy(sample: Row) -> str:
    gpus = [each.get("utilizationPercent") for each in sample.get("gpus", ())]
    gpu = max((each for each in gpus if each is not None), default=None)
    return f"CPU {share(sample.get('cpuPercent'))}" + (f" GPU {share(gpu)}" if gpus else "")
