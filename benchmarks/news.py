"""How soon what happens on one node is to be seen on another: a job that begins, on idle nodes (jobs page)."""

from __future__ import annotations

import platform
import random
import statistics
import time
from threading import Thread
from typing import TYPE_CHECKING

import pair
from benchmarks._chats import chats
from benchmarks._load import chat
from benchmarks._nodes import pair_all, started, wait_for
from benchmarks._report import Bound, Report, main

if TYPE_CHECKING:
    from benchmarks._nodes import Node

NODES = 3

_LOOK_SECONDS = 0.002
_BODY = chat(bench_chunks=20, bench_interval_us=20_000, stream=True)
_GONE_SECONDS = 0.3
"""From the end of an answer until nobody sees its job under way any more, and a random bit more before the next."""


def _running(node: Node) -> bool:
    return bool(node.ask("/jobs?state=running")["jobs"])


def _once(where: Node, seen_on: Node) -> float:
    """Milliseconds from a request until its job is listed on ``seen_on``."""
    time.sleep(_GONE_SECONDS + random.random() / 10)
    client = Thread(target=chats, args=(where.server, 1, _BODY))
    began = time.monotonic()
    client.start()
    wait_for("the job", lambda: _running(seen_on), _LOOK_SECONDS)
    took = time.monotonic() - began
    client.join()
    return 1000 * took


def _percentile(values: list[float], part: float) -> float:
    return sorted(values)[int(part * (len(values) - 1))]


def measure(quick: bool) -> Report:
    """Take the figures. The same on the node itself, in turn, is what the looking costs."""
    with started(NODES) as nodes:
        pair_all(nodes)
        here, there, _ = nodes
        own: list[float] = []
        others: list[float] = []
        for _ in range(20 if quick else 60):
            # Whoever serves it, the job is that of the node that was asked.
            own.append(_once(here, here))
            others.append(_once(here, there))
    figures = {
        name: {"p50_ms": statistics.median(values), "p99_ms": _percentile(values, 0.99)}
        for name, values in (("on the node itself", own), ("on another", others))
    }
    versions = {"python": platform.python_version(), "pair": pair.__version__}
    bounds = (Bound("p99_ms", figures["on another"]["p99_ms"], must=150, goal=100),)
    return Report("news", figures, bounds, versions)


if __name__ == "__main__":
    main(measure)
