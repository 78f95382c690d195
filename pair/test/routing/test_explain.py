"""Tests of the account of a decision."""

from __future__ import annotations

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from pair.routing.breaker import Breaker
from pair.routing.candidates import Candidate
from pair.routing.explain import Penalty, explain, why
from pair.routing.planning import Plan
from pair.routing.policies import Ranked
from pair.routing.policies.pressure import PressurePolicy
from pair.routing.reservations import ReservationBook
from pair.routing.scheduler import Rank, Snapshot
from pair.test.routing.facts import catalogue, engine, node, request

TERMS = (("pending", 0), ("pressure", 1), ("reservations", 2))


class WhyTests(SynchronousTestCase):
    """The text of RT-66."""

    plan = Plan(tuple(Ranked(Candidate(each, "e", "k"), 3, TERMS) for each in "ab"), (), "pressure")

    def test_text(self) -> None:
        """Policy, load, terms, rank."""
        self.assertEqual(why(self.plan, 2), "policy=pressure; load=3; pending=0; pressure=1; reservations=2; rank=2/2")

    def test_selection(self) -> None:
        """The engines of the selected node say so, and no other (RT-27)."""
        plan = msgspec.structs.replace(self.plan, head="selection")
        self.assertTrue(why(plan, 1, [("connect", None)]).endswith("; rank=1/2; head=selection; after=connect"))
        self.assertTrue(why(plan, 2).endswith("; rank=2/2"))
        passed_over = msgspec.structs.replace(self.plan, head="selection_ineligible")
        self.assertEqual(why(passed_over, 1), why(self.plan, 1))

    def test_after(self) -> None:
        """Earlier attempts in the words of JB-36, ``status`` with its number."""
        self.assertTrue(why(self.plan, 1, [("connect", None), ("status", 404)]).endswith("; after=connect,status404"))

    def test_at_most_two_hundred(self) -> None:
        """Whole words only, the oldest kept."""
        text = why(self.plan, 1, [("status", 500 + each) for each in range(40)])
        self.assertTrue(190 < len(text) <= 200)
        self.assertIn("after=status500,status501,", text)
        self.assertRegex(text, "status5[0-9]{2}$")

    def test_ascii(self) -> None:
        """The names of a plugin's policy and terms are made fit for a header, fractions are short."""
        plan = Plan((Ranked(Candidate("a", "e", "k"), 1 / 3, (("zeit·s", 2.5),)),), (), "schnell–")
        self.assertEqual(why(plan, 1), "policy=schnell?; load=0.333333; zeit?s=2.5; rank=1/1")
        long = Plan((Ranked(Candidate("a", "e", "k"), 1, (("x" * 300, 1),)),), (), "p")
        self.assertEqual(len(why(long, 1, [("connect", None)])), 200)


class ExplainTests(SynchronousTestCase):
    """The object of RT-67."""

    def setUp(self) -> None:
        self.book = ReservationBook()
        self.book.apply(Snapshot(412, (Rank("a", 0, 1), Rank("b", 2, 0)), {}))
        self.known = catalogue(
            node("b", engine("llamacpp", loaded=("m",))),
            node("a", engine("llamacpp", loaded=("m",)), engine("ollama", "n"), engine("lmstudio", "m")),
            node("c", engine("llamacpp", loaded=("m",)), online=False),
            node("d", engine("llamacpp", "m"), engine("ollama", "m", routable=False)),
            node("e"),
            node("f", online=False),
        )

    def test_every_known_node(self) -> None:
        """The eligible by rank, then each other engine by node and id with the first check that it fails."""
        made = explain(request("m"), self.known, self.book, Breaker(), PressurePolicy(), 0.0, 0)
        self.assertEqual((made.policy, made.generation, made.head, made.would_answer), ("pressure", 412, None, None))
        self.assertEqual(
            [(each.node, each.engine, each.rank, each.excluded_by) for each in made.candidates],
            [
                ("a", "llamacpp", 1, msgspec.UNSET),
                ("b", "llamacpp", 2, msgspec.UNSET),
                ("a", "lmstudio", None, "route_unsupported"),
                ("a", "ollama", None, "model_not_advertised"),
                ("c", "llamacpp", None, "offline"),
                ("d", "llamacpp", None, "not_loaded"),
                ("d", "ollama", None, "engine_stopped"),
                ("e", None, None, "route_unsupported"),
                ("f", None, None, "offline"),
            ],
        )

    def test_json(self) -> None:
        """As the page shows it; what does not apply is left out."""
        made = explain(request("m"), self.known, self.book, Breaker(), PressurePolicy(), 0.0, 0)
        shown = msgspec.json.decode(msgspec.json.encode(made))
        self.assertEqual(list(shown), ["policy", "generation", "head", "candidates", "wouldAnswer"])
        self.assertEqual(
            shown["candidates"][0],
            {
                "node": "a",
                "engine": "llamacpp",
                "rank": 1,
                "eligible": True,
                "score": 1,
                "terms": {"pending": 0, "pressure": 1, "reservations": 0},
                "hold": None,
            },
        )
        self.assertEqual(
            shown["candidates"][4],
            {"node": "c", "engine": "llamacpp", "rank": None, "eligible": False, "excludedBy": "offline"},
        )

    def test_what_would_be_answered(self) -> None:
        """The code of RT-21 where nothing may serve."""
        made = explain(request("nobody"), self.known, self.book, Breaker(), PressurePolicy(), 0.0, 0)
        self.assertEqual(made.would_answer, "model_unknown")
        self.assertFalse(any(each.eligible for each in made.candidates))

    def test_without_a_model(self) -> None:
        """Every engine of the facade takes part."""
        made = explain(request(), self.known, self.book, Breaker(), PressurePolicy(), 0.0, 0)
        self.assertEqual(
            [f"{each.node}/{each.engine}" for each in made.candidates if each.eligible],
            ["a/llamacpp", "a/ollama", "b/llamacpp", "d/llamacpp"],
        )

    def test_hold(self) -> None:
        """A hold has its kind, its end by the wall clock, and its count (RT-54); it stands last of the eligible."""
        breaker = Breaker()
        breaker.busy(breaker.dispatched("j", Candidate("a", "llamacpp", "llamacpp", "m"), 90.0), 20.0, 90.0)
        breaker.stale("b", "llamacpp", "m", 0, 97.0)
        made = explain(request("m"), self.known, self.book, breaker, PressurePolicy(), 100.0, 1_700_000_000_000)
        (first,) = (each for each in made.candidates if each.eligible)
        self.assertEqual((first.node, first.hold), ("a", Penalty("busy", 1_700_000_010_000, 1)))
        self.assertEqual(made.candidates[3].excluded_by, "model_stale")

    def test_selection(self) -> None:
        """RT-27: what became of a manual selection is said."""
        for selected, first, head in (("b", "b", "selection"), ("c", "a", "selection_ineligible")):
            args = (self.known, self.book, Breaker(), PressurePolicy(), 0.0, 0)
            made = explain(request("m"), *args, selected=selected)
            self.assertEqual((made.candidates[0].node, made.head), (first, head))

    def test_reserves_nothing(self) -> None:
        """It only looks (RT-67)."""
        explain(request("m"), self.known, self.book, Breaker(), PressurePolicy(), 0.0, 0)
        self.assertEqual(len(self.book), 0)
