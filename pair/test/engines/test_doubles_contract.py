"""What the doubles share with the real engines: the contract of ``/v1``, and the stored shapes (EN-110)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pair.engines.facts import Answer
from pair.engines.kinds.lmstudio import LMStudio as LMStudioKind
from pair.engines.kinds.ollama import Ollama as OllamaKind
from pair.test.doubles import lmstudio_shapes as lm
from pair.test.doubles.case import CHAT, DoubleCase
from pair.test.doubles.contract import SAY, CompatibleContract
from pair.test.doubles.lmstudio import LMStudio
from pair.test.doubles.ollama import Ollama
from pair.test.doubles.shelf import MINILM, SMOLLM
from pair.test.doubles.telling import Pace
from pair.test.engines.samples import LMSTUDIO, OLLAMA, sample

if TYPE_CHECKING:
    from pair.interfaces import IEngineKind


class OllamaCompatibleTests(DoubleCase, CompatibleContract):
    """The shared part, of Ollama's double."""

    model = SMOLLM.name

    def setUp(self) -> None:
        super().setUp()
        self.serve(Ollama(self.clock, pace=Pace(rate=100, prefill=1000, load=0.5)))


class LMStudioCompatibleTests(DoubleCase, CompatibleContract):
    """The shared part, of LM Studio's double."""

    model = lm.OSS.name

    def setUp(self) -> None:
        super().setUp()
        self.serve(LMStudio(self.clock, pace=Pace(rate=100, prefill=1000, load=0.5)))


