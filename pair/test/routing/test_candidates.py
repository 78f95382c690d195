"""Tests of the catalogue: who owns what, and what may still stand in the way."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from pair.records.engines import NodeInventory
from pair.routing.breaker import Breaker
from pair.routing.candidates import Candidate, Catalogue, NodeFacts
from pair.routing.dialects import Dialect, match, routes_of
from pair.test.routing.facts import OLLAMA, catalogue, engine, node, request


def owners(known: Catalogue, model: str, facade: str = "ollama") -> list[tuple[str, str, str]]:
    """Node, engine and listed name of each owner."""
    found = (each.candidate for each in known.owners(facade, model))
    return [(each.node, each.engine, each.model) for each in found]


class OwnerTests(SynchronousTestCase):
    """Who owns a name (RT-11 to RT-17)."""

    def test_listed_and_bare(self) -> None:
        """A listed name and its bare form find the same owners; a bare name does not find other tags (M01)."""
        known = catalogue(
            node("a", engine("ollama", "llama3:latest", "qwen3:8b-q4_K_M")), node("b", engine("ollama", "llama3:8b"))
        )
        for name in ("llama3:latest", "llama3", " LLama3", "library/llama3"):
            self.assertEqual(owners(known, name), [("a", "ollama", "llama3:latest")], name)
        self.assertEqual(owners(known, "llama3:8b"), [("b", "ollama", "llama3:8b")])
        self.assertEqual(owners(known, "QWEN3:8b-Q4_k_m"), [("a", "ollama", "qwen3:8b-q4_K_M")])
        self.assertEqual(owners(known, "qwen3"), [])

    @given(st.lists(st.text(alphabet="aB:/ 8", min_size=1, max_size=6), min_size=1, max_size=8))
    def test_every_listed_name_has_its_owner(self, names: list[str]) -> None:
        """What an engine lists can be asked for as listed (M01)."""
        for kind in ("ollama", "llamacpp"):
            known = catalogue(node("a", engine(kind, *names)))
            for name in names:
                self.assertTrue(name.strip() == "" or owners(known, name), repr(name))

    def test_a_kind_that_is_new(self) -> None:
        """It is an owner on the facades that its dialect names, and on no other (RT-9)."""
        novel = Dialect("novel", {"lmstudio": routes_of("lmstudio", "/v1/chat/completions")})
        known = Catalogue()
        known.put(NodeFacts(NodeInventory("a", (engine("novel", loaded=("m",)),)), {"novel": novel}))
        self.assertEqual(owners(known, "m", "lmstudio"), [("a", "novel", "m")])
        self.assertEqual(owners(known, "m", "ollama"), [])

    def test_exact_names(self) -> None:
        """Case, space and tag of an OpenAI-speaking engine's names stand (M02)."""
        known = catalogue(node("a", engine("lmstudio", "Qwen/Qwen3-8B")))
        self.assertEqual(owners(known, "Qwen/Qwen3-8B", "lmstudio"), [("a", "lmstudio", "Qwen/Qwen3-8B")])
        for name in ("qwen/qwen3-8b", "Qwen/Qwen3-8B ", "Qwen/Qwen3-8B:latest"):
            self.assertEqual(owners(known, name, "lmstudio"), [])

    def test_two_namings_on_one_facade(self) -> None:
        """A name is looked up under both, and each engine is asked by the name it lists (RT-13)."""
        known = catalogue(
            node("b", engine("ollama", "Phi4:latest")),
            node("a", engine("llamacpp", "phi4")),
            node("c", engine("llamacpp", "PHI4")),
        )
        self.assertEqual(owners(known, "phi4"), [("a", "llamacpp", "phi4"), ("b", "ollama", "Phi4:latest")])
        self.assertEqual(owners(known, "phi4", "lmstudio"), [("a", "llamacpp", "phi4")])

    def test_loaded_instances_are_names(self) -> None:
        """``key:2`` finds the engine that has it, under the key that it lists (RT-14)."""
        known = catalogue(node("a", engine("lmstudio", loaded=("gemma=gemma:2",))))
        self.assertEqual(owners(known, "gemma:2", "lmstudio"), [("a", "lmstudio", "gemma")])
        self.assertEqual(owners(known, "gemma:3", "lmstudio"), [])

    def test_a_listed_name_goes_before_an_instance(self) -> None:
        """What an engine lists is itself, though a copy of another model bears that name."""
        known = catalogue(node("a", engine("lmstudio", "x", "y", loaded=("x=y",))))
        self.assertEqual(owners(known, "y", "lmstudio"), [("a", "lmstudio", "y")])

    def test_equal_weights_are_two_names(self) -> None:
        """A name goes only to those that list it, whatever the digest (M05)."""
        one = engine("ollama", "a:1")
        two = engine("ollama", "b:1")
        one, two = (replace(each, models=(replace(each.models[0], digest="d"),)) for each in (one, two))
        known = catalogue(node("1", one), node("2", two))
        self.assertEqual(owners(known, "a:1"), [("1", "ollama", "a:1")])

    def test_a_model_does_not_leak(self) -> None:
        """A model of one engine makes no other engine of the node an owner (RT-17)."""
        known = catalogue(node("a", engine("ollama", "m"), engine("llamacpp", "n")))
        self.assertEqual(owners(known, "m"), [("a", "ollama", "m")])

    def test_without_a_model(self) -> None:
        """All engines with a route on the facade (RT-19)."""
        known = catalogue(node("b", engine("ollama")), node("a", engine("lmstudio", "x"), engine("llamacpp")))
        self.assertEqual(owners(known, ""), [("a", "llamacpp", ""), ("b", "ollama", "")])

    def test_order_within_a_node(self) -> None:
        """Loaded, then health ``ok``, then owned, then id (EN-82)."""
        known = catalogue(
            node(
                "a",
                engine("llamacpp", "m", name="z1", ownership="owned"),
                engine("llamacpp", "m", name="z2"),
                engine("llamacpp", "m", name="y", ownership="owned", health="busy"),
                engine("llamacpp", loaded=("m",), name="zz", health="busy"),
                engine("llamacpp", "m", name="z0"),
            )
        )
        self.assertEqual([engine for _, engine, _ in owners(known, "m")], ["zz", "z1", "z0", "z2", "y"])

    def test_an_engine_without_a_dialect(self) -> None:
        """A kind that is not known here serves nothing."""
        facts = node("a", engine("ollama", "m"))
        self.assertEqual(owners(catalogue(replace(facts, dialects={})), "m"), [])


