"""Tests of pair.control.snippets."""

from __future__ import annotations

import shlex

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.control.snippets import curl_line, default_model
from pair.records.engines import EngineInventory, EngineState, EngineStatus, LoadedInstance, Model, NodeInventory


def engine(id: str, *models: Model, state: EngineState = "running") -> EngineInventory:
    return EngineInventory(EngineStatus(id, id, id, state, routable=state == "running"), models)


def model(id: str, *, loaded: bool = False, capabilities: tuple[str, ...] = ()) -> Model:
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
        return default_model(NodeInventory("n", engines), "lmstudio")

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
