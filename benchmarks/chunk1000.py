"""B-chunk1000: CPU of the proxy for each streamed chunk, 1000 streams of one chunk each 50 ms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks._field import field, medians, ratio
from benchmarks._load import load, stream
from benchmarks._report import Bound, Report, main

if TYPE_CHECKING:
    from benchmarks._proxies import Server


def measure(quick: bool) -> Report:
    """Take the figures."""

    def once(server: Server) -> float:
        seconds = 1.0 if quick else 3.0
        taken = load(server, stream(interval_us=50_000), connections=1000, ramp=1000, settle=700, seconds=seconds)
        return 1e6 * taken.cpu / taken.counts.chunks

    with field("pair", "nginx", "haproxy") as proxies:
        cpu = proxies.rounds(1 if quick else 4, once)
        bounds = (Bound("nginx", ratio(cpu, "nginx"), must=1.9, goal=1.5),)
        return Report("B-chunk1000", medians(cpu, "cpu_us"), bounds, proxies.versions, proxies.missing)


if __name__ == "__main__":
    main(measure)
