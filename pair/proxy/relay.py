"""One committed answer on its way to the client (PX-57 to PX-66).

From the first body byte on there is no second try: bytes pass as they come,
one write per read, and what happens at the end is told to the client in its
own dialect and to the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pair.protocols.http_exchange import Framing
from pair.proxy.endings import Ending, Tail, inspect
from pair.proxy.headers import response_fields
from pair.proxy.replies import frame, refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.interfaces import IJob
    from pair.protocols.calls import UpstreamFailure
    from pair.protocols.http1 import Fields
    from pair.protocols.http_client import Call
    from pair.protocols.response import ResponseHead
    from pair.proxy.plane import Plane, StopCode
    from pair.proxy.request import ClientRequest

SILENCE = 30.0
"""Seconds without a byte after which an engine that is not alive ends its stream (PX-64)."""


class RelayOwner(Protocol):
    """Who is told how an answer ended that was being passed on."""

    def relayed(self, good: bool | None) -> None:
        """Once: True after a good answer, False when the engine failed, None when the client or the stop ended it."""


class Relay:
    """Moves the bytes of one answer from an engine to the client.

    Args:
        plane: the shared parts.
        request: whose answer it is.
        call: the engine's side, whose receiver this becomes.
        head: of the engine's answer.
        node: where the engine is.
        engine: its id.
        job: is told how it ends.
        extra: fields of ours for the answer.
        owner: is told last that it has ended.

    Attributes:
        ending: what the end of a good answer said; None until then.
    """

    _received_at: float
    _taken_at: float

    __slots__ = (
        "_call",
        "_content_type",
        "_engine",
        "_exchange",
        "_extra",
        "_framing",
        "_head",
        "_job",
        "_node",
        "_owner",
        "_plane",
        "_raw",
        "_received",
        "_received_at",
        "_request",
        "_status",
        "_tail",
        "_taken",
        "_taken_at",
        "ending",
    )

    def __init__(
        self,
        plane: Plane,
        request: ClientRequest,
        call: Call,
        head: ResponseHead,
        node: str,
        engine: str,
        job: IJob,
        extra: Fields,
        owner: RelayOwner,
    ) -> None:
        self._plane = plane
        self._request = request
        self._exchange = request.exchange
        self._call = call
        self._head = head
        self._status = head.status
        self._node = node
        self._engine = engine
        self._job = job
        self._extra = extra
        self._owner = owner
        self.ending: Ending | None = None
        self._tail = Tail()
        coded = head.value(b"content-encoding") not in (None, b"identity")
        self._content_type = None if coded else head.value(b"content-type")
        self._framing = self._choose_framing()
        self._raw = self._framing is Framing.PASSED
        self._received = 0
        self._taken = 0

    def begin(self, raw: bytes, parts: Sequence[bytes]) -> None:
        """Send the head with the first bytes of the body, and pass on what follows."""
        head = self._head
        exchange = self._exchange
        exchange.lost = self.client_gone
        self._request.status = head.status
        fields = (*self._passed(), *self._request.cors, *self._extra)
        exchange.begin(head.status, head.reason, fields, self._framing, raw if self._raw else b"".join(parts))
        del self._head, self._extra  # The answer may take long, and is all that is still needed.
        self._tail.feed(parts)
        self._call.receiver = self
        if not self._call.complete:
            self._received_at = self._taken_at = self._plane.clock.seconds()
            exchange.register_producer(self._call)
            self._plane.sweep.watch(self)

    @property
    def received(self) -> int:
        """Octets of the body so far, as they came."""
        return self._call.received

    def head_received(self, head: ResponseHead) -> None:
        """Never happens: the head came before the commit."""
        raise AssertionError("a second head in one response")

    def body_received(self, raw: bytes, parts: Sequence[bytes]) -> None:
        """Pass on one read."""
        self._exchange.write(raw if self._raw else b"".join(parts))
        self._tail.feed(parts)

    def response_ended(self) -> None:
        """The answer is complete by its own framing; the engine may still have reported an error in it (PX-65)."""
        self._exchange.finish()
        self._conclude(self._ending())

    def response_lost(self, failure: UpstreamFailure) -> None:
        """The engine broke off: say so where a frame fits, and never end the answer as if it were whole (PX-63)."""
        self._break_off(failure.at_boundary, "stream_lost")

    def client_gone(self) -> None:
        """Stop the engine; a client that left after the last frame has its answer (PX-61, PX-62)."""
        self._call.abort()
        ending = self._ending()
        if ending.error or ending.finished:
            self._conclude(ending)
        else:
            self._job.cancelled("client_gone", self._call.received)
            self._close(None)

    def stop(self, code: StopCode) -> None:
        """Break off (PX-49, PX-68)."""
        at_boundary = self._call.at_boundary
        self._call.abort()
        self._say_in_stream(at_boundary, code)
        self._job.cancelled(code, self._call.received)
        self._close(None)

    def swept(self, now: float) -> None:
        """Look at the limits of PX-60 and PX-64."""
        settings = self._plane.settings
        exchange = self._exchange
        received = self._call.received
        taken = received - exchange.unsent
        if received != self._received:
            self._received, self._received_at = received, now
            self._plane.moved(self._node, self._engine)
        if taken != self._taken or not exchange.unsent:
            self._taken, self._taken_at = taken, now
        if now - self._taken_at >= settings.client_stall:
            exchange.abort()
            self.client_gone()
            return
        silent = 0.0 if exchange.unsent else now - self._received_at
        dead = silent >= SILENCE and not self._plane.alive(self._node, self._engine)
        if dead or (settings.stream_idle_max and silent >= settings.stream_idle_max):
            at_boundary = self._call.at_boundary
            self._call.abort()
            self._break_off(at_boundary, "stream_lost")

    def _passed(self) -> Fields:
        """The engine's fields that pass. They are noted, for the connection's next answer may have the same head."""
        head = self._head
        chunked = self._raw and head.chunked and head.status not in (204, 304)
        noted = head.notes.get(chunked)
        if noted is None or noted[0] != head.content_length:
            passed = response_fields(head.fields, chunked=chunked, status=head.status)
            noted = head.notes[chunked] = head.content_length, passed
        fields: Fields = noted[1]
        return fields

    def _choose_framing(self) -> Framing:
        """Follow the engine's framing where the client can read it (PX-58)."""
        head = self._head
        if self._request.exchange.head.minor == 0 and (head.chunked or head.content_length is None):
            return Framing.CLOSE
        framed = head.chunked or head.content_length is not None or head.status in (204, 304)
        return Framing.PASSED if framed or self._request.head_only else Framing.CHUNKED

    def _conclude(self, ending: Ending) -> None:
        if ending.error:
            self._job.failed("engine_error", self._status, self._call.received)
        else:
            self.ending = ending
            self._job.completed(self._status, self._call.received, ending.usage, ending.unterminated)
        self._close(not ending.error)

    def _break_off(self, at_boundary: bool, code: str) -> None:
        self._say_in_stream(at_boundary, code)
        self._job.failed(code, self._status, self._call.received)
        self._close(False)

    def _say_in_stream(self, at_boundary: bool, code: str) -> None:
        """One error frame if the stream stands between two frames, then the end without an end (PX-63)."""
        said = frame(refusal(code), self._request.family, self._content_type)
        if not (said and at_boundary and self._tail.between_frames(self._content_type)):
            self._exchange.abort()
            return
        if self._framing is Framing.PASSED:
            said = b"%x\r\n%b\r\n" % (len(said), said)
        self._exchange.write(said)
        self._exchange.cut()

    def _ending(self) -> Ending:
        route = self._request.route
        operation = "" if route is None else route.operation
        return inspect(self._request.family, operation, self._content_type, self._tail)

    def _close(self, good: bool | None) -> None:
        self._plane.sweep.leave(self)
        self._plane.meters.body_passed(self._call.received)
        self._owner.relayed(good)
        del self._owner  # It mostly refers to us; a cycle for each request would be work for the collector.
