"""B-tls: CPU of both sides of a hop over mutual TLS for each streamed chunk, 64 streams of one chunk each 5 ms."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benchmarks._field import field, ratio
from benchmarks._hops import HOPS
from benchmarks._load import load, stream
from benchmarks._report import Bound, Report, main

if TYPE_CHECKING:
    from benchmarks._proxies import Server


def measure(quick: bool) -> Report:
    """Take the figures."""

    def once(server: Server) -> list[float]:
        seconds = 1.0 if quick else 2.5
        taken = load(server, stream(interval_us=5000), connections=64, ramp=500, settle=500, seconds=seconds)
        return [1e6 * each / taken.counts.chunks for each in taken.cpus]

    with field("pair", "nginx", starts=HOPS) as hops:
        taken = hops.rounds(2 if quick else 5, once)
        cpu = {name: [sum(each) for each in rounds] for name, rounds in taken.items()}
        figures = {
            name: {
                "cpu_us": statistics.median(cpu[name]),
                "near_cpu_us": statistics.median(near for near, _ in rounds),
                "far_cpu_us": statistics.median(far for _, far in rounds),
            }
            for name, rounds in taken.items()
        }
        bounds = (Bound("nginx", ratio(cpu, "nginx"), must=2.0, goal=1.6),)
        return Report("B-tls", figures, bounds, hops.versions, hops.missing)


if __name__ == "__main__":
    main(measure)
