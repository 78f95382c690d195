"""A double of Ollama, in-process or as a program (EN-109).

    python -m pair.test.doubles.ollama serve

It honours ``OLLAMA_HOST``, ``OLLAMA_MODELS`` (where models and halves of pulls
outlive it), ``OLLAMA_KEEP_ALIVE``, ``OLLAMA_NUM_PARALLEL``, ``OLLAMA_MAX_QUEUE``
and ``OLLAMA_MAX_LOADED_MODELS``. What it answers is what the documentation of
its API and its users say that the real one does; nothing of it is the real
one's code.
"""

from __future__ import annotations

import hashlib
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from pair.test.doubles import words
from pair.test.doubles.compatible import SIZE, Compatible, anthropic_error, data, event, openai_error, said
from pair.test.doubles.ollama_layers import creating, pulling, pushing
from pair.test.doubles.ollama_shapes import (
    chat_part,
    details,
    duration,
    full,
    generate_part,
    instant,
    line,
    measures,
    named,
    nanoseconds,
    required,
    row,
    tagged,
    v1_row,
)
from pair.test.doubles.serving import NDJSON, Asked, Double, Refused, Seen
from pair.test.doubles.shelf import GEMMA, MINILM, QWEN, SMOLLM, Copy, Disk, Memory, Weights
from pair.test.doubles.telling import Pace, Slots, Told, Work

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from twisted.internet.interfaces import IReactorTime

VERSION = "0.13.1"
KEEP = 300.0
"""Seconds that a model stays in memory unless a request says otherwise."""
CONTEXT = 4096
STEP = 0.1
"""Seconds between two lines of a pull."""


