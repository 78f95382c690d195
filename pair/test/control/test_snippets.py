"""Tests of pair.control.snippets."""

from __future__ import annotations

import shlex

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.control.snippets import curl_line, default_model
from pair.records.engines import EngineInventory, EngineState, EngineStatus, LoadedInstance, Model, NodeInventory
from pair.routing.candidates import NodeFacts
from pair.routing.dialects import Dialect, routes_of

SPOKEN = routes_of("lmstudio", "/v1/chat/completions")


def engine(id: str, *models: Model, state: EngineState = "running") -> EngineInventory:
    kind = "openai-compatible" if id == "vllm" else id
    return EngineInventory(EngineStatus(id, kind, id, state, routable=state == "running"), models)


def node(*engines: EngineInventory, online: bool = True, local: bool = True, foreign: str = "") -> NodeFacts:
    """A node with engines, each of which serves chats at the LM Studio facade but ``foreign``."""
    dialects = {
        each.status.id: Dialect(each.status.kind, {} if each.status.id == foreign else {"lmstudio": SPOKEN})
        for each in engines
    }
    return NodeFacts(NodeInventory("n" if local else "m", engines), dialects, local=local, online=online)


def model(id: str, *, loaded: bool = False, capabilities: tuple[str, ...] = ("completion",)) -> Model:
    return Model(id, "e", "e", capabilities=capabilities, loaded=(LoadedInstance("0"),) if loaded else ())


class CurlTests(SynchronousTestCase):
    @given(st.text())
    def test_any_name(self, name: str) -> None:
        """Whatever a model is called, the shell gives curl one JSON body that names it (UI-75)."""
        words = shlex.split(curl_line("http://127.0.0.1:1234", name))
        self.assertEqual(words[:2], ["curl", "http://127.0.0.1:1234/v1/chat/completions"])
        self.assertEqual(msgspec.json.decode(words[-1])["model"], name)


class DefaultModelTests(SynchronousTestCase):
    def chosen(self, *engines: EngineInventory) -> str | None:
        return default_model([node(*engines)], "lmstudio")

    def test_none(self) -> None:
        """No engine, none that runs, or none that writes: there is no model to try."""
        self.assertIsNone(self.chosen())
        self.assertIsNone(self.chosen(engine("lmstudio", model("a"), state="stopped")))
        self.assertIsNone(self.chosen(engine("lmstudio", model("a", capabilities=("embedding",)))))

    def test_one_in_memory(self) -> None:
        """One in memory answers at once, on whatever engine."""
        home, other = engine("lmstudio", model("a")), engine("ollama", model("b", loaded=True))
        self.assertEqual(self.chosen(home, other), "b")

    def test_home_engine(self) -> None:
        """Else one of the facade's own engine, by name."""
        home, other = engine("lmstudio", model("c"), model("b", capabilities=("chat",))), engine("ollama", model("a"))
        self.assertEqual(self.chosen(other, home), "b")

    def test_where_it_is_asked(self) -> None:
        """The model of an engine that has no chat at that facade is none, though it be in memory."""
        ollama, other = engine("ollama", model("a", loaded=True)), engine("llamacpp", model("b"))
        self.assertIsNone(default_model([node(ollama, foreign="ollama")], "lmstudio"))
        self.assertEqual(default_model([node(ollama, other, foreign="ollama")], "lmstudio"), "b")

    def test_of_another_node(self) -> None:
        """A node without a model names one of a member that is there; its own come first."""
        own, theirs = engine("lmstudio", model("b")), engine("lmstudio", model("a", loaded=True))
        self.assertEqual(default_model([node(own), node(theirs, local=False)], "lmstudio"), "b")
        self.assertEqual(default_model([node(), node(theirs, local=False)], "lmstudio"), "a")
        self.assertIsNone(default_model([node(theirs, local=False, online=False)], "lmstudio"))

    def test_not_known_yet(self) -> None:
        """What a model can is asked after the list: one that may make no text comes last, or waits for that."""
        listed, known = model("a", capabilities=()), model("b")
        self.assertEqual(self.chosen(engine("ollama", listed, known)), "b")
        self.assertEqual(self.chosen(engine("ollama", listed)), "a")
        for id, chosen in (("ollama", None), ("vllm", "a")):
            self.assertEqual(default_model([node(engine(id, listed))], "lmstudio", certain=True), chosen)
