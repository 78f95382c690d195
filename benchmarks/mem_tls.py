"""B-mem over the peer hop: resident memory of each side for each open stream, one connection of TLS for each."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benchmarks._field import field
from benchmarks._hops import HOPS
from benchmarks._load import load, stream
from benchmarks._report import Bound, Report, main

if TYPE_CHECKING:
    from benchmarks._proxies import Server

FEW, MANY = 50, 500
SIDES = ("near", "far")


def _residents(server: Server, streams: int) -> list[int]:
    """Bytes of each side while so many streams are open that say nothing more."""
    body = stream(interval_us=60_000_000)
    return load(server, body, connections=streams, ramp=2000, settle=2500, seconds=0.1).residents


def measure(quick: bool) -> Report:
    """Take the figures. Each round is of new processes: what one has once used it keeps."""
    each_stream: dict[str, dict[str, list[float]]] = {}
    for _ in range(1 if quick else 4):
        with field("pair", "nginx", starts=HOPS) as hops:
            for name, server in hops.servers.items():
                few = _residents(server, FEW)
                many = _residents(server, MANY)
                for side, before, after in zip(SIDES, few, many, strict=True):
                    taken = each_stream.setdefault(name, {}).setdefault(f"{side}_kb_per_stream", [])
                    taken.append((after - before) / (MANY - FEW) / 1000)
            versions, missing = hops.versions, hops.missing
    figures = {
        name: {side: statistics.median(values) for side, values in sides.items()}
        for name, sides in each_stream.items()
    }
    bounds = tuple(Bound(name, value, must=80, goal=75) for name, value in figures["pair"].items())
    return Report("B-mem, TLS", figures, bounds, versions, missing)


if __name__ == "__main__":
    main(measure)
