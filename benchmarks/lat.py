"""B-lat: how long one request takes through the proxy, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks._field import field, medians, ratio
from benchmarks._report import Bound, Report, main
from benchmarks._sequence import sequence

if TYPE_CHECKING:
    from benchmarks._proxies import Server


def measure(quick: bool) -> Report:
    """Take the figures."""

    def once(server: Server) -> float:
        return sequence(server, 30 if quick else 60)

    with field("pair", "bare", "nginx", "caddy", "aiohttp") as proxies:
        p50 = proxies.rounds(3 if quick else 7, once, direct=True)
        bounds = (
            Bound("nginx", ratio(p50, "nginx"), must=1.6, goal=1.3),
            Bound("caddy_added", ratio(p50, "caddy", base="engine"), must=1.0, goal=0.5),
        )
        return Report("B-lat", medians(p50, "p50_us"), bounds, proxies.versions, proxies.missing)


if __name__ == "__main__":
    main(measure)
