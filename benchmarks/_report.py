"""What a benchmark prints: a summary for a person, and one JSON line (QA-12)."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

Figures = Mapping[str, float]


class Bound(Struct, frozen=True):
    """One ratio and what it is measured by, of the table in the quality page.

    ``value`` is None where it could not be taken. It may be at most ``must``
    and should be at most ``goal``; with None there is nothing to reach.
    """

    name: str
    value: float | None
    must: float | None = None
    goal: float | None = None

    @property
    def passes(self) -> bool | None:
        """Whether it is at most ``must``; None: not known."""
        if self.must is None:
            return True
        return None if self.value is None else self.value <= self.must


class Report(Struct, frozen=True):
    """The outcome of one benchmark.

    ``figures`` are the medians by what was measured; their names end in their
    units. ``missing`` are the things to compare with that are not available,
    each with the reason.
    """

    id: str
    figures: Mapping[str, Figures]
    bounds: tuple[Bound, ...]
    versions: Mapping[str, str] = {}
    missing: Mapping[str, str] = {}

    @property
    def passes(self) -> bool | None:
        """Whether every bound passes; None where none fails but one is not known."""
        each = [bound.passes for bound in self.bounds]
        if False in each:
            return False
        return None if None in each else True

    def line(self) -> str:
        """All of it as one line of JSON."""
        values = {
            "id": self.id,
            "figures": {
                name: {key: _short(value) for key, value in each.items()} for name, each in self.figures.items()
            },
            "ratios": {each.name: None if each.value is None else _short(each.value) for each in self.bounds},
            "must": {each.name: each.must for each in self.bounds if each.must is not None},
            "goal": {each.name: each.goal for each in self.bounds if each.goal is not None},
            "pass": self.passes,
            "missing": self.missing,
            "machine": _machine(),
            "versions": self.versions,
            "date": datetime.now(UTC).date().isoformat(),
        }
        return msgspec.json.encode(values).decode()

    def summary(self) -> str:
        """All of it for a person."""
        rows = [self.id]
        for name, figures in self.figures.items():
            rows.append(f"  {name:<22}" + "  ".join(f"{key} {_short(value):g}" for key, value in figures.items()))
        for each in self.bounds:
            verdict = {True: "passes", False: "FAILS", None: "not known"}[each.passes]
            value = "-" if each.value is None else f"{_short(each.value):g}"
            limits = [f"{word} ≤ {limit:g}" for word, limit in (("must", each.must), ("goal", each.goal)) if limit]
            rows.append(f"  {each.name:<22}{value}  ({', '.join(limits)}: {verdict})")
        rows.extend(f"  {name} is not available: {why}" for name, why in self.missing.items())
        return "\n".join(rows)


def main(measure: Callable[[bool], Report]) -> None:
    """The command of one benchmark.

    Args:
        measure: takes the figures; quickly, and so less surely, when its argument is True.
    """
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--json", action="store_true", help="print the JSON line and nothing else")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    options = parser.parse_args()
    report = measure(options.quick)
    if not options.json:
        print(report.summary(), file=sys.stderr)
    print(report.line(), flush=True)


def _short(value: float) -> float:
    """Three digits that count, for more would be noise."""
    return float(f"{value:.3g}") if abs(value) < 1000 else round(value)


def _machine() -> str:
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{os.cpu_count()} x {model}, {platform.system()} {platform.release()}"
