"""Requests for this node's own engine alone: the classes *pass*, *mutate* and *tunnel* (PX-25, PX-26, PX-75).

One try, streamed both ways, no job and no limit while bytes move: what a client
says to its engine in words that PAIR does not route.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from pair.proxy import trail
from pair.proxy.headers import request_head
from pair.proxy.plane import Plane, StopCode, credential_of, target_of
from pair.proxy.relay import Relay
from pair.proxy.replies import refusal
from pair.proxy.tunnel import Tunnel
from pair.proxy.unrecorded import UNRECORDED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pair.protocols.calls import UpstreamFailure
    from pair.protocols.http_client import Call
    from pair.protocols.response import ResponseHead
    from pair.proxy.collecting import Ended
    from pair.proxy.request import ClientRequest
    from pair.routing.dialects import AfterSuccess

HOLD = 1.0
"""Seconds for which the end of a mutation's answer is held at most (PX-26)."""


def own_engine(plane: Plane, facade: str) -> str | None:
    """The first running engine of the facade's own kind, by id (PX-26); None where there is none."""
    found = (each.status for each in plane.engines.inventory().engines)
    return min((each.id for each in found if each.routable and each.kind == facade), default=None)


def home_engine(plane: Plane, facade: str) -> str | None:
    """The first running engine whose home is ``facade``, by id (PX-25); None where there is none."""
    found = (each.status for each in plane.engines.inventory().engines)
    return min((each.id for each in found if each.routable and each.facade == facade), default=None)


class Direct:
    """One such request.

    Args:
        plane: the shared parts.
        request: the client's.
        engine: where it goes.
        ended: called with the request once, last.
        upgrade: the protocol that it asks to switch to; a request without a body.
        hop: what the engine is told of the way behind it (PX-80).
    """

    def __init__(
        self,
        plane: Plane,
        request: ClientRequest,
        engine: str,
        ended: Ended,
        upgrade: bytes | None = None,
        hop: int = 1,
    ) -> None:
        self.facade = request.facade
        self.engine = engine
        self.job: str | None = None
        self._plane = plane
        self._request = request
        self._ended = ended
        self._upgrade = upgrade
        self._hop = hop
        self._call: Call | None = None
        self._relay: Relay | Tunnel | None = None
        self._after: AfterSuccess = "nothing"

    def begin(self) -> None:
        """Send the head, and let the body follow at the engine's pace."""
        head = self._request.exchange.head
        self._send(None if head.has_body else b"", "chunked" if head.chunked else head.content_length)

    def _send(self, body: bytes | None, length: int | Literal["chunked"] | None) -> None:
        """Send the head with the body that is kept; None: it follows from the client."""
        plane, exchange = self._plane, self._request.exchange
        plane.underway[self] = None
        target = target_of(plane, self.engine)
        if target is None:
            self._refuse("engine_unreachable")
            return
        exchange.lost = self._client_gone
        trail.sent_directly(self._request, plane.node, self.engine)
        head = exchange.head
        sent = request_head(
            head.method,
            self._request.target,
            head.fields,
            authority=target.authority,
            length=length,
            hop=self._hop,
            credential=credential_of(plane, self.engine),
            upgrade=self._upgrade,
        )
        route, upgrades = self._request.route, self._upgrade is not None
        # What changes something is never sent twice, and what is switched serves nobody else.
        fresh = upgrades or (route is not None and route.role == "mutate")
        self._call = plane.pool.send(
            target, sent, body, self, fresh=fresh, head_only=self._request.head_only, upgrade=upgrades
        )
        if body is None:
            upload = _Upload(self._request, self._call, self._stalled)
            # In this order, so that the body rests until there is a connection.
            exchange.read_body(upload)
            self._call.register_producer(upload)

    def stop(self, code: StopCode) -> None:
        """Break off (PX-68)."""
        if self._relay is not None:
            self._relay.stop(code)
        else:
            self._give_up(code)

    def head_received(self, head: ResponseHead) -> None:
        """Pass the answer on from its head (PX-57)."""
        self._answer(head, b"", ())

    def _answer(self, head: ResponseHead, raw: bytes, parts: Sequence[bytes]) -> None:
        """Pass it on, with what has come of its body; but a redirect to the engine's own address is none (H13)."""
        assert self._call is not None, "an answer has a call"
        if 300 <= head.status < 400 and _leads_away(head.value(b"location")):
            self._give_up("engine_redirect")
            return
        plane, request, call = self._plane, self._request, self._call
        if head.status == 101:
            self._relay = tunnel = Tunnel(plane, request, call, head, self._end)
            tunnel.begin()
            return
        route = request.route
        self._after = after = route.after if route is not None and 200 <= head.status < 300 else "nothing"
        self._relay = relay = Relay(
            plane,
            request,
            call,
            head,
            plane.node,
            self.engine,
            UNRECORDED,
            (),
            self,
        )
        if after == "reread_first":
            _HeldEnd(plane, self.engine, request, call, relay).begin()
        else:
            relay.begin(raw, parts)

    def body_received(self, raw: bytes, parts: Sequence[bytes]) -> None:
        """Never happens: the relay takes over at the head."""
        raise AssertionError("the relay receives the body")

    def response_ended(self) -> None:
        """Never happens: see :meth:`body_received`."""
        raise AssertionError("the relay receives the end")

    def response_lost(self, failure: UpstreamFailure) -> None:
        """The engine broke off before it answered."""
        self._refuse("engine_unreachable")

    def _stalled(self) -> None:
        if self._relay is None:
            self._give_up("body_stalled")

    def _give_up(self, code: str) -> None:
        if self._call is not None:
            self._call.abort()
        self._refuse(code)

    def _refuse(self, code: str) -> None:
        self._request.refuse(refusal(code))
        self._end()

    def _client_gone(self) -> None:
        if self._call is not None:
            self._call.abort()
        self._end()

    def relayed(self, good: bool | None) -> None:
        """See :class:`pair.proxy.relay.RelayOwner`."""
        if good and self._after == "reread":
            self._plane.engines.refresh(self.engine)
        self._end()

    def _end(self) -> None:
        del self._plane.underway[self]
        self._ended(self._request)


