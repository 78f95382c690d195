"""B-cancel: from the moment a client closes until the engine sees its side closed."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from benchmarks._field import field, medians
from benchmarks._load import load, stream
from benchmarks._report import Bound, Report, main

if TYPE_CHECKING:
    from benchmarks._proxies import Server

STREAMS = 200
EVERY_US = 10_000
"""A client closes so often."""

FIRST_ID = 10**8
"""Of a stream, less the number of its connection: JSON has no zeros in front."""

_CLOSED = re.compile(r"closed (\d+) (\d+)")


def _percentile(values: list[float], part: float) -> float:
    return sorted(values)[int(part * (len(values) - 1))]


def measure(quick: bool) -> Report:
    """Take the figures."""
    number = STREAMS // 4 if quick else STREAMS
    with field("pair", "nginx", "haproxy", "aiohttp") as proxies:

        def once(server: Server) -> list[float]:
            """Milliseconds of each close."""
            seen = len(proxies.engine.process.output)
            body = stream(interval_us=50_000, bench_id=FIRST_ID).replace(f"{FIRST_ID}", "1@@@@@@@@")
            seconds = (number + 1) * EVERY_US / 1e6
            taken = load(server, body, connections=number, ramp=500, settle=300, close=EVERY_US, seconds=seconds)
            time.sleep(0.2)
            closed = dict(_CLOSED.findall(proxies.engine.process.output[seen:]))
            return [(int(closed[f"{FIRST_ID + each}"]) - at) / 1e6 for each, at in taken.closings.items()]

        taken = proxies.rounds(2 if quick else 4, once)
        p50 = medians({name: [_percentile(each, 0.5) for each in all] for name, all in taken.items()}, "p50_ms")
        p99 = medians({name: [_percentile(each, 0.99) for each in all] for name, all in taken.items()}, "p99_ms")
        figures = {name: {**p50[name], **p99[name]} for name in taken}
        bounds = (Bound("p99_ms", figures["pair"]["p99_ms"], must=5, goal=2),)
        return Report("B-cancel", figures, bounds, proxies.versions, proxies.missing)


if __name__ == "__main__":
    main(measure)
