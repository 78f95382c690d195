"""A router that knows the future: which node for each request, if all that will be asked were known (RT-71).

It may do what a router may: send each request somewhere when it comes. Each
node serves in the order of arrival; nothing is held back, turned round or
moved. Within that, the least sum of waits is looked for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pair.test.simulation.line import Line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from pair.test.simulation.scenario import Ask, Scenario

UNSERVED = 3600.0
"""What an answer that never comes counts, in seconds of waiting."""

EFFORT = 3000
"""So many requests, all in all, are looked at anew after the best that was found was shaken."""

SHAKEN = 6
"""How many of them go anywhere when it is."""


class Clairvoyant:
    """Looks for the best assignment of one run.

    Args:
        scenario: the machines and their faults.
        asks: all that is asked, in order of time.
        random: for the order in which it tries.
    """

    def __init__(self, scenario: Scenario, asks: Sequence[Ask], random: Random) -> None:
        self._specs = {each.id: each for each in scenario.nodes}
        self._faults = {node: [each for each in scenario.faults if each.node == node] for node in self._specs}
        self._asks = {each.job: each for each in asks}
        self._places = {each.job: place for place, each in enumerate(asks)}
        self._owners = {
            each.job: [node for node, spec in self._specs.items() if each.model in spec.models] for each in asks
        }
        self._random = random

    def best(self, starts: Sequence[Mapping[str, str]], effort: int = EFFORT) -> dict[str, str]:
        """The best node of each job that was found, from the best of ``starts`` on; these may leave jobs out."""
        anywhere = {job: owners[0] for job, owners in self._owners.items()}
        found = min((self._settled({**anywhere, **each}) for each in starts), key=self.cost)
        cost = self.cost(found)
        for _ in range(effort // len(self._asks)):
            other = dict(found)
            for job in self._random.sample(sorted(other), min(SHAKEN, len(other))):
                other[job] = self._random.choice(self._owners[job])
            other = self._settled(other)
            if (new := self.cost(other)) < cost:
                found, cost = other, new
        return found

    def cost(self, nodes: Mapping[str, str]) -> float:
        """The sum of all waits."""
        return sum(self._cost(node, [job for job in self._asks if nodes[job] == node]) for node in self._specs)

    def _settled(self, nodes: dict[str, str]) -> dict[str, str]:
        """``nodes``, after one job after the other went where that helped, until none does any more."""
        lines = {node: [job for job in self._asks if nodes[job] == node] for node in self._specs}
        costs = {node: self._cost(node, jobs) for node, jobs in lines.items()}
        improved = True
        while improved:
            improved = False
            for job in self._random.sample(sorted(nodes), len(nodes)):
                here = nodes[job]
                without = [each for each in lines[here] if each != job]
                spared = costs[here] - self._cost(here, without)
                for there in self._owners[job]:
                    if there == here:
                        continue
                    joined = sorted((*lines[there], job), key=self._places.__getitem__)
                    cost = self._cost(there, joined)
                    if cost - costs[there] < spared - 1e-9:
                        lines[here], costs[here] = without, costs[here] - spared
                        lines[there], costs[there] = joined, cost
                        nodes[job] = there
                        improved = True
                        break
        return nodes

    def _cost(self, node: str, jobs: Sequence[str]) -> float:
        """The sum of the waits of one line."""
        line = Line(self._specs[node], self._faults[node])
        cost = 0.0
        for job in jobs:
            ask = self._asks[job]
            first, _ = line.join(ask.at, ask.model, ask.prompt, ask.output)
            cost += UNSERVED if first == math.inf else first - ask.at
        return cost
