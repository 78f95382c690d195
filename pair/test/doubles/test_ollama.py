"""Ollama's double: its words, and how its state changes (EN-109)."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pair.engines.kinds.ollama import Ollama as OllamaKind
from pair.routing.dialects import classify
from pair.test.doubles import lmstudio_shapes as lm
from pair.test.doubles.case import CHAT, DoubleCase
from pair.test.doubles.contract import SAY
from pair.test.doubles.lmstudio import LMStudio
from pair.test.doubles.ollama import Ollama
from pair.test.doubles.shelf import MINILM, SMOLLM
from pair.test.doubles.telling import Pace
from pair.test.engines.samples import OLLAMA


class OllamaTests(DoubleCase):
    """Ollama's own words and ways."""

    def setUp(self) -> None:
        super().setUp()
        self.ollama: Ollama = self.serve(Ollama(self.clock, pull_rate=1e9))

    @property
    def loaded(self) -> list[str]:
        return [each["name"] for each in self.ask("GET", "/api/ps").json["models"]]

    @property
    def listed(self) -> list[str]:
        return sorted(each["name"] for each in self.ask("GET", "/api/tags").json["models"])

    def test_unknown_model(self) -> None:
        """404 in the words of each path; the kind knows them for what they are (RT-10)."""
        got = self.post("/api/chat", {**CHAT, "model": "x"})
        self.assertEqual((got.status, got.body), (404, b'{"error":"model \'x\' not found"}'))
        for path in (
            *("/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/show", "/v1/chat/completions"),
            *("/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages"),
        ):
            asking = {"model": "x", "messages": SAY, "prompt": "a", "input": "a", "max_tokens": 1}
            got = self.post(path, asking)
            self.assertEqual(classify(OllamaKind.dialect, got.status, got.body), "stale_model", path)
        self.assertEqual(self.ask("GET", "/v1/models/x").status, 404)
        self.assertEqual(self.ask("DELETE", "/api/delete", {"model": "x"}).status, 404)
        self.assertEqual(self.post("/api/copy", {"source": "x", "destination": "y"}).status, 404)

    def test_unknown_path(self) -> None:
        """404 in plain text, which says nothing of a model (RT-10); a wrong method is 405."""
        got = self.post("/v1/messages/count_tokens", CHAT)
        self.assertEqual((got.status, got.body), (404, b"404 page not found"))
        self.assertEqual(classify(OllamaKind.dialect, got.status, got.body), "route_missing")
        self.assertEqual(self.ask("GET", "/api/chat").status, 405)

    def test_banner(self) -> None:
        """``GET /`` and ``HEAD /`` (H14)."""
        self.assertEqual(self.ask("GET", "/").body, b"Ollama is running")
        got = self.ask("HEAD", "/")
        self.assertEqual((got.status, got.body), (200, b""))

    def test_names(self) -> None:
        """Case, registry, namespace and the tag ``latest`` are implied (M01, M02)."""
        self.post("/api/copy", {"source": SMOLLM.name, "destination": "mine"})
        for name in ("mine", "Mine:latest", "library/mine", "registry.ollama.ai/library/mine", "SMOLLM2:135M"):
            self.assertEqual(self.post("/api/show", {"model": name}).status, 200, name)
        self.assertEqual(self.post("/api/show", {"model": "smollm2"}).status, 404)

    def test_streams_unless_told_otherwise(self) -> None:
        """The native routes stream if ``stream`` is absent, those of ``/v1`` do not (S07)."""
        self.assertEqual(self.post("/api/chat", CHAT).fields["content-type"], "application/x-ndjson")
        self.assertIn("application/json", self.post("/v1/chat/completions", CHAT).fields["content-type"])

    def test_same_words(self) -> None:
        """Whole and in pieces, by each route and each of its kind: the question alone decides."""
        lines = self.post("/api/chat", CHAT).lines
        said = "".join(each["message"]["content"] for each in lines)
        whole = self.post("/api/chat", {**CHAT, "stream": False}).json["message"]["content"]
        other = self.post("/v1/chat/completions", CHAT).json["choices"][0]["message"]["content"]
        self.assertEqual((whole, other), (said, said))
        self.serve(LMStudio(self.clock))
        got = self.post("/v1/chat/completions", {**CHAT, "model": lm.OSS.name})
        self.assertEqual(got.json["choices"][0]["message"]["content"], said)
        self.assertEqual(lines[-1]["eval_count"], len(lines) - 1)

    def test_keep_alive(self) -> None:
        """A model is loaded by a request and leaves when its time is over; each use begins it anew."""
        self.assertEqual(self.loaded, [])
        self.post("/api/generate", {"model": SMOLLM.name, "keep_alive": "1m"})
        self.clock.advance(50)
        self.post("/api/chat", {**CHAT, "keep_alive": "1m"})
        self.clock.advance(50)
        self.assertEqual(self.loaded, [SMOLLM.name])
        self.clock.advance(11)
        self.assertEqual(self.loaded, [])

    def test_keep_alive_forms(self) -> None:
        """Seconds, Go's durations, below zero for good, zero after this request; anything else is refused."""
        for told, stays in ((2, 2), ("2s", 2), ("1m30s", 90), ("1500ms", 1.5), (None, 300)):
            self.post("/api/chat", {**CHAT, "keep_alive": told})
            self.clock.advance(stays - 0.5)
            self.assertEqual(self.loaded, [SMOLLM.name], told)
            self.clock.advance(1)
            self.assertEqual(self.loaded, [], told)
        self.post("/api/chat", {**CHAT, "keep_alive": 0})
        self.assertEqual(self.loaded, [])
        self.post("/api/chat", {**CHAT, "keep_alive": -1})
        self.clock.advance(10**8)
        self.assertEqual(self.loaded, [SMOLLM.name])
        self.assertEqual(self.post("/api/chat", {**CHAT, "keep_alive": "soon"}).status, 400)

    def test_unload(self) -> None:
        """Nothing to say and no time to stay: it leaves at once."""
        self.post("/api/chat", CHAT)
        got = self.post("/api/chat", {"model": SMOLLM.name, "messages": [], "keep_alive": 0})
        self.assertEqual((got.json["done_reason"], self.loaded), ("unload", []))

    def test_room(self) -> None:
        """What was used longest ago makes room."""
        self.serve(Ollama(self.clock, room=1))
        self.post("/api/chat", CHAT)
        self.post("/api/embed", {"model": MINILM.name, "input": "a"})
        self.assertEqual(self.loaded, [MINILM.name])

    def test_embedding_model(self) -> None:
        """It makes embeddings and does not chat."""
        got = self.post("/api/chat", {**CHAT, "model": MINILM.name})
        self.assertEqual((got.status, got.json), (400, {"error": '"all-minilm:22m" does not support chat'}))
        first, second = self.post("/api/embed", {"model": MINILM.name, "input": ["a", "b"]}).json["embeddings"]
        self.assertNotEqual(first, second)
        again = self.post("/api/embeddings", {"model": MINILM.name, "prompt": "a"}).json["embedding"]
        v1 = self.post("/v1/embeddings", {"model": MINILM.name, "input": "a"}).json["data"][0]["embedding"]
        self.assertEqual((again, v1), (first, first))

    def test_pace(self) -> None:
        """Loading, the prompt and each token take their time, by the clock; so say the counts at the end."""
        self.serve(Ollama(self.clock, pace=Pace(rate=10, prefill=8, load=2)))
        asking = self.begin("POST", "/api/generate", {"model": SMOLLM.name, "prompt": "one two three four 5 words"})
        self.pass_time(2.8)
        self.assertEqual(asking.got.pieces, [])
        self.pass_time(0.3)
        self.assertEqual(len(asking.got.pieces), 3)
        self.pass_time(1, asking.over)
        last = asking.got.lines[-1]
        self.assertEqual((last["load_duration"], last["eval_count"]), (2_000_000_000, 5))
        self.assertEqual((last["prompt_eval_duration"], last["eval_duration"]), (750_001_000, 500_001_000))

    def test_line(self) -> None:
        """So many at once, so many in line; one more is turned away. Who leaves makes room."""
        ollama = self.serve(Ollama(self.clock, pace=Pace(rate=1), parallel=1, line=1))
        first, second = (self.begin("POST", "/api/chat", CHAT) for _ in range(2))
        self.pass_time(3)
        third = self.post("/api/chat", CHAT)
        self.assertEqual((third.status, third.fields["retry-after"]), (503, "1"))
        self.assertEqual((bool(first.got.pieces), second.got.pieces), (True, []))
        first.leave()
        self.pass_time(3)
        self.assertTrue(second.got.pieces)
        self.assertEqual((ollama.left, ollama.slots.busy), (1, 1))
        second.leave()
        self.pass_time(1)
        self.assertEqual((ollama.left, ollama.slots.busy), (2, 0))

    def test_pull(self) -> None:
        """Layer by layer, never less than before, then success; the model is listed from then on."""
        got = self.post("/api/pull", {"model": "gemma3"})
        self.assert_sample(got.lines[2], OLLAMA, "pull_line")
        self.assertEqual((got.lines[0], got.lines[-1]), ({"status": "pulling manifest"}, {"status": "success"}))
        done: dict[str, int] = {}
        for each in got.lines:
            if "digest" in each:
                self.assertGreaterEqual(each.get("completed", 0), done.get(each["digest"], 0))
                done[each["digest"]] = each.get("completed", 0)
        self.assertEqual(len(done), 2)
        self.assertIn("gemma3:latest", self.listed)

    def test_pull_goes_on(self) -> None:
        """A pull whose client leaves keeps what it has; the next one goes on there."""
        asking = self.begin("POST", "/api/pull", {"model": "gemma3"})
        self.pass_time(1.5)
        asking.leave()
        self.pass_time(10)
        self.assertNotIn("gemma3:latest", self.listed)
        had = max(each.get("completed", 0) for each in asking.got.lines)
        first = next(each for each in self.post("/api/pull", {"model": "gemma3"}).lines if "completed" in each)
        self.assertGreater(first["completed"], had)

    def test_pull_of_what_there_is_not(self) -> None:
        """An error line under 200, or 500 if it does not stream."""
        got = self.post("/api/pull", {"model": "nope"})
        self.assertEqual(got.status, 200)
        self.assert_sample(got.lines[-1], OLLAMA, "pull_unknown")
        self.assertEqual(self.post("/api/pull", {"model": "nope", "stream": False}).status, 500)

    def test_copy_and_delete(self) -> None:
        """Both at once; what is deleted leaves memory too (M16)."""
        self.assertEqual(self.post("/api/copy", {"source": SMOLLM.name, "destination": "mine"}).status, 200)
        self.assertIn("mine:latest", self.listed)
        self.post("/api/chat", {**CHAT, "model": "mine"})
        self.assertEqual(self.ask("DELETE", "/api/delete", {"model": "mine"}).status, 200)
        self.assertNotIn("mine:latest", self.listed)
        self.assertEqual(self.loaded, [])

    def test_blobs_and_create(self) -> None:
        """A blob must be what its digest says; of one, or of another model, a model is made."""
        digest = f"sha256:{hashlib.sha256(b'weights').hexdigest()}"
        self.assertEqual(self.ask("HEAD", f"/api/blobs/{digest}").status, 404)
        self.assertEqual(self.post(f"/api/blobs/{digest}", b"other").status, 400)
        self.assertEqual(self.post(f"/api/blobs/{digest}", b"weights").status, 201)
        self.assertEqual(self.ask("HEAD", f"/api/blobs/{digest}").status, 200)
        got = self.post("/api/create", {"model": "made", "files": {"m.gguf": digest}})
        self.assertEqual(got.lines[-1], {"status": "success"})
        self.assertEqual(self.post("/api/create", {"model": "two", "from": "made"}).lines[-1], {"status": "success"})
        self.assertLess({"made:latest", "two:latest"}, set(self.listed))
        self.assertEqual(self.post("/api/create", {"model": "no"}).status, 400)

    def test_push(self) -> None:
        """Only into a namespace."""
        self.assertIn("error", self.post("/api/push", {"model": SMOLLM.name}).lines[-1])
        self.post("/api/copy", {"source": SMOLLM.name, "destination": "me/mine"})
        self.assertEqual(self.post("/api/push", {"model": "me/mine"}).lines[-1], {"status": "success"})

    def test_folder(self) -> None:
        """Models and halves of layers outlive it, where ``OLLAMA_MODELS`` says."""
        folder = Path(self.mktemp())
        self.serve(Ollama(self.clock, folder=folder))
        self.ask("DELETE", "/api/delete", {"model": MINILM.name})
        self.begin("POST", "/api/pull", {"model": "gemma3"})
        self.pass_time(1)
        again = self.serve(Ollama(self.clock, folder=folder))
        self.assertEqual(self.listed, ["qwen3:8b", "smollm2:135m"])
        first = next(each for each in self.post("/api/pull", {"model": "gemma3"}).lines if "completed" in each)
        self.assertGreater(first["completed"], 500_000_000)
        self.assertIn("gemma3:latest", again.disk.models)
