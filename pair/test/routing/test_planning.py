"""Tests of plans: the order of the eligible, and the answer where there is none."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from pair.interfaces import IRoutingPolicy
from pair.routing.breaker import Breaker
from pair.routing.candidates import Rejected
from pair.routing.planning import Plan, plan
from pair.routing.policies import Ranked, View
from pair.routing.policies.pressure import PressurePolicy
from pair.routing.reservations import ReservationBook
from pair.routing.scheduler import Rank, Snapshot
from pair.test.routing.facts import catalogue, engine, node, request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.routing.candidates import Candidate, Catalogue, NodeFacts, Request

LABEL = frozenset({"x"})


def book(**pending: int) -> ReservationBook:
    """A book whose snapshot lists these nodes without pressure."""
    made = ReservationBook()
    made.apply(Snapshot(1, tuple(Rank(each, number, 0) for each, number in pending.items()), {}))
    return made


def make(asked: Request, *nodes: NodeFacts, **pending: int) -> Plan:
    return plan(asked, catalogue(*nodes), book(**pending), Breaker(), PressurePolicy(), 0.0)


def places(made: Plan) -> list[str]:
    return [f"{each.candidate.node}/{each.candidate.engine}" for each in made.ranked]


@implementer(IRoutingPolicy)
class Backwards:
    """Orders by node id from the end, and the engines of a node by id from the end."""

    name = "backwards"

    def rank(self, request: Request, candidates: Sequence[Candidate], view: View) -> Sequence[Ranked]:
        return [
            Ranked(each, 0) for each in sorted(candidates, key=lambda each: (each.node, each.engine), reverse=True)
        ]


def calls(known: Catalogue) -> int:
    """How many calls a plan for ``m`` makes."""
    made = 0
    made_by = book()

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    gc.disable()  # else what others have hung on the collector is counted
    sys.setprofile(count)
    try:
        plan(request("m"), known, made_by, Breaker(), PressurePolicy(), 0.0)
    finally:
        sys.setprofile(None)
        gc.enable()
    return made


class CostTests(SynchronousTestCase):
    def test_of_a_plan(self) -> None:
        """It depends on the owners of the model, not on how many other nodes and models there are (RT-5)."""
        owners = [node(each, engine("ollama", "m")) for each in "abc"]
        others = [node(f"n{i}", engine("ollama", *(f"x{i}-{j}" for j in range(10)))) for i in range(50)]
        alone = calls(catalogue(*owners))
        self.assertEqual(calls(catalogue(*owners, *others)), alone)
        self.assertGreater(calls(catalogue(*owners, node("d", engine("ollama", "m")))), alone)


class OrderTests(SynchronousTestCase):
    """RT-24 and RT-26."""

    def test_the_eligible_by_the_policy(self) -> None:
        """Owners in the policy's order; those that may not serve are told apart, with the reason."""
        made = make(
            request("m"),
            node("a", engine("llamacpp", loaded=("m",))),
            node("b", engine("llamacpp", loaded=("m",))),
            node("c", engine("llamacpp", loaded=("m",)), drained=True),
            node("d", engine("llamacpp", loaded=("other",))),
            a=2,
            b=1,
        )
        self.assertEqual(places(made), ["b/llamacpp", "a/llamacpp"])
        self.assertEqual(made.rejected, (Rejected("c", "llamacpp", "drained"),))
        self.assertEqual((made.policy, made.flaw, made.answer, made.instead), ("pressure", None, None, None))

    def test_engines_of_a_node_stand_together(self) -> None:
        """Whatever the policy says of them, in the order of EN-82; the node stands where its best one did."""
        nodes = [
            node("a", engine("llamacpp", "m", loaded=("m",), name="x"), engine("ollama", "m")),
            node("b", engine("ollama", "m"), engine("llamacpp", loaded=("m",), name="y")),
        ]
        made = plan(request("m"), catalogue(*nodes), book(a=0, b=0), Breaker(), Backwards(), 0.0)
        self.assertEqual(places(made), ["b/y", "b/ollama", "a/x", "a/ollama"])
        self.assertEqual(made.policy, "backwards")

    def test_less_those_tried(self) -> None:
        """The plan made anew after a failure has the others, and an empty one leaves the answer to the attempts."""
        nodes = [node(each, engine("llamacpp", loaded=("m",))) for each in "ab"]
        tried = frozenset({("a", "llamacpp")})
        self.assertEqual(places(make(request("m", tried=tried), *nodes, a=0, b=0)), ["b/llamacpp"])
        made = make(request("m", tried=tried | {("b", "llamacpp")}), *nodes, a=0, b=0)
        self.assertEqual((made.ranked, made.answer), ((), None))

    def test_unload_goes_to_this_node_first(self) -> None:
        """Only where the model is loaded, and here before elsewhere (RT-20, PX-36)."""
        nodes = [
            node("a", engine("ollama", loaded=("m",))),
            node("b", engine("ollama", loaded=("m",)), local=True),
            node("c", engine("ollama", "m")),
        ]
        asked = request("m", "/api/generate", intent="unload")
        self.assertEqual(places(make(asked, *nodes, a=0, b=5, c=0)), ["b/ollama", "a/ollama"])
        self.assertEqual(make(asked, nodes[2]).answer, "model_not_loaded")

    def test_without_a_model(self) -> None:
        """All engines that serve the route (RT-19)."""
        nodes = [node("a", engine("ollama")), node("b", engine("llamacpp")), node("c", engine("lmstudio"))]
        self.assertEqual(places(make(request(), *nodes, a=1, b=0)), ["b/llamacpp", "a/ollama"])
        self.assertEqual(places(make(request(path="/api/chat"), *nodes, a=1, b=0)), ["a/ollama"])

    def test_every_work_has_its_gate(self) -> None:
        """Each inference path goes to the owners of the model that serve it, and to no one else (M13)."""
        nodes = [node("a", engine("ollama", "m")), node("b", engine("llamacpp", "m", loaded=("m",)))]
        for path, wanted in [
            ("/api/chat", ["a/ollama"]),
            ("/api/generate", ["a/ollama"]),
            ("/api/embed", ["a/ollama"]),
            ("/api/embeddings", ["a/ollama"]),
            ("/v1/embeddings", ["a/ollama", "b/llamacpp"]),
            ("/v1/completions", ["a/ollama", "b/llamacpp"]),
            ("/v1/responses", ["a/ollama"]),
        ]:
            self.assertEqual(places(make(request("m", path), *nodes, a=0, b=0)), wanted, path)
            self.assertEqual(make(request("n", path), *nodes, a=0, b=0).ranked, (), path)

    def test_changes_nothing(self) -> None:
        """The same plan twice; taking a place is a call of its own (RT-4)."""
        known, loads = catalogue(node("a", engine("ollama", "m"))), book(a=0)
        first = plan(request("m"), known, loads, Breaker(), PressurePolicy(), 0.0)
        self.assertEqual(plan(request("m"), known, loads, Breaker(), PressurePolicy(), 0.0), first)
        self.assertEqual(len(loads), 0)

    def test_a_flawed_policy(self) -> None:
        """The default stands in for it, and the plan says so (RT-58)."""

        @implementer(IRoutingPolicy)
        class Nothing:
            name = "nothing"

            def rank(self, request: Request, candidates: Sequence[Candidate], view: View) -> Sequence[Ranked]:
                return ()

        made = plan(request("m"), catalogue(node("a", engine("ollama", "m"))), book(a=0), Breaker(), Nothing(), 0.0)
        self.assertEqual((places(made), made.policy), (["a/ollama"], "pressure"))
        self.assertEqual(made.flaw, "no permutation of the candidates")


