"""Everything that one benchmark compares, running side by side before one engine, and the rounds that measure it."""

from __future__ import annotations

import importlib.metadata
import platform
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from benchmarks._proxies import PROXIES, Server, Start, ready, start_engine
from benchmarks._rivals import IN_PYTHON, IN_RUST
from benchmarks._setup import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")

_STARTS: Mapping[str, Start] = {**PROXIES, **IN_PYTHON, **IN_RUST}

_REST = 0.3
"""Seconds between two measurements, for what the one before has left to do."""


class Field:
    """The engine and the proxies before it.

    Attributes:
        engine: itself; what goes to it directly has no proxy on its way.
        servers: the proxies that run, by name.
        missing: those that do not, with the reason.
    """

    def __init__(self, engine: Server, servers: Mapping[str, Server], missing: Mapping[str, str]) -> None:
        self.engine = engine
        self.servers = servers
        self.missing = missing

    @property
    def versions(self) -> dict[str, str]:
        """Of all that runs, and of what PAIR runs on."""
        ours = {"python": platform.python_version(), "twisted": importlib.metadata.version("twisted")}
        return {**ours, **{name: each.version for name, each in self.servers.items()}}

    def rounds(self, number: int, measure: Callable[[Server], T], *, direct: bool = False) -> dict[str, list[T]]:
        """Measure each server in turn, ``number`` times over, so that what slows the machine for a while slows all.

        A round before those warms up and is discarded.

        Args:
            number: of the rounds.
            measure: takes one measurement.
            direct: measure the engine too.

        Returns:
            The measurements of each server, as many as there are rounds.
        """
        servers = [self.engine, *self.servers.values()] if direct else list(self.servers.values())
        taken: dict[str, list[T]] = {each.name: [] for each in servers}
        for turn in range(number + 1):
            for each in servers:
                time.sleep(_REST)
                found = measure(each)
                if turn:
                    taken[each.name].append(found)
        return taken


@contextmanager
def field(*names: str, starts: Mapping[str, Start] = _STARTS) -> Iterator[Field]:
    """Start the engine and the proxies of these names; they stop at the end.

    Args:
        names: of what is compared.
        starts: how each is started.

    Raises:
        Unavailable: The engine or PAIR itself does not run.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pair-bench-")))
        engine = start_engine(folder / "engine")
        stack.callback(engine.process.stop)
        servers: dict[str, Server] = {}
        missing: dict[str, str] = {}
        for name in names:
            print(f"Starting {name}", file=sys.stderr)
            try:
                servers[name] = stack.enter_context(ready(starts[name], engine.port, folder / name))
            except Unavailable as why:
                if name == "pair":
                    raise
                missing[name] = str(why)
        yield Field(engine, servers, missing)


def medians(taken: Mapping[str, list[float]], unit: str) -> dict[str, dict[str, float]]:
    """The median of each, under a name that says its unit."""
    return {name: {unit: statistics.median(values)} for name, values in taken.items()}


def ratio(taken: Mapping[str, list[float]], other: str, base: str | None = None) -> float | None:
    """PAIR's measurement by that of ``other``: the median of the ratios of each round.

    Args:
        taken: the measurements by name, in the order of the rounds.
        other: what to compare with; None is returned where it is missing.
        base: what is taken off both before, of the same round.
    """
    if other not in taken:
        return None
    less = taken[base] if base else [0.0] * len(taken["pair"])
    rounds = zip(taken["pair"], taken[other], less, strict=True)
    return statistics.median((ours - off) / (theirs - off) for ours, theirs, off in rounds)
