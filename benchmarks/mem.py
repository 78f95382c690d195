"""B-mem: resident memory of the proxy for each open stream, plaintext."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benchmarks._field import field
from benchmarks._load import load, stream
from benchmarks._report import Bound, Report, main

if TYPE_CHECKING:
    from benchmarks._proxies import Server

FEW, MANY = 100, 1000


def _resident(server: Server, streams: int) -> int:
    """Bytes of the server while so many streams are open that say nothing more."""
    body = stream(interval_us=60_000_000)
    return load(server, body, connections=streams, ramp=1000, settle=1500, seconds=0.1).resident


def measure(quick: bool) -> Report:
    """Take the figures. Each round is of new processes: what one has once used it keeps."""
    each_stream: dict[str, list[float]] = {}
    for _ in range(1 if quick else 4):
        with field("pair", "nginx", "haproxy", "aiohttp") as proxies:
            for name, server in proxies.servers.items():
                few = _resident(server, FEW)
                grown = _resident(server, MANY) - few
                each_stream.setdefault(name, []).append(grown / (MANY - FEW) / 1000)
            versions, missing = proxies.versions, proxies.missing
    figures = {name: {"kb_per_stream": statistics.median(values)} for name, values in each_stream.items()}
    bounds = (Bound("kb_per_stream", figures["pair"]["kb_per_stream"], must=8, goal=5),)
    return Report("B-mem", figures, bounds, versions, missing)


if __name__ == "__main__":
    main(measure)
