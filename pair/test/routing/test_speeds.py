"""Tests of the learned speeds (RT-61), and of how they break the ties of ``pressure`` (RT-59)."""

from __future__ import annotations

import math

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from pair.routing.breaker import Breaker
from pair.routing.explain import explain
from pair.routing.planning import plan
from pair.routing.policies.pressure import PressurePolicy
from pair.routing.policies.speeds import KEYS, SAMPLES, Speed, Speeds
from pair.routing.reservations import ReservationBook
from pair.routing.scheduler import Scheduler
from pair.test.routing.facts import catalogue, engine, node, request


def learned(speeds: Speeds, node: str, rate: float, times: int = SAMPLES, model: str = "m") -> Speeds:
    """``speeds`` after so many answers of a hundred tokens."""
    for _ in range(times):
        speeds.learn(node, "ollama", model, 100, 100 / rate)
    return speeds


class SpeedsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.speeds = Speeds()

    def speed(self, node: str = "a", model: str = "m") -> float | None:
        return self.speeds.speed(node, "ollama", model)

    def test_nothing_under_five_samples(self) -> None:
        """Four answers tell nothing, the fifth does."""
        learned(self.speeds, "a", 50.0, 4)
        self.assertIsNone(self.speed())
        learned(self.speeds, "a", 50.0, 1)
        self.assertEqual(self.speed(), 50.0)

    def test_a_moving_average(self) -> None:
        """Each further answer counts a fifth."""
        learned(self.speeds, "a", 50.0)
        learned(self.speeds, "a", 100.0, 1)
        self.assertEqual(self.speed(), 60.0)
        learned(self.speeds, "a", 10.0, 1)
        self.assertEqual(self.speed(), 50.0)

    def test_only_answers_that_say_something(self) -> None:
        """Short ones, those without a count or a time, and such as no clock can have measured are left out."""
        told: tuple[tuple[int | None, float | None], ...] = (
            (15, 1.0),
            (None, 1.0),
            (100, None),
            (100, 0.0),
            (100, -1.0),
            (100, math.nan),
            (100, math.inf),
            (100, 5e-324),
        )
        for tokens, seconds in told:
            self.speeds.learn("a", "ollama", "m", tokens, seconds)
        self.assertEqual(self.speeds.snapshot(), ())
        self.speeds.learn("a", "ollama", "m", 16, 1.0)
        self.assertEqual(self.speeds.snapshot(), (Speed("a", "ollama", "m", 16.0, 1),))

    def test_each_node_engine_and_model_by_itself(self) -> None:
        """What one does says nothing of another."""
        learned(self.speeds, "a", 50.0)
        self.assertEqual((self.speed("b"), self.speed(model="n")), (None, None))
        self.assertIsNone(self.speeds.speed("a", "llamacpp", "m"))

    def test_the_oldest_goes_first(self) -> None:
        """There are 2,000 at most; the one that was learned longest ago goes, however often it is asked for."""
        for number in range(KEYS):
            learned(self.speeds, f"n{number}", 50.0)
        learned(self.speeds, "n0", 50.0, 1)
        self.assertEqual(self.speed("n1"), 50.0)
        learned(self.speeds, "new", 50.0)
        self.assertEqual(len(self.speeds.snapshot()), KEYS)
        self.assertEqual((self.speed("n0"), self.speed("n1"), self.speed("n2")), (50.0, None, 50.0))

    def test_the_same_after_a_restart(self) -> None:
        """What was stored and read again goes on as if nothing had been, its order of leaving included."""
        for number in range(KEYS):
            learned(self.speeds, f"n{number}", 10.0 + number, 3)
        learned(self.speeds, "n0", 99.0, 4)
        stored = msgspec.msgpack.encode(self.speeds.snapshot())
        again = Speeds()
        again.restore(msgspec.msgpack.decode(stored, type=tuple[Speed, ...]))
        for each in (self.speeds, again):
            learned(each, "new", 7.0)
            learned(each, "n5", 20.0, 2)
        self.assertEqual(again.snapshot(), self.speeds.snapshot())
        self.assertIsNone(again.speed("n1", "ollama", "m"))

    def test_bad_values(self) -> None:
        """Values are checked when made (RT-3)."""
        for bad in (
            ("", "e", 1.0, 1),
            ("a", "", 1.0, 1),
            ("a", "e", 0.0, 1),
            ("a", "e", math.nan, 1),
            ("a", "e", math.inf, 1),
            ("a", "e", 1.0, 0),
        ):
            node, engine, rate, samples = bad
            with self.assertRaises(ValueError):
                Speed(node, engine, "m", rate, samples)


class TieTests(SynchronousTestCase):
    """RT-59."""

    def setUp(self) -> None:
        self.speeds = Speeds()
        self.catalogue = catalogue(*(node(each, engine("ollama", "m")) for each in "abc"))
        self.book = ReservationBook()
        scheduler = Scheduler()
        scheduler.set_nodes("abc")
        snapshot = scheduler.recompute(0.0)
        assert snapshot is not None
        self.book.apply(snapshot)

    def order(self, speeds: Speeds | None = None) -> str:
        """The nodes as they are planned, and as the account of the plan has them."""
        speed = (speeds or self.speeds).speed
        asked = request("m", "/api/chat")
        made = plan(asked, self.catalogue, self.book, Breaker(), PressurePolicy(), 0.0, speed)
        told = explain(asked, self.catalogue, self.book, Breaker(), PressurePolicy(), 0.0, 0, speed)
        order = "".join(each.candidate.node for each in made.ranked)
        self.assertEqual("".join(each.node for each in told.candidates), order)
        return order

    def test_by_id_before_anything_is_learned(self) -> None:
        """F01: nothing known: by id; and without speeds at all the same."""
        self.assertEqual(self.order(), "abc")
        made = plan(request("m", "/api/chat"), self.catalogue, self.book, Breaker(), PressurePolicy(), 0.0)
        self.assertEqual([each.candidate.node for each in made.ranked], list("abc"))

    def test_the_faster_of_equals(self) -> None:
        """F01: 10, 58 and 58 tokens/s after five samples: the faster first, equal ones by id."""
        for name, rate in (("a", 10.0), ("b", 58.0), ("c", 58.0)):
            learned(self.speeds, name, rate)
        self.assertEqual(self.order(), "bca")

    def test_who_is_not_known_is_learnt(self) -> None:
        """One with fewer than five samples counts as the fastest, until it is known."""
        learned(self.speeds, "a", 58.0)
        learned(self.speeds, "b", 58.0)
        learned(self.speeds, "c", 10.0, 4)
        self.assertEqual(self.order(), "cab")
        learned(self.speeds, "c", 10.0, 1)
        self.assertEqual(self.order(), "abc")

    def test_speed_is_no_load(self) -> None:
        """One job more weighs more than any rate."""
        learned(self.speeds, "a", 10.0)
        learned(self.speeds, "b", 580.0)
        learned(self.speeds, "c", 580.0)
        for number, name in enumerate("bc"):
            self.book.take(f"j{number}", name, 1, 0.0)
        self.assertEqual(self.order(), "abc")

    def test_the_same_after_a_restart(self) -> None:
        """F01: ties fall as before."""
        for name, rate in (("a", 10.0), ("b", 58.0), ("c", 30.0)):
            learned(self.speeds, name, rate)
        again = Speeds()
        again.restore(self.speeds.snapshot())
        self.assertEqual((self.order(), self.order(again)), ("bca", "bca"))
