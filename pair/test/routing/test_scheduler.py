"""Tests of the scheduler."""

from __future__ import annotations

import math

from twisted.trial.unittest import SynchronousTestCase

from pair.routing.scheduler import EMPTY, Rank, Scheduler, Snapshot


def scheduler(*nodes: str) -> Scheduler:
    made = Scheduler()
    made.set_nodes(nodes)
    return made


def rows(snapshot: Snapshot | None) -> list[tuple[str, int, int]]:
    assert snapshot is not None
    return [(each.node, each.pending, each.pressure) for each in snapshot.ranks]


class OrderTests(SynchronousTestCase):
    def test_cold_start(self) -> None:
        """Without jobs and telemetry all are 0 + 1, by id (RT-40)."""
        self.assertEqual(rows(scheduler("c", "a", "b").recompute(0.0)), [("a", 0, 1), ("b", 0, 1), ("c", 0, 1)])

    def test_pending_and_pressure(self) -> None:
        """By their sum, then by pressure, then by id (RT-31)."""
        made = scheduler("a", "b", "c", "d")
        made.set_pending({"a": 2, "b": 1, "d": 3}, {})
        for node, utilisation in (("a", 0.0), ("b", 50.0), ("c", 75.0), ("d", 0.0)):
            made.observe(node, utilisation, True, 0.0, 0.0)
        self.assertEqual(rows(made.recompute(0.0)), [("a", 2, 0), ("b", 1, 1), ("c", 0, 2), ("d", 3, 0)])

    def test_counts_of_strangers_are_ignored(self) -> None:
        """Of a node that is not ranked neither the count nor own jobs count (RT-29)."""
        made = scheduler("a")
        made.set_pending({"a": 1, "x": 5}, {"j1": "a", "j2": "x"})
        snapshot = made.recompute(0.0)
        self.assertEqual(rows(snapshot), [("a", 1, 1)])
        assert snapshot is not None
        self.assertEqual(snapshot.counted, {"j1": "a"})

    def test_bad_counts(self) -> None:
        """More own jobs than jobs, or a negative count, is a ValueError (RT-3)."""
        made = scheduler("a")
        with self.assertRaises(ValueError):
            made.set_pending({"a": 1}, {"j1": "a", "j2": "a"})
        made.set_pending({"a": -1}, {})
        with self.assertRaises(ValueError):
            made.recompute(0.0)

    def test_bad_values(self) -> None:
        """Ranks and snapshots are checked when made (RT-3)."""
        for node, pending, pressure in [("", 0, 0), ("a", -1, 0), ("a", 0, 4), ("a", 0, -1)]:
            with self.assertRaises(ValueError):
                Rank(node, pending, pressure)
        with self.assertRaises(ValueError):
            Snapshot(-1, (), {})


class GenerationTests(SynchronousTestCase):
    def test_nothing_known_is_no_change(self) -> None:
        """Before anything is told there is no snapshot."""
        self.assertIsNone(Scheduler().recompute(0.0))
        self.assertEqual(EMPTY.generation, 0)

    def test_a_snapshot_only_for_a_change(self) -> None:
        """Order, a count, a pressure or ``counted`` must differ; generations rise by one from 1 (RT-30, RT-32)."""
        made = scheduler("a", "b")
        steps = [
            lambda: None,
            lambda: made.set_pending({"a": 1}, {}),
            lambda: made.set_pending({"a": 1}, {"j1": "a"}),
            lambda: made.set_pending({"a": 1}, {"j2": "a"}),
            lambda: made.observe("b", 0.0, True, 0.0, 0.0),
            lambda: made.set_nodes(["a"]),
        ]
        for generation, step in enumerate(steps, 1):
            step()
            snapshot = made.recompute(0.0)
            assert snapshot is not None
            self.assertEqual(snapshot.generation, generation)
            self.assertIsNone(made.recompute(0.0))

    def test_a_snapshot_is_not_changed_by_what_comes_later(self) -> None:
        """Inputs are copied: the caller may go on with its own."""
        made = scheduler("a")
        counts, own = {"a": 1}, {"j1": "a"}
        made.set_pending(counts, own)
        counts["a"] = 7
        own["j9"] = "a"
        snapshot = made.recompute(0.0)
        assert snapshot is not None
        self.assertEqual((rows(snapshot), snapshot.counted), ([("a", 1, 1)], {"j1": "a"}))


class TelemetryTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.scheduler = scheduler("a")
        self.snapshot = EMPTY

    def pressure(self, now: float) -> int:
        self.snapshot = self.scheduler.recompute(now) or self.snapshot
        return rows(self.snapshot)[0][2]

    def test_unknown_is_neutral(self) -> None:
        """A node without telemetry has pressure 1 and keeps its place (RT-37)."""
        self.assertEqual(self.pressure(0.0), 1)

    def test_freshness(self) -> None:
        """A sample of exactly 10 s is fresh, an older one is not; its age on arrival counts (RT-36)."""
        self.scheduler.observe("a", 90.0, True, 0.0, 100.0)
        self.assertEqual([self.pressure(110.0), self.pressure(110.001)], [3, 1])
        self.scheduler.observe("a", 90.0, True, 4.0, 200.0)
        self.assertEqual([self.pressure(206.0), self.pressure(206.001)], [3, 1])
        self.scheduler.observe("a", 90.0, True, 10.001, 300.0)
        self.assertEqual(self.pressure(300.0), 1)

    def test_the_first_after_a_gap_is_taken_as_it_is(self) -> None:
        """Nothing of before the gap is smoothed in, whether anyone looked in the meantime or not (RT-38)."""
        self.scheduler.observe("a", 100.0, True, 0.0, 0.0)
        self.scheduler.observe("a", 0.0, True, 0.0, 10.0)
        self.assertEqual(self.pressure(10.0), 2)
        self.scheduler.observe("a", 0.0, True, 0.0, 20.1)
        self.assertEqual(self.pressure(20.1), 0)

    def test_what_makes_a_node_unknown(self) -> None:
        """An invalid sample, a missing value or no finite number does at once, and starts anew (RT-35)."""
        for utilisation, valid in [(50.0, False), (None, True), (math.nan, True), (math.inf, True)]:
            self.setUp()
            self.scheduler.observe("a", 100.0, True, 0.0, 0.0)
            self.assertEqual(self.pressure(0.0), 3)
            self.scheduler.observe("a", utilisation, valid, 0.0, 0.0)
            self.assertEqual(self.pressure(0.0), 1)
            self.scheduler.observe("a", 0.0, True, 0.0, 0.0)
            self.assertEqual(self.pressure(0.0), 0)

    def test_clamped(self) -> None:
        """A value outside 0–100 counts as the nearer end (RT-35)."""
        self.scheduler.observe("a", 1000.0, True, 0.0, 0.0)
        for _ in range(3):
            self.scheduler.observe("a", -1000.0, True, 0.0, 0.0)
        # 100, 65, 42.25, 27.46: had they not been clamped, another band.
        self.assertEqual(self.pressure(0.0), 0)

    def test_removal_and_return(self) -> None:
        """A node that left starts as unknown, and samples in its absence are ignored (RT-34)."""
        self.scheduler.observe("a", 100.0, True, 0.0, 0.0)
        self.scheduler.set_nodes([])
        self.scheduler.observe("a", 100.0, True, 0.0, 0.0)
        self.scheduler.set_nodes(["a"])
        self.assertEqual(self.pressure(0.0), 1)
        self.scheduler.observe("a", 0.0, True, 0.0, 0.0)
        self.assertEqual(self.pressure(0.0), 0)

    def test_bad_age(self) -> None:
        """An age is a finite number of seconds, not below 0 (RT-3)."""
        for age in (-1.0, math.nan, math.inf):
            with self.assertRaises(ValueError):
                self.scheduler.observe("a", 0.0, True, age, 0.0)


class AgeTests(SynchronousTestCase):
    def test_age(self) -> None:
        """That of the last sample which counted, with the age that it came with; none of one that is unknown."""
        made = scheduler("a")
        self.assertIsNone(made.age("a", 0.0))
        made.observe("a", 50.0, True, 1.5, 10.0)
        self.assertEqual((made.age("a", 10.0), made.age("a", 30.0), made.age("b", 10.0)), (1.5, 21.5, None))
        made.observe("a", None, False, 0.0, 31.0)
        self.assertIsNone(made.age("a", 31.0))