class CandidateTests(SynchronousTestCase):
    def candidate(self, facts: NodeFacts) -> Candidate:
        return catalogue(facts).owners("ollama", "m")[0].candidate

    def test_loaded(self) -> None:
        """True, false, or None where it is not known."""
        self.assertIs(self.candidate(node("a", engine("ollama", loaded=("m",)))).loaded, True)
        self.assertIs(self.candidate(node("a", engine("ollama", "m"))).loaded, False)
        self.assertIs(self.candidate(node("a", engine("ollama", "m", loaded_known=False))).loaded, None)

    def test_doubtful(self) -> None:
        """By presence of the node or health of the engine; a degraded one is doubtful everywhere (RT-55)."""
        self.assertFalse(self.candidate(node("a", engine("ollama", "m"))).doubtful)
        self.assertTrue(self.candidate(node("a", engine("ollama", "m"), suspect=True)).doubtful)
        self.assertTrue(self.candidate(node("a", engine("ollama", "m", health="degraded"))).doubtful)

    def test_ids(self) -> None:
        """A candidate and a node have ids (RT-3)."""
        for place in (("", "e"), ("n", "")):
            with self.assertRaises(ValueError):
                Candidate(*place, "kind")
        with self.assertRaises(ValueError):
            NodeFacts(NodeInventory(""), {})


class ChangeTests(SynchronousTestCase):
    """The catalogue follows what it is told."""

    def test_replaced_and_removed(self) -> None:
        """The last word on a node counts; a removed one is gone, and may come back (RT-34)."""
        known = catalogue(node("a", engine("ollama", "m", "n")), node("b", engine("ollama", "m")))
        known.put(node("a", engine("ollama", "n")))
        self.assertEqual(owners(known, "m"), [("b", "ollama", "m")])
        for _ in range(2):
            known.remove("b")
        self.assertEqual((owners(known, "m"), [each.id for each in known.nodes()]), ([], ["a"]))
        known.put(node("b", engine("ollama", "m")))
        self.assertEqual(owners(known, "m"), [("b", "ollama", "m")])

    def test_told_the_same(self) -> None:
        """Equal facts leave all as it is, down to the objects."""
        known = catalogue(node("a", engine("ollama", "m")))
        before = known.owners("ollama", "m")[0]
        known.put(node("a", engine("ollama", "m")))
        self.assertIs(known.owners("ollama", "m")[0], before)

    def test_nothing_is_left_behind(self) -> None:
        """After all nodes are removed the indices are empty."""
        known = catalogue(node("a", engine("ollama", "m"), engine("llamacpp", loaded=("m=m:2",))))
        known.remove("a")
        self.assertEqual((known.nodes(), owners(known, "m"), owners(known, "")), ([], [], []))
        self.assertEqual(vars(known)["_owners"], {})


