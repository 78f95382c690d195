"""B-ttfb: time to the first byte of the answer, under 1000 streams that are begun within one second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks._field import field, medians, ratio
from benchmarks._load import Percentiles, load, stream
from benchmarks._report import Bound, Report, main

if TYPE_CHECKING:
    from benchmarks._proxies import Server


def measure(quick: bool) -> Report:
    """Take the figures."""

    def once(server: Server) -> Percentiles:
        taken = load(server, stream(interval_us=1_000_000), connections=1000, ramp=1000, settle=1000, seconds=0.1)
        assert taken.counts.first is not None
        return taken.counts.first

    with field("pair", "bare", "aiohttp", "nginx") as proxies:
        taken = proxies.rounds(2 if quick else 7, once)
        p50 = {name: [each.p50 for each in all] for name, all in taken.items()}
        p99 = {name: [each.p99 for each in all] for name, all in taken.items()}
        figures = {name: {**medians(p50, "p50_us")[name], **medians(p99, "p99_us")[name]} for name in taken}
        bounds = (
            Bound("aiohttp_p50", ratio(p50, "aiohttp"), must=0.1, goal=0.02),
            Bound("aiohttp_p99", ratio(p99, "aiohttp"), must=0.4, goal=0.15),
        )
        return Report("B-ttfb", figures, bounds, proxies.versions, proxies.missing)


if __name__ == "__main__":
    main(measure)
