"""The breaker joined to the attempts that it hears of, to what it is forgotten by, and to the person who is told.

What a hold is, how long it lasts and what ends it is in
:mod:`pair.routing.breaker`; here is only when it is told, and that a node
which fails is an entry (RT-48).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pair.logs import Logger
from pair.records.errors import Subject
from pair.routing.breaker import Breaker

if TYPE_CHECKING:
    from collections.abc import Callable

    from pair.interfaces import IErrorBook
    from pair.proxy.outcomes import Judgement
    from pair.records.engines import NodeInventory
    from pair.routing.breaker import Hold, Sent
    from pair.routing.candidates import Candidate

log = Logger()


class Holds:
    """Tells the breaker how attempts end, by the third column of PX-44.

    Args:
        monotonic: seconds.
        inventory: of this node's engines, as they are now.
        errors: where a node that fails is told.

    Attributes:
        breaker: what plans ask.
    """

    def __init__(
        self, monotonic: Callable[[], float], inventory: Callable[[], NodeInventory], errors: IErrorBook
    ) -> None:
        self.breaker = Breaker()
        self._monotonic = monotonic
        self._inventory = inventory
        self._errors = errors
        self._places: dict[str, frozenset[str]] = {}
        self._failing: set[str] = set()
        self._silent: dict[tuple[str, str], int | None] = {}

    def dispatched(self, job: str, candidate: Candidate) -> Sent:
        """``job`` goes to ``candidate`` now; it may be the trial of a hold (RT-49)."""
        return self.breaker.dispatched(job, candidate, self._monotonic())

    def failed(self, sent: Sent, judgement: Judgement, retry_after: float | None = None) -> None:
        """An attempt ended before its answer began; ``retry_after``: seconds, where a busy engine named them."""
        now = self._monotonic()
        # What was under way to one that is gone breaks off when that has been forgotten already.
        arms = judgement.arms if sent.engine in self._places.get(sent.node, ()) else None
        if arms == "busy":
            self.breaker.busy(sent, retry_after, now)
        elif arms == "fault":
            hold = self.breaker.fault(sent, judgement.status is not None, now)
            if hold is not None:
                self._tell(sent, hold, now)
        elif arms == "stall":
            self.breaker.stall(sent, now)
            self._silent[sent.node, sent.engine] = _read_at(self._inventory(), sent.node, sent.engine)
        elif arms == "quiet":
            self.breaker.quiet(sent, now)
            self._silent[sent.node, sent.engine] = None
        else:
            self.breaker.undecided(sent)

    def committed(self, sent: Sent) -> None:
        """Its answer began."""
        if len(self.breaker):
            self.breaker.first_byte(sent, self._monotonic())
        self._mended()

    def given_up(self, sent: Sent) -> None:
        """The attempt was broken off from our side."""
        self.breaker.undecided(sent)

    def known(self, inventory: NodeInventory) -> None:
        """A node has these engines now."""
        self._places[inventory.node] = frozenset(each.status.id for each in inventory.engines)
        self.breaker.retain(inventory.node, self._places[inventory.node])
        self._mended()

    def forget_node(self, node: str) -> None:
        """A node takes no part any more (RT-54)."""
        self._places.pop(node, None)
        self.breaker.retain(node, ())
        self._mended()

    def heard(self, node: str) -> None:
        """Another node has shown that it lives (RT-50)."""
        for place in [each for each in self._silent if each[0] == node]:
            del self._silent[place]
            self.breaker.evidence(*place, self._monotonic())

    def tick(self) -> None:
        """Look for evidence that silent engines are back (RT-50), and forget what is long over."""
        now = self._monotonic()
        if self._silent:
            self._look_for_evidence(now)
        self.breaker.forget(now)
        self._mended()

    def _look_for_evidence(self, now: float) -> None:
        inventory = self._inventory()
        for place, before in tuple(self._silent.items()):
            if _read_at(inventory, *place) != before:
                del self._silent[place]
                self.breaker.evidence(*place, now)

    def _tell(self, sent: Sent, hold: Hold, now: float) -> None:
        self._failing.add(sent.node)
        self._errors.raise_entry(
            f"routing:node_failing:{sent.node}",
            subject=Subject(node=sent.node, engine=sent.engine),
            engine=sent.engine,
            count=hold.count,
        )
        log.warn(
            "Engine {engine} of node {node} failed {count} times in a row; others are asked first for {seconds} s.",
            engine=sent.engine,
            node=sent.node,
            count=hold.count,
            seconds=round(hold.until - now),
        )

    def _mended(self) -> None:
        if not self._failing:
            return
        for node in [each for each in self._failing if not self.breaker.failing(each)]:
            self._failing.discard(node)
            self._errors.clear(f"routing:node_failing:{node}")


def _read_at(inventory: NodeInventory, node: str, engine: str) -> int | None:
    """When an engine of this node last answered a probe with its list; one that failed does not move it."""
    if node != inventory.node:
        return None
    return next((each.status.models_at for each in inventory.engines if each.status.id == engine), None)
