"""What no schedule can be better than, whatever it knows and whatever it may do.

A request keeps a slot for as long as its prompt and its answer take there, and
slots are all that is counted: loads of models, the order, faults and what a
router may know are left out, which can only make a bound lower.

Time at one node is not time at another. A price of a second on each, such that
a second of all slots together costs 1, makes them one: a request then costs at
least what it does at the cheapest node, and in s seconds no more than s can be
had. Any prices give a true bound; good ones are looked for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pair.test.simulation.results import SOON, Figures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pair.test.simulation.scenario import Ask, Scenario

_STEPS = 80
_WINDOWS = 12


class Bounds:
    """The bounds of one run.

    Args:
        scenario: the machines.
        asks: all that is asked, in order of time.
    """

    def __init__(self, scenario: Scenario, asks: Sequence[Ask]) -> None:
        self._asks = asks
        self._slots = {each.id: each.slots for each in scenario.nodes}
        self._taken: list[Mapping[str, float]] = []
        self._least: list[float] = []
        for ask in asks:
            owners = [each for each in scenario.nodes if ask.model in each.models]
            first = {each.id: ask.prompt / each.prefill + 1 / each.decode for each in owners}
            self._least.append(min(first.values()))
            self._taken.append({each.id: first[each.id] + (ask.output - 1) / each.decode for each in owners})
        step = max(1, len(asks) // _WINDOWS)
        self._times = sorted({each.at for each in asks[::step]} | {asks[-1].at})
        loaded = {model for each in scenario.nodes for model in each.loaded}
        self.loads = len({each.model for each in asks} - loaded)
        self._prices = self._priced(range(len(asks)))

    def makespan(self) -> float:
        """When the last answer ends, at the earliest."""
        alone = max(ask.at + min(taken.values()) for ask, taken in zip(self._asks, self._taken, strict=True))
        together = [
            begin + sum(self._costs(jobs, self._priced(jobs)))
            for begin in self._times
            if (jobs := [number for number, ask in enumerate(self._asks) if ask.at >= begin])
        ]
        return max(alone, *together)

    def within(self, seconds: float) -> int:
        """How many can have their first byte in so many seconds, at most."""
        able = [number for number, least in enumerate(self._least) if least <= seconds]
        left_out = 0
        for begin in self._times:
            for last in self._times:
                jobs = [number for number in able if begin <= self._asks[number].at <= last]
                left_out = max(left_out, len(jobs) - self._fitting(jobs, last + seconds - begin))
        return len(able) - left_out

    def _fitting(self, jobs: Sequence[int], seconds: float) -> int:
        """How many of them can begin in so many seconds: those that end in it, and one more on each slot."""
        fitting, sum_of_costs = sum(self._slots.values()), 0.0
        for cost in sorted(self._costs(jobs, self._prices)):
            sum_of_costs += cost
            if sum_of_costs > seconds:
                break
            fitting += 1
        return min(fitting, len(jobs))

    def _costs(self, jobs: Sequence[int], prices: Mapping[str, float]) -> list[float]:
        return [min(prices[node] * taken for node, taken in self._taken[number].items()) for number in jobs]

    def _priced(self, jobs: Sequence[int]) -> Mapping[str, float]:
        """Prices at which these jobs cost much: where many want to be, it gets dearer."""
        prices = dict.fromkeys(self._slots, 1.0 / sum(self._slots.values()))
        best, most = prices, 0.0
        for step in range(_STEPS):
            cost = 0.0
            wanted = dict.fromkeys(prices, 0.0)
            for number in jobs:
                price, node = min((prices[node] * taken, node) for node, taken in self._taken[number].items())
                cost += price
                wanted[node] += self._taken[number][node]
            if cost > most:
                best, most = prices, cost
            crowd = {node: wanted[node] / self._slots[node] for node in prices}
            mean = sum(crowd.values()) / len(crowd) or 1.0
            rate = 0.5 / (1 + step / 8)
            dearer = {node: math.exp(rate * min(each / mean - 1, 3.0)) for node, each in crowd.items()}
            prices = {node: price * dearer[node] for node, price in prices.items()}
            whole = sum(price * self._slots[node] for node, price in prices.items())
            prices = {node: price / whole for node, price in prices.items()}
        return best


def bounded(runs: Sequence[Bounds], asked: int) -> Figures:
    """The bounds of runs of one scenario, as one row. Of the mean wait there is none."""
    return Figures(
        p50=_least_wait(runs, math.ceil(0.5 * asked)),
        p95=_least_wait(runs, math.ceil(0.95 * asked)),
        makespan=sum(each.makespan() for each in runs) / len(runs),
        loads=sum(each.loads for each in runs) / len(runs),
        soon=sum(each.within(SOON) for each in runs) / asked,
        mean=math.nan,
        lost=0,
        asked=asked,
    )


def _least_wait(runs: Sequence[Bounds], needed: int) -> float:
    """The seconds within which so many may have their first byte, at the least."""

    def too_few(seconds: float) -> bool:
        return sum(each.within(seconds) for each in runs) < needed

    below, above = 0.0, 1.0
    while too_few(above):
        below, above = above, 2 * above
    for _ in range(12):
        middle = (below + above) / 2
        below, above = (middle, above) if too_few(middle) else (below, middle)
    return below