class Ollama(Double):
    """The double.

    Args:
        clock: turns all its timers; its seconds are those of the dates that it tells.
        models: on its disk.
        library: what it can pull besides.
        folder: as ``OLLAMA_MODELS``.
        pace: how fast it is.
        pull_rate: bytes a second of a pull.
        keep: seconds that a model stays in memory.
        parallel: how many requests it answers at once.
        line: how many wait.
        room: how many models fit into memory.
        version: that it tells.
    """

    def __init__(
        self,
        clock: IReactorTime,
        models: Sequence[Weights] = (SMOLLM, QWEN, MINILM),
        library: Sequence[Weights] = (GEMMA,),
        *,
        folder: Path | None = None,
        pace: Pace = Pace(),  # noqa: B008 - a value
        pull_rate: float = 1e9,
        keep: float = KEEP,
        parallel: int = 4,
        line: int = 512,
        room: int = 3,
        version: str = VERSION,
    ) -> None:
        super().__init__(clock)
        self.disk = Disk(models, library, folder)
        self.memory = Memory(room)
        self.slots = Slots(parallel, line)
        self.pace = pace
        self.pull_rate = pull_rate
        self.keep = keep
        self.version = version
        self._work = Work(clock, self.memory, self.slots, pace)
        v1 = Compatible(self._work, self._copy, clock.seconds, {"system_fingerprint": "fp_ollama"})
        self.routes = {
            ("GET", "/"): lambda asked: asked.whole(b"Ollama is running", "text/plain; charset=utf-8"),
            ("GET", "/api/version"): lambda asked: asked.json({"version": self.version}),
            ("GET", "/api/tags"): lambda asked: asked.json({"models": [row(each) for each in self._listed()]}),
            ("GET", "/api/ps"): self._ps,
            ("POST", "/api/show"): self._show,
            ("POST", "/api/chat"): self._chat,
            ("POST", "/api/generate"): self._generate,
            ("POST", "/api/embed"): self._embed,
            ("POST", "/api/embeddings"): self._embeddings,
            ("POST", "/api/pull"): self._pull,
            ("POST", "/api/push"): self._push,
            ("POST", "/api/create"): self._create,
            ("POST", "/api/copy"): self._copy_model,
            ("DELETE", "/api/delete"): self._delete,
            ("HEAD", "/api/blobs/"): self._has_blob,
            ("POST", "/api/blobs/"): self._put_blob,
            ("POST", "/v1/chat/completions"): v1.chat,
            ("POST", "/v1/completions"): v1.completions,
            ("POST", "/v1/embeddings"): v1.embeddings,
            ("POST", "/v1/responses"): v1.responses,
            ("POST", "/v1/messages"): v1.messages,
            ("GET", "/v1/models"): self._v1_models,
            ("GET", "/v1/models/"): self._v1_model,
        }

    # The dialect

    def status(self, status: int, seen: Seen) -> Refused:
        """See :class:`Double`."""
        if status == 404:
            return Refused(404, f"model '{self.missing(seen)}' not found")
        return super().status(status, seen)

    def unknown(self, asked: Asked) -> None:
        known = any(path == asked.seen.path for _, path in self.routes)
        text, status = (b"405 method not allowed", 405) if known else (b"404 page not found", 404)
        asked.whole(text, "text/plain", status)

    def error(self, path: str, refused: Refused) -> object:
        if path.startswith("/v1/messages"):
            return anthropic_error(refused.status, refused.message)
        if path.startswith("/v1/"):
            return openai_error(refused.status, refused.message, refused.code)
        return {"error": refused.message}

    def error_frame(self, path: str, message: str) -> bytes:
        if path.startswith("/v1/messages"):
            return event("error", anthropic_error(500, message))
        if path.startswith("/v1/"):
            return data(openai_error(500, message))
        return msgspec.json.encode({"error": message}) + b"\n"

    # Models

    def _listed(self) -> list[Weights]:
        return sorted(self.disk.models.values(), key=lambda each: (-each.at, each.name))

    def _find(self, name: str) -> Weights:
        for each in self.disk.models.values():
            if full(each.name) == full(name):
                return each
        raise Refused(404, f"model '{name}' not found")

    def _copy(self, name: str, keep: float | None = None) -> Copy:
        """The model in memory, loaded now if it is not there."""
        weights, now = self._find(name), self.clock.seconds()
        found = self.memory.of(weights.name, now)
        if not found:
            stays = self.keep if keep is None else keep
            found = [Copy(weights.name, weights, min(CONTEXT, weights.context), now + self.pace.load, stays)]
            self.memory.load(found[0], now)
        if keep is not None:
            found[0].keep = keep
        return found[0]

    def _v1_models(self, asked: Asked) -> None:
        asked.json({"object": "list", "data": [v1_row(each.name, each) for each in self._listed()]})

    def _v1_model(self, asked: Asked) -> None:
        name = unquote(asked.seen.path.removeprefix("/v1/models/"))
        asked.json(v1_row(name, self._find(name)))

    def _ps(self, asked: Asked) -> None:
        rows = []
        for copy in reversed(self.memory.now(self.clock.seconds())):
            told = {name: value for name, value in row(copy.weights).items() if name != "modified_at"}
            until = self.clock.seconds() + copy.keep if copy.users else copy.until
            size = copy.weights.size + copy.context * 100_000
            told |= {"size": size, "expires_at": instant(until), "size_vram": size, "context_length": copy.context}
            rows.append(told)
        asked.json({"models": rows})

    def _show(self, asked: Asked) -> None:
        asking = asked.document()
        weights = self._find(asking.get("model") or asking.get("name") or "")
        parameters = int(float(weights.parameters[:-1]) * {"M": 1e6, "B": 1e9}[weights.parameters[-1]])
        asked.json(
            {
                "license": "Apache License Version 2.0",
                "modelfile": f'# Modelfile generated by "ollama show"\nFROM {weights.name}\n',
                "parameters": 'stop                           "<|im_end|>"',
                "template": "{{ .Prompt }}",
                "details": details(weights),
                "model_info": {
                    "general.architecture": weights.family,
                    "general.file_type": 15,
                    "general.parameter_count": parameters,
                    f"{weights.family}.context_length": weights.context,
                    f"{weights.family}.embedding_length": SIZE,
                },
                "capabilities": list(weights.can),
                "modified_at": instant(weights.at),
            }
        )

    # Inference

    def _chat(self, asked: Asked) -> None:
        asking = asked.document()
        messages = asking.get("messages") or []
        empty = {"message": {"role": "assistant", "content": ""}}
        self._infer(asked, asking, said(messages), not messages, empty, "chat", chat_part)

    def _generate(self, asked: Asked) -> None:
        asking = asked.document()
        prompt = str(asking.get("prompt") or "")
        self._infer(asked, asking, prompt, not prompt, {"response": ""}, "generate", generate_part)

    def _infer(
        self,
        asked: Asked,
        asking: dict[str, Any],
        question: str,
        nothing: bool,
        empty: dict[str, Any],
        what: str,
        part: Any,
    ) -> None:
        name = required(asking, "model")
        weights = self._find(name)
        keep = duration(asking.get("keep_alive"))
        base = {"model": name, "created_at": instant(self.clock.seconds())}
        if nothing and keep == 0:
            for copy in self.memory.of(weights.name, self.clock.seconds()):
                self.memory.drop(copy)
            asked.json({**base, **empty, "done": True, "done_reason": "unload"})
            return
        if weights.embeds:
            raise Refused(400, f'"{name}" does not support {what}')
        copy = self._copy(name, keep)
        if nothing:
            self._work.at(asked, copy, lambda _: asked.json({**base, **empty, "done": True, "done_reason": "load"}))
            return
        options = asking.get("options")
        most = options.get("num_predict") if isinstance(options, dict) else None

        def last(told: Told, text: str) -> dict[str, Any]:
            document = {**base, **part(text), "done": True, "done_reason": told.reason}
            if what == "generate":
                document["context"] = [words.number(each, 50_000) for each in told.pieces]
            return document | measures(told)

        def lines(told: Told) -> Iterator[bytes]:
            for piece in told.pieces:
                yield line({**base, **part(piece), "done": False})
            yield line(last(told, ""))

        if asking.get("stream") is False:
            self._work.whole(asked, copy, question, most, lambda told: last(told, told.text))
        else:
            self._work.stream(asked, copy, question, most, NDJSON, lines)

    def _embed(self, asked: Asked) -> None:
        asking = asked.document()
        name = required(asking, "model")
        given = asking.get("input")
        if given is None or not isinstance(given, str | list):
            raise Refused(400, "invalid input type")
        texts = given if isinstance(given, list) else [given] if given else []
        copy = self._copy(name, duration(asking.get("keep_alive")))
        vectors = [words.vector(str(each), asking.get("dimensions") or SIZE) for each in texts]
        tokens = sum(words.tokens(str(each)) for each in texts)
        self._work.at(
            asked,
            copy,
            lambda load: asked.json(
                {
                    "model": name,
                    "embeddings": vectors,
                    "total_duration": nanoseconds(load) + 1_000_000,
                    "load_duration": nanoseconds(load),
                    "prompt_eval_count": tokens,
                }
            ),
        )

    def _embeddings(self, asked: Asked) -> None:
        asking = asked.document()
        copy = self._copy(required(asking, "model"), duration(asking.get("keep_alive")))
        vector = words.vector(str(asking.get("prompt") or ""), SIZE)
        self._work.at(asked, copy, lambda _: asked.json({"embedding": vector}))

    # What changes the disk

    def _pull(self, asked: Asked) -> None:
        asking = asked.document()
        name = named(asking)
        found = next((each for each in self.disk.library.values() if full(each.name) == full(name)), None)
        self._lines(asked, asking, pulling(self.disk, found, self.pull_rate * STEP, self.clock.seconds))

    def _push(self, asked: Asked) -> None:
        asking = asked.document()
        self._lines(asked, asking, pushing(self._find(named(asking))))

    def _create(self, asked: Asked) -> None:
        asking = asked.document()
        name = named(asking)
        if not asking.get("from") and not asking.get("files"):
            raise Refused(400, "neither 'from' or 'files' was specified")
        for digest in (asking.get("files") or {}).values():
            if digest not in self.disk.blobs:
                raise Refused(400, f"blob {digest} not found")
        base = self._find(asking["from"]) if asking.get("from") else SMOLLM

        self._lines(asked, asking, creating(self.disk, base, base.named(tagged(name), self.clock.seconds())))

    def _lines(self, asked: Asked, asking: dict[str, Any], told: Iterator[dict[str, Any]]) -> None:
        if asking.get("stream") is not False:
            asked.stream(NDJSON, map(line, told), STEP)
            return
        end = list(told)[-1]
        asked.json(end, 500 if "error" in end else 200)

    def _copy_model(self, asked: Asked) -> None:
        asking = asked.document()
        source = self._find(str(asking.get("source") or ""))
        self.disk.put(source.named(tagged(required(asking, "destination")), self.clock.seconds()))
        asked.whole(b"", None)

    def _delete(self, asked: Asked) -> None:
        weights = self._find(named(asked.document()))
        for copy in self.memory.of(weights.name, self.clock.seconds()):
            self.memory.drop(copy)
        self.disk.remove(weights.name)
        asked.whole(b"", None)

    def _has_blob(self, asked: Asked) -> None:
        digest = asked.seen.path.rpartition("/")[2]
        there = digest in self.disk.blobs or digest in self.disk.layers
        asked.whole(b"", None, 200 if there else 404)

    def _put_blob(self, asked: Asked) -> None:
        digest = asked.seen.path.rpartition("/")[2]
        made = f"sha256:{hashlib.sha256(asked.seen.body).hexdigest()}"
        if made != digest:
            raise Refused(400, f'digest mismatch, expected "{digest}", got "{made}"')
        self.disk.blobs[digest] = asked.seen.body
        asked.whole(b"", None, 201)


if __name__ == "__main__":
    from pair.test.doubles.program import ollama

    ollama(sys.argv[1:])
