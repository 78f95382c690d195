"""B-req: CPU of the proxy for each small JSON request, 1000 of them a second over 64 connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks._field import field, medians, ratio
from benchmarks._load import chat, load
from benchmarks._report import Bound, Report, main

if TYPE_CHECKING:
    from benchmarks._proxies import Server

CONNECTIONS = 64
PACE_US = 64_000


def measure(quick: bool) -> Report:
    """Take the figures."""

    def once(server: Server) -> float:
        seconds = 1.0 if quick else 2.5
        options = {"repeat": 1, "pace": PACE_US, "ramp": PACE_US / 1000, "settle": 200}
        taken = load(server, chat(), connections=CONNECTIONS, seconds=seconds, **options)
        return 1e6 * taken.cpu / taken.counts.requests

    with field("pair", "bare", "nginx", "aiohttp", "haproxy", "caddy") as proxies:
        cpu = proxies.rounds(2 if quick else 5, once)
        bounds = (
            Bound("nginx", ratio(cpu, "nginx"), must=3.3, goal=2.4),
            Bound("aiohttp", ratio(cpu, "aiohttp"), must=0.45, goal=0.3),
        )
        return Report("B-req", medians(cpu, "cpu_us"), bounds, proxies.versions, proxies.missing)


if __name__ == "__main__":
    main(measure)
