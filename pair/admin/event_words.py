"""Events as lines for a person. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from pair.admin.words import note, short, word

Row = Mapping[str, Any]


def change(event: str, found: Row, now: int) -> str:
    """One event in a line: when, of what, and what is so now; ``now`` is in epoch milliseconds."""
    at = time.strftime("%H:%M:%S", time.localtime(now / 1000))
    if event == "snapshot":
        counts = ", ".join(f"{word(topic)} {len(rows)}" for topic, rows in found["topics"].items())
        return f"{at}  {counts}"
    topic, value = word(found["topic"]), found.get("value")
    if value is None:
        return f"{at}  {topic} {note(found['key'])}: gone"
    say = _SAY.get(topic)
    return f"{at}  {topic} {note(found['key']) if say is None else say(value)}"


def _node(node: Row) -> str:
    warnings = "".join(f"; {note(each['text'])}" for each in node.get("warnings", ()))
    return f"{word(node['name'])} ({short(node.get('uuid'))}): {word(node['presence'])}{warnings}"


def _job(job: Row) -> str:
    error = (job.get("error") or {}).get("code")
    on = f" on {short(job['placedOn'])}" if job.get("placedOn") else ""
    why = "" if error is None else f", {word(error)}"
    return f"{word(job['id'])}: {word(job['state'])}{on}, {word(job.get('model'))}{why}"


def _engine(engine: Row) -> str:
    models = f"{word(engine.get('modelCount'))} models, {word(engine.get('loadedCount'))} loaded"
    return f"{word(engine['id'])} on {short(engine['node'])}: {word(engine['state'])}, {models}"


def _error(error: Row) -> str:
    return f"{word(error['id'])} of {short(error['node'])}: {word(error['severity'])}, {note(error['message'])}"


def _cluster(roster: Row) -> str:
    name = (roster.get("cluster") or {}).get("name")
    return "this node is in none" if name is None else f"{word(name)}: {len(roster['members'])} members"


def _invitation(invitation: Row) -> str:
    way = "from" if invitation["direction"] == "in" else "to"
    return f"{way} {word(invitation['peer'].get('name'))}: {word(invitation['state'])}"


def _service(service: Row) -> str:
    down = [word(each["name"]) for each in service.get("components", ()) if each["state"] != "up"]
    return f"{word(service['name'])}: {'all parts are up' if not down else 'not up: ' + ', '.join(down)}"


def _telemetry(nodes: Row) -> str:
    known = [each for each in nodes.values() if each is not None]
    return f"of {len(known)} nodes"


_SAY: dict[str, Callable[[Row], str]] = {
    "nodes": _node,
    "jobs": _job,
    "engines": _engine,
    "errors": _error,
    "cluster": _cluster,
    "invitations": _invitation,
    "service": _service,
    "telemetry": _telemetry,
}
