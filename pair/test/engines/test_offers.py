"""Tests of what other nodes offer, put together from their records."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.engines.offers import JOIN_SECONDS, Offers
from pair.feeds.reader import Changed, Removed
from pair.records.engines import Model, NodeInventory
from pair.records.inventory import NODE, TELEMETRY, EngineRecord, InventoryRecord, OtherRecord

A = "aaaaaaaa-0000-4000-8000-000000000001"


class OffersTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.table: dict[str, InventoryRecord] = {}
        self.offers = Offers(self.clock, lambda: {A: self.table})
        self.offers.startService()
        self.offered: list[NodeInventory] = []
        self.withdrawn: list[str] = []
        self.offers.offered.subscribe(self.offered.append)
        self.offers.withdrawn.subscribe(self.withdrawn.append)

    def put(self, key: str, record: InventoryRecord) -> None:
        before = self.table.get(key)
        self.table[key] = record
        self.offers.news(A, [Changed(key, record, before)])

    def put_models(self, number: int) -> None:
        self.put("engine:e", EngineRecord("e", "ollama", "ollama"))
        for n in range(number):
            self.put(f"model:e:{n}", Model(str(n), "e", "ollama"))

    def test_joined(self) -> None:
        """Thousands of changes of one table make one inventory, or a change of all models would cost their square."""
        self.put_models(3000)
        self.assertEqual(self.offered, [])
        self.clock.advance(JOIN_SECONDS)
        (offer,) = self.offered
        self.assertEqual((offer.node, len(offer.engines[0].models)), (A, 3000))
        self.assertEqual(self.offers.by_node, {A: offer})
        self.offers.news(A, [Removed("model:e:0", self.table.pop("model:e:0"))])
        self.clock.advance(JOIN_SECONDS)
        self.assertEqual(len(self.offers.by_node[A].engines[0].models), 2999)

    def test_samples(self) -> None:
        """How busy a node is changes nothing of what it offers, and no more does the end of that."""
        self.put(TELEMETRY, OtherRecord())
        self.offers.news(A, [Removed(TELEMETRY, OtherRecord())])
        self.clock.advance(JOIN_SECONDS)
        self.assertEqual((self.offered, self.clock.getDelayedCalls()), ([], []))

    def test_forgotten(self) -> None:
        """A node that is no member any more offers nothing, and nothing of it is waited for."""
        self.put_models(1)
        self.offers.forget(A)
        self.assertEqual((self.withdrawn, self.clock.getDelayedCalls()), ([], []))
        self.put_models(1)
        self.clock.advance(JOIN_SECONDS)
        self.offers.forget(A)
        self.assertEqual((self.withdrawn, self.offers.by_node), ([A], {}))

    def test_stopped(self) -> None:
        """After a stop nothing is waited for."""
        self.put_models(1)
        self.offers.stopService()
        self.put(NODE, OtherRecord())
        self.assertEqual(self.clock.getDelayedCalls(), [])
