"""A node with clients: the real parts of routing, and what this node has heard of the others."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pair.engines.kinds.ollama import DIALECT
from pair.proxy.holds import Holds
from pair.proxy.scheduling import SETTLE, TICK
from pair.routing.candidates import Catalogue, NodeFacts
from pair.routing.planning import plan
from pair.routing.policies.speeds import Speeds
from pair.routing.reservations import ReservationBook
from pair.routing.scheduler import Scheduler
from pair.test.fakes import error_book
from pair.test.simulation.invariants import require
from pair.test.simulation.machine import ENGINE
from pair.test.simulation.requests import Errand

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from pair.interfaces import IRoutingPolicy
    from pair.records.engines import NodeInventory
    from pair.routing.candidates import Candidate, Request
    from pair.routing.planning import Plan
    from pair.test.simulation.events import Events, Timer
    from pair.test.simulation.machine import Machine
    from pair.test.simulation.requests import Outcome
    from pair.test.simulation.scenario import Ask

SUSPECT = 12.0
OFFLINE = 24.0
"""Seconds without a sign of life after which a node is doubtful, and after which it counts as gone."""


class Origin:
    """Plans for its clients by what it knows.

    Args:
        id: of the node.
        machines: all nodes, by id.
        events: the time.
        random: for the pauses between rounds.
        placed: tells the other nodes where a job is now, None for nowhere.
        ended: is told what a client got.
        check: is called with each choice, before it is taken.
        trace: is told what happens.

    Attributes:
        policy: puts candidates in order.
        planning: the request that is being planned.
        errands: the requests under way, by job.
        facts: what is known of each node.
    """

    dialect = DIALECT
    policy: IRoutingPolicy

    def __init__(
        self,
        id: str,
        machines: Mapping[str, Machine],
        events: Events,
        random: Random,
        placed: Callable[[str, str, str | None], None],
        ended: Callable[[Outcome], None],
        check: Callable[[Origin, Request, Candidate], None],
        trace: Callable[..., None],
    ) -> None:
        self.id = id
        self.machines = machines
        self.events = events
        self.random = random
        self.trace = trace
        self.planning: Ask | None = None
        self.errands: dict[str, Errand] = {}
        self.facts: dict[str, NodeFacts] = {}
        self.catalogue = Catalogue()
        self.book = ReservationBook()
        self.scheduler = Scheduler()
        self.speeds = Speeds()
        self.holds = Holds(
            lambda: events.now,
            lambda: self.facts[id].inventory,
            error_book(id, lambda: int(events.now * 1000)),
        )
        self._placed = placed
        self._ended = ended
        self._check = check
        self._own: dict[str, str] = {}
        self._others: dict[str, str] = {}
        self._inventories: dict[str, NodeInventory] = {}
        self._heard = dict.fromkeys(machines, 0.0)
        self._due: Timer | None = None
        self.scheduler.set_nodes(machines)
        for machine in machines.values():
            self.told_inventory(machine.inventory())
        self._recompute()
        events.every(TICK, self._tick, TICK)

    # What it hears

    def told_inventory(self, inventory: NodeInventory) -> None:
        """A node says what it has."""
        self._inventories[inventory.node] = inventory
        self.holds.known(inventory)
        self._know(inventory.node)

    def told_job(self, job: str, node: str | None) -> None:
        """Another node says where a job of its own is."""
        if node is None:
            self._others.pop(job, None)
        else:
            self._others[job] = node
        self._settle()

    def told_load(self, node: str, utilisation: float, age: float) -> None:
        """A node says how busy its GPU is."""
        self.scheduler.observe(node, utilisation, True, age, self.events.now)

    def heard(self, node: str) -> None:
        """A node's feed shows that it is alive (RT-50)."""
        self._heard[node] = self.events.now
        self.holds.breaker.evidence(node, ENGINE, self.events.now)
        self._know(node)

    def silence(self, node: str) -> float:
        """Seconds since it heard of a node."""
        return self.events.now - self._heard[node]

    # What its clients and their requests ask of it

    def ask(self, ask: Ask) -> None:
        """A client asks."""
        self.trace("asked", job=ask.job, model=ask.model, prompt=ask.prompt, output=ask.output)
        errand = self.errands[ask.job] = Errand(self, ask)
        errand.begin()

    def plan(self, wanted: Request, ask: Ask) -> Plan:
        """Who may serve, best first."""
        self.planning = ask
        breaker = self.holds.breaker
        made = plan(wanted, self.catalogue, self.book, breaker, self.policy, self.events.now, self.speeds.speed)
        self.planning = None
        require(made.flaw is None, "a policy fails", made.flaw)
        return made

    def retry_after(self, wanted: Request, ask: Ask) -> int | None:
        """The busy gate (RT-52)."""
        breaker = self.holds.breaker
        if not breaker.any_refused:
            return None
        return breaker.retry_after([each.candidate for each in self.plan(wanted, ask).ranked], self.events.now)

    def take(self, job: str, wanted: Request, candidate: Candidate) -> None:
        """A job goes there now."""
        self._check(self, wanted, candidate)
        self.book.take(job, candidate.node, self.book.snapshot.generation, self.events.now)
        self._own[job] = candidate.node
        self._placed(self.id, job, candidate.node)
        self._settle()

    def displaced(self, job: str) -> None:
        """A job's attempt is over: the ledger has it on no node (JB-40), the book until the next one or the end."""
        del self._own[job]
        self._placed(self.id, job, None)
        self._settle()

    def release(self, job: str) -> None:
        """A job is on no node."""
        self.book.release(job, self.events.now)

    def note_stale(self, candidate: Candidate, model: str) -> None:
        """An engine lacks a model that it lists (RT-51)."""
        for owner in self.catalogue.owners("ollama", model):
            if owner.candidate.node == candidate.node:
                self.holds.breaker.stale(candidate.node, ENGINE, owner.key, owner.revision, self.events.now)

    def learn(self, candidate: Candidate, tokens: int, seconds: float) -> None:
        """An engine has made so many tokens in so many seconds (RT-61)."""
        self.speeds.learn(candidate.node, ENGINE, candidate.model, tokens, seconds)

    def ended(self, errand: Errand, outcome: Outcome) -> None:
        """A request is over."""
        self.release(errand.ask.job)
        self.holds.breaker.finished(errand.ask.job)
        del self.errands[errand.ask.job]
        self._ended(outcome)

    def _know(self, node: str) -> None:
        silent = self.silence(node)
        facts = NodeFacts(
            self._inventories[node],
            {ENGINE: DIALECT},
            local=node == self.id,
            online=silent < OFFLINE,
            suspect=silent >= SUSPECT,
        )
        before = self.facts.get(node)
        self.facts[node] = facts
        self.catalogue.put(facts)
        if before is not None and (before.online, before.suspect) != (facts.online, facts.suspect):
            presence = "suspect" if facts.online and facts.suspect else "online" if facts.online else "offline"
            self.trace("presence", node=node, at=self.id, presence=presence)

    def _settle(self) -> None:
        if self._due is None:
            self._due = self.events.after(SETTLE, self._settled)

    def _settled(self) -> None:
        self._due = None
        self._recompute()

    def _tick(self) -> None:
        self.book.forget(self.events.now)
        self.holds.tick()
        for node in self.machines:
            self._know(node)
        self._recompute()

    def _recompute(self) -> None:
        counts = Counter((*self._own.values(), *self._others.values()))
        self.scheduler.set_pending(counts, self._own)
        snapshot = self.scheduler.recompute(self.events.now)
        if snapshot is not None:
            self.book.apply(snapshot)
