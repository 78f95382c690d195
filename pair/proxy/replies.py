"""Answers made here: refusals and stream errors in the caller's own dialect (PX-84, PX-85, PX-39, PX-24).

Pure. No text here holds an address, a file path, a host name or an error's own
words; names that came from a client are cleaned before they are quoted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from pair.privacy import clean_text
from pair.routing.dialects import match

if TYPE_CHECKING:
    from collections.abc import Collection

    from pair.routing.dialects import Family

Fields = tuple[tuple[bytes, bytes], ...]

_NAME_LIMIT = 128

_CODES: Final[dict[str, tuple[int, str]]] = {
    # code: status and text; the text is a str.format template.
    "bad_request": (400, "the request is not well formed"),
    "bad_model": (400, "the model of a request is a text of at most 512 bytes without control characters"),
    "request_timeout": (408, "the request took too long to arrive"),
    "body_stalled": (408, "the body of the request stopped arriving"),
    "proxy_facade": (409, "this is a router, not an engine"),
    "unsupported_encoding": (415, "the body of a request must not be compressed"),
    "bad_host": (
        421,
        "the Host of this request is not this machine; further names of it go into the setting proxy.allowed_hosts",
    ),
    "loopback_only": (
        403,
        "requests without TLS are taken from this machine only; to send them from another one, make it a node too",
    ),
    "bad_origin": (
        403,
        "web pages of this origin may not send requests here; to allow them add it to the setting proxy.origins",
    ),
    "peer_path": (403, "members send inference here, and nothing else"),
    "route_unknown": (404, "no engine on this machine serves this path"),
    "too_large": (413, "the body of the request is larger than proxy.max_body allows ({limit} bytes)"),
    "route_unsupported": (501, "the engines{having} do not serve this route{instead}"),
    "busy": (503, "every engine for this request is busy"),
    "overloaded": (503, "too many requests at once"),
    "stopping": (503, "this node is stopping"),
    "no_local_engine": (503, "no engine of the kind that this request needs runs on this machine"),
    "cancelled": (503, "the request was cancelled by an operator"),
    "internal": (500, "an error inside PAIR; its log has the details under the request's id"),
    "model_unknown": (502, "no node has the model '{model}'; what there is: pair-admin model list"),
    "model_not_loaded": (
        502,
        "the model '{model}' is not loaded, and only loaded models are offered; load it in its engine",
    ),
    "owners_offline": (502, "no machine{having} can be reached; switched off or away: {count}"),
    "engine_stopped": (
        502,
        "the engine{having} does not run: {engine}; why: pair-admin engine list",
    ),
    "owners_excluded": (502, "the machines{having} take no such requests: {reason}"),
    "no_engine": (502, "no engine that serves this route runs; which there are: pair-admin engine list"),
    "engine_unreachable": (502, "no engine for this request could be reached"),
    "engine_redirect": (502, "the engine answered with a redirect, which is not followed"),
    "stream_lost": (502, "the engine broke off in the middle of its answer"),
    "node_silent": (504, "the node that served this request fell silent"),
    "engine_silent": (504, "the engine fell silent before its answer began{limit}"),
    "loop": (508, "the request came back to the router that sent it"),
}

_TYPES: Final[dict[int, tuple[str, str]]] = {
    # status: the type in OpenAI's words and in Anthropic's; every other status is the caller's mistake.
    403: ("permission_error", "permission_error"),
    404: ("not_found_error", "not_found_error"),
    413: ("invalid_request_error", "request_too_large"),
    500: ("server_error", "api_error"),
    502: ("server_error", "api_error"),
    503: ("server_error", "overloaded_error"),
    504: ("server_error", "api_error"),
    508: ("server_error", "api_error"),
}
_FINAL: Final = frozenset(
    {
        "model_unknown",
        "model_not_loaded",
        "route_unsupported",
        "owners_excluded",
        "no_local_engine",
        "proxy_facade",
        "loop",
    }
)
"""What stays as it is until somebody does something, though its status is one after which clients try again."""
_CALLERS_MISTAKE = ("invalid_request_error", "invalid_request_error")


class Refusal(Struct, frozen=True):
    """Why a request goes no further. ``retry_after`` is in seconds."""

    status: int
    code: str
    text: str
    retry_after: int | None = None


class Reply(Struct, frozen=True):
    """A whole answer, as ``Exchange.respond`` takes it."""

    status: int
    fields: Fields
    body: bytes


def refusal(code: str, *, retry_after: int | None = None, **values: str | int) -> Refusal:
    """The refusal ``code`` with its usual status.

    Args:
        code: One of the table of PX-85.
        retry_after: Seconds after which the client may come again.
        values: What the code's text has in braces; texts are cleaned and cut.

    Raises:
        KeyError: No such code, or a value of its text is missing.
    """
    status, template = _CODES[code]
    return Refusal(status, code, template.format(**{key: _clean(value) for key, value in values.items()}), retry_after)


def no_owner(
    answer: str,
    model: str,
    *,
    offline: int = 0,
    engine: str = "",
    excluded_by: Collection[str] = (),
) -> Refusal:
    """The gate's answer where no candidate is left (PX-39), ending in the step that helps.

    Args:
        answer: One of RT-21 but ``route_unsupported``, which is :func:`route_unsupported`.
        model: The name that the client sent; empty where it sent none.
        offline: For ``owners_offline``: how many nodes have it and cannot be reached.
        engine: For ``engine_stopped``: the id of that engine.
        excluded_by: For ``owners_excluded``: the ``drained`` and ``label_rule`` of the owners.
    """
    reasons = []
    if "drained" in excluded_by:
        reasons.append("they are drained")
    if "label_rule" in excluded_by:
        reasons.append("a routing rule excludes them (routing.rule in pair.toml)")
    return refusal(
        answer,
        model=model,
        having=_having(model),
        count=offline,
        engine=engine,
        reason=", ".join(reasons),
    )


def route_unsupported(model: str, instead: str | None) -> Refusal:
    """All owners of ``model`` lack the route; ``instead`` is their path for the same work, if any (PX-24)."""
    return refusal("route_unsupported", having=_having(model), instead="" if instead is None else f"; use {instead}")


def _having(model: str) -> str:
    """Which machines or engines are spoken of: those with the model, or simply all."""
    return f" with the model '{_clean(model)}'" if model else ""


def model_not_found(model: str) -> Refusal:
    """The answer of owner routes to a model that nobody has, in the engines' own words (PX-27).

    ``ollama run`` pulls the model when it reads this.
    """
    return Refusal(404, "model_unknown", f"model '{_clean(model)}' not found")


def engine_silent(setting: str | None = None, seconds: float = 0) -> Refusal:
    """No answer began in time (PX-46); where a limit of ours ended the wait, it is named with its setting (PX-51)."""
    limit = "" if setting is None else f" ({setting} allows {seconds:g} s)"
    return refusal("engine_silent", limit=limit)


def member_refused(code: str) -> Refusal:
    """The answer where a member refused the request and nobody else is left (PX-46).

    A member's doors are none of our client's business: that it took us for no
    member, or lacks the path, is told as an engine that is out of reach. The
    status is that of the code, whatever the member sent with it.
    """
    status = _CODES[code][0] if code in _CODES else 403
    if status == 403:
        return refusal("engine_unreachable")
    return Refusal(status, code, f"the node that was to serve the request refused it ({code})", None)


def family_of(facade: str, path: str) -> Family:
    """In whose dialect the callers of ``path`` (as sent, without the query) expect an error (PX-84)."""
    route = match(facade, "POST", path) or match(facade, "GET", path)
    if route is not None:
        return route.family
    if path.startswith("/v1/messages"):
        return "anthropic"
    return "ollama" if facade == "ollama" else "openai"


def reply(why: Refusal, family: Family, request_id: str, extra: Fields = ()) -> Reply:
    """The answer that tells ``why``.

    Args:
        why: What is refused.
        family: Whose dialect it is told in.
        request_id: The id that the log has for this request (X10).
        extra: Fields besides, of CORS for one.
    """
    fields = [
        (b"Content-Type", b"application/json"),
        (b"X-Pair-Error", why.code.encode()),
        (b"X-Pair-Request", request_id.encode()),
        (b"X-Content-Type-Options", b"nosniff"),
        *extra,
    ]
    if why.code in _FINAL:
        fields.append((b"X-Should-Retry", b"false"))  # the clients of OpenAI and Anthropic heed it
    if why.retry_after is not None:
        fields.append((b"Retry-After", b"%d" % why.retry_after))
    return Reply(why.status, tuple(fields), msgspec.json.encode(_body(why, family)))


def frame(why: Refusal, family: Family, content_type: bytes | None) -> bytes:
    """The frame that tells ``why`` inside a stream that has begun (PX-63).

    Empty where the stream's ``content_type`` has no frames: then there is
    nothing to say but to break off.
    """
    media_type = (content_type or b"").partition(b";")[0].strip().lower()
    if media_type == b"application/x-ndjson":
        return msgspec.json.encode({"error": why.text}) + b"\n"
    if media_type != b"text/event-stream":
        return b""
    if family == "anthropic":
        return b"event: error\ndata: " + msgspec.json.encode(_body(why, family)) + b"\n\n"
    data = _body(why, "openai")
    if family == "lmstudio1":
        return b"event: error\ndata: " + msgspec.json.encode({"type": "error", **data}) + b"\n\n"
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def _body(why: Refusal, family: Family) -> dict[str, object]:
    if family == "ollama":
        return {"error": why.text}
    openai, anthropic = _TYPES.get(why.status, _CALLERS_MISTAKE)
    if family == "anthropic":
        return {"type": "error", "error": {"type": anthropic, "message": why.text}}
    # An unknown model on an owner route has the code that OpenAI's own clients know (PX-27).
    code = "model_not_found" if why.status == 404 and why.code == "model_unknown" else why.code
    return {"error": {"message": why.text, "type": openai, "code": code, "param": None}}


def _clean(value: str | int) -> str | int:
    return clean_text(value, _NAME_LIMIT) if isinstance(value, str) else value
