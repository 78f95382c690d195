"""The scheduler as a service: routing's pure parts joined to this node's engines, jobs and settings (RT-33)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace
from twisted.application.service import Service

from pair.proxy.holds import Holds
from pair.routing.candidates import Catalogue, NodeFacts, Request
from pair.routing.explain import Explanation, Penalty, explain, penalty
from pair.routing.labels import LabelRule, demands
from pair.routing.names import NAMINGS, key
from pair.routing.planning import Plan, free_elsewhere, plan
from pair.routing.policies.speeds import Speeds
from pair.routing.reservations import ReservationBook
from pair.routing.scheduler import Scheduler
from pair.supervision.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.interfaces import IErrorBook, ILocalEngines, IRoutingPolicy
    from pair.records.engines import NodeInventory
    from pair.records.telemetry import CompactTelemetry
    from pair.routing.breaker import Sent
    from pair.routing.candidates import Candidate
    from pair.routing.dialects import Route

TICK = 1.0
"""Seconds between two recomputations when nothing changed."""

_NOTHING: frozenset[str] = frozenset()

SETTLE = 0.05
"""Seconds in which changes are joined into one recomputation: until it is made, the book makes up for them (RT-43)."""


class SchedulerService(Service):
    """Plans requests, and keeps the loads by which it plans.

    Args:
        clock: for the recomputations.
        monotonic: seconds, for all that is compared.
        node: UUID of this node.
        engines: of this node.
        policy: puts candidates in order, until :meth:`use` says otherwise.
        rules: of ``routing.rule`` in the settings.
        labels: the labels of this node, by the kinds of its running engines (RT-23).
        loaded_only: this node offers only loaded models.
        errors: where a policy or a node that fails is told.
        freshness: seconds after which how busy a node was counts no more (RT-36).

    Attributes:
        catalogue: who advertises what.
        book: the loads.
        holds: what is held against engines.
        speeds: how fast they were found to be.
    """

    def __init__(
        self,
        clock: IReactorTime,
        monotonic: Callable[[], float],
        node: str,
        engines: ILocalEngines,
        policy: IRoutingPolicy,
        rules: Sequence[LabelRule],
        labels: Callable[[Iterable[str]], tuple[str, ...]],
        loaded_only: bool,
        errors: IErrorBook,
        freshness: float = 10.0,
    ) -> None:
        self.catalogue = Catalogue()
        self.book = ReservationBook()
        self.holds = Holds(monotonic, engines.inventory, errors)
        self.speeds = Speeds()
        self._clock = clock
        self._monotonic = monotonic
        self._node = node
        self._engines = engines
        self._policy = policy
        self._selected: dict[str, str] = {}
        self._rules = rules
        self._labels = labels
        self._loaded_only = loaded_only
        self._errors = errors
        self._scheduler = Scheduler(freshness)
        self._scheduler.set_nodes([node])
        self._peers: set[str] = set()
        self._others: Callable[[], Mapping[str, int]] = dict
        self._due: IDelayedCall | None = None
        self._ticking = Repeating(clock, TICK, self._tick, "The scheduler")
        self._subscriptions: list[Callable[[], None]] = []

    @property
    def policy(self) -> str:
        """The name of the policy in force."""
        return self._policy.name

    def use(self, policy: IRoutingPolicy) -> None:
        """Put candidates in order by ``policy`` from the next plan on (RT-60)."""
        self._policy = policy

    def select(self, facade: str, node: str | None) -> None:
        """Put ``node`` in front of the plans of a facade wherever it may serve; None: no node (RT-27)."""
        if node is None:
            self._selected.pop(facade, None)
        else:
            self._selected[facade] = node

    def selected(self, facade: str) -> str | None:
        """The node that is put in front of the plans of a facade."""
        return self._selected.get(facade)

    def startService(self) -> None:
        """Follow the engines."""
        super().startService()
        self._subscriptions = [self._engines.changed.subscribe(self._inventory_changed)]
        self._inventory_changed(self._engines.inventory())
        self._ticking.startService()

    def stopService(self) -> Deferred[None]:
        """Follow nothing any more."""
        super().stopService()
        for unsubscribe in self._subscriptions:
            unsubscribe()
        if self._due is not None:
            self._due.cancel()
            self._due = None
        return self._ticking.stopService()

    def count_others(self, pending: Callable[[], Mapping[str, int]]) -> None:
        """The jobs of other nodes count too, by the node where they are placed (RT-29)."""
        self._others = pending

    def pending_changed(self, _: object = None) -> None:
        """Jobs of others are placed elsewhere now (JB-61)."""
        self._settle()

    def set_peer(self, facts: NodeFacts) -> None:
        """This is what is known of another node from now on."""
        if facts.id not in self._peers:
            self._peers.add(facts.id)
            self._scheduler.set_nodes([self._node, *sorted(self._peers)])
        self.catalogue.put(facts)
        self.holds.known(facts.inventory)
        self._settle()

    def drop_peer(self, node: str) -> None:
        """Another node takes no part any more (RT-34)."""
        if node in self._peers:
            self._peers.discard(node)
            self._scheduler.set_nodes([self._node, *sorted(self._peers)])
            self.catalogue.remove(node)
            self.holds.forget_node(node)
            self._settle()

    def observe(self, load: CompactTelemetry) -> None:
        """How busy a node is, this one too (DS-94)."""
        age = (load.sample_age_ms or 0) / 1000
        self._scheduler.observe(load.uuid, load.utilization_percent, load.valid, age, self._monotonic())
        if load.uuid == self._node:
            # The labels follow the hardware, which may have become known only now.
            self._inventory_changed(self._engines.inventory())

    def telemetry_age(self, node: str) -> float | None:
        """Seconds since the last sample of how busy a node is was taken; None: there is none."""
        return self._scheduler.age(node, self._monotonic())

    def evidence(self, node: str) -> None:
        """Another node has shown that it lives: whoever fell silent there is tried again (RT-50)."""
        self.holds.heard(node)

    def demands(self, model: str, header: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
        """The labels that a request for ``model`` requires and forbids (RT-23)."""
        if not self._rules:
            return header, _NOTHING
        keys = [key(naming, model) for naming in NAMINGS] if model else []
        return demands(self._rules, keys, header)

    def plan(self, request: Request) -> Plan:
        """The candidates for ``request`` by the present facts; changes nothing."""
        now, speed, selected = self._monotonic(), self.speeds.speed, self._selected.get(request.facade)
        made = plan(request, self.catalogue, self.book, self.holds.breaker, self._policy, now, speed, selected)
        if made.flaw is not None:
            self._errors.raise_entry(f"routing:policy:{self._policy.name}", name=self._policy.name)
        return made

    def another(self, request: Request, node: str) -> bool:
        """Whether an engine of some other node than ``node`` may serve, and nothing is held against it."""
        return free_elsewhere(self.plan(request), node, self.holds.breaker, self._monotonic())

    def explain(self, request: Request) -> Explanation:
        """What :meth:`plan` would say, with every known node in it (RT-67)."""
        now, epoch_ms, speed = self._monotonic(), self._epoch_ms(), self.speeds.speed
        known, book, breaker, selected = self.catalogue, self.book, self.holds.breaker, self.selected(request.facade)
        return explain(request, known, book, breaker, self._policy, now, epoch_ms, speed, selected)

    def penalties(self) -> Mapping[tuple[str, str, str], Penalty]:
        """The holds in force, by node, engine and model; without a model the whole engine is held (RT-54)."""
        now, epoch_ms = self._monotonic(), self._epoch_ms()
        return {key: penalty(hold, now, epoch_ms) for key, hold in self.holds.breaker.holds(now).items()}

    def retry_after(self, request: Request) -> int | None:
        """The busy gate (RT-52): in how many seconds a new request may come again; None: it is let in."""
        breaker = self.holds.breaker
        if not breaker.any_refused:
            return None
        return breaker.retry_after([each.candidate for each in self.plan(request).ranked], self._monotonic())

    def take(self, job: str, candidate: Candidate) -> Sent:
        """``job`` is dispatched to ``candidate`` now: it counts there, and nowhere else (RT-42)."""
        self._settle()
        self.book.take(job, candidate.node, self.book.snapshot.generation, self._monotonic())
        return self.holds.dispatched(job, candidate)

    def release(self, job: str) -> None:
        """``job`` is on no node any more; a second call does nothing."""
        if self.book.release(job, self._monotonic()):
            self._settle()

    def finished(self, job: str) -> None:
        """``job`` has ended."""
        self.release(job)
        self.holds.breaker.finished(job)

    def note_stale(self, node: str, engine: str, request: Request) -> None:
        """That engine answered that it lacks the model of ``request``, though it lists it (RT-51)."""
        for owner in self.catalogue.owners(request.facade, request.model):
            if (owner.candidate.node, owner.candidate.engine) == (node, engine):
                self.holds.breaker.stale(node, engine, owner.key, owner.revision, self._monotonic())

    def note_route_missing(self, node: str, engine: str, route: Route) -> None:
        """That engine answered that it has no such route (RT-10)."""
        self.catalogue.note_route_missing(node, engine, route, self._monotonic())

    def _epoch_ms(self) -> int:
        return int(self._clock.seconds() * 1000)

    def _inventory_changed(self, inventory: NodeInventory) -> None:
        statuses = [each.status for each in inventory.engines]
        dialects = {each.id: self._engines.dialect(each.id) for each in statuses}
        inventory = replace(inventory, labels=self._labels(each.kind for each in statuses if each.routable))
        self.catalogue.put(NodeFacts(inventory, dialects, local=True, loaded_only=self._loaded_only))
        self.holds.known(inventory)

    def _settle(self) -> None:
        if self._due is None and self.running:
            self._due = self._clock.callLater(SETTLE, self._settled)

    def _settled(self) -> None:
        self._due = None
        self._recompute()

    def _tick(self) -> None:
        self.book.forget(self._monotonic())
        self.catalogue.forget(self._monotonic())
        self.holds.tick()
        self._recompute()

    def _recompute(self) -> None:
        placed = self.book.placed()
        counts = Counter(placed.values())
        counts.update(self._others())
        self._scheduler.set_pending(counts, placed)
        snapshot = self._scheduler.recompute(self._monotonic())
        if snapshot is not None:
            self.book.apply(snapshot)
