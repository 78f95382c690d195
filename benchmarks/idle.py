"""What a node costs that has five members, of whom nobody wants anything: CPU beside an idle process, and memory."""

from __future__ import annotations

import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pair
from benchmarks._nodes import pair_all, started
from benchmarks._processes import Process
from benchmarks._report import Bound, Report, main

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks._nodes import Node

MEMBERS = 5

_REST = 15.0
"""Seconds for what the start, or the last pairing, has left to do."""


def _control(folder: Path) -> Process:
    """A process of the same kind that nobody asks anything: the web server that comes with Twisted."""
    twistd = str(Path(sys.executable).with_name("twistd"))
    return Process([twistd, "-n", "web", "--listen", "tcp:0:interface=127.0.0.1", "--path", str(folder)], folder)


def _rounds(nodes: Sequence[Node], control: Process, number: int, seconds: float) -> list[tuple[float, float]]:
    """The shares of one core of a node, on the average, and of the control process, in each round."""
    time.sleep(_REST)
    taken = []
    processes = [*(each.process for each in nodes), control]
    for _ in range(number):
        begun = time.monotonic()
        before = [each.run_seconds() for each in processes]
        time.sleep(seconds)
        after = [each.run_seconds() for each in processes]
        passed = time.monotonic() - begun
        *ours, theirs = ((end - begin) / passed for begin, end in zip(before, after, strict=True))
        taken.append((statistics.mean(ours), theirs))
    return taken


def measure(quick: bool) -> Report:
    """Take the figures, of all nodes at once: each has as many members as the others."""
    number, seconds = (1, 20.0) if quick else (2, 60.0)
    with tempfile.TemporaryDirectory(prefix="pair-bench-") as folder, started(MEMBERS + 1) as nodes:
        control = _control(Path(folder))
        try:
            alone = _rounds(nodes, control, 1, seconds / 2)
            alone_mb = statistics.median(each.process.resident_bytes() for each in nodes) / 1e6
            pair_all(nodes)
            together = _rounds(nodes, control, number, seconds)
            resident_mb = statistics.median(each.process.resident_bytes() for each in nodes) / 1e6
            control_mb = control.resident_bytes() / 1e6
        finally:
            control.stop()
    percent = 100 * statistics.median(ours for ours, _ in together)
    idle = 100 * statistics.median(theirs for _, theirs in [*alone, *together])
    figures = {
        "alone": {"cpu_percent": 100 * alone[0][0], "resident_mb": alone_mb},
        f"with {MEMBERS} members": {"cpu_percent": percent, "resident_mb": resident_mb},
        "control": {"cpu_percent": idle, "resident_mb": control_mb},
    }
    bounds = (
        Bound("cpu_percent", percent, must=1, goal=0.5),
        Bound("resident_mb", resident_mb, must=120, goal=100),
        Bound("control", percent / idle if idle else None),
    )
    versions = {"python": platform.python_version(), "pair": pair.__version__}
    return Report("idle", figures, bounds, versions)


if __name__ == "__main__":
    main(measure)
