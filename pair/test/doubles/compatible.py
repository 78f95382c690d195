"""The ``/v1`` routes that Ollama and LM Studio have alike: OpenAI's, and Anthropic's ``/v1/messages``."""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from pair.test.doubles import words
from pair.test.doubles.serving import SSE, Asked, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pair.test.doubles.shelf import Copy
    from pair.test.doubles.telling import Told, Work

SIZE = 32
"""Numbers in an embedding."""

Document = dict[str, Any]


@dataclass(frozen=True)
class Compatible:
    """These routes of one double.

    Attributes:
        work: of the double.
        find: the copy of a model in memory, loaded if need be; refuses where that cannot be.
        now: epoch seconds.
        marks: what the double adds to each document.
    """

    work: Work
    find: Callable[[str], Copy]
    now: Callable[[], float]
    marks: Document

    def chat(self, asked: Asked, more: Callable[[Copy, Told], Document] | None = None) -> None:
        """``/v1/chat/completions``; ``more`` goes into a whole answer."""
        asking = asked.document()
        messages = asking.get("messages")
        if not isinstance(messages, list) or not messages:
            raise Refused(400, "[] is too short - 'messages'")
        copy = self.find(_model(asking))
        question, most = said(messages), _first(asking, "max_completion_tokens", "max_tokens")
        base = {"created": int(self.now()), "model": asking["model"], **self.marks}

        def whole(told: Told) -> Document:
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": told.text},
                "finish_reason": told.reason,
            }
            document = {"id": f"chatcmpl-{told.id}", "object": "chat.completion", **base, "choices": [choice]}
            return document | {"usage": _usage(told)} | (more(copy, told) if more else {})

        def frames(told: Told) -> Iterator[bytes]:
            head = {"id": f"chatcmpl-{told.id}", "object": "chat.completion.chunk", **base}

            def chunk(text: str, reason: str | None) -> bytes:
                delta = {"role": "assistant", "content": text}
                return data({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

            yield from (chunk(piece, None) for piece in told.pieces)
            yield chunk("", told.reason) + _closing(asking, head, told)

        self._answer(asked, asking, copy, question, most, whole, frames)

    def completions(self, asked: Asked, more: Callable[[Copy, Told], Document] | None = None) -> None:
        """``/v1/completions``."""
        asking = asked.document()
        copy = self.find(_model(asking))
        base = {"created": int(self.now()), "model": asking["model"], **self.marks}

        def whole(told: Told) -> Document:
            choice = {"text": told.text, "index": 0, "finish_reason": told.reason}
            document = {"id": f"cmpl-{told.id}", "object": "text_completion", **base, "choices": [choice]}
            return document | {"usage": _usage(told)} | (more(copy, told) if more else {})

        def frames(told: Told) -> Iterator[bytes]:
            head = {"id": f"cmpl-{told.id}", "object": "text_completion", **base}

            def chunk(text: str, reason: str | None) -> bytes:
                return data({**head, "choices": [{"text": text, "index": 0, "finish_reason": reason}]})

            yield from (chunk(piece, None) for piece in told.pieces)
            yield chunk("", told.reason) + _closing(asking, head, told)

        most = _first(asking, "max_tokens")
        self._answer(asked, asking, copy, _text(asking.get("prompt")), most, whole, frames)

    def embeddings(self, asked: Asked) -> None:
        """``/v1/embeddings``."""
        asking = asked.document()
        copy = self.find(_model(asking))
        given = asking.get("input")
        if given is None or given == []:
            raise Refused(400, "invalid input")
        texts = given if isinstance(given, list) else [given]
        size = asking.get("dimensions") or SIZE

        def answer(load: float) -> None:
            vectors = [words.vector(_text(each), size) for each in texts]
            if asking.get("encoding_format") == "base64":
                packed: list[Any] = [base64.b64encode(struct.pack(f"<{size}f", *each)).decode() for each in vectors]
            else:
                packed = vectors
            rows = [{"object": "embedding", "embedding": each, "index": index} for index, each in enumerate(packed)]
            tokens = sum(words.tokens(_text(each)) for each in texts)
            usage = {"prompt_tokens": tokens, "total_tokens": tokens}
            asked.json({"object": "list", "data": rows, "model": asking["model"], "usage": usage})

        self.work.at(asked, copy, answer)

    def responses(self, asked: Asked) -> None:
        """``/v1/responses``."""
        asking = asked.document()
        copy = self.find(_model(asking))
        given = asking.get("input")
        question = said(given) if isinstance(given, list) else _text(given)
        most = _first(asking, "max_output_tokens")

        def response(told: Told, status: str, output: list[Document], usage: Document | None) -> Document:
            at = int(self.now())
            return {
                "id": f"resp_{told.id}",
                "object": "response",
                "created_at": at,
                "completed_at": at if usage else None,
                "status": status,
                "incomplete_details": None,
                "model": asking["model"],
                "previous_response_id": asking.get("previous_response_id"),
                "instructions": asking.get("instructions"),
                "output": output,
                "error": None,
                "tools": [],
                "tool_choice": "auto",
                "truncation": "disabled",
                "parallel_tool_calls": True,
                "text": {"format": {"type": "text"}},
                "top_p": 1.0,
                "temperature": 1.0,
                "usage": usage,
                "max_output_tokens": most,
                "store": False,
                "metadata": {},
            }

        def item(told: Told, text: str, status: str) -> Document:
            part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            content = [part] if status == "completed" else []
            return {
                "id": f"msg_{told.id}",
                "type": "message",
                "status": status,
                "role": "assistant",
                "content": content,
            }

        def finished(told: Told) -> Document:
            usage = {
                "input_tokens": told.prompt_tokens,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": len(told.pieces),
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": told.prompt_tokens + len(told.pieces),
            }
            return response(told, "completed", [item(told, told.text, "completed")], usage)

        def frames(told: Told) -> Iterator[bytes]:
            place = {"item_id": f"msg_{told.id}", "output_index": 0, "content_index": 0}
            empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            begun = response(told, "in_progress", [], None)
            events: list[tuple[str, Document]] = [
                ("response.created", {"response": begun}),
                ("response.in_progress", {"response": begun}),
                ("response.output_item.added", {"output_index": 0, "item": item(told, "", "in_progress")}),
                ("response.content_part.added", {**place, "part": empty}),
                *(("response.output_text.delta", {**place, "delta": piece, "logprobs": []}) for piece in told.pieces),
                ("response.output_text.done", {**place, "text": told.text, "logprobs": []}),
                ("response.content_part.done", {**place, "part": {**empty, "text": told.text}}),
                ("response.output_item.done", {"output_index": 0, "item": item(told, told.text, "completed")}),
                ("response.completed", {"response": finished(told)}),
            ]
            numbered = [(name, {"sequence_number": at, **each}) for at, (name, each) in enumerate(events)]
            return _by_token(numbered, "response.output_text.delta")

        self._answer(asked, asking, copy, question, most, finished, frames)

    def messages(self, asked: Asked) -> None:
        """``/v1/messages``."""
        asking = asked.document()
        if "max_tokens" not in asking:
            raise Refused(400, "max_tokens is required and must be positive")
        copy = self.find(_model(asking))
        question = said(asking.get("messages", []))

        def message(told: Told, content: list[Document], reason: str | None, output: int) -> Document:
            return {
                "id": f"msg_{told.id}",
                "type": "message",
                "role": "assistant",
                "model": asking["model"],
                "content": content,
                "stop_reason": reason,
                "stop_sequence": None,
                "usage": {"input_tokens": told.prompt_tokens, "output_tokens": output},
            }

        def reason(told: Told) -> str:
            return "end_turn" if told.reason == "stop" else "max_tokens"

        def whole(told: Told) -> Document:
            return message(told, [{"type": "text", "text": told.text}], reason(told), len(told.pieces))

        def frames(told: Told) -> Iterator[bytes]:
            place = {"index": 0}
            usage = {"input_tokens": told.prompt_tokens, "output_tokens": len(told.pieces)}
            events: list[tuple[str, Document]] = [
                ("message_start", {"message": message(told, [], None, 0)}),
                ("content_block_start", {**place, "content_block": {"type": "text", "text": ""}}),
                *(
                    ("content_block_delta", {**place, "delta": {"type": "text_delta", "text": piece}})
                    for piece in told.pieces
                ),
                ("content_block_stop", place),
                ("message_delta", {"delta": {"stop_reason": reason(told), "stop_sequence": None}, "usage": usage}),
                ("message_stop", {}),
            ]
            return _by_token(events, "content_block_delta")

        self._answer(asked, asking, copy, question, _first(asking, "max_tokens"), whole, frames)

    def _answer(
        self,
        asked: Asked,
        asking: Document,
        copy: Copy,
        question: str,
        most: int | None,
        whole: Callable[[Told], Document],
        frames: Callable[[Told], Iterable[bytes]],
    ) -> None:
        if asking.get("stream"):
            self.work.stream(asked, copy, question, most, SSE, frames)
        else:
            self.work.whole(asked, copy, question, most, whole)


def data(document: object) -> bytes:
    """A frame of OpenAI's streams."""
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


def event(name: str, document: object) -> bytes:
    """A frame that bears a name."""
    return b"event: " + name.encode() + b"\n" + data(document)


def said(messages: Any) -> str:
    """What a conversation comes to."""
    return "\n".join(
        f"{each.get('role')}: {_text(each.get('content'))}" for each in messages if isinstance(each, dict)
    )


def openai_error(status: int, message: str, code: str | None = None, kind: str | None = None) -> Document:
    """An error in OpenAI's words."""
    types = {400: "invalid_request_error", 404: "not_found_error"}
    return {
        "error": {
            "message": message,
            "type": kind or types.get(status, "api_error"),
            "param": None,
            "code": code,
        }
    }


def anthropic_error(status: int, message: str) -> Document:
    """An error in Anthropic's words."""
    types = {
        400: "invalid_request_error",
        401: "authentication_error",
        404: "not_found_error",
        429: "rate_limit_error",
        503: "overloaded_error",
    }
    return {"type": "error", "error": {"type": types.get(status, "api_error"), "message": message}}


def _model(asking: Document) -> str:
    model = asking.get("model")
    if not isinstance(model, str) or not model:
        raise Refused(400, "model is required")
    return model


def _text(given: Any) -> str:
    """The text in what may be a text or a list of parts."""
    if isinstance(given, list):
        return "".join(_text(each) for each in given)
    if isinstance(given, dict):
        return str(given.get("text", ""))
    return "" if given is None else str(given)


def _first(asking: Document, *names: str) -> int | None:
    for name in names:
        if isinstance(asking.get(name), int):
            return int(asking[name])
    return None


def _usage(told: Told) -> Document:
    output = len(told.pieces)
    return {
        "prompt_tokens": told.prompt_tokens,
        "completion_tokens": output,
        "total_tokens": told.prompt_tokens + output,
    }


def _closing(asking: Document, head: Document, told: Told) -> bytes:
    options = asking.get("stream_options")
    usage = b""
    if isinstance(options, dict) and options.get("include_usage"):
        usage = data({**head, "choices": [], "usage": _usage(told)})
    return usage + b"data: [DONE]\n\n"


def _by_token(events: Iterable[tuple[str, Document]], token: str) -> Iterator[bytes]:
    """The frames of ``events``, parted so that each part but the last has one token: that is what takes time."""
    part = b""
    for name, document in events:
        part += event(name, {"type": name, **document})
        if name == token:
            yield part
            part = b""
    yield part
