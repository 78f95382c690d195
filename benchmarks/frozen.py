"""B-frozen: how long 24 chats take with two owners, of which one is frozen, beside one healthy owner alone."""

from __future__ import annotations

import os
import platform
import signal
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pair
from benchmarks._chats import chats
from benchmarks._load import chat
from benchmarks._nodes import pair_all, start_nodes, wait_for
from benchmarks._proxies import start_engine
from benchmarks._report import Bound, Report, main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks._chats import Chat
    from benchmarks._nodes import Node

CHATS = 24

SLOTS = 4
"""Chats at which an engine works at once."""

BODY = chat(bench_chunks=100, bench_interval_us=40_000, stream=True)
"""Four seconds: one healthy owner needs 24 for all."""

_REST = 5.0
"""Seconds for all nodes to learn that everybody is idle."""


@contextmanager
def _cluster(owners: int) -> Iterator[list[Node]]:
    """A node that clients ask and that has no engine, and so many that have one each of their own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pair-bench-")))
        engines = [start_engine(folder / f"engine-{number}", SLOTS) for number in range(owners)]
        for engine in engines:
            stack.callback(engine.stop)
        nodes = start_nodes([None, *(each.port for each in engines)], folder)
        for node in nodes:
            stack.callback(node.server.stop)
        pair_all(nodes)
        _wait_until_whole(nodes)
        yield nodes


def _wait_until_whole(nodes: list[Node]) -> None:
    """Wait until the one that is asked sees the others, and what they have."""
    everybody = {each.uuid for each in nodes}
    wait_for("everybody", lambda: nodes[0].online() == everybody, 0.1)
    wait_for("all owners", lambda: nodes[0].owners() == everybody - {nodes[0].uuid}, 0.1)


def _seconds(got: list[Chat]) -> float:
    return max(each.seconds for each in got)


def _both(alone: list[Node], pair_of: list[Node]) -> tuple[float, float, float]:
    """Seconds for all chats with the healthy owner alone, with a frozen one, and of the first answer with that."""
    here, _, victim = pair_of
    time.sleep(_REST)
    os.kill(victim.process.pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(2) as pool:
            base = pool.submit(chats, alone[0].server, CHATS, BODY)
            beside = pool.submit(chats, here.server, CHATS, BODY)
            return _seconds(base.result()), _seconds(beside.result()), min(each.seconds for each in beside.result())
    finally:
        os.kill(victim.process.pid, signal.SIGCONT)
        _wait_until_whole(pair_of)


def measure(quick: bool) -> Report:
    """Take the figures. Both clusters are asked at the same time: they wait for their engines, and use little CPU."""
    with _cluster(1) as alone, _cluster(2) as pair_of:
        taken = [_both(alone, pair_of) for _ in range(1 if quick else 3)]
    healthy, frozen, first = (statistics.median(each) for each in zip(*taken, strict=True))
    ratio = statistics.median(beside / base for base, beside, _ in taken)
    figures = {"one owner": {"s": healthy}, "two, one frozen": {"s": frozen, "first_s": first}}
    versions = {"python": platform.python_version(), "pair": pair.__version__}
    return Report("B-frozen", figures, (Bound("one_owner", ratio, must=1.15, goal=1.0),), versions)


if __name__ == "__main__":
    main(measure)
