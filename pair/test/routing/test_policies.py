"""Tests of the default policy and of the guard around any."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from pair.interfaces import IRoutingPolicy
from pair.routing.candidates import Candidate, Request
from pair.routing.policies import Load, Ranked, View, ranked_or_default
from pair.routing.policies.pressure import PressurePolicy
from pair.routing.scheduler import EMPTY
from pair.test.routing.facts import request

Speed = Callable[[str, str, str], float | None]


def view(loads: dict[str, Load], speeds: dict[str, float] | None = None) -> View:
    known = speeds or {}
    return View(0.0, EMPTY, loads.__getitem__, lambda node, engine, model: known.get(node))


def order(candidates: Sequence[Candidate], seen: View) -> list[str]:
    return [each.candidate.node for each in PressurePolicy().rank(request("m"), candidates, seen)]


def candidate(node: str, *, doubtful: bool = False) -> Candidate:
    return Candidate(node, "e", "ollama", "m", doubtful=doubtful)


class PressurePolicyTests(SynchronousTestCase):
    """RT-59."""

    candidates = tuple(map(candidate, "cabd"))

    def test_provides_the_interface(self) -> None:
        """It is a policy by the name ``pressure``."""
        verifyObject(IRoutingPolicy, PressurePolicy())
        self.assertEqual(PressurePolicy.name, "pressure")

    def test_cold_start(self) -> None:
        """All equal: by id (RT-40)."""
        self.assertEqual(order(self.candidates, view({each: Load(0, 1, 0) for each in "abcd"})), list("abcd"))

    def test_the_sum_then_pressure(self) -> None:
        """Pending, pressure and reservations together; a tie goes to the one with less pressure."""
        loads = {"a": Load(1, 2, 0), "b": Load(0, 1, 1), "c": Load(2, 0, 0), "d": Load(0, 0, 1)}
        self.assertEqual(order(self.candidates, view(loads)), ["d", "c", "b", "a"])

    def test_doubtful_last_among_equals(self) -> None:
        """Doubt decides ties only."""
        loads = {"a": Load(0, 1, 0), "b": Load(0, 1, 0), "c": Load(3, 1, 0)}
        self.assertEqual(
            order([candidate("c"), candidate("b"), candidate("a", doubtful=True)], view(loads)), list("bac")
        )

    def test_speed_among_equals(self) -> None:
        """The faster first; one that is not learnt yet before all, but after none of less load (RT-59)."""
        loads = {each: Load(0, 1, 0) for each in "abc"} | {"d": Load(0, 0, 0)}
        self.assertEqual(order(self.candidates, view(loads, {"a": 10.0, "b": 58.0, "d": 1.0})), list("dcba"))

    def test_unlisted_last(self) -> None:
        """Nodes that the snapshot lacks come after the listed ones, by id and nothing else."""
        loads = {
            "a": Load(0, 1, 9, listed=False),
            "b": Load(0, 1, 0, listed=False),
            "c": Load(50, 3, 0),
            "d": Load(60, 3, 0),
        }
        self.assertEqual(order(self.candidates, view(loads)), ["c", "d", "a", "b"])

    def test_score_and_terms(self) -> None:
        """Each says what it is made of, in a fixed order."""
        ranked = PressurePolicy().rank(request("m"), [candidate("a")], view({"a": Load(2, 1, 3)}))
        self.assertEqual(ranked, (Ranked(candidate("a"), 6, (("pending", 2), ("pressure", 1), ("reservations", 3))),))


@implementer(IRoutingPolicy)
class Custom:
    """A policy that answers what it is told to."""

    name = "custom"

    def __init__(self, answer: Callable[[Sequence[Candidate]], Sequence[Ranked]]) -> None:
        self.answer = answer

    def rank(self, request: Request, candidates: Sequence[Candidate], view: View) -> Sequence[Ranked]:
        return self.answer(candidates)


class ViewTests(SynchronousTestCase):
    def test_what_a_policy_sees_cannot_be_changed(self) -> None:
        """The view, its loads and the ranking are values (RT-56)."""
        for value, name in ((view({}), "now"), (Load(0, 1, 0), "pending"), (Ranked(candidate("a"), 1), "score")):
            with self.assertRaises(AttributeError):
                setattr(value, name, 2)


class GuardTests(SynchronousTestCase):
    """RT-58."""

    candidates = tuple(map(candidate, "ab"))
    loads = {"a": Load(1, 1, 0), "b": Load(0, 1, 0)}

    def guarded(self, answer: Callable[[Sequence[Candidate]], Sequence[Ranked]]) -> tuple[list[str], str, str | None]:
        made = ranked_or_default(Custom(answer), PressurePolicy(), request("m"), self.candidates, view(self.loads))
        return [each.candidate.node for each in made.ranked], made.policy, made.flaw

    def test_a_good_one_is_left_alone(self) -> None:
        """A permutation is taken as it is."""
        self.assertEqual(
            self.guarded(lambda given: [Ranked(each, 1.5) for each in given]), (["a", "b"], "custom", None)
        )

    def test_no_permutation(self) -> None:
        """One dropped, doubled or invented: the default's order."""
        for answer in (
            lambda given: [Ranked(given[0], 0)],
            lambda given: [Ranked(given[0], 0)] * 2,
            lambda given: [Ranked(each, 0) for each in (*given, given[0])],
            lambda given: [Ranked(each, 0) for each in (given[0], candidate("c"))],
            lambda given: [],
        ):
            self.assertEqual(self.guarded(answer), (["b", "a"], "pressure", "no permutation of the candidates"))

    def test_one_that_raises(self) -> None:
        """Its own words stay out of what is told."""

        def broken(given: Sequence[Candidate]) -> Sequence[Ranked]:
            raise RuntimeError("secret")

        self.assertEqual(self.guarded(broken), (["b", "a"], "pressure", "RuntimeError: it failed"))

    def test_what_is_no_ranking(self) -> None:
        """Neither things that are not ranked, nor a score that is no number, get through."""
        for answer, kind in (
            (lambda given: list(given), "AttributeError"),
            (lambda given: None, "TypeError"),
            (lambda given: [Ranked(each, math.nan) for each in given], "ValueError"),
        ):
            ranked, policy, flaw = self.guarded(answer)  # type: ignore[arg-type]
            self.assertEqual((ranked, policy), (["b", "a"], "pressure"))
            self.assertEqual(flaw, f"{kind}: it failed")
