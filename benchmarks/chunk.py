"""B-chunk: CPU of the proxy for each streamed chunk, 64 streams of one chunk each 5 ms."""

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
        seconds = 1.0 if quick else 2.5
        taken = load(server, stream(interval_us=5000), connections=64, ramp=200, settle=300, seconds=seconds)
        return 1e6 * taken.cpu / taken.counts.chunks

    with field("pair", "nginx", "aiohttp", "haproxy") as proxies:
        cpu = proxies.rounds(2 if quick else 5, once)
        bounds = (
            Bound("nginx", ratio(cpu, "nginx"), must=2.0, goal=1.6),
            Bound("aiohttp", ratio(cpu, "aiohttp"), must=0.75, goal=0.6),
        )
        return Report("B-chunk", medians(cpu, "cpu_us"), bounds, proxies.versions, proxies.missing)


if __name__ == "__main__":
    main(measure)
