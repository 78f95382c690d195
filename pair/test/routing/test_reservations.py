"""Tests of the reservation book."""

from __future__ import annotations

import math
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.routing.breaker import Breaker
from pair.routing.planning import plan
from pair.routing.policies import Load
from pair.routing.policies.pressure import PressurePolicy
from pair.routing.reservations import Reservation, ReservationBook
from pair.routing.scheduler import Rank, Scheduler, Snapshot
from pair.test.routing.facts import catalogue, engine, node, request

NODES = ("a", "b", "c")


def snapshot(generation: int, pressures: dict[str, int], counted: dict[str, str]) -> Snapshot:
    """A snapshot that counts own jobs only."""
    counts = Counter(counted.values())
    return Snapshot(generation, tuple(Rank(each, counts[each], pressures[each]) for each in pressures), counted)


class BookTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.book = ReservationBook()
        self.book.apply(snapshot(1, {"a": 0, "b": 1}, {}))

    def total(self) -> tuple[int, int]:
        return self.book.load("a").total, self.book.load("b").total

    def test_the_example_of_the_page(self) -> None:
        """Section 6, step by step: one move and one end, seen late."""
        self.book.apply(snapshot(7, {"a": 0, "b": 1}, {"j1": "a"}))
        self.book.take("j1", "a", 7, 0.0)
        self.assertEqual(self.total(), (1, 1))
        self.book.take("j2", "a", 7, 0.0)
        self.assertEqual(self.total(), (2, 1))
        self.book.take("j3", "b", 7, 0.0)
        self.assertEqual(self.total(), (2, 2))
        self.book.take("j3", "a", 7, 0.1)
        self.assertEqual(self.total(), (3, 1))
        self.book.apply(snapshot(8, {"a": 0, "b": 1}, {"j1": "a", "j2": "a", "j3": "b"}))
        self.assertEqual(self.book.load("a"), Load(2, 0, 1))
        self.assertEqual(self.book.load("b"), Load(0, 1, 0))
        self.book.release("j2", 1.0)
        self.assertEqual(self.total(), (2, 1))
        self.book.apply(snapshot(9, {"a": 0, "b": 1}, {"j1": "a", "j3": "a"}))
        self.assertEqual(self.book.load("a"), Load(2, 0, 0))

    def test_one_a_job(self) -> None:
        """A second take moves the job; the book says where it is (RT-41)."""
        taken = self.book.take("j1", "a", 1, 5.0)
        self.assertEqual(taken, Reservation("j1", "a", 1, 5.0))
        self.book.take("j1", "b", 1, 6.0)
        self.assertEqual((len(self.book), self.book.held("j1")), (1, Reservation("j1", "b", 1, 6.0)))
        self.assertEqual(self.total(), (0, 2))

    def test_release_twice(self) -> None:
        """The second does nothing, nor does one of a job that never was (RT-41)."""
        self.book.take("j1", "a", 1, 0.0)
        for job in ("j1", "j1", "j9"):
            self.book.release(job, 1.0)
        self.assertEqual((len(self.book), self.total()), (0, (0, 1)))

    def test_taken_again_after_a_release(self) -> None:
        """Between rounds a job is nowhere, then somewhere again (RT-42)."""
        self.book.take("j1", "a", 1, 0.0)
        self.book.apply(snapshot(2, {"a": 0, "b": 1}, {"j1": "a"}))
        self.book.release("j1", 1.0)
        self.assertEqual(self.total(), (0, 1))
        self.book.take("j1", "a", 2, 2.0)
        self.assertEqual(self.book.load("a"), Load(1, 0, 0))

    def test_released_and_still_counted(self) -> None:
        """It counts no more, until a snapshot without it comes (RT-45)."""
        self.book.take("j1", "a", 1, 0.0)
        self.book.release("j1", 0.0)
        self.book.apply(snapshot(2, {"a": 0, "b": 1}, {"j1": "a"}))
        self.assertEqual(self.total(), (0, 1))
        self.book.apply(snapshot(3, {"a": 0, "b": 1}, {}))
        self.book.apply(snapshot(4, {"a": 0, "b": 1}, {"j1": "a"}))
        self.assertEqual(self.total(), (1, 1))

    def test_remembered_for_a_minute(self) -> None:
        """After more than 60 s a released job counts where the snapshot counts it (RT-45)."""
        self.book.take("j1", "a", 1, 0.0)
        self.book.apply(snapshot(2, {"a": 0, "b": 1}, {"j1": "a"}))
        self.book.release("j1", 10.0)
        self.book.forget(70.0)
        self.assertEqual(self.total(), (0, 1))
        self.book.forget(70.1)
        self.assertEqual(self.total(), (1, 1))

    def test_an_older_snapshot(self) -> None:
        """One of the same or a lower generation is ignored whole (RT-46)."""
        self.book.apply(snapshot(5, {"a": 2, "b": 0}, {"j1": "a"}))
        for generation in (5, 4):
            self.book.apply(snapshot(generation, {"a": 0, "b": 0}, {}))
            self.assertEqual(self.total(), (3, 0))
            self.assertEqual(self.book.snapshot.generation, 5)

    def test_a_node_that_is_not_listed(self) -> None:
        """It has its reservations and neutral pressure."""
        self.book.take("j1", "x", 1, 0.0)
        self.assertEqual(self.book.load("x"), Load(0, 1, 1, listed=False))

    def test_bad_values(self) -> None:
        """Reservations and loads are checked when made (RT-3)."""
        for job, place, generation, at in [
            ("", "a", 0, 0.0),
            ("j", "", 0, 0.0),
            ("j", "a", -1, 0.0),
            ("j", "a", 0, math.nan),
        ]:
            with self.assertRaises(ValueError):
                self.book.take(job, place, generation, at)
        self.assertEqual((len(self.book), self.total()), (0, (0, 1)))
        for load in [(-1, 0, 0), (0, -1, 0), (0, 0, -1)]:
            with self.assertRaises(ValueError):
                Load(*load)


