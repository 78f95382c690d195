"""A double of LM Studio's server, in-process or as a program (EN-109).

    python -m pair.test.doubles.lmstudio --port N

What it answers is what its documentation and its users say that the real one
does, as of 0.4, or with ``older`` as of 0.3; nothing of it is the real one's
code.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pair.test.doubles import words
from pair.test.doubles.compatible import Compatible, anthropic_error, data, event, openai_error
from pair.test.doubles.lmstudio_downloads import Downloads
from pair.test.doubles.lmstudio_shapes import (
    GRANITE,
    NOMIC,
    OSS,
    SMOLLM,
    TYPES,
    config,
    invalid_request,
    older_row,
    row,
    runtime,
    served_row,
)
from pair.test.doubles.serving import SSE, Asked, Double, Refused, Seen
from pair.test.doubles.shelf import Copy, Memory, Weights
from pair.test.doubles.telling import Pace, Slots, Told, Work

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from twisted.internet.interfaces import IReactorTime

CONTEXT = 4096
IDLE = 5.0
"""Seconds after which it closes an idle connection, as servers on Node.js do."""
KEEP = 3600.0
"""Seconds that a model stays which was loaded for a request."""
NOTHING_LOADED = "No models loaded. Please load a model in the developer page or use the 'lms load' command."


class LMStudio(Double):
    """The double.

    Args:
        clock: turns all its timers; its seconds are those of the dates that it tells.
        models: on its disk.
        library: what it can download besides.
        home: a folder whose ``double.json`` keeps what is on the disk and in memory beyond the end of the process.
        pace: how fast it is.
        download_rate: bytes a second of a download.
        just_in_time: it loads a model for a request.
        older: it answers as before 0.4.
        parallel: how many requests it answers at once.
    """

    idle = IDLE

    def __init__(
        self,
        clock: IReactorTime,
        models: Sequence[Weights] = (SMOLLM, OSS, NOMIC),
        library: Sequence[Weights] = (GRANITE,),
        *,
        home: Path | None = None,
        pace: Pace = Pace(),  # noqa: B008 - a value
        download_rate: float = 1e9,
        just_in_time: bool = True,
        older: bool = False,
        parallel: int = 4,
    ) -> None:
        super().__init__(clock)
        self.models = {each.name: each for each in models}
        self.library = {each.name: each for each in library}
        self.memory = Memory(room=100)
        self.slots = Slots(parallel, 10_000)
        self.pace = pace
        self.just_in_time = just_in_time
        self.older = older
        self.parallel = parallel
        self.downloads = Downloads(clock, download_rate, self._downloaded)
        self._state = None if home is None else home / "double.json"
        self._read_state()
        self._work = Work(clock, self.memory, self.slots, pace)
        v1 = Compatible(self._work, self._copy, clock.seconds, {})
        self.routes = {
            ("GET", "/lmstudio-greeting"): lambda asked: asked.json({"lmstudio": True}),
            ("GET", "/v1/models"): self._served,
            ("GET", "/v1/models/"): self._served_one,
            ("POST", "/v1/chat/completions"): v1.chat,
            ("POST", "/v1/completions"): v1.completions,
            ("POST", "/v1/embeddings"): v1.embeddings,
            ("POST", "/v1/responses"): v1.responses,
            ("GET", "/api/v0/models"): self._older_list,
            ("GET", "/api/v0/models/"): self._older_one,
            ("POST", "/api/v0/chat/completions"): lambda asked: v1.chat(asked, self._stats),
            ("POST", "/api/v0/completions"): lambda asked: v1.completions(asked, self._stats),
            ("POST", "/api/v0/embeddings"): v1.embeddings,
        }
        if not older:
            self.routes |= {
                ("POST", "/v1/messages"): v1.messages,
                ("GET", "/api/v1/models"): self._list,
                ("POST", "/api/v1/chat"): self._chat,
                ("POST", "/api/v1/models/load"): self._load,
                ("POST", "/api/v1/models/unload"): self._unload,
                ("POST", "/api/v1/models/download"): self._download,
                ("GET", "/api/v1/models/download/status"): lambda asked: asked.json(self.downloads.all()),
                ("GET", "/api/v1/models/download/status/"): self._download_status,
            }

        self.own["GET", "/_double/memory"] = self._tell_memory

    # The dialect

    def status(self, status: int, seen: Seen) -> Refused:
        """See :class:`Double`."""
        if status == 404:
            return self._unknown_model(self.missing(seen))
        return super().status(status, seen)

    def unknown(self, asked: Asked) -> None:
        asked.json({"error": f"Unexpected endpoint or method. ({asked.seen.method} {asked.seen.path})"})

    def error(self, path: str, refused: Refused) -> object:
        if path.startswith("/v1/messages"):
            return anthropic_error(refused.status, refused.message)
        if path.startswith("/api/v1/"):
            kind = refused.code or TYPES.get(refused.status, "internal_error")
            return {"error": {"type": kind, "message": refused.message}}
        return invalid_request(refused)

    def error_frame(self, path: str, message: str) -> bytes:
        if path.startswith("/v1/messages"):
            return event("error", anthropic_error(500, message))
        if path.startswith("/api/v1/"):
            return event("error", {"type": "error", "error": {"type": "internal_error", "message": message}})
        return data(openai_error(500, message))

    # Models

    def load(
        self, name: str, context: int | None = None, identifier: str | None = None, keep: float | None = None
    ) -> Copy:
        """Load one more copy of a model; without ``keep`` it stays for good.

        Raises:
            Refused: there is no such model.
        """
        weights, now = self.models.get(name), self.clock.seconds()
        if weights is None:
            raise Refused(404, f"Model {name} not found", "model_not_found")
        taken = {each.id for each in self.memory.now(now)}
        names = (identifier or name, *(f"{identifier or name}:{number}" for number in range(2, 1000)))
        copy = Copy(
            id=next(each for each in names if each not in taken),
            weights=weights,
            context=min(context or CONTEXT, weights.context),
            ready=now + self.pace.load,
            keep=float("inf") if keep is None else keep,
            parallel=self.parallel,
        )
        self.memory.load(copy, now)
        self._write_state()
        return copy

    def unload(self, id: str) -> None:
        """Take a copy out of memory.

        Raises:
            Refused: there is no such copy.
        """
        for copy in self.memory.now(self.clock.seconds()):
            if copy.id == id:
                self.memory.drop(copy)
                self._write_state()
                return
        raise Refused(404, f"Model instance {id} not found", "model_not_found")

    def _copies(self) -> list[Copy]:
        return sorted(self.memory.now(self.clock.seconds()), key=lambda each: each.id)

    def _copy(self, name: str) -> Copy:
        copies = self._copies()
        for copy in copies:
            if copy.id == name:
                return copy
        for copy in copies:
            if copy.weights.name == name:
                return copy
        if self.just_in_time and name in self.models:
            return self.load(name, keep=KEEP)
        if not self.just_in_time and not copies:
            raise Refused(400, NOTHING_LOADED)
        raise self._unknown_model(name)

    def _unknown_model(self, name: str) -> Refused:
        known = sorted(self.models) if self.just_in_time else [each.id for each in self._copies()]
        listed = "".join(f"{each}\n" for each in known)
        message = f'Model "{name}" not found. Please specify a valid model.\n\nYour models:\n\n{listed}'
        return Refused(404, message, "model_not_found")

    def _names(self) -> Iterator[tuple[str, Weights, Copy | None]]:
        """As the older lists have them: each copy by its own name, then what is on the disk alone."""
        copies = self._copies()
        yield from ((each.id, each.weights, each) for each in copies)
        loaded = {each.weights.name for each in copies}
        yield from ((name, each, None) for name, each in sorted(self.models.items()) if name not in loaded)

    def _list(self, asked: Asked) -> None:
        copies = self._copies()
        asked.json(
            {
                "models": [
                    row(each, [copy for copy in copies if copy.weights == each])
                    for _, each in sorted(self.models.items())
                ]
            }
        )

    def _older_list(self, asked: Asked) -> None:
        asked.json({"data": [older_row(*each) for each in self._names()], "object": "list"})

    def _older_one(self, asked: Asked) -> None:
        name = unquote(asked.seen.path.removeprefix("/api/v0/models/"))
        for each in self._names():
            if each[0] == name:
                asked.json(older_row(*each))
                return
        raise Refused(404, f"Model with identifier '{name}' not found", "model_not_found")

    def _served(self, asked: Asked) -> None:
        names = [name for name, _, copy in self._names() if copy is not None or self.just_in_time]
        asked.json({"data": [served_row(each) for each in names], "object": "list"})

    def _served_one(self, asked: Asked) -> None:
        name = unquote(asked.seen.path.removeprefix("/v1/models/"))
        if not any(name == each for each, _, copy in self._names() if copy is not None or self.just_in_time):
            raise Refused(404, f"Model with identifier '{name}' not found", "model_not_found")
        asked.json(served_row(name))

    # Inference in its own words

    def _stats(self, copy: Copy, told: Told) -> dict[str, Any]:
        output = told.output or 0.001
        return {
            "stats": {
                "tokens_per_second": len(told.pieces) / output,
                "time_to_first_token": told.load + told.prompt + told.each,
                "generation_time": output,
                "stop_reason": "eosFound" if told.reason == "stop" else "maxPredictedTokensReached",
            },
            "model_info": {
                "arch": copy.weights.family,
                "quant": copy.weights.quantization,
                "format": "gguf",
                "context_length": copy.context,
            },
            "runtime": runtime(),
        }

    def _chat(self, asked: Asked) -> None:
        asking = asked.document()
        given = asking.get("input")
        if not isinstance(asking.get("model"), str) or given is None:
            missing = "model" if given is not None else "input"
            raise Refused(400, f'"{missing}" is required', "invalid_request")
        question = given if isinstance(given, str) else json.dumps(given)
        loaded = any(asking["model"] in (each.id, each.weights.name) for each in self._copies())
        copy = self._copy(asking["model"])
        most = asking.get("max_output_tokens")

        def result(told: Told) -> dict[str, Any]:
            stats = {
                "input_tokens": told.prompt_tokens,
                "total_output_tokens": len(told.pieces),
                "reasoning_output_tokens": 0,
                "tokens_per_second": len(told.pieces) / (told.output or 0.001),
                "time_to_first_token_seconds": told.prompt + told.each,
            }
            output = [{"type": "message", "content": told.text}]
            document = {"model_instance_id": copy.id, "output": output, "stats": stats}
            if asking.get("store", True):
                document["response_id"] = f"resp_{words.number(question, 2**62):048x}"
            return document

        def frames(told: Told) -> Iterator[bytes]:
            where = {"model_instance_id": copy.id}
            part = _event("chat.start", **where)
            if not loaded:
                part += _event("model_load.start", **where)
                part += _event("model_load.end", **where, load_time_seconds=told.load)
            part += _event("prompt_processing.start") + _event("prompt_processing.progress", progress=1.0)
            part += _event("prompt_processing.end") + _event("message.start")
            for piece in told.pieces:
                yield part + _event("message.delta", content=piece)
                part = b""
            yield part + _event("message.end") + _event("chat.end", result=result(told))

        if asking.get("stream"):
            self._work.stream(asked, copy, question, most, SSE, frames)
        else:
            self._work.whole(asked, copy, question, most, result)

    # Load, unload, download

    def _load(self, asked: Asked) -> None:
        asking = asked.document()
        copy = self.load(str(asking.get("model") or ""), asking.get("context_length"))
        told: dict[str, Any] = {
            "type": "embedding" if copy.weights.embeds else "llm",
            "instance_id": copy.id,
            "load_time_seconds": self.pace.load,
            "status": "loaded",
        }
        if asking.get("echo_load_config"):
            told["load_config"] = {name: value for name, value in config(copy).items() if name != "parallel"}
        asked.after(self.pace.load, lambda: asked.json(told))

    def _unload(self, asked: Asked) -> None:
        id = str(asked.document().get("instance_id") or "")
        self.unload(id)
        asked.json({"instance_id": id})

    def _download(self, asked: Asked) -> None:
        name = str(asked.document().get("model") or "")
        if name in self.models:
            asked.json({"status": "already_downloaded"})
        elif name in self.library:
            asked.json(self.downloads.begin(self.library[name]))
        else:
            raise Refused(404, f"Model {name} not found", "model_not_found")

    def _download_status(self, asked: Asked) -> None:
        job = asked.seen.path.rpartition("/")[2]
        told = self.downloads.told(job)
        if told is None:
            raise Refused(404, f"Job {job} not found", "job_not_found")
        asked.json(told)

    def _downloaded(self, weights: Weights) -> None:
        self.models.setdefault(weights.name, weights)
        self._write_state()

    # What outlives it, and what it tells of itself

    def _tell_memory(self, asked: Asked) -> None:
        asked.json([{"id": each.id, "users": each.users} for each in self._copies()])

    def _read_state(self) -> None:
        if self._state is None or not self._state.exists():
            return
        state = json.loads(self._state.read_text())
        known = {**self.models, **self.library}
        self.models = {name: known[name] for name in state["models"]}
        for each in state["loaded"]:
            copy = Copy(each["id"], self.models[each["model"]], each["context"], 0.0, float("inf"))
            self.memory.load(copy, self.clock.seconds())

    def _write_state(self) -> None:
        if self._state is None:
            return
        self._state.parent.mkdir(parents=True, exist_ok=True)
        copies = [each for each in self._copies() if each.until == float("inf")]
        loaded = [{"id": each.id, "model": each.weights.name, "context": each.context} for each in copies]
        self._state.write_text(json.dumps({"models": sorted(self.models), "loaded": loaded}))


def _event(name: str, **fields: Any) -> bytes:
    return event(name, {"type": name, **fields})


if __name__ == "__main__":
    from pair.test.doubles.program import lmstudio

    lmstudio(sys.argv[1:])