class _HeldEnd:
    """Passes an answer on to its relay, but what completes it only when the engine's models were read (PX-26).

    Whoever pulled a model may then ask for it at once.
    """

    def __init__(self, plane: Plane, engine: str, request: ClientRequest, call: Call, relay: Relay) -> None:
        self._plane = plane
        self._engine = engine
        self._exchange = request.exchange
        self._call = call
        self._relay = relay
        self._held: list[Callable[[], None]] = []

    def begin(self) -> None:
        """The head is there."""
        self._pass(lambda: self._relay.begin(b"", ()))
        self._call.receiver = self

    def head_received(self, head: ResponseHead) -> None:
        """Never happens: the head came before."""
        raise AssertionError("a second head in one response")

    def body_received(self, raw: bytes, parts: Sequence[bytes]) -> None:
        """Pass it on, or hold it if it is the last."""
        payload = tuple(parts)
        self._pass(lambda: self._relay.body_received(raw, payload))

    def response_ended(self) -> None:
        """The engine is done: look what it has now."""
        self._held.append(self._relay.response_ended)
        listed: Deferred[None] = Deferred()
        self._plane.engines.refresh(self._engine).addBoth(lambda _: None if listed.called else listed.callback(None))
        listed.addTimeout(HOLD, self._plane.clock).addBoth(self._release)

    def response_lost(self, failure: UpstreamFailure) -> None:
        """The engine broke off."""
        self._relay.response_lost(failure)

    def _pass(self, step: Callable[[], None]) -> None:
        if self._call.complete:
            self._held.append(step)
        else:
            step()

    def _release(self, _: object) -> None:
        held, self._held = self._held, []  # They refer to us.
        for step in () if self._exchange.done else held:
            step()


def _leads_away(location: bytes | None) -> bool:
    """Whether a Location is more than a path."""
    return location is not None and (location[:1] != b"/" or location[:2] == b"//")


@implementer(IPushProducer)
class _Upload:
    """The client's body on its way into the call, paused and resumed by the engine's socket."""

    def __init__(self, request: ClientRequest, call: Call, stalled: Callable[[], None]) -> None:
        self._exchange = request.exchange
        self._chunked = request.exchange.head.chunked
        self._call = call
        self._stalled = stalled

    def body_received(self, data: bytes) -> None:
        """Pass on some of it."""
        self._call.write_body(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def body_ended(self) -> None:
        """It is whole."""
        if self._chunked:
            self._call.write_body(b"0\r\n\r\n")
        self._call.end_body()

    def body_stalled(self) -> None:
        """The client stopped in the middle of it."""
        self._stalled()

    def pauseProducing(self) -> None:
        """Take no more from the client for now."""
        self._exchange.pause_body()

    def resumeProducing(self) -> None:
        """Take more."""
        self._exchange.resume_body()

    def stopProducing(self) -> None:
        """The engine's socket is gone; whoever receives the response hears of it."""