_JOBS = st.sampled_from([f"j{n}" for n in range(6)])
_STEPS = st.lists(
    st.tuples(st.just("take"), _JOBS, st.sampled_from(NODES))
    | st.tuples(st.just("release"), _JOBS, st.none())
    | st.tuples(st.just("look"), st.none(), st.none())
    | st.tuples(st.just("apply"), st.none(), st.none()),
    max_size=60,
)


class LagTests(SynchronousTestCase):
    @given(_STEPS, st.dictionaries(st.sampled_from(NODES), st.integers(0, 3)))
    def test_the_load_is_the_true_count(self, steps: list[tuple[str, str, str]], others: dict[str, int]) -> None:
        """Whatever is taken, moved, released and seen late: exact at every moment (RT-43).

        The jobs of other origins are counted by snapshots alone. Once a job has
        come back after a release, the load is still never negative (a Load
        would not be made), and exact when all snapshots have been seen. So it
        is where a job has ended and two snapshots are yet to be seen, of which
        the first one does not count it: by that one it is forgotten. Here it
        takes a lag, and the service has none: it applies each as it is made.
        """
        book = ReservationBook()
        scheduler = Scheduler()
        scheduler.set_nodes(NODES)
        true: dict[str, str] = {}
        released: set[str] = set()
        returned = False
        seen: list[Snapshot] = []

        def look() -> None:
            scheduler.set_pending(Counter(true.values()) + Counter(others), true)
            seen.extend(filter(None, [scheduler.recompute(0.0)]))

        def loads() -> dict[str, tuple[int, int]]:
            return {each: (book.load(each).pending, book.load(each).reservations) for each in NODES}

        look()
        book.apply(seen.pop())
        for step, job, place in steps:
            if step == "take":
                returned = returned or job in released
                true[job] = place
                book.take(job, place, book.snapshot.generation, 0.0)
            elif step == "release" and job in true:
                released.add(job)
                counted = [job in each.counted for each in seen]
                returned = returned or (any(counted) and not all(counted))
                del true[job]
                book.release(job, 0.0)
            elif step == "look":
                look()
            elif step == "apply" and seen:
                book.apply(seen.pop(0))
            for each in NODES:
                exact = list(true.values()).count(each) + others.get(each, 0)
                self.assertTrue(returned or sum(loads()[each]) == exact)
        look()
        for last in seen:
            book.apply(last)
        for each in NODES:
            self.assertEqual(loads()[each], (list(true.values()).count(each) + others.get(each, 0), 0))


class SpreadTests(SynchronousTestCase):
    """RT-47: many requests in one turn."""

    def spread(self, pending: dict[str, int], facades: tuple[str, ...] = ("ollama",)) -> Counter[str]:
        known = catalogue(*(node(each, engine("llamacpp", loaded=("m",))) for each in pending))
        scheduler = Scheduler()
        scheduler.set_nodes(pending)
        scheduler.set_pending(pending, {})
        book = ReservationBook()
        first = scheduler.recompute(0.0)
        assert first is not None
        book.apply(first)
        picks: Counter[str] = Counter()
        for job in range(100):
            facade = facades[job % len(facades)]
            best = plan(request("m", facade=facade), known, book, Breaker(), PressurePolicy(), 0.0).ranked[0].candidate
            book.take(f"j{job}", best.node, book.snapshot.generation, 0.0)
            picks[best.node] += 1
        return picks

    def test_equal_nodes(self) -> None:
        """25 each."""
        self.assertEqual(self.spread(dict.fromkeys("abcd", 0)), dict.fromkeys("abcd", 25))

    def test_lower_first(self) -> None:
        """Nodes with less to do are filled first: all end at the same load."""
        self.assertEqual(self.spread({"a": 3, "b": 0, "c": 1, "d": 0}), {"a": 23, "b": 26, "c": 25, "d": 26})

    def test_two_facades(self) -> None:
        """They see each other's reservations."""
        self.assertEqual(self.spread(dict.fromkeys("abcd", 0), ("ollama", "lmstudio")), dict.fromkeys("abcd", 25))
