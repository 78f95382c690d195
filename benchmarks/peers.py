"""B-peers: what PAIR adds to the time of one request, beside what other routers for language models add."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks._field import field, medians, ratio
from benchmarks._report import Bound, Report, main
from benchmarks._rivals import IN_PYTHON, IN_RUST
from benchmarks._sequence import sequence

if TYPE_CHECKING:
    from benchmarks._proxies import Server


def measure(quick: bool) -> Report:
    """Take the figures."""

    def once(server: Server) -> float:
        return sequence(server, 20 if quick else 50)

    with field("pair", "bare", *IN_PYTHON, *IN_RUST) as proxies:
        p50 = proxies.rounds(2 if quick else 5, once, direct=True)
        bounds = (
            *(Bound(name, ratio(p50, name, base="engine"), must=0.1, goal=0.1) for name in IN_PYTHON),
            *(Bound(name, ratio(p50, name, base="engine"), goal=1.0) for name in IN_RUST),
        )
        return Report("B-peers", medians(p50, "p50_us"), bounds, proxies.versions, proxies.missing)


if __name__ == "__main__":
    main(measure)
