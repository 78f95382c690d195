"""A scenario: machines, clients and faults, as a TOML file says them (RT-69, RT-71)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct, field

import pair.test

if TYPE_CHECKING:
    from random import Random

PLACE = Path(pair.test.__file__).parent / "scenarios"

FaultKind = Literal["503", "freeze", "refuse", "stale", "slow"]


class NodeSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A machine with one engine.

    ``slots``: answers that it makes at once, each at ``decode`` tokens a
    second, whatever the others do. ``queue``: requests that may wait; one more
    is told 503. ``prefill``: tokens of a prompt in a second. ``models``: what
    is on its disk, and the seconds that each takes to load. ``holds``: how many
    are in memory at once. ``loaded``: those that are at the begin.
    """

    id: str
    slots: int = 1
    queue: int = 512
    prefill: float = 1000.0
    decode: float = 50.0
    models: dict[str, float]
    holds: int = 1
    loaded: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if min(self.slots, self.holds, self.prefill, self.decode) <= 0 or self.queue < 0:
            raise ValueError(f"{self.id}: a machine that can do nothing")
        if not set(self.loaded) <= set(self.models) or len(self.loaded) > self.holds:
            raise ValueError(f"{self.id}: what is loaded is on its disk, and fits")


class TrafficSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The clients of one node.

    They ask ``count`` times, from ``begins`` on, with gaps of ``every`` seconds
    on average (0: all at once). ``models`` has the weight of each. ``prompt``
    and ``output``: from and to how many tokens, short ones more often.
    ``patience``: seconds after which a client without a byte hangs up; 0: it waits.
    """

    origin: str
    count: int
    begins: float = 0.0
    every: float = 0.0
    models: dict[str, float]
    prompt: tuple[int, int] = (200, 2000)
    output: tuple[int, int] = (20, 600)
    patience: float = 0.0

    def __post_init__(self) -> None:
        for least, most in (self.prompt, self.output):
            if not 1 <= least <= most:
                raise ValueError(f"{self.origin}: from {least} to {most} tokens")

    @property
    def mean_output(self) -> float:
        """The mean of the output tokens that are drawn."""
        least, most = self.output
        return float(least) if least == most else (most - least) / math.log(most / least)


class FaultSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes wrong at ``node`` from ``at`` on, for ``lasts`` seconds (``for`` in the file).

    ``503``: it refuses all new work at once. ``freeze``: nothing of it moves.
    ``refuse``: it is gone; what it was at is lost, and it comes back with
    nothing loaded. ``stale``: it lacks ``model``, which it goes on to list
    until the fault ends, and never gets back. ``slow``: somebody else uses its
    GPU, and leaves it ``factor`` of its speed. ``times`` and ``every``: so
    often, from begin to begin.
    """

    node: str
    kind: FaultKind
    at: float
    lasts: float = field(name="for")
    model: str = ""
    factor: float = 1.0
    times: int = 1
    every: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.factor <= 1 or (self.times > 1 and self.every <= self.lasts):
            raise ValueError(f"{self.node}: a fault that cannot be")

    @property
    def spells(self) -> tuple[tuple[float, float], ...]:
        """From when to when, each time."""
        begins = [self.at + number * self.every for number in range(self.times)]
        return tuple((begin, begin + self.lasts) for begin in begins)


class Scenario(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it. ``lag``: seconds from one node to another for what they tell of themselves; ``loss``: the share of
    telemetry that never comes.
    """

    about: str
    nodes: tuple[NodeSpec, ...] = field(name="node")
    traffic: tuple[TrafficSpec, ...]
    faults: tuple[FaultSpec, ...] = field(name="fault", default=())
    lag: float = 0.05
    loss: float = 0.0

    def __post_init__(self) -> None:
        ids = {each.id for each in self.nodes}
        if len(ids) != len(self.nodes):
            raise ValueError("two nodes of one name")
        for each in self.traffic:
            if each.origin not in ids:
                raise ValueError(f"clients of {each.origin}, which is no node")
            if missing := [model for model in each.models if not any(model in node.models for node in self.nodes)]:
                raise ValueError(f"{missing[0]} is on no node")
        for fault in self.faults:
            if fault.node not in ids:
                raise ValueError(f"a fault of {fault.node}, which is no node")
            if fault.kind in ("freeze", "refuse") and fault.node in self.origins:
                raise ValueError(f"{fault.node} would be gone with its clients")

    @property
    def origins(self) -> tuple[str, ...]:
        """The nodes that have clients, by id."""
        return tuple(sorted({each.origin for each in self.traffic}))

    def asks(self, random: Random) -> tuple[Ask, ...]:
        """All that clients will ask, in order of time."""
        drawn: list[tuple[float, TrafficSpec, str, int, int]] = []
        for each in self.traffic:
            at = each.begins
            for _ in range(each.count):
                if each.every:
                    at += random.expovariate(1 / each.every)
                model = random.choices(tuple(each.models), tuple(each.models.values()))[0]
                drawn.append((at, each, model, _tokens(random, each.prompt), _tokens(random, each.output)))
        drawn.sort(key=lambda each: each[0])
        return tuple(
            Ask(f"{traffic.origin}.{number}", traffic.origin, at, model, prompt, output, traffic.patience)
            for number, (at, traffic, model, prompt, output) in enumerate(drawn, 1)
        )


class Ask(Struct, frozen=True):
    """One request of a client; ``output`` is what nobody knows before the end."""

    job: str
    origin: str
    at: float
    model: str
    prompt: int
    output: int
    patience: float = 0.0


def _tokens(random: Random, between: tuple[int, int]) -> int:
    least, most = between
    return round(math.exp(random.uniform(math.log(least), math.log(most))))


def load(name: str) -> Scenario:
    """The scenario of that name."""
    return msgspec.toml.decode((PLACE / f"{name}.toml").read_bytes(), type=Scenario)


def names() -> tuple[str, ...]:
    """Those that there are, in order."""
    return tuple(sorted(path.stem for path in PLACE.glob("*.toml")))
