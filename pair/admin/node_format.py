"""Nodes for a person. Pure: values in, something for rich out.

What a node did not tell is a dash, and never 0 (UI-70).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from pair.admin.format import facts, section, state, table
from pair.admin.words import NOTHING, RESULTS, ago, note, reason, share, short, size, word

Row = Mapping[str, Any]


def nodes(found: Iterable[Row], now: int) -> RenderableType:
    """The nodes, a line for each (UI-33)."""
    rows = [
        (
            short(each.get("uuid")),
            word(each.get("name")),
            relation(each),
            state(each["presence"]),
            NOTHING if each.get("self") else ago(each.get("lastHeardAt"), now),
            word(each.get("ip")),
            _gpu(each),
            _engines(each),
            word(each.get("activeJobs")),
            _remarks(each),
        )
        for each in found
    ]
    titles = ("NODE", "NAME", "RELATION", "PRESENCE", "HEARD", "ADDRESS", "GPU", "ENGINES", "JOBS", "NOTE")
    return table(titles, rows, "No node is known.")


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
        ("ports", _listed(f"{key} {port}" for key, port in (found.get("services") or {}).items())),
        ("cluster", f"{word(found.get('clusterUuid'))} ({word(found.get('clusterState'))})"),
        ("system", " ".join(word(system.get(part)) for part in ("system", "release", "arch"))),
        ("processor", f"{word(cpu.get('name'))}, {share(cpu.get('utilizationPercent'))} busy"),
        ("memory", f"{size(memory.get('usedBytes'))} of {size(memory.get('totalBytes'))}"),
        ("told", ago(found.get("hardwareAt"), now)),
        ("drained", NOTHING if found.get("drained") is None else "yes" if found["drained"] else "no"),
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
    """How busy the busiest GPU is."""
    known = [each.get("utilizationPercent") for each in (found.get("hardware") or {}).get("gpus", ())]
    return share(max((each for each in known if each is not None), default=None))


def _engines(found: Row) -> str:
    engines = found.get("engines")
    if engines is None:
        return NOTHING
    there = [each.get("state") for each in engines if each.get("state") != "absent"]
    return f"{there.count('running')} of {len(there)}"


def _remarks(found: Row) -> str:
    """What a person should know, in few words."""
    said = ["drained"] if found.get("drained") else []
    said += [note(each["text"]) for each in found.get("warnings", ())]
    said += [
        f"{word(each['address'])}: {reason(RESULTS, each.get('result'))}"
        for each in found.get("manual", ())
        if each.get("result") not in ("ok", "never")
    ]
    return "; ".join(said)


def _listed(found: Iterable[str] | None) -> str:
    return ", ".join(map(word, found or ())) or NOTHING
