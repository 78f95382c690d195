"""Publishes what this node offers, and how busy it is, on its inventory feed (EN-84, DS-92).

It must not know who follows; and nothing of another node passes through it (JB-30).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace
from twisted.application.service import Service

from pair.engines.inventory import same_model
from pair.feeds.wire import PROTOCOLS
from pair.records.engines import Model
from pair.records.inventory import TELEMETRY, EngineRecord, records_of, telemetry_record, views_of, with_views
from pair.records.telemetry import ProtocolRange
from pair.supervision.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IReactorTime

    from pair.feeds.publisher import Feed
    from pair.records.engines import NodeInventory
    from pair.records.inventory import InventoryRecord
    from pair.records.telemetry import NodeInfo

SAMPLE_SECONDS = 2.0

_PROTOCOL = ProtocolRange(PROTOCOLS.min, PROTOCOLS.max)


class InventoryPublisher(Service):
    """Keeps the inventory feed while it runs.

    What differs is found by comparing, so that it may be called at any time;
    it looks by itself with each sample.
    """

    name = "inventory"

    def __init__(
        self,
        clock: IReactorTime,
        feed: Feed[InventoryRecord],
        inventory: Callable[[], NodeInventory],
        info: Callable[[], NodeInfo],
    ) -> None:
        """Nothing is published yet.

        Args:
            clock: For the samples.
            feed: Where it is published.
            inventory: What this node offers now, its automatic labels included.
            info: The full body of node-info, as of now.
        """
        self._feed = feed
        self._inventory = inventory
        self._info = info
        self._told: dict[str, InventoryRecord] = {}
        self._samples = 0
        self._looking = Repeating(clock, SAMPLE_SECONDS, self._look, "The publishing of the inventory")

    def startService(self) -> None:
        """Publish what there is, in this very turn."""
        super().startService()
        self._looking.startService()

    def stopService(self) -> Deferred[None]:
        """Publish no more. What was published stays in the feed."""
        super().stopService()
        return self._looking.stopService()

    def update(self, _: object = None) -> None:
        """Something may have changed: publish what has."""
        if not self.running:
            return
        records = records_of(self._inventory(), _PROTOCOL)
        for key in sorted(self._told.keys() - records.keys()):
            del self._told[key]
            self._feed.remove(key)
        for key, record in records.items():
            told = self._told.get(key)
            if told is None or not _alike(told, record):
                self._told[key] = record
                self._feed.put(key, record)

    def document(self) -> bytes:
        """The body of ``/v1/models``: the feed's document with the three views (EN-84)."""
        self.update()
        return with_views(self._feed.document(), views_of(self._inventory()))

    def _look(self) -> None:
        self.update()
        if self._feed.followers:
            self._samples += 1
            self._feed.put(TELEMETRY, telemetry_record(self._info(), self._samples))
        else:
            # An old sample would pass for a new one with whoever follows next.
            self._feed.remove(TELEMETRY)


def _alike(old: InventoryRecord, new: InventoryRecord) -> bool:
    """Whether they differ by no more than ages, expiry times and a drift of memory (EN-84)."""
    if isinstance(old, Model) and isinstance(new, Model):
        return same_model(old, new)
    if isinstance(old, EngineRecord) and isinstance(new, EngineRecord):
        return _ageless(old) == _ageless(new)
    return old == new


def _ageless(engine: EngineRecord) -> EngineRecord:
    return replace(engine, health_at=None, models_at=None, retry_at=None)
