"""A client's request on its way through the data path, and the answers that PAIR makes itself."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from pair.proxy.browser import cors_fields
from pair.proxy.headers import origin_form
from pair.proxy.replies import Fields, Refusal, family_of, reply
from pair.routing.dialects import Family, Route, id_in_path, match, normalise_path

if TYPE_CHECKING:
    from pair.protocols.http_exchange import Exchange


class ClientRequest:
    """One exchange of a facade, named and placed.

    Attributes:
        exchange: the wire side.
        facade: where it came in.
        id: names it in the log and in ``X-Pair-Request``.
        method: as text.
        path: as sent, without the query; a listed one also without one trailing slash.
        target: what is forwarded: path and query.
        route: of the path table; None is the class *pass*.
        family: in whose dialect errors are told (PX-84).
        content_length: as its head has it.
        began_at: monotonic seconds.
        code: of the refusal that is its answer, if it was refused.
        status: of the answer; None while there is none, and when the client left before one.
    """

    __slots__ = (
        "began_at",
        "code",
        "content_length",
        "exchange",
        "facade",
        "family",
        "id",
        "method",
        "origin",
        "path",
        "route",
        "status",
        "target",
    )

    def __init__(self, exchange: Exchange, facade: str, id: str, began_at: float) -> None:
        self.exchange = exchange
        self.facade = facade
        self.id = id
        self.method, self.path, self.target, self.route, self.family = _place(
            facade, exchange.head.method, exchange.head.target
        )
        self.content_length = exchange.head.content_length
        self.origin: bytes | None = None
        self.began_at = began_at
        self.code: str | None = None
        self.status: int | None = None

    def allow_origin(self) -> None:
        """The Origin passed the browser policy: answers may be read by it (PX-20)."""
        self.origin = self.exchange.head.value(b"origin")

    @property
    def cors(self) -> Fields:
        """The fields that let the page that asked read the answer."""
        return cors_fields(self.origin)

    @property
    def head_only(self) -> bool:
        """The request is a HEAD."""
        return self.method == "HEAD"

    @property
    def websocket(self) -> bool:
        """It asks for a websocket (RFC 6455, section 4.1)."""
        head = self.exchange.head
        if head.upgrade is None or head.upgrade.lower() != b"websocket":
            return False
        return head.method == b"GET" and head.minor == 1 and not head.has_body

    @property
    def id_in_path(self) -> str:
        """The ``{id}`` of the route's path (PX-23)."""
        assert self.route is not None, "only a route has an id"
        return id_in_path(self.route, self.path)

    def explained(self, by_setting: bool) -> bool:
        """Whether the answer says which node and why (PX-83)."""
        return by_setting or self.exchange.head.value(b"x-pair-explain") == b"1"

    def refuse(self, why: Refusal, extra: Fields = ()) -> None:
        """Answer with an error of ours."""
        answer = reply(why, self.family, self.id, (*self.cors, *extra))
        self.code, self.status = why.code, answer.status
        self.exchange.respond(answer.status, answer.fields, answer.body)

    def respond(self, status: int, content_type: bytes, body: bytes, extra: Fields = ()) -> None:
        """Answer with something of ours."""
        self.status = status
        self.exchange.respond(status, ((b"Content-Type", content_type), *self.cors, *extra), body)

    def respond_unloaded(self, created_at: str, model: str, streaming: bool) -> None:
        """Answer an unload of a model that is loaded nowhere, as Ollama does (PX-36)."""
        empty = {"message": {"role": "assistant", "content": ""}} if self.path == "/api/chat" else {"response": ""}
        body = {"model": model, "created_at": created_at, **empty, "done": True, "done_reason": "unload"}
        line = msgspec.json.encode(body)
        if streaming:
            self.respond(200, b"application/x-ndjson", line + b"\n")
        else:
            self.respond(200, b"application/json", line)


def dialect_of(route: Route | None) -> str:
    """The family of a route as jobs and metrics name it: LM Studio's own routes speak OpenAI's dialect."""
    if route is None:
        return "other"
    return "openai" if route.family.startswith("lmstudio") else route.family


# Clients ask for the same few targets again and again.
@lru_cache(maxsize=128)
def _place(facade: str, method_sent: bytes, target_sent: bytes) -> tuple[str, str, bytes, Route | None, Family]:
    """The method, path, target, route and family of a request."""
    method = method_sent.decode("latin-1")
    raw_path, question, query = origin_form(target_sent).partition(b"?")
    sent = raw_path.decode("latin-1")
    path = normalise_path(sent)
    route = match(facade, method, path)
    if route is None:
        # What is not listed is for the engine to judge, down to the last slash.
        path = sent
    family = family_of(facade, path) if route is None else route.family
    return method, path, path.encode("latin-1") + question + query, route, family
