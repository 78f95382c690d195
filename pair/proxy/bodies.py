"""What routing needs to know of a request's body (PX-34 to PX-37).

Pure. A body is scanned once and never built: the routed fields alone are cut
out of it as raw JSON and read one by one, so that 30 MB of images cost
milliseconds. Nothing of the body is kept, and nothing else of it is judged;
that is the engine's business.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from pair.proxy.replies import Refusal, refusal
from pair.routing.candidates import Intent

if TYPE_CHECKING:
    from pair.routing.dialects import Route

_MODEL_BYTES = 512
# A raw value longer than this is not empty, whatever its blanks.
_SMALL = 64


class Routed(Struct, frozen=True):
    """What a request asks for. ``model`` is None where it names none."""

    model: str | None
    stream: bool
    intent: Intent = "run"


class _Fields(Struct):
    """The routed fields, each as it stands in the body; empty where it is absent."""

    model: Raw = Raw()
    name: Raw = Raw()
    stream: Raw = Raw()
    keep_alive: Raw = Raw()
    prompt: Raw = Raw()
    messages: Raw = Raw()
    input: Raw = Raw()


_decoder = msgspec.json.Decoder(_Fields)
_SURROGATES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)


def read(route: Route, content_type: bytes | None, body: bytes) -> Routed | Refusal:
    """The routed fields of a whole ``body``.

    A body that is not JSON is refused only where its content type says that it
    is. Clients that name another type, or none, send JSON all the same
    (``curl -d``), and engines take it: so it is tried, and what does not decode
    names no model.

    Args:
        route: The route of the request; its model comes from the body.
        content_type: As sent, with its parameters.
        body: The body, decoded from its transfer coding.

    Returns:
        Routed, or the refusal ``bad_request`` or ``bad_model``.
    """
    fields = _fields(body)
    if fields is None:
        return refusal("bad_request") if _is_json(content_type) else Routed(None, route.streams)
    raw = fields.model
    if not len(raw) and route.model_from == "body_or_name":
        raw = fields.name
    model = _word(raw) if len(raw) else ""
    if not isinstance(model, str) or not is_name(model):
        return refusal("bad_model")
    stream = _word(fields.stream)
    return Routed(
        model or None,
        stream if isinstance(stream, bool) else route.streams,
        _intent(route, fields) if model else "run",
    )


def _fields(body: bytes) -> _Fields | None:
    """The routed fields, or None where ``body`` is not JSON.

    Half of a surrogate pair is JSON by its grammar, which clients send that cut
    a text inside an emoji, and engines take: it is read as if it stood for the
    replacement character. The body that is sent on is as it was.
    """
    try:
        return _decoder.decode(body)
    except RecursionError:
        return None
    except msgspec.DecodeError:
        mended = _SURROGATES.sub(_replace_half, body)
    try:
        return None if mended == body else _decoder.decode(mended)
    except (msgspec.DecodeError, RecursionError):
        return None


def _replace_half(found: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if len(found[0]) == 6 else found[0]


def is_name(model: str) -> bool:
    """Whether ``model`` may be asked for: at most 512 bytes, no control characters (PX-35)."""
    if model.isascii() and model.isprintable():
        return len(model) <= _MODEL_BYTES
    if len(model.encode()) > _MODEL_BYTES:
        return False
    return not any(unicodedata.category(each) == "Cc" for each in model)


def _intent(route: Route, fields: _Fields) -> Intent:
    if route.family != "ollama":
        return "run"
    if not (_is_empty(fields.prompt) and _is_empty(fields.messages) and _is_empty(fields.input)):
        return "run"
    keep_alive = _value(fields.keep_alive)
    if keep_alive is not False and keep_alive in (0, "0", "0s"):
        return "unload"
    return "load" if route.operation in ("chat", "generate") else "run"


def _is_empty(raw: Raw) -> bool:
    return len(raw) <= _SMALL and not _value(raw)


def _word(raw: Raw) -> Any:
    """What ``raw`` says that is no person's text: the same few words come again and again."""
    return _value(raw) if len(raw) > _SMALL else _known_word(bytes(raw))


@lru_cache(maxsize=1024)
def _known_word(text: bytes) -> Any:
    return _value(Raw(text))


def _value(raw: Raw) -> Any:
    """What ``raw`` says; None where it says nothing."""
    try:
        return msgspec.json.decode(raw) if len(raw) else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _is_json(content_type: bytes | None) -> bool:
    media_type = (content_type or b"").partition(b";")[0].strip().lower()
    return media_type == b"application/json" or media_type.endswith(b"+json")