class JustLoadedTests(SynchronousTestCase):
    """A model that has answered, where the list does not have it as loaded (RT-20)."""

    def setUp(self) -> None:
        self.known = catalogue(node("a", engine("ollama", "m", "n")), node("b", engine("ollama", "m")))
        self.candidate = self.known.owners("ollama", "m")[0].candidate
        self.known.note_loaded(self.candidate, 0.0)

    def loaded(self, model: str = "m") -> list[str]:
        return [each.node.id for each in self.known.owners("ollama", model) if each.answered]

    def test_for_ten_seconds(self) -> None:
        """That model of that engine counts as loaded until its list must tell."""
        self.assertEqual((self.loaded(), self.loaded("n")), (["a"], []))
        self.known.forget(9.9)
        self.assertEqual(self.loaded(), ["a"])
        self.known.forget(10.0)
        self.assertEqual(self.loaded(), [])

    def test_unloaded(self) -> None:
        """From then on the list decides, once more."""
        self.known.note_unloaded(self.candidate)
        self.known.note_unloaded(self.candidate)
        self.assertEqual(self.loaded(), [])

    def test_of_an_engine_that_is_gone(self) -> None:
        """An answer that comes later finds nobody."""
        self.known.remove("a")
        self.known.note_loaded(self.candidate, 1.0)
        self.known.note_unloaded(self.candidate)
        self.assertEqual(self.loaded(), [])


class MissingRouteTests(SynchronousTestCase):
    """An engine that answers that it has no such route (RT-10)."""

    def setUp(self) -> None:
        self.route = request(path="/v1/completions").route
        self.known = catalogue(node("a", engine("llamacpp", "m", version="1")), node("b", engine("llamacpp", "m")))
        self.known.note_route_missing("a", "llamacpp", self.route, 0.0)

    def lacking(self, facade: str = "ollama") -> list[str]:
        return [each.node.id for each in self.known.owners(facade, "m") if self.route.key not in each.routes]

    def test_that_engine_and_route(self) -> None:
        """It counts as without on both facades, other engines and routes are untouched, and more may be found."""
        self.assertEqual((self.lacking(), self.lacking("lmstudio")), (["a"], ["a"]))
        self.route = request(path="/v1/chat/completions").route
        self.assertEqual(self.lacking(), [])
        self.known.note_route_missing("a", "llamacpp", self.route, 0.0)
        self.assertEqual(self.lacking(), ["a"])
        self.route = request(path="/v1/completions").route
        self.assertEqual(self.lacking(), ["a"])

    def test_for_a_minute(self) -> None:
        """Then it is asked again, since a 404 may have been about something else (RT-10)."""
        self.known.forget(59.9)
        self.assertEqual(self.lacking(), ["a"])
        self.known.forget(60.0)
        self.assertEqual(self.lacking(), [])

    def test_not_where_it_was_served(self) -> None:
        """A route that answered before does not lack, until there is another version (RT-10)."""
        self.known.note_route_answers("b", "llamacpp", self.route)
        self.known.note_route_answers("x", "llamacpp", self.route)
        self.known.note_route_missing("b", "llamacpp", self.route, 0.0)
        self.assertEqual(self.lacking(), ["a"])
        self.known.put(node("b", engine("llamacpp", "m", version="2")))
        self.known.note_route_missing("b", "llamacpp", self.route, 0.0)
        self.assertEqual(self.lacking(), ["a", "b"])

    def test_until_the_version_changes(self) -> None:
        """Another inventory of the same version leaves it so; a new version tries again."""
        self.known.put(node("a", engine("llamacpp", "m", "n", version="1")))
        self.assertEqual(self.lacking(), ["a"])
        self.known.put(node("a", engine("llamacpp", "m", version="2")))
        self.assertEqual(self.lacking(), [])
        self.known.put(node("a", engine("llamacpp", "m", version="1")))
        self.assertEqual(self.lacking(), [])

    def test_until_the_engine_or_node_goes(self) -> None:
        """One that was away starts anew."""
        self.known.put(node("a"))
        self.known.put(node("a", engine("llamacpp", "m", version="1")))
        self.assertEqual(self.lacking(), [])
        self.known.note_route_missing("a", "llamacpp", self.route, 0.0)
        self.known.remove("a")
        self.known.put(node("a", engine("llamacpp", "m", version="1")))
        self.assertEqual(self.lacking(), [])

    def test_of_what_is_not_known(self) -> None:
        """News of a node or engine that is gone is ignored."""
        self.known.note_route_missing("x", "llamacpp", self.route, 0.0)
        self.known.note_route_missing("b", "x", self.route, 0.0)
        self.assertEqual(self.lacking(), ["a"])


