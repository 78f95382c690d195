"""A websocket between a client and this node's engine, once the engine has agreed to it (PX-75).

What passes here is not understood: the two connections are joined, each pausing
the other when it takes no more, and the end of the one is the end of the other.
No limit of time holds, and there is no job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from pair.proxy.headers import response_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twisted.internet.interfaces import IDelayedCall

    from pair.protocols.calls import UpstreamFailure
    from pair.protocols.http_client import Call
    from pair.protocols.response import ResponseHead
    from pair.proxy.plane import Plane, StopCode
    from pair.proxy.request import ClientRequest

LAST_BYTES = 5.0
"""Seconds that the engine has to take what a client sent before it left."""


class Tunnel:
    """Moves bytes both ways.

    Args:
        plane: the shared parts.
        request: the client's.
        call: the engine's side, answered 101.
        head: of that answer.
        ended: called once, last.
    """

    def __init__(
        self, plane: Plane, request: ClientRequest, call: Call, head: ResponseHead, ended: Callable[[], None]
    ) -> None:
        self._clock = plane.clock
        self._request = request
        self._exchange = request.exchange
        self._call = call
        self._engine = call.switched
        self._head = head
        self._ended = ended
        self._leaving: IDelayedCall | None = None

    def begin(self) -> None:
        """Tell the client, and join the two."""
        upgrade = ((b"Connection", b"Upgrade"), (b"Upgrade", b"websocket"))
        fields = response_fields(self._head.fields, chunked=False, extra=(*upgrade, *self._request.cors))
        self._request.status = self._head.status
        self._call.receiver = self
        self._exchange.lost = self._leave_engine
        exchange, call = self._exchange, self._call
        self._engine.registerProducer(_End(exchange.pause_body, exchange.resume_body), True)
        exchange.switch(fields, self._engine.write)
        exchange.register_producer(_End(call.pauseProducing, call.resumeProducing))

    def stop(self, code: StopCode) -> None:
        """Break off (PX-68); a tunnel has no words for why."""
        self._exchange.cut()
        if self._leaving is None:
            self._leave_engine()

    def head_received(self, head: ResponseHead) -> None:
        """Never happens: the head came before."""
        raise AssertionError("a second head in one response")

    def body_received(self, raw: bytes, parts: Sequence[bytes]) -> None:
        """Pass on what the engine sent."""
        self._exchange.write(raw)

    def response_ended(self) -> None:
        """The engine has closed: the client gets what is on its way, then the end."""
        self._exchange.cut()
        self._end()

    def response_lost(self, failure: UpstreamFailure) -> None:
        """The engine's side broke, which is an end as well."""
        self.response_ended()

    def _leave_engine(self) -> None:
        """The client is gone: the engine gets what is on its way, then the end."""
        self._engine.unregisterProducer()
        self._engine.loseConnection()
        self._leaving = self._clock.callLater(LAST_BYTES, self._give_up)

    def _give_up(self) -> None:
        self._call.abort()
        self._end()

    def _end(self) -> None:
        if self._leaving is not None and self._leaving.active():
            self._leaving.cancel()
        self._ended()


@implementer(IPushProducer)
class _End:
    """One end as the other's socket knows it: to be paused and resumed."""

    def __init__(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._pause = pause
        self._resume = resume

    def pauseProducing(self) -> None:
        """The other end takes no more for now."""
        self._pause()

    def resumeProducing(self) -> None:
        """It takes more."""
        self._resume()

    def stopProducing(self) -> None:
        """It is gone, of which the tunnel hears by other ways; what is under way to this end still goes there."""
