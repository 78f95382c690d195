"""What doubles are made of: requests, answers that take their time, faults, and a place to run.

It is HTTP by ``twisted.web``, on purpose: a double must not share the faults of
PAIR's own HTTP.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from pair.test.doubles.faults import STATUSES, Fault, Faults

if TYPE_CHECKING:
    from twisted.internet.interfaces import IDelayedCall, IReactorTime
    from twisted.web.http import Request

JSON = "application/json; charset=utf-8"
NDJSON = "application/x-ndjson"
SSE = "text/event-stream"

FLUSH = 0.02
"""Seconds for what was written to leave before the connection ends."""

Handler = Callable[["Asked"], None]


class Refused(Exception):  # noqa: N818 - an answer, not a fault of ours
    """The answer is an error of the dialect."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code


class Seen(Struct, frozen=True):
    """A request that came."""

    method: str
    path: str
    fields: dict[str, str]
    body: bytes


class Asked:
    """One request, and its answer.

    Args:
        request: of ``twisted.web``.
        seen: what came.
        clock: for answers that take their time.
        fault: what goes wrong with it.
        error: makes a frame of the dialect that tells of an error.
        fail: answers that it failed; for a whole answer, of which no half can be an error.
        left: called if the client goes before the answer has ended.

    Attributes:
        gone: the answer has ended, whoever ended it.
    """

    def __init__(
        self,
        request: Request,
        seen: Seen,
        clock: IReactorTime,
        fault: Fault | None,
        error: Callable[[str], bytes],
        fail: Callable[[Asked], None],
        left: Callable[[], None],
    ) -> None:
        self.seen = seen
        self.gone = False
        self._left = left
        self._broke = False
        self._request = request
        self._clock = clock
        self._fault = fault
        self._error = error
        self._fail = fail
        self._timer: IDelayedCall | None = None
        self._ended: list[Callable[[], None]] = []
        request.notifyFinish().addBoth(self._finished)

    def document(self) -> dict[str, Any]:
        """The body as a JSON object.

        Raises:
            Refused: it is something else.
        """
        if not self.seen.body:
            raise Refused(400, "missing request body")
        try:
            document = msgspec.json.decode(self.seen.body)
        except msgspec.DecodeError as error:
            raise Refused(400, str(error)) from None
        if not isinstance(document, dict):
            raise Refused(400, "json: cannot unmarshal into an object")
        return document

    def when_over(self, do: Callable[[], None]) -> None:
        """Call ``do`` once the answer has ended, or the client has left."""
        self._ended.append(do)

    # Whole answers

    def json(self, document: object, status: int = 200, **fields: str) -> None:
        """Answer with a document."""
        self.whole(msgspec.json.encode(document), JSON, status, **fields)

    def whole(self, body: bytes, content_type: str | None, status: int = 200, **fields: str) -> None:
        """Answer with a body."""
        if self.gone:
            return
        request, fault = self._request, self._fault
        if fault is not None and fault.fault == "error" and status < 300:
            self._fail(self)
            return
        if fault is not None and fault.fault in ("cut", "stall", "length"):
            self._head(status, content_type, len(body) + (100 if fault.fault == "length" else 0), fields)
            request.write(body if fault.fault == "length" else body[: len(body) // 2])
            if fault.fault != "stall":
                self._break(reset=fault.fault == "cut")
            return
        self._head(status, content_type, len(body), fields)
        request.write(body)
        request.finish()

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Go on later, unless the client leaves before; now, if there is no time to wait for."""
        if seconds <= 0:
            do()
        elif not self.gone:
            self._timer = self._clock.callLater(seconds, do)

    # Streams

    def stream(self, content_type: str, frames: Iterable[bytes], every: float, first: float = 0.0) -> None:
        """Answer frame by frame: the first after ``first`` seconds, the others ``every`` seconds apart."""
        self._frames(content_type, iter(frames), every, first, 0)

    def _frames(self, content_type: str, frames: Iterator[bytes], every: float, wait: float, sent: int) -> None:
        def step() -> None:
            self._timer = None
            if self.gone or self._broken(content_type, sent):
                return
            frame = next(frames, None)
            if frame is None:
                self._request.finish()
                return
            if not sent:
                self._head(200, content_type, None, {})
            self._request.write(frame)
            self._frames(content_type, frames, every, every, sent + 1)

        self.after(wait, step)

    def _broken(self, content_type: str, sent: int) -> bool:
        fault = self._fault
        if fault is None or fault.fault not in ("cut", "stall", "error", "length") or sent < fault.after:
            return False
        if not sent:
            self._head(200, content_type, None, {})
            self._request.write(b"")  # the head alone
        if fault.fault == "error":
            self._request.write(self._error("an error was encountered while running the model"))
            self._request.finish()
        elif fault.fault != "stall":
            self._break(reset=fault.fault == "cut")
        return True

    def reset(self) -> None:
        """Break off."""
        self._break(reset=True)

    # Within

    def begin(self, answer: Callable[[], None]) -> None:
        """Do what the fault says of the beginning, else ``answer``."""
        fault = self._fault
        if fault is None:
            answer()
        elif fault.fault == "slow":
            self.after(fault.seconds or 1.0, answer)
        elif fault.fault == "garbage":
            self._transport.write(b"\x16\x03\x01 this is no HTTP \xff\xfe\r\n\r\n")
            self._break(reset=False)
        elif fault.fault == "empty":
            self.whole(b"", JSON)
        elif fault.fault == "route":
            self.whole(b"404 page not found", "text/plain", 404)
        elif fault.fault != "hang":
            answer()

    def _head(self, status: int, content_type: str | None, length: int | None, fields: dict[str, str]) -> None:
        request = self._request
        request.setResponseCode(status)
        if content_type is not None:
            request.setHeader("Content-Type", content_type)
        if length is not None:
            request.setHeader("Content-Length", str(length))
        for name, value in fields.items():
            request.setHeader(name.replace("_", "-"), value)

    @property
    def _transport(self) -> Any:
        """Of the connection, below HTTP."""
        return self._request.channel.transport

    def _break(self, *, reset: bool) -> None:
        self._broke = True
        end = self._transport.abortConnection if reset else self._transport.loseConnection
        # Not at once: what was written before must have left, which a reset would undo.
        self._timer = self._clock.callLater(FLUSH, end)

    def _finished(self, result: object) -> None:
        self.gone = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        for each in self._ended:
            each()
        if isinstance(result, Failure) and not self._broke:
            self._left()


class Double(Resource):
    """A server of which requests are asked. Subclasses fill :attr:`routes`.

    Args:
        clock: turns all its timers.
        idle: seconds that an idle connection stays open; None: for good.

    Attributes:
        asked: the requests that came, but for those to itself.
        left: how many clients went before their answer had ended.
        open: the transports of its connections.
        routes: what answers, by method and path; a path that ends in ``/`` stands for all below it.
        own: the same, of what it is asked about itself; from this machine only.
        die: what the fault ``exit`` does.
    """

    isLeaf = True
    idle: float | None = None

    def __init__(self, clock: IReactorTime) -> None:
        super().__init__()
        self.clock = clock
        self.faults = Faults(clock)
        self.asked: list[Seen] = []
        self.left = 0
        self.routes: dict[tuple[str, str], Handler] = {}
        self.die: Callable[[], None] = self._end
        self.open: set[Any] = set()
        self.own: dict[tuple[str, str], Handler] = {
            ("POST", "/_double/fault"): self._put_fault,
            ("GET", "/_double/fault"): lambda asked: asked.json(self.faults.listed()),
            ("DELETE", "/_double/fault"): self._clear_faults,
            ("GET", "/_double/asked"): self._tell_asked,
            ("GET", "/_double/process"): lambda asked: asked.json({"pid": os.getpid()}),
        }

    def render(self, request: Request) -> int:
        """Answer a request; see :class:`twisted.web.resource.IResource`."""
        assert request.content is not None
        path = request.path.decode("ascii", "replace")
        fields = {
            name.decode("latin-1").lower(): values[-1].decode("latin-1")
            for name, values in request.requestHeaders.getAllRawHeaders()
        }
        seen = Seen(request.method.decode("ascii"), path, fields, request.content.read())
        own = self.own.get((seen.method, path)) if _is_near(request) else None
        fault = None
        if own is None:
            self.asked.append(seen)
            fault = self.faults.next(seen.method, path)
        request.responseHeaders.removeHeader(b"server")
        asked = Asked(
            request,
            seen,
            self.clock,
            fault,
            lambda message: self.error_frame(path, message),
            lambda asked: self._fail(asked, self.status(500, seen)),
            self._client_left,
        )
        if fault is not None and fault.fault == "exit":
            self.die()
            asked.reset()
        elif fault is not None and fault.fault in STATUSES:
            self._fail(asked, self.status(int(fault.fault), seen))
        else:
            asked.begin(lambda: self._answer(own or self._route(seen), asked))
        return NOT_DONE_YET

    def _answer(self, handler: Handler | None, asked: Asked) -> None:
        try:
            if handler is None:
                self.unknown(asked)
            else:
                handler(asked)
        except Refused as refused:
            self._fail(asked, refused)

    def _fail(self, asked: Asked, refused: Refused) -> None:
        fields = {"Retry_After": "1"} if refused.status in (429, 503) else {}
        asked.json(self.error(asked.seen.path, refused), refused.status, **fields)

    def _route(self, seen: Seen) -> Handler | None:
        for method in (seen.method, "GET" if seen.method == "HEAD" else ""):
            handler = self.routes.get((method, seen.path))
            below = [path for (way, path) in self.routes if way == method and path.endswith("/") and path != "/"]
            for prefix in below:
                if handler is None and seen.path.startswith(prefix) and seen.path != prefix:
                    handler = self.routes[method, prefix]
            if handler is not None:
                return handler
        return None

    # The dialect

    def status(self, status: int, seen: Seen) -> Refused:
        """What it says when it fails so."""
        words = {
            401: "unauthorized",
            429: "too many requests",
            500: "an error was encountered while running the model",
            503: "server busy, please try again.  maximum pending requests exceeded",
        }
        return Refused(status, words[status])

    def missing(self, seen: Seen) -> str:
        """The model that a request names."""
        try:
            return str(msgspec.json.decode(seen.body)["model"])
        except (msgspec.DecodeError, KeyError, TypeError):
            return ""

    def unknown(self, asked: Asked) -> None:
        """Answer a path that there is not."""
        raise NotImplementedError

    def error(self, path: str, refused: Refused) -> object:
        """The document that tells of an error."""
        raise NotImplementedError

    def error_frame(self, path: str, message: str) -> bytes:
        """The frame of a stream that tells of an error."""
        raise NotImplementedError

    # Itself

    def _put_fault(self, asked: Asked) -> None:
        try:
            fault = msgspec.json.decode(asked.seen.body, type=Fault)
        except msgspec.DecodeError as error:
            asked.json({"error": str(error)}, 400)
            return
        if fault.fault == "refuse" and fault.seconds is None:
            asked.json({"error": "a port that is closed for good cannot be asked to open"}, 400)
            return
        self.faults.put(fault)
        asked.json(fault)
        if fault.fault == "refuse":
            self.break_all()

    def _clear_faults(self, asked: Asked) -> None:
        self.faults.clear()
        asked.json({})

    def _tell_asked(self, asked: Asked) -> None:
        asked.json([{"method": each.method, "path": each.path} for each in self.asked])

    def _end(self) -> None:
        self.faults.put(Fault("refuse"))
        self.break_all()

    def _client_left(self) -> None:
        self.left += 1

    def break_all(self) -> None:
        """Reset all connections."""
        for transport in tuple(self.open):
            transport.abortConnection()


def _is_near(request: Request) -> bool:
    """Whether a request comes from this machine."""
    host = getattr(request.getClientAddress(), "host", "")
    return host == "::1" or host.startswith("127.")