class AnswerTests(SynchronousTestCase):
    """What is told where no engine may serve (RT-21, M07, M08)."""

    def answer(self, asked: Request, *nodes: NodeFacts) -> str | None:
        made = make(asked, *nodes)
        self.assertEqual(made.ranked, ())
        return made.answer

    def test_each(self) -> None:
        """One owner with one thing in its way."""
        running, on_disk = engine("llamacpp", loaded=("m",)), engine("llamacpp", "m")
        stopped = engine("llamacpp", loaded=("m",), routable=False)
        for facts, asked, wanted in [
            (node("a", running), request("m", "/api/chat"), "route_unsupported"),
            (node("a", running, drained=True), request("m"), "owners_excluded"),
            (node("a", running), request("m", require=LABEL), "owners_excluded"),
            (node("a", running, drained=True), request("m", require=LABEL), "owners_excluded"),
            (node("a", on_disk), request("m"), "model_not_loaded"),
            (node("a", stopped), request("m"), "engine_stopped"),
            (node("a", running, online=False), request("m"), "owners_offline"),
            (node("a", running, trusted=False), request("m"), "owners_offline"),
            (node("a", running, compatible=False), request("m"), "owners_offline"),
            (node("a", running), request("other"), "model_unknown"),
            (node("a", engine("llamacpp")), request("m"), "model_unknown"),
        ]:
            self.assertEqual(self.answer(asked, facts), wanted)

    def test_no_node_at_all(self) -> None:
        """A model that nobody has is unknown; without a model there is no engine."""
        self.assertEqual(self.answer(request("m")), "model_unknown")
        self.assertEqual(self.answer(request()), "no_engine")

    def test_precedence(self) -> None:
        """Of several owners the one that is nearest to serving gives the answer."""
        nodes = {
            "route_unsupported": node("a", engine("llamacpp", loaded=("m",))),
            "owners_excluded": node("b", engine("ollama", "m"), drained=True),
            "model_not_loaded": node("c", engine("ollama", "m"), loaded_only=True),
            "engine_stopped": node("d", engine("ollama", "m", routable=False)),
            "owners_offline": node("e", engine("ollama", "m"), online=False),
        }
        asked = request("m", "/api/chat")
        order = list(nodes)
        for first, wanted in enumerate(order):
            self.assertEqual(self.answer(asked, *(nodes[each] for each in order[first:])), wanted)

    def test_two_things_in_the_way(self) -> None:
        """A node that is away counts as away, an engine as stopped if a start helps; what is known is not unknown."""
        stopped = engine("llamacpp", "m", routable=False)
        for facts, asked, wanted in [
            (node("a", stopped, online=False), request("m"), "owners_offline"),
            (node("a", stopped, trusted=False), request("m"), "owners_offline"),
            (node("a", stopped, drained=True), request("m", "/api/chat"), "owners_excluded"),
            (node("a", stopped), request("m", "/api/chat"), "route_unsupported"),
            (node("a", engine("llamacpp", "m"), drained=True), request("m"), "owners_excluded"),
            (node("a", engine("llamacpp", "m")), request("m", require=LABEL), "owners_excluded"),
            (node("a", engine("llamacpp", "m")), request("m", "/api/chat"), "route_unsupported"),
        ]:
            self.assertEqual(self.answer(asked, facts), wanted)

    def test_without_a_model(self) -> None:
        """The engines of the facade are the owners; one of the other facade is none."""
        self.assertEqual(self.answer(request(path="/api/chat"), node("a", engine("llamacpp"))), "route_unsupported")
        self.assertEqual(self.answer(request(), node("a", engine("llamacpp"), drained=True)), "owners_excluded")
        self.assertEqual(self.answer(request(), node("a", engine("llamacpp", routable=False))), "engine_stopped")
        self.assertEqual(self.answer(request(), node("a", engine("lmstudio", "m"))), "no_engine")

    def test_what_does_the_same_work(self) -> None:
        """With ``route_unsupported`` comes the path that an owner has, not one of an owner that is away (PX-24)."""
        llamacpp, lacking = engine("llamacpp", loaded=("m",)), request("m", "/api/chat")
        self.assertEqual(make(lacking, node("a", llamacpp)).instead, "/v1/chat/completions")
        self.assertEqual(make(request("m", "/api/show"), node("a", llamacpp)).instead, "/v1/models/{id}")
        self.assertIsNone(make(request("m", "/v1/responses"), node("a", llamacpp)).instead)
        self.assertIsNone(make(lacking, node("a", llamacpp, online=False)).instead)
        known = catalogue(node("a", llamacpp), node("b", llamacpp, online=False))
        known.note_route_missing("a", "llamacpp", request(path="/v1/chat/completions").route, 0.0)
        self.assertEqual(plan(lacking, known, book(), Breaker(), PressurePolicy(), 0.0).instead, "/v1/completions")
