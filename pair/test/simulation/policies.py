"""Policies to compare with: two that know nothing, and some that know what no router can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zope.interface import implementer

from pair.interfaces import IRoutingPolicy
from pair.routing.policies import Ranked
from pair.routing.policies.pressure import PressurePolicy
from pair.test.simulation.line import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pair.routing.candidates import Candidate, Request
    from pair.routing.policies import View
    from pair.test.simulation.scenario import Ask, FaultSpec
    from pair.test.simulator import Simulation


@implementer(IRoutingPolicy)
class AnyPolicy:
    """By chance."""

    name = "random"

    def __init__(self, simulation: Simulation) -> None:
        self._random = simulation.random

    def rank(self, request: Request, candidates: Sequence[Candidate], view: View) -> Sequence[Ranked]:
        """Best first."""
        return [Ranked(each, 0.0) for each in self._random.sample(candidates, len(candidates))]


@implementer(IRoutingPolicy)
class RoundRobinPolicy:
    """In turn."""

    name = "round robin"

    def __init__(self, simulation: Simulation) -> None:
        self._turn = 0

    def rank(self, request: Request, candidates: Sequence[Candidate], view: View) -> Sequence[Ranked]:
        """Best first."""
        first = self._turn % len(candidates)
        self._turn += 1
        return [Ranked(each, 0.0) for each in (*candidates[first:], *candidates[:first])]


@implementer(IRoutingPolicy)
class LoadsPolicy:
    """As ``pressure``, but a model that would have to be loaded counts as so many jobs more.

    With ``gpu_in_ties`` the pressure of a GPU is no load, and decides among equals only.
    """

    name = "loads"

    def __init__(self, simulation: Simulation, jobs: int, *, gpu_in_ties: bool = False) -> None:
        self._jobs = jobs
        self._gpu_in_ties = gpu_in_ties
        self._pressure = PressurePolicy()

    def rank(self, request: Request, candidates: Sequence[Candidate], view: View) -> Sequence[Ranked]:
        """Best first."""

        def load(each: Ranked) -> float:
            spared = dict(each.terms)["pressure"] if self._gpu_in_ties else 0
            return each.score - spared + (0 if each.candidate.loaded else self._jobs)

        # The sort leaves equals in the order of pressure.
        return sorted(self._pressure.rank(request, candidates, view), key=load)


@implementer(IRoutingPolicy)
class InformedPolicy:
    """The earliest first byte, by the state of every machine in this instant, its rates and all its faults.

    Args:
        simulation: what is to be known.
        output: how many tokens an answer is taken to have.
    """

    name = "informed"

    def __init__(self, simulation: Simulation, output: Callable[[Ask], float]) -> None:
        self._simulation = simulation
        self._output = output
        self._faults = faults_of(simulation)

    def rank(self, request: Request, candidates: Sequence[Candidate], view: View) -> Sequence[Ranked]:
        """Best first."""
        ask = self._simulation.planning

        def waits(candidate: Candidate) -> float:
            return self._line(candidate.node, view.now).join(view.now, ask.model, ask.prompt, self._output(ask))[0]

        return [Ranked(each, wait) for wait, _, each in sorted((waits(each), each.node, each) for each in candidates)]

    def _line(self, node: str, now: float) -> Line:
        """The line of a machine, with all that is there or on its way."""
        machine = self._simulation.machines[node]
        line = Line(machine.spec, self._faults[node])
        line.loaded = list(machine.loaded)
        line.begins = now
        running = {id(each): progress for each, progress in machine.running.items()}
        here = [each for each in self._simulation.attempts() if each.candidate.node == node]
        for attempt in here:
            progress = running.get(id(attempt))
            if progress is not None:
                ask, rate = attempt.ask, machine.spec.decode
                if attempt.began_at is None:
                    left = progress.left + (self._output(ask) - 1) / rate
                else:
                    # Who has made more than was expected is expected to end soon.
                    left = max((self._output(ask) - 1) / rate - (now - attempt.began_at), 1 / rate)
                line.busy.append((line.after(now, left), ask.model))
        if machine.loading is not None:
            model = machine.waiting[0].ask.model
            line.loaded.append(model)
            line.begins = line.after(now, machine.loading.left)
        for attempt in here:
            if id(attempt) not in running:
                line.join(now, attempt.ask.model, attempt.ask.prompt, self._output(attempt.ask))
        return line


@implementer(IRoutingPolicy)
class AssignedPolicy:
    """As was decided for each job beforehand."""

    name = "assigned"

    def __init__(self, simulation: Simulation, nodes: Mapping[str, str]) -> None:
        self._simulation = simulation
        self._nodes = nodes

    def rank(self, request: Request, candidates: Sequence[Candidate], view: View) -> Sequence[Ranked]:
        """Best first."""
        ask = self._simulation.planning
        node = self._nodes[ask.job]
        return [Ranked(each, 0.0) for each in sorted(candidates, key=lambda each: (each.node != node, each.node))]


def faults_of(simulation: Simulation) -> Mapping[str, Sequence[FaultSpec]]:
    """All that will be wrong, by node."""
    faults = simulation.scenario.faults
    return {node: [each for each in faults if each.node == node] for node in simulation.machines}
