"""The simulator of routing (RT-68 to RT-71).

The real catalogue, plan, reservations, breaker and scheduler, and the proxy's
rounds and judgements, against modelled machines in virtual time. To see what
happens in one scenario, line by line::

    python -m pair.test.simulator two_origins --seed 3
"""

from __future__ import annotations

import argparse
import random
import sys
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from pair.routing.policies.pressure import PressurePolicy
from pair.test.simulation import invariants, scenario
from pair.test.simulation.events import Events
from pair.test.simulation.machine import Machine
from pair.test.simulation.origin import Origin
from pair.test.simulation.requests import HOP, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pair.interfaces import IRoutingPolicy
    from pair.records.engines import NodeInventory
    from pair.test.simulation.requests import Attempt
    from pair.test.simulation.scenario import Ask, FaultSpec, Scenario

OBSERVED = 2.0
HEARTBEAT = 5.0
"""Seconds between two samples of a node's GPU (DS-94), and between two heartbeats of its feeds."""

QUIET = 3.0
"""Seconds, beyond the lag, after which all that was told at the end is known everywhere."""

LIMIT = 24 * 3600.0
"""What takes longer does not end."""


class Result(Struct, frozen=True):
    """What came of one run: what each client got, in the order of the ends; loads of models; and the trace."""

    outcomes: tuple[Outcome, ...]
    loads: int
    trace: tuple[str, ...]


class Simulation:
    """One run of one scenario.

    Args:
        scenario: what there is and what happens.
        seed: of all that is random. The clients ask the same under every policy.
        policy: makes the policy of each node with clients.

    Attributes:
        random: the one source of chance.
        asks: all that will be asked, in order of time.
        machines: the nodes, by id.
        origins: those with clients, by id.
    """

    def __init__(
        self,
        scenario: Scenario,
        seed: int = 0,
        policy: Callable[[Simulation], IRoutingPolicy] = lambda simulation: PressurePolicy(),
    ) -> None:
        self.scenario = scenario
        self.events = Events()
        self.random = random.Random(seed)
        self.asks = scenario.asks(self.random)
        self._outcomes: list[Outcome] = []
        self._trace: list[str] = []
        self.machines = {
            each.id: Machine(each, self.events, HOP, self._inventory_changed, self._tell) for each in scenario.nodes
        }
        self.origins = {each: self._origin(each) for each in scenario.origins}
        for origin in self.origins.values():
            origin.policy = policy(self)
        for machine in self.machines.values():
            first = self.random.uniform(0, OBSERVED)
            self.events.every(OBSERVED, partial(self._observe, machine), first)
            self.events.every(HEARTBEAT, partial(self._beat, machine), first)
        for fault in scenario.faults:
            for begin, end in fault.spells:
                self.events.at(begin, self._turn, fault, True)
                self.events.at(end, self._turn, fault, False)
        for ask in self.asks:
            self.events.at(ask.at, self.origins[ask.origin].ask, ask)

    @property
    def planning(self) -> Ask:
        """The request that is being planned, for policies that know more than they are told."""
        return next(each.planning for each in self.origins.values() if each.planning is not None)

    def attempts(self) -> Iterator[Attempt]:
        """Those under way, of all nodes with clients, the oldest request first."""
        for origin in self.origins.values():
            for errand in origin.errands.values():
                if errand.attempt is not None:
                    yield errand.attempt

    def run(self) -> Result:
        """Let it happen.

        Raises:
            Violation: an invariant does not hold (RT-70).
        """
        origins, machines = self.origins.values(), self.machines.values()
        while len(self._outcomes) < len(self.asks):
            self.events.step()
            invariants.check(origins, self.attempts())
            invariants.require(self.events.now < LIMIT, "it does not end")
        quiet = self.events.now + QUIET + 2 * self.scenario.lag
        while self.events.now < quiet:
            self.events.step()
            invariants.check(origins, self.attempts())
        invariants.check_end(origins, machines)
        loads = sum(each.loads for each in machines)
        return Result(tuple(self._outcomes), loads, tuple(self._trace))

    def _origin(self, id: str) -> Origin:
        return Origin(
            id,
            self.machines,
            self.events,
            self.random,
            self._job_placed,
            self._outcomes.append,
            invariants.check_choice,
            self._tell,
        )

    # What nodes tell one another

    def _others(self, node: str) -> Iterator[tuple[Origin, float]]:
        """Those who hear of ``node``, and how much later."""
        for origin in self.origins.values():
            yield origin, 0.0 if origin.id == node else self.scenario.lag

    def _job_placed(self, by: str, job: str, node: str | None) -> None:
        for origin, lag in self._others(by):
            if origin.id != by:
                self.events.after(lag, origin.told_job, job, node)

    def _inventory_changed(self, inventory: NodeInventory) -> None:
        for origin, lag in self._others(inventory.node):
            self.events.after(lag, origin.told_inventory, inventory)

    def _observe(self, machine: Machine) -> None:
        for origin, lag in self._others(machine.spec.id):
            if not machine.silent and (not lag or self.random.random() >= self.scenario.loss):
                self.events.after(lag, origin.told_load, machine.spec.id, machine.utilisation, lag)

    def _beat(self, machine: Machine) -> None:
        for origin, lag in self._others(machine.spec.id):
            if not machine.silent:
                self.events.after(lag, origin.heard, machine.spec.id)

    def _turn(self, fault: FaultSpec, on: bool) -> None:
        machine = self.machines[fault.node]
        self._tell("fault" if on else "mended", node=fault.node, kind=fault.kind)
        match fault.kind:
            case "503":
                machine.set_busy(on)
            case "freeze":
                machine.set_frozen(on)
            case "refuse":
                machine.set_gone(on)
            case "stale":
                machine.set_missing(fault.model, on)
            case "slow":
                machine.set_speed(fault.factor if on else 1.0)

    def _tell(self, event: str, **more: object) -> None:
        line = {"t": round(self.events.now, 6), "event": event, **more}
        self._trace.append(msgspec.json.encode(line).decode())


def main() -> None:
    """Print the trace of one run."""
    parser = argparse.ArgumentParser(prog="python -m pair.test.simulator", description=__doc__.splitlines()[0])
    parser.add_argument("scenario", choices=scenario.names())
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sys.stdout.writelines(
        f"{line}\n" for line in Simulation(scenario.load(options.scenario), options.seed).run().trace
    )


if __name__ == "__main__":
    main()