class ObjectionTests(SynchronousTestCase):
    """Each check of RT-15 alone, and that they come in its order."""

    def objections(self, facts: NodeFacts, **asked: Any) -> list[str]:
        sent = request("m", **asked)
        owner = next(iter(catalogue(facts).owners("ollama", "m")))
        return list(owner.objections(sent, Breaker(), 0.0))

    def test_each_alone(self) -> None:
        """One thing in the way is one objection; M17: where only loaded models are offered, that one is not."""
        plain = engine("llamacpp", loaded=("m",))
        self.assertEqual(self.objections(node("a", plain)), [])
        cases: list[tuple[NodeFacts, dict[str, Any], str]] = [
            (node("a", plain, online=False), {}, "offline"),
            (node("a", plain, trusted=False), {}, "not_trusted"),
            (node("a", plain, compatible=False), {}, "incompatible"),
            (node("a", plain, drained=True), {}, "drained"),
            (node("a", plain), {"require": frozenset({"x"})}, "label_rule"),
            (node("a", plain, labels=("x",)), {"forbid": frozenset({"x"})}, "label_rule"),
            (node("a", plain), {"path": "/api/chat"}, "route_unsupported"),
            (node("a", engine("llamacpp", loaded=("m",), routable=False)), {}, "engine_stopped"),
            (node("a", engine("llamacpp", "m")), {}, "not_loaded"),
            (node("a", engine("llamacpp", "m", loaded_known=False)), {}, "not_loaded"),
            (node("a", engine("ollama", "m"), loaded_only=True), {}, "not_loaded"),
            (node("a", engine("ollama", "m")), {"intent": "unload"}, "not_loaded"),
            (node("a", plain), {"tried": frozenset({("a", "llamacpp")})}, "tried"),
        ]
        for facts, asked, wanted in cases:
            self.assertEqual(self.objections(facts, **asked), [wanted], wanted)

    def test_what_is_no_objection(self) -> None:
        """This node needs no trust of its own; labels present or absent as asked; on disk is enough for Ollama."""
        cases: list[tuple[NodeFacts, dict[str, Any]]] = [
            (node("a", engine("ollama", "m"), local=True, trusted=False), {}),
            (
                node("a", engine("ollama", "m"), labels=("x", "y")),
                {"require": frozenset({"x"}), "forbid": frozenset({"z"})},
            ),
            (node("a", engine("ollama", "m"), suspect=True), {}),
            (node("a", engine("ollama", "m")), {"intent": "load"}),
            (node("a", engine("ollama", loaded=("m",)), loaded_only=True), {"intent": "unload"}),
            (node("a", engine("ollama", "m")), {"tried": frozenset({("a", "other"), ("b", "ollama")})}),
        ]
        for facts, asked in cases:
            self.assertEqual(self.objections(facts, **asked), [])

    def test_all_in_order(self) -> None:
        """With everything in the way each is named, in the order of the page."""
        facts = node(
            "a",
            engine("llamacpp", "m", routable=False),
            drained=True,
            online=False,
            trusted=False,
            compatible=False,
        )
        self.assertEqual(
            self.objections(facts, path="/api/chat", require=frozenset({"x"}), tried=frozenset({("a", "llamacpp")})),
            [
                "offline",
                "not_trusted",
                "incompatible",
                "drained",
                "label_rule",
                "route_unsupported",
                "engine_stopped",
                "not_loaded",
                "tried",
            ],
        )

    def test_the_dialect_says_whether_disk_is_enough(self) -> None:
        """An engine that does not load just in time counts loaded models only (RT-8, RT-16)."""
        facts = node("a", engine("ollama", "m"))
        facts = replace(facts, dialects={"ollama": replace(OLLAMA, eligible="loaded")})
        self.assertEqual(self.objections(facts), ["not_loaded"])

    def test_a_tunnel_is_planned_for_nobody(self) -> None:
        """A route that no dialect declares is unsupported everywhere."""
        route = match("lmstudio", "GET", "/llm")
        assert route is not None
        owner = catalogue(node("a", engine("llamacpp", loaded=("m",)))).owners("lmstudio", "m")[0]
        objections = owner.objections(replace(request("m"), route=route), Breaker(), 0.0)
        self.assertEqual(list(objections), ["route_unsupported"])
