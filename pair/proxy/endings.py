"""How an answer ended, told from the last bytes of its body (PX-62, PX-65).

Pure. All is looked at once, at the end; while bytes pass, they are only kept.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from pair.protocols import ndjson, sse
from pair.records.jobs import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIMIT = 8 * 1024
"""Octets of the end of a body that are kept."""

_TRIM = 4 * LIMIT
_FRAMES = 8
"""How many frames are looked at. What tells of the end stands in the last three, pings apart."""

_UNBOUNDED = frozenset({"generate", "responses"})
"""Operations whose last frame may be longer than ``LIMIT``: that it is not seen means nothing (PX-62)."""

_MOST = 2**53
_NUMBERS = frozenset({int, float})


class Tail:
    """Keeps the last ``LIMIT`` octets of a body as it passes. Parts are kept as they are, not copied."""

    __slots__ = ("_dropped", "_parts", "_size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._dropped = False

    def feed(self, parts: Sequence[bytes]) -> None:
        """Go on with ``parts`` of the body, without chunk framing."""
        self._parts += parts
        for part in parts:
            self._size += len(part)
        if self._size > _TRIM:
            self._trim()

    @property
    def data(self) -> bytes:
        """The last ``LIMIT`` octets, or all where there are no more."""
        return b"".join(self._parts)[-LIMIT:]

    @property
    def cut(self) -> bool:
        """The body is longer than ``data``."""
        return self._dropped or self._size > LIMIT

    def between_frames(self, content_type: bytes | None) -> bool:
        """Whether a frame may follow what a body of this type has so far (PX-63)."""
        media_type = _media_type(content_type)
        if media_type == b"text/event-stream":
            return sse.ends_frame(self.data)
        return media_type == b"application/x-ndjson" and ndjson.ends_frame(self.data)

    def _trim(self) -> None:
        first = len(self._parts)
        size = 0
        while size < LIMIT:
            first -= 1
            size += len(self._parts[first])
        del self._parts[:first]
        self._parts[0] = self._parts[0][size - LIMIT :]
        self._size = LIMIT
        self._dropped = True


class Ending(Struct, frozen=True):
    """What the end of a 2xx answer says. What it does not tell is None.

    ``finished``: the dialect's last frame is there; what closes now does no
    harm (PX-62). ``unterminated``: a stream whose dialect has a last frame goes
    on to its end without one; it matters for a body that is complete by its own
    framing. ``error``: the engine reports a failure. Durations are in seconds,
    as the engine measured them.
    """

    finished: bool = False
    unterminated: bool = False
    error: bool = False
    usage: Usage = Usage()
    prompt_seconds: float | None = None
    output_seconds: float | None = None


def inspect(family: str, operation: str, content_type: bytes | None, tail: Tail) -> Ending:
    """Read the end of an answer.

    Of a body that is neither SSE nor NDJSON something is known only if it is
    JSON and kept whole.

    Args:
        family: The dialect of the route, of :data:`pair.routing.dialects.Family`.
        operation: What is done on the route: ``chat``, ``generate`` …
        content_type: The answer's; None if it has a content coding, for that is not undone.
        tail: What was kept of the body.
    """
    media_type = _media_type(content_type)
    if media_type == b"text/event-stream":
        frames = sse.last_frames(tail.data, tail.cut, _FRAMES)
    elif media_type == b"application/x-ndjson":
        frames = [sse.Frame(b"", line) for line in ndjson.last_lines(tail.data, tail.cut, _FRAMES)]
    elif media_type == b"application/json" and not tail.cut:
        return _inspect_whole(family, _decode(tail.data))
    else:
        return Ending()
    finished = error = False
    told: dict[str, float] = {}
    for frame in frames:
        document = _decode(frame.data)
        finished = finished or _is_last(family, operation, frame, document)
        error = error or frame.event in (b"error", b"response.failed") or document.error is not None
        _read_facts(document, told)
    # Where not even one frame is whole, the last one is longer than what was kept: not seen, but not missing.
    missing = not finished and (bool(frames) or not tail.cut)
    return Ending(
        finished=finished,
        unterminated=missing and operation not in _UNBOUNDED,
        error=error,
        usage=Usage(_count(told, "prompt_tokens"), _count(told, "output_tokens")),
        prompt_seconds=told.get("prompt_seconds"),
        output_seconds=told.get("output_seconds"),
    )


def _inspect_whole(family: str, document: _Document) -> Ending:
    """Of an answer that is one document."""
    told: dict[str, float] = {}
    _read_facts(document, told)
    return Ending(
        finished=family == "ollama" and document.done is True,
        error=document.error is not None,
        usage=Usage(_count(told, "prompt_tokens"), _count(told, "output_tokens")),
        prompt_seconds=told.get("prompt_seconds"),
        output_seconds=told.get("output_seconds"),
    )


@lru_cache(maxsize=64)
def _media_type(content_type: bytes | None) -> bytes:
    return (content_type or b"").partition(b";")[0].strip().lower()


class _Document(Struct):
    """What is looked at of the JSON of a frame; all else, the answer itself above all, is not even built."""

    done: Any = None
    error: Any = None
    timings: Any = None
    stats: Any = None
    result: Any = None
    message: Any = None
    response: Any = None
    usage: Any = None
    prompt_eval_count: Any = None
    eval_count: Any = None
    prompt_eval_duration: Any = None
    eval_duration: Any = None


_read_document = msgspec.json.Decoder(_Document).decode


def _decode(frame: bytes) -> _Document:
    """The JSON object in ``frame``; an empty one for anything else."""
    try:
        return _read_document(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Document()


def _is_last(family: str, operation: str, frame: sse.Frame, document: _Document) -> bool:
    if family == "ollama":
        return document.done is True
    if family == "anthropic":
        return frame.event == b"message_stop"
    if family == "lmstudio1":
        return frame.event == b"chat.end"
    if operation == "responses":
        return frame.event in (b"response.completed", b"response.incomplete", b"response.failed")
    return frame.data == b"[DONE]"


_Figures = tuple[tuple[str, str, float], ...]
"""Fields of a section of a document, what each tells, and in which unit of it."""

_TOLD_IN: Mapping[str, tuple[tuple[str, ...], _Figures]] = {
    # llama.cpp, beside or instead of usage.
    "timings": (
        (),
        (
            ("prompt_n", "prompt_tokens", 1),
            ("predicted_n", "output_tokens", 1),
            ("prompt_ms", "prompt_seconds", 1e-3),
            ("predicted_ms", "output_seconds", 1e-3),
        ),
    ),
    # LM Studio: /api/v0, then /api/v1/chat, whole and as its last frame.
    "stats": (
        (),
        (
            ("generation_time", "output_seconds", 1),
            ("input_tokens", "prompt_tokens", 1),
            ("total_output_tokens", "output_tokens", 1),
        ),
    ),
    "result": (("stats",), (("input_tokens", "prompt_tokens", 1), ("total_output_tokens", "output_tokens", 1))),
    # Anthropic at the start; responses at the end.
    "message": (("usage",), (("input_tokens", "prompt_tokens", 1),)),
    "response": (("usage",), (("input_tokens", "prompt_tokens", 1), ("output_tokens", "output_tokens", 1))),
    # OpenAI; then Anthropic and responses, whole, and Anthropic before its last frame.
    "usage": (
        (),
        (
            ("prompt_tokens", "prompt_tokens", 1),
            ("completion_tokens", "output_tokens", 1),
            ("input_tokens", "prompt_tokens", 1),
            ("output_tokens", "output_tokens", 1),
        ),
    ),
}
"""Where engines tell of tokens and durations: in a field of the document, or below it. What stands later counts more.
"""

_OWN: _Figures = (
    ("prompt_eval_count", "prompt_tokens", 1),
    ("eval_count", "output_tokens", 1),
    ("prompt_eval_duration", "prompt_seconds", 1e-9),
    ("eval_duration", "output_seconds", 1e-9),
)
"""What Ollama tells in the document itself."""

_SECTIONS = tuple((field, path, figures) for field, (path, figures) in _TOLD_IN.items())

_CACHED = {
    "prompt_n": ("cache_n",),
    "input_tokens": ("cache_read_input_tokens", "cache_creation_input_tokens"),
}
"""Counts that leave out what a cache had, and the fields beside them that count it."""


def _read_facts(document: _Document, facts: dict[str, float]) -> None:
    if document.eval_duration is not None or document.eval_count is not None or document.prompt_eval_count is not None:
        _read(asdict(document), _OWN, facts)
    for first, path, figures in _SECTIONS:
        section = getattr(document, first)
        if section is None:
            continue
        for name in path:
            section = section.get(name) if isinstance(section, dict) else None
        if isinstance(section, dict):
            _read(section, figures, facts)


def _read(section: dict[str, Any], figures: _Figures, facts: dict[str, float]) -> None:
    """Add to ``facts`` what a section tells of ``figures``."""
    for field, told, unit in figures:
        value: Any = section.get(field)
        if type(value) in _NUMBERS and 0 <= value <= _MOST:  # else none that may be believed
            for each in _CACHED.get(field, ()):
                cached: Any = section.get(each)
                value += cached if type(cached) in _NUMBERS and 0 <= cached <= _MOST else 0
            facts[told] = value * unit


def _count(facts: dict[str, float], name: str) -> int | None:
    return int(facts[name]) if name in facts else None
