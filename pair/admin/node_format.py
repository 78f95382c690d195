"""Nodes for a person. Pure: values in, something for rich out.

What a node did not tell is a dash, and never 0 (UI-70).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from pair.admin.naming import place_of
from pair.admin.tables import facts, section, state, table
from pair.admin.words import NOTHING, RESULTS, ago, note, reason, share, short, size, together, word

Row = Mapping[str, Any]


_PORTS = {
    "ni": "node_info",
    "ol": "ollama",
    "lm": "lmstudio",
    "er": "errors",
    "wl": "workloads",
    "cl": "cluster",
    "em": "inventory",
}
"""The settings in ``[ports]`` and ``[proxy.ports]``, by the keys that nodes tell each other."""

_CLUSTER = {"same": "that of this node", "other": "not that of this node", "none": "in none"}
"""In which cluster a node says that it is, by code."""


def nodes(found: Iterable[Row], now: int, whole: bool = False) -> RenderableType:
    """The nodes, a line for each, with whole UUIDs if so wished (UI-33)."""
    rows = [
        (
            word(each.get("uuid")) if whole else short(each.get("uuid")),
            word(each.get("name")),
            relation(each),
            state(each["presence"]),
            NOTHING if each.get("self") else ago(each.get("lastHeardAt"), now),
            _address(each),
            _gpu(each),
            _engines(each),
            word(each.get("activeJobs")),
            _remarks(each),
        )
        for each in found
    ]
    titles = ("NODE", "NAME", "RELATION", "PRESENCE", "HEARD", "ADDRESS", "GPU", "ENGINES", "JOBS", "NOTE")
    return table(titles, rows, "No node is known.", spare=("GPU", "ENGINES", "JOBS", "HEARD"))


def probed(found: Row, now: int) -> RenderableType:
    """A node after a question whether it is there, and what came of that (UI-35)."""
    shown = nodes([found], now)
    if found["answered"]:
        return shown
    if not (found.get("ips") or found.get("manual")):
        return Group(shown, "", Text("It was not asked: no address of it is known here.", style="red"))
    heard = f" It was heard last: {ago(found.get('lastHeardAt'), now)}." if found["presence"] != "offline" else ""
    return Group(shown, "", Text(f"Nobody answered for it at {_listed(found.get('ips'))}.{heard}", style="red"))


def node(found: Row, now: int) -> RenderableType:
    """One node, all of it."""
    hardware = found.get("hardware") or {}
    cpu, memory, system = (hardware.get(part) or {} for part in ("cpu", "memory", "os"))
    about: list[tuple[str, str | Text]] = [
        ("node", word(found.get("uuid"))),
        ("name", word(found.get("name"))),
        ("relation", relation(found)),
        ("presence", state(found["presence"])),
        ("heard", NOTHING if found.get("lastHeardAt") is None else _heard(found, now)),
        ("known by", _listed(found.get("claims"))),
        ("addresses", _listed(found.get("ips"))),
        ("ports", _listed(f"{_PORTS.get(key, key)} {port}" for key, port in (found.get("services") or {}).items())),
        ("cluster", _cluster(found)),
        ("system", together(" ", *(word(system.get(part)) for part in ("system", "release", "arch")))),
        ("processor", together(", ", word(cpu.get("name")), _busy(cpu))),
        ("memory", together(" of ", size(memory.get("usedBytes")), size(memory.get("totalBytes")))),
        ("figures from", ago(found.get("hardwareAt"), now)),
        ("drained", NOTHING if found.get("drained") is None else _drained(found, "yes") if found["drained"] else "no"),
        ("active jobs", word(found.get("activeJobs"))),
    ]
    parts = [facts(about), section("GPUs", _gpus(hardware)), section("Engines", _engine_table(found.get("engines")))]
    if found.get("manual"):
        parts.append(section("Added by address", _given_table(found["manual"], now)))
    if found.get("warnings"):
        parts.append(section("Warnings", Group(*(Text(note(each["text"])) for each in found["warnings"]))))
    return Group(*parts)


def given(found: Row) -> RenderableType:
    """An address that was added."""
    return facts([("id", word(found["id"])), ("address", word(found["address"])), ("port", word(found["port"]))])


def relation(found: Row) -> str:
    """What a node is to this one."""
    return "this node" if found.get("self") else word(found.get("relation")).replace("_", " ")


def _address(found: Row) -> str:
    """Where it is; with the port where that is all that is known of it."""
    given = found.get("manual")
    return place_of(given[0]) if given and found.get("uuid") is None else word(found.get("ip"))


def _cluster(found: Row) -> str:
    """In which cluster it is; what a member is in is known though it has not said it."""
    said = "same" if found.get("relation") == "member" else found.get("clusterState")
    if found.get("clusterUuid") is None:
        return _CLUSTER.get(str(said), NOTHING)
    return f"{word(found['clusterUuid'])} ({_CLUSTER.get(str(found.get('clusterState')), NOTHING)})"


def _busy(cpu: Row) -> str:
    percent = cpu.get("utilizationPercent")
    return NOTHING if percent is None else f"{share(percent)} busy"


def _heard(found: Row, now: int) -> str:
    return f"{ago(found['lastHeardAt'], now)}, by {word(found.get('evidence'))}"


def _gpus(hardware: Row) -> RenderableType:
    rows = [
        (
            word(each.get("index")),
            word(each.get("name") or each.get("vendor")),
            share(each.get("utilizationPercent")),
            size(each.get("vramUsedBytes")),
            size(each.get("vramTotalBytes")) + (" (the system's)" if each.get("unified") else ""),
        )
        for each in hardware.get("gpus", ())
    ]
    return table(("GPU", "NAME", "BUSY", "USED", "MEMORY"), rows, "None, or it does not tell.")


def _engine_table(found: Iterable[Row] | None) -> RenderableType:
    rows = [
        (
            word(each["id"]),
            state(each["state"]),
            state(each.get("health")),
            word(each.get("version")),
            f"{each.get('modelCount', NOTHING)} ({each.get('loadedCount', NOTHING)} loaded)",
        )
        for each in found or ()
    ]
    titles = ("ENGINE", "STATE", "HEALTH", "VERSION", "MODELS")
    return table(titles, rows, "It does not tell." if found is None else "None.")


def _given_table(found: Iterable[Row], now: int) -> RenderableType:
    rows = [
        (
            word(each["id"]),
            word(each["address"]),
            word(each["port"]),
            ago(each.get("lastOkAt"), now),
            reason(RESULTS, each.get("result")) + ("; it is in the settings" if each.get("static") else ""),
        )
        for each in found
    ]
    return table(("ID", "ADDRESS", "PORT", "ANSWERED", "LAST TRY"), rows, "None.")


def _gpu(found: Row) -> str:
    """How busy the busiest GPU is; of a node that is gone nobody knows."""
    if found["presence"] == "offline":
        return NOTHING
    known = [each.get("utilizationPercent") for each in (found.get("hardware") or {}).get("gpus", ())]
    return share(max((each for each in known if each is not None), default=None))


def _engines(found: Row) -> str:
    engines = found.get("engines")
    if engines is None:
        return NOTHING
    there = [each.get("state") for each in engines if each.get("state") != "absent"]
    gone = " (stale)" if found["presence"] == "offline" else ""
    return f"{there.count('running')} of {len(there)}{gone}"


def _drained(found: Row, said: str) -> str:
    """That it is, and why."""
    return f"{said}: {note(found['drainReason'])}" if found.get("drainReason") else said


def _remarks(found: Row) -> str:
    """What a person should know, in few words."""
    said = [_drained(found, "drained")] if found.get("drained") else []
    said += [note(each["text"]) for each in found.get("warnings", ())]
    said += [
        f"{place_of(each)}: {reason(RESULTS, each.get('result'))}"
        for each in found.get("manual", ())
        if each.get("result") not in ("ok", "never")
    ]
    return "; ".join(said)


def _listed(found: Iterable[str] | None) -> str:
    return ", ".join(map(word, found or ())) or NOTHING
