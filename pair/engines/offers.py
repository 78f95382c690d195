"""What other nodes offer, put together from the records of their inventory feeds (EN-84).

It must not know how the records travel. An inventory is made of all records of
its node, and one change of an engine is one of many: so it is made when they
are there, and not for each. That also bounds what a node that never stops to
change costs this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.application.service import Service

from pair.events import Signal
from pair.records.inventory import TELEMETRY, inventory_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.feeds.reader import Changed, Removed
    from pair.records.engines import NodeInventory
    from pair.records.inventory import InventoryRecord

JOIN_SECONDS = 0.05
"""From a change to the inventory with it, and with all that came meanwhile."""


class Offers(Service):
    """The inventories of other nodes.

    Attributes:
        by_node: What each offers, by its UUID.
        offered: Emits what a node offers when that is another.
        withdrawn: Emits the UUID of one that offers nothing any more.
    """

    def __init__(self, clock: IReactorTime, tables: Callable[[], Mapping[str, Mapping[str, InventoryRecord]]]) -> None:
        """Nobody has told anything yet.

        Args:
            clock: For what is joined.
            tables: The records of each node now, by its UUID.
        """
        self.by_node: dict[str, NodeInventory] = {}
        self.offered: Signal[NodeInventory] = Signal()
        self.withdrawn: Signal[str] = Signal()
        self._clock = clock
        self._tables = tables
        self._waiting: dict[str, IDelayedCall] = {}

    def stopService(self) -> None:
        """Wait for nothing more; what is known stays."""
        super().stopService()
        for each in self._waiting.values():
            each.cancel()
        self._waiting.clear()

    def news(self, node: str, changes: Iterable[Changed[InventoryRecord] | Removed[InventoryRecord]]) -> None:
        """The table of a node has changed. A sample of how busy it is changes nothing here."""
        if self.running and node not in self._waiting and any(each.key != TELEMETRY for each in changes):
            self._waiting[node] = self._clock.callLater(JOIN_SECONDS, self._put_together, node)

    def forget(self, node: str) -> None:
        """It is no member any more."""
        waiting = self._waiting.pop(node, None)
        if waiting is not None:
            waiting.cancel()
        if self.by_node.pop(node, None) is not None:
            self.withdrawn.emit(node)

    def _put_together(self, node: str) -> None:
        del self._waiting[node]
        offer = self.by_node[node] = inventory_of(node, self._tables()[node])
        self.offered.emit(offer)
