"""Answers of a Klein app: JSON of records, and every failure as a refusal (UI-23)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct
from twisted.internet.defer import Deferred
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from pair.logs import Logger
from pair.surfaces.refusals import Refusal, Refused, error_body, new_error_id

if TYPE_CHECKING:
    from klein import Klein
    from twisted.python.failure import Failure
    from twisted.web.iweb import IRequest

T = TypeVar("T")

JSON = b"application/json"

log = Logger()


class Reply(Struct, frozen=True):
    """A whole answer."""

    body: bytes
    status: int = 200
    content_type: bytes = JSON


def json_reply(value: Any, status: int = 200) -> Reply:
    """``value``, a record, as JSON."""
    return Reply(msgspec.json.encode(value), status)


def send(request: IRequest, reply: Reply) -> bytes:
    """Set head and length of the answer.

    Returns:
        Its body, as a Klein route returns it.
    """
    request.setResponseCode(reply.status)
    request.setHeader(b"Content-Type", reply.content_type)
    request.setHeader(b"Content-Length", b"%d" % len(reply.body))
    return reply.body


def detached(work: Deferred[T]) -> Deferred[T]:
    """The outcome of ``work``, which goes on when a client leaves: Klein cancels what it waits for then."""
    outcome: Deferred[T] = Deferred()
    work.addCallbacks(outcome.callback, outcome.errback)
    return outcome


def render_failures(app: Klein) -> None:
    """Make ``app`` tell of refusals, of unknown routes and of its own faults in one form."""

    @app.handle_errors(Refused)
    def refused(request: IRequest, failure: Failure) -> bytes:
        return _refuse(request, failure.value.refusal)  # type: ignore[union-attr]

    @app.handle_errors(HTTPException)
    def unrouted(request: IRequest, failure: Failure) -> bytes:
        return _refuse(request, _of_routing(failure.value))  # type: ignore[arg-type]

    @app.handle_errors(Exception)
    def failed(request: IRequest, failure: Failure) -> bytes:
        error_id = new_error_id()
        log.failure("A request failed ({id}).", failure=failure, id=error_id)
        return _refuse(request, Refusal(500, "internal", "A fault in PAIR; its log has the details."), error_id)


def _of_routing(error: HTTPException) -> Refusal:
    if isinstance(error, MethodNotAllowed):
        allowed = ", ".join(sorted(error.valid_methods or ())).encode()
        message = "This route does not have that method."
        return Refusal(405, "method_not_allowed", message, fields=((b"Allow", allowed),))
    return Refusal(404, "no_such_route", "There is no such route.")


def _refuse(request: IRequest, refusal: Refusal, error_id: str = "") -> bytes:
    for name, value in refusal.fields:
        request.setHeader(name, value)
    return send(request, Reply(error_body(refusal, error_id or new_error_id()), refusal.status))
