"""B-sync: what it costs a node that 11 others are in its cluster while nothing happens there."""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING

import pair
from benchmarks._nodes import pair_nodes, started, wait_until_agreed
from benchmarks._report import Bound, Report, main

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks._nodes import Node

PEERS = 11

INTERVAL = 30.0
"""Seconds between two syncs with the same peer, by default."""

_REST = 5.0
"""Seconds for what the last pairing, or the start, has left to do."""


def _share(nodes: Sequence[Node], seconds: float) -> tuple[float, float]:
    """CPU of a node on the average, as a share of one core, and how many syncs each began in a second."""
    time.sleep(_REST)
    syncs = sum(each.syncs() for each in nodes)
    begun = time.monotonic()
    spent = sum(each.process.cpu_seconds() for each in nodes)
    time.sleep(seconds)
    spent = sum(each.process.cpu_seconds() for each in nodes) - spent
    passed = time.monotonic() - begun
    syncs = sum(each.syncs() for each in nodes) - syncs
    return spent / passed / len(nodes), syncs / passed / len(nodes)


def measure(quick: bool) -> Report:
    """Take the figures, of all nodes at once: each has as many peers as the others."""
    seconds = 15.0 if quick else 60.0
    # So short a look would see all of a round of syncs or nothing of it.
    settings = ("cluster.gossip_interval=5",) if quick else ()
    with started(PEERS + 1, *settings) as nodes:
        alone, _ = _share(nodes, seconds)
        for each in nodes[1:]:
            pair_nodes(nodes[0], each)
        wait_until_agreed(nodes)
        together, rate = _share(nodes, seconds)
    if not rate:
        raise RuntimeError("no node has synced")
    each_sync = (together - alone) / rate
    percent = 100 * each_sync * PEERS / INTERVAL
    figures = {
        "alone": {"cpu_percent": 100 * alone},
        f"with {PEERS} peers": {"cpu_percent": 100 * together, "syncs_per_s": rate},
        "a sync, both sides": {"cpu_ms": 1000 * each_sync},
        "in sync": {"cpu_percent": percent},
    }
    versions = {"python": platform.python_version(), "pair": pair.__version__}
    return Report("B-sync", figures, (Bound("cpu_percent", percent, must=0.2, goal=0.05),), versions)


if __name__ == "__main__":
    main(measure)
