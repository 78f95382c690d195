"""B-burst: how evenly 100 requests that come at once at one node are spread over four equal ones."""

from __future__ import annotations

import platform
import statistics
import time
from collections import Counter

import pair
from benchmarks._chats import chats
from benchmarks._load import chat
from benchmarks._nodes import pair_all, started, wait_for
from benchmarks._report import Bound, Report, main

NODES = 4
REQUESTS = 100

_REST = 5.0
"""Seconds for all nodes to learn that the burst before is over; by then all of them are idle again."""


def measure(quick: bool) -> Report:
    """Take the figures. Each answer takes two seconds, so that none has ended before the last is placed."""
    body = chat(bench_chunks=100, bench_interval_us=20_000, stream=True)
    with started(NODES) as nodes:
        pair_all(nodes)
        everybody = {each.uuid for each in nodes}
        wait_for("all owners", lambda: all(each.owners() == everybody for each in nodes), 0.1)
        spreads: list[int] = []
        largest: list[int] = []
        smallest: list[int] = []
        seconds: list[float] = []
        for turn in range(3 if quick else 9):
            time.sleep(_REST)
            got = chats(nodes[turn % NODES].server, REQUESTS, body)
            shares = Counter(each.node for each in got)
            counts = [shares[each] for each in everybody]
            largest.append(max(counts))
            smallest.append(min(counts))
            spreads.append(max(counts) - min(counts))
            seconds.append(max(each.seconds for each in got))
    figures = {
        "shares": {"largest": statistics.median(largest), "smallest": statistics.median(smallest)},
        "largest minus smallest": {"median": statistics.median(spreads), "most": max(spreads)},
        "last answer": {"s": statistics.median(seconds)},
    }
    versions = {"python": platform.python_version(), "pair": pair.__version__}
    return Report("B-burst", figures, (Bound("most_apart", max(spreads), must=1, goal=1),), versions)


if __name__ == "__main__":
    main(measure)
