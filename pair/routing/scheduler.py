"""The order of the nodes by load: job counts and GPU pressure, as numbered snapshots (RT-28 to RT-37).

Told what changed, it is asked when to look: it keeps no time and calls no one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct

from pair.routing.pressure import UNKNOWN, Gauge


class Rank(Struct, frozen=True):
    """One node of a snapshot.

    Raises:
        ValueError: empty id, negative count, or no such pressure.
    """

    node: str
    pending: int
    pressure: int

    def __post_init__(self) -> None:
        if not self.node or self.pending < 0 or not 0 <= self.pressure <= 3:
            raise ValueError(f"no rank: {self.node!r}, {self.pending}, {self.pressure}")


class Snapshot(Struct, frozen=True):
    """The nodes, the least loaded first, as of one ``recompute`` (RT-30).

    ``counted`` has the node of every own job that is among the counts. The
    generation of the empty snapshot from before the first is 0.

    Raises:
        ValueError: negative generation.
    """

    generation: int
    ranks: tuple[Rank, ...]
    counted: Mapping[str, str]

    def __post_init__(self) -> None:
        if self.generation < 0:
            raise ValueError(f"no generation: {self.generation}")


EMPTY = Snapshot(0, (), {})


class _Reading(Struct, frozen=True):
    """The gauge of a node, and until when (monotonic seconds) its last sample is fresh."""

    gauge: Gauge
    fresh_until: float


class Scheduler:
    """Makes a snapshot of what it was told, when something in it changed.

    Args:
        freshness: seconds after which a sample counts no more; exactly so old
            is fresh (RT-36).
    """

    def __init__(self, freshness: float = 10.0) -> None:
        self._freshness = freshness
        self._nodes: frozenset[str] = frozenset()
        self._counts: Mapping[str, int] = {}
        self._own: Mapping[str, str] = {}
        self._readings: dict[str, _Reading] = {}
        self._snapshot = EMPTY

    def set_nodes(self, ids: Iterable[str]) -> None:
        """Rank these nodes from now on. One that left starts as unknown when it returns (RT-34)."""
        self._nodes = frozenset(ids)
        self._readings = {node: each for node, each in self._readings.items() if node in self._nodes}

    def set_pending(self, counts: Mapping[str, int], own: Mapping[str, str]) -> None:
        """The jobs placed on each node now, and the node of each own one among them (RT-29).

        Raises:
            ValueError: a count is below the number of own jobs placed there.
        """
        for node, number in Counter(own.values()).items():
            if number > counts.get(node, 0):
                raise ValueError(f"{number} own jobs on {node}, {counts.get(node, 0)} in all")
        self._counts = dict(counts)
        self._own = dict(own)

    def observe(self, node: str, utilisation: float | None, valid: bool, age: float, now: float) -> None:
        """Take one sample of a node's busiest GPU; of a node that is not ranked, nothing.

        Args:
            node: whose it is.
            utilisation: percent, clamped to 0–100. None or no finite number
                makes the node unknown at once, as does ``valid = False`` (RT-35).
            valid: whether the sender vouches for it.
            age: seconds since it was taken.
            now: monotonic seconds.

        Raises:
            ValueError: ``age`` is negative or no finite number.
        """
        if not (math.isfinite(age) and age >= 0):
            raise ValueError(f"no age: {age}")
        if node not in self._nodes:
            return
        before = self._reading(node, now)
        if not valid or utilisation is None or not math.isfinite(utilisation) or age > self._freshness:
            self._readings.pop(node, None)
            return
        sample = min(max(utilisation, 0.0), 100.0)
        gauge = Gauge.first(sample) if before is None else before.gauge.after(sample)
        self._readings[node] = _Reading(gauge, now - age + self._freshness)

    def age(self, node: str, now: float) -> float | None:
        """Seconds since the last sample of a node was taken that its sender vouched for; None: there is none."""
        reading = self._readings.get(node)
        return None if reading is None else now - (reading.fresh_until - self._freshness)

    def recompute(self, now: float) -> Snapshot | None:
        """The next snapshot, or None when nothing in it would differ from the last (RT-32)."""
        ranks = [Rank(node, self._counts.get(node, 0), self._pressure(node, now)) for node in self._nodes]
        ranks.sort(key=lambda each: (each.pending + each.pressure, each.pressure, each.node))
        counted = {job: node for job, node in self._own.items() if node in self._nodes}
        if tuple(ranks) == self._snapshot.ranks and counted == self._snapshot.counted:
            return None
        self._snapshot = Snapshot(self._snapshot.generation + 1, tuple(ranks), counted)
        return self._snapshot

    def _reading(self, node: str, now: float) -> _Reading | None:
        reading = self._readings.get(node)
        return reading if reading is not None and now <= reading.fresh_until else None

    def _pressure(self, node: str, now: float) -> int:
        reading = self._reading(node, now)
        return UNKNOWN if reading is None else reading.gauge.pressure
