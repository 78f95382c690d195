"""One request of a member at an engine of this node, with its hop kept awake (PX-54, PX-56, PX-88)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pair.proxy.collecting import Collector, Ended, KeptBody
from pair.proxy.direct import Direct
from pair.proxy.replies import engine_silent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.protocols.calls import UpstreamFailure
    from pair.protocols.response import ResponseHead
    from pair.proxy.request import ClientRequest

STALLED = ((b"X-Pair-Fault", b"engine_stalled"),)
"""Tells the sender that it is the engine that does not answer, and that this node does."""


class Served(Direct):
    """Goes to the one engine, once. Its body is kept until there is an answer (PX-50, PX-89).

    While there is nothing to answer yet, the member is told every 5 s that
    this node is at it. The answer's head waits for the first byte of its body,
    so that until then the member may still ask another node.
    """

    _head: ResponseHead | None = None
    _early = b""
    _body: KeptBody | None = None

    def begin(self) -> None:
        """Take the body, and send it on when it is whole."""
        self._request.exchange.interim()
        self._plane.sweep.watch(self)
        Collector(self._plane, self._request, self._collected, self._left).begin()

    def _left(self, request: ClientRequest) -> None:
        self._plane.sweep.leave(self)
        self._ended(request)

    def _collected(self, request: ClientRequest, body: KeptBody, _: Ended) -> None:
        self._body = body
        head = request.exchange.head
        self._send(body.data, len(body.data) if head.has_body else head.content_length)

    def swept(self, now: float) -> None:
        """Say that it is worked at, as long as there is hope (PX-56)."""
        if self._call is None or self._plane.engines.alive(self.engine):
            self._request.exchange.interim()
            return
        self._call.abort()
        self._request.refuse(engine_silent(), STALLED)
        self._end()

    def head_received(self, head: ResponseHead) -> None:
        """It is told with the first byte of the body; a refusal of the engine at once."""
        self._head = head
        if not 200 <= head.status < 300:
            self._answer(head, b"", ())

    def body_received(self, raw: bytes, parts: Sequence[bytes]) -> None:
        """The first payload byte brings the head along; framing alone does not."""
        self._early += raw
        if parts:
            assert self._head is not None, "a body has a head before it"
            self._answer(self._head, self._early, parts)

    def response_ended(self) -> None:
        """It has an empty body; without length or chunks that is none, and the engine died (S16)."""
        head, call = self._head, self._call
        assert head is not None, "a response that ended has a head"
        assert call is not None, "an answer has a call"
        if head.chunked or head.content_length == 0 or head.status in (204, 205) or self._request.head_only:
            self._answer(head, self._early, ())
            call.receiver.response_ended()
        else:
            self._broke()

    def response_lost(self, failure: UpstreamFailure) -> None:
        """Nothing has been told yet: the member may ask another node."""
        self._broke()

    def _broke(self) -> None:
        self._note_outcome(False)
        self._refuse("engine_unreachable")

    def _answer(self, head: ResponseHead, raw: bytes, parts: Sequence[bytes]) -> None:
        self._plane.sweep.leave(self)
        if self._body is not None:
            self._body.free()
        super()._answer(head, raw, parts)

    def relayed(self, good: bool | None) -> None:
        """See :class:`pair.proxy.relay.RelayOwner`."""
        if good is not None:
            self._note_outcome(good)
        super().relayed(good)

    def _note_outcome(self, good: bool) -> None:
        """Tell our engines how an answer ended (EN-30, RT-55)."""
        route = self._request.route
        if route is not None and route.role == "inference":
            self._plane.engines.note_outcome(self.engine, good)

    def _end(self) -> None:
        self._plane.sweep.leave(self)
        if self._body is not None:
            self._body.free()
        super()._end()
