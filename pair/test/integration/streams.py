"""Many clients at once, each of which says in one word how its answer ended (PX-63, PX-65).

The words: ``full``: all of the answer, to the last frame of its dialect.
``told``: an error frame of the dialect. ``cut``: the connection broke, or ended
before the framing did. ``empty``: a body of no bytes, complete by its framing.
A code of ours, or the status of an engine's: the answer was no 2xx, and an error of
the dialect. ``pretends``: it looks finished, and is not; it must never be seen.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pair.test.doubles import words
from pair.test.doubles.compatible import said
from pair.test.integration.node import LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

Document = dict[str, Any]


@dataclass(frozen=True)
class Heard:
    """What a streamed body says: the text, and whether it ends in the last frame or in an error frame."""

    text: str = ""
    finished: bool = False
    failed: bool = False


@dataclass(frozen=True)
class Dialect:
    """How one API is spoken.

    Attributes:
        path: where.
        streamed: reads the body of a stream, as far as it came.
        whole: the text of an answer that is one document.
        is_error: whether a document is an error.
    """

    path: str
    streamed: Callable[[bytes], Heard]
    whole: Callable[[Document], str]
    is_error: Callable[[Document], bool]


def _ollama_is_error(document: Document) -> bool:
    return isinstance(document.get("error"), str)


def _openai_is_error(document: Document) -> bool:
    error = document.get("error")
    return isinstance(error, dict) and isinstance(error.get("message"), str)


def _anthropic_is_error(document: Document) -> bool:
    return document.get("type") == "error" and isinstance(document["error"]["message"], str)


def _ollama_stream(body: bytes) -> Heard:
    documents = [json.loads(each) for each in body.split(b"\n")[:-1]] or [{}]
    text = "".join(each["message"]["content"] for each in documents if "message" in each)
    return Heard(text, documents[-1].get("done") is True, _ollama_is_error(documents[-1]))


def _openai_stream(body: bytes) -> Heard:
    *frames, (_, last) = [("", "{}"), *_events(body)]
    finished = last == "[DONE]"
    documents = [json.loads(each) for _, each in frames] + ([] if finished else [json.loads(last)])
    text = "".join(
        choice["delta"].get("content") or "" for each in documents for choice in each.get("choices", ()) if choice
    )
    return Heard(text, finished, _openai_is_error(documents[-1]))


def _anthropic_stream(body: bytes) -> Heard:
    events = [(name, json.loads(each)) for name, each in _events(body)] or [("", {})]
    text = "".join(each["delta"]["text"] for name, each in events if name == "content_block_delta")
    name, last = events[-1]
    return Heard(text, name == "message_stop", name == "error" and _anthropic_is_error(last))


def _events(body: bytes) -> list[tuple[str, str]]:
    """Name and data of the events of an SSE stream that are whole."""
    found = []
    for block in body.decode().split("\n\n")[:-1]:
        named = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((named.get("event", ""), named["data"]))
    return found


DIALECTS = (
    Dialect("/api/chat", _ollama_stream, lambda document: str(document["message"]["content"]), _ollama_is_error),
    Dialect(
        "/v1/chat/completions",
        _openai_stream,
        lambda document: str(document["choices"][0]["message"]["content"]),
        _openai_is_error,
    ),
    Dialect(
        "/v1/messages", _anthropic_stream, lambda document: str(document["content"][0]["text"]), _anthropic_is_error
    ),
)


class Crowd:
    """Clients that ask at the same moment, the dialects in turn, each its own question.

    Args:
        url: of the facade.
        model: that they ask.
        size: how many they are.
        stream: whether they want streams.
        first: called when all are connected, before the first asks.
        length: of each answer, in words; None: that of a short one.
        patience: seconds for which each waits for the next byte.

    Attributes:
        begun: how many have a byte of an answer's body.
    """

    def __init__(
        self,
        url: str,
        model: str,
        size: int,
        *,
        stream: bool = True,
        first: Callable[[], None] | None = None,
        length: int | None = None,
        patience: float = LIMIT,
    ) -> None:
        self.begun = 0
        self._length = length
        self._patience = patience
        self._place = urlsplit(url).netloc
        self._model = model
        self._stream = stream
        self._lock = threading.Lock()
        self._gate = threading.Barrier(size, first, LIMIT)
        pool = ThreadPoolExecutor(size)
        self._ends = [pool.submit(self._ask, number) for number in range(size)]
        pool.shutdown(wait=False)

    def ends(self) -> Counter[str]:
        """How often each end was seen; waits for all."""
        return Counter(each.result() for each in self._ends)

    def _ask(self, number: int) -> str:
        dialect = DIALECTS[number % len(DIALECTS)]
        wanted = "" if self._length is None else f" Say it in {self._length} words."
        messages = [{"role": "user", "content": f"What is thing {number}?{wanted}"}]
        asking = {"model": self._model, "messages": messages, "stream": self._stream, "max_tokens": 1000}
        connection = HTTPConnection(self._place, timeout=self._patience)
        try:
            connection.connect()
            self._gate.wait()
            connection.request("POST", dialect.path, json.dumps(asking), {"Content-Type": "application/json"})
            response = connection.getresponse()
            body, complete = self._read(response)
        except (OSError, HTTPException):
            return "cut"
        finally:
            connection.close()
        if response.status != 200:
            assert complete, body
            assert dialect.is_error(json.loads(body)), body
            return response.headers.get("X-Pair-Error") or str(response.status)
        return self._judge(dialect, body, complete, "".join(words.pieces(said(messages), None)[0]))

    def _read(self, response: HTTPResponse) -> tuple[bytes, bool]:
        """The body, and whether it is complete by its own framing."""
        parts: list[bytes] = []
        try:
            while part := response.read1(65536):
                if not parts:
                    with self._lock:
                        self.begun += 1
                parts.append(part)
        except (OSError, HTTPException):
            return b"".join(parts), False
        return b"".join(parts), not response.length

    def _judge(self, dialect: Dialect, body: bytes, complete: bool, answer: str) -> str:
        if self._stream:
            heard = dialect.streamed(body)
        elif complete and body:
            heard = Heard(dialect.whole(json.loads(body)), finished=True)
        else:
            heard = Heard()
        if heard.failed:
            return "told"
        if not complete:
            return "cut"
        if not body:
            return "empty"
        return "full" if heard.finished and heard.text == answer else "pretends"
