"""What is told of changes."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from pair.discovery.entries import Entries
from pair.records.nodes import (
    NodeAdded,
    NodeChanged,
    NodeEntry,
    NodeHardware,
    NodeRekeyed,
    NodeRemoved,
    PresenceChanged,
)
from pair.records.telemetry import Cpu, Gpu, Memory

FIELDS = """
    key uuid name self claims presence relation lastHeardAt evidence member trusted clusterUuid clusterState ip ips
    confirmed services hardware hardwareAt inventoryAt warnings revision
""".split()  # noqa: SIM905 - a list of words

A = NodeEntry("a", "a", "spark", "online", "stranger", ips=("10.0.0.1", "10.0.0.2"), services={"ni": 1, "ol": 2})
B = NodeEntry("b", "b", "box", "offline", "member")
TYPED = NodeEntry("manual:rack:1", None, "rack:1", "offline", "stranger")


class EntriesTests(SynchronousTestCase):
    """Events (DS-3, DS-4)."""

    def setUp(self) -> None:
        self.entries = Entries()
        self.entries.update({"a": A})

    def test_added(self) -> None:
        """Each event has the next revision, and so has the entry that it is about."""
        added = replace(B, revision=2)
        self.assertEqual(self.entries.update({"b": B}), (NodeAdded(2, added),))
        self.assertEqual(list(self.entries), [replace(A, revision=1), added])

    def test_changed(self) -> None:
        """A change tells what there was; one of presence is told of for itself."""
        new = replace(A, presence="suspect")
        self.assertEqual(
            self.entries.update({"a": new}),
            (
                NodeChanged(2, replace(new, revision=2), replace(A, revision=1)),
                PresenceChanged(3, "a", "online", "suspect"),
            ),
        )

    def test_addresses_have_an_order(self) -> None:
        """The same addresses in another order are a change, the same services are none (DS-4)."""
        self.assertEqual(self.entries.update({"a": replace(A, services={"ol": 2, "ni": 1})}), ())
        self.assertEqual(len(self.entries.update({"a": replace(A, ips=A.ips[::-1])})), 1)

    def test_times(self) -> None:
        """The time of a sign of life is kept, and is no news."""
        self.assertEqual(self.entries.update({"a": replace(A, last_heard_at=5, evidence="mdns", inventory_at=7)}), ())
        entry = self.entries.get("a")
        assert entry is not None
        self.assertEqual((entry.last_heard_at, entry.inventory_at, entry.revision), (5, 7, 1))

    def test_hardware(self) -> None:
        """Figures that come and go are no news, nor is the order of GPUs; another GPU is (DS-4, DS-44)."""
        one, two = Gpu("1", 0, "nvidia", vram_total_bytes=9), Gpu("2", 1, "nvidia")
        hardware = NodeHardware(None, Cpu("x", 4), Memory(8, 1, 7), (one, two))
        self.assertEqual(len(self.entries.update({"a": replace(A, hardware=hardware, hardware_at=1)})), 1)
        busy = replace(one, utilization_percent=90.0, vram_used_bytes=3, sampled_at=2)
        later = NodeHardware(None, Cpu("x", 4, None, 50.0), Memory(8, 3, 5), (two, busy))
        self.assertEqual(self.entries.update({"a": replace(A, hardware=later, hardware_at=2)}), ())
        entry = self.entries.get("a")
        assert entry is not None
        self.assertEqual(entry.hardware, later)
        gone = NodeHardware(None, Cpu("x", 4), Memory(8), (two,))
        self.assertEqual(len(self.entries.update({"a": replace(A, hardware=gone)})), 1)

    def test_removed_first(self) -> None:
        """Who goes is told of before who comes (DS-64); one that was not there is not told of."""
        self.assertEqual(
            self.entries.update({"b": B, "a": None, "c": None}),
            (NodeRemoved(2, replace(A, revision=1)), NodeAdded(3, replace(B, revision=3))),
        )

    def test_rekeyed(self) -> None:
        """A node whose UUID becomes known keeps its entry under another key (DS-74)."""
        self.entries.update({TYPED.key: TYPED})
        named = replace(TYPED, key="b", uuid="b")
        self.assertEqual(
            self.entries.update({"b": named}, [(TYPED.key, "b")]),
            (
                NodeRekeyed(3, TYPED.key, "b"),
                NodeChanged(4, replace(named, revision=4), replace(TYPED, revision=2)),
            ),
        )
        self.assertEqual([each.key for each in self.entries], ["a", "b"])

    def test_rekeyed_onto_another(self) -> None:
        """One that is known by both keys becomes one entry (DS-74)."""
        self.entries.update({TYPED.key: TYPED})
        merged = replace(A, claims=("mdns", "manual"))
        self.assertEqual(
            self.entries.update({"a": merged}, [(TYPED.key, "a")]),
            (NodeRekeyed(3, TYPED.key, "a"), NodeChanged(4, replace(merged, revision=4), replace(A, revision=1))),
        )

    def test_json(self) -> None:
        """An entry has the names of the console's API (UI-22, UI-33)."""
        shown = msgspec.json.decode(msgspec.json.encode(A))
        self.assertEqual(
            set(shown),
            set(FIELDS),
        )