class SampleTests(DoubleCase):
    """Every answer is of the shape that is stored, and the kinds read it as what it is."""

    def kind_answers(self, kind: IEngineKind) -> dict[str, Answer]:
        """What the double says to the questions of a kind."""
        answers = {}
        for purpose, request in kind.requests.items():
            got = self.ask(request.method, request.path, request.body or b"")
            answers[purpose] = Answer(got.status, got.fields, got.body)
        return answers

    def test_ollama(self) -> None:
        """Every answer is of the shape that is stored (EN-110)."""
        self.serve(Ollama(self.clock))
        name = SMOLLM.name
        self.assert_sample(self.ask("GET", "/api/version"), OLLAMA, "version")
        self.assert_sample(self.ask("GET", "/api/tags"), OLLAMA, "tags")
        self.assert_sample(self.post("/api/chat", {**CHAT, "stream": False}), OLLAMA, "chat")
        self.assert_sample(self.ask("GET", "/api/ps"), OLLAMA, "ps")
        self.assert_sample(self.post("/api/chat", {"model": name}), OLLAMA, "chat_load")
        asking = {"model": name, "prompt": "The sky is"}
        self.assert_sample(self.post("/api/generate", {**asking, "stream": False}), OLLAMA, "generate")
        self.assert_sample(self.post("/api/generate", {"model": name}), OLLAMA, "generate_load")
        self.assert_sample(self.post("/api/generate", {"model": name, "keep_alive": 0}), OLLAMA, "generate_unload")
        self.assert_sample(self.post("/api/embed", {"model": MINILM.name, "input": ["a", "b"]}), OLLAMA, "embed")
        self.assert_sample(self.post("/api/embeddings", {"model": MINILM.name, "prompt": "a"}), OLLAMA, "embeddings")
        self.assert_sample(self.post("/api/show", {"model": name}), OLLAMA, "show")
        self.assert_sample(self.post("/api/chat", {**CHAT, "model": "nope"}), OLLAMA, "unknown_model")
        unknown = self.post("/v1/chat/completions", {**CHAT, "model": "nope"})
        self.assert_sample(unknown, OLLAMA, "unknown_model_v1")
        for path, first in (("/api/chat", "chat_line"), ("/api/generate", "generate_line")):
            got = self.post(path, {**CHAT, **asking})
            self.assertEqual(got.fields["content-type"], "application/x-ndjson")
            self.assert_sample(got.lines[0], OLLAMA, first)
        self.assert_sample(self.post("/api/chat", CHAT).lines[-1], OLLAMA, "chat_last_line")

    def test_ollama_read_by_its_kind(self) -> None:
        """What PAIR makes of it is what it has."""
        double = self.serve(Ollama(self.clock))
        self.post("/api/generate", {"model": SMOLLM.name})
        kind = OllamaKind()
        answers = self.kind_answers(kind)
        identity, listing = kind.identify(answers), kind.models("ollama", answers)
        assert identity is not None
        assert listing is not None
        self.assertEqual(identity.version, double.version)
        self.assertEqual(sorted(each.id for each in listing.models), sorted(double.disk.models))
        (model,) = [each for each in listing.models if each.loaded]
        self.assertEqual((model.id, model.digest), (SMOLLM.name, f"sha256:{SMOLLM.digest}"))
        request = kind.describe(model)
        assert request is not None
        told = self.ask(request.method, request.path, request.body or b"")
        details = kind.details(Answer(told.status, told.fields, told.body))
        self.assertEqual((details.capabilities, details.context_max), (SMOLLM.can, SMOLLM.context))

    def test_lmstudio(self) -> None:
        """Every answer is of the shape that is stored (EN-110)."""
        self.serve(LMStudio(self.clock))
        loading = self.post("/api/v1/models/load", {"model": lm.OSS.name, "echo_load_config": True})
        self.assert_sample(loading, LMSTUDIO, "load")
        self.assert_sample(self.ask("GET", "/lmstudio-greeting"), LMSTUDIO, "greeting")
        models = self.ask("GET", "/api/v1/models").json["models"]
        stored = msgspec.json.decode(sample(LMSTUDIO, "list").body)["models"]
        by_key = {each["key"]: each for each in models}
        self.assert_shape(by_key[lm.OSS.name] | {"loaded_instances": []}, stored[1])
        self.assert_shape(by_key[lm.OSS.name]["loaded_instances"], stored[0]["loaded_instances"])
        self.assert_shape(by_key[lm.NOMIC.name], stored[2])
        older = self.ask("GET", "/api/v0/models").json
        self.assert_shape({**older, "data": older["data"][1:]}, _older_list(2))
        self.assert_sample(self.ask("GET", f"/api/v0/models/{lm.SMOLLM.name}"), LMSTUDIO, "older_model")
        self.assert_sample(self.ask("GET", "/v1/models"), LMSTUDIO, "served")
        chat = {"model": lm.OSS.name, "messages": SAY}
        self.assert_shape(
            _without_logprobs(sample(LMSTUDIO, "chat_v0").body), self.post("/api/v0/chat/completions", chat).json
        )
        self.assert_sample(self.post("/api/v1/chat", {"model": lm.OSS.name, "input": "hi"}), LMSTUDIO, "chat_v1")
        asking = {"model": lm.NOMIC.name, "input": "hi"}
        self.assert_sample(self.post("/api/v0/embeddings", asking), LMSTUDIO, "embeddings_v0")
        self.assert_sample(self.post("/api/v1/models/unload", {"instance_id": lm.OSS.name}), LMSTUDIO, "unload")
        self.assert_sample(self.post("/v1/chat/completions", {**chat, "model": "x"}), LMSTUDIO, "unknown_model")
        self.assert_sample(self.post("/api/v1/chat", {"model": "x", "input": "hi"}), LMSTUDIO, "unknown_model_v1")
        self.assert_sample(self.ask("GET", "/nope"), LMSTUDIO, "unknown_route")

    def test_lmstudio_read_by_its_kind(self) -> None:
        """What PAIR makes of it is what it has, whichever list it has."""
        kind = LMStudioKind()
        for older in (False, True):
            double = self.serve(LMStudio(self.clock, older=older))
            double.load(lm.OSS.name, 8192)
            double.load(lm.OSS.name)
            answers = self.kind_answers(kind)
            self.assertIsNotNone(kind.identify(answers))
            listing = kind.models("lmstudio", answers)
            assert listing is not None
            self.assertEqual(sorted(each.id for each in listing.models), sorted(double.models), older)
            (model,) = [each for each in listing.models if each.loaded]
            told = [(each.instance, each.context_length) for each in model.loaded]
            self.assertEqual(told, [(lm.OSS.name, 8192), (f"{lm.OSS.name}:2", 4096)])
            self.assertFalse(listing.loaded_only)
            self.assertEqual(kind.slots(answers), None if older else 4)
            double.just_in_time = False
            listing = kind.models("lmstudio", self.kind_answers(kind))
            assert listing is not None
            self.assertTrue(listing.loaded_only)


def _older_list(row: int) -> dict[str, Any]:
    stored = msgspec.json.decode(sample(LMSTUDIO, "older_list").body)
    return {**stored, "data": stored["data"][row:]}


def _without_logprobs(stored: bytes) -> Any:
    document = msgspec.json.decode(stored)
    for choice in document["choices"]:
        del choice["logprobs"]
    return document
