"""One POST over one connection that is made for it, with limits to time and size.

Nothing here follows a redirect, keeps a cookie or asks a proxy, and what stands
in a URL is never dialled. It must not know whom it calls, nor what a request means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Protocol, connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.web.client import Agent, ResponseDone, ResponseFailed, ResponseNeverReceived
from twisted.web.iweb import IAgentEndpointFactory, IBodyProducer
from zope.interface import implementer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from twisted.internet.interfaces import IConsumer, IDelayedCall, IProtocol, IProtocolFactory, IReactorTime
    from twisted.python.failure import Failure
    from twisted.web.client import URI
    from twisted.web.http_headers import Headers
    from twisted.web.iweb import IResponse

    Connect = Callable[[IProtocolFactory], Awaitable[IProtocol]]
    """Makes the connection; gives what the factory built."""

FRAMING_MAX = 65_536
"""What an answer may have besides its body: head, and the framing of chunks."""


class CallError(Exception):
    """A call brought no whole answer.

    Attributes:
        reason: ``lost``: the connection ended before the first byte of an
            answer; ``timeout``: there was none in time; ``broken``: it is not
            whole, or no HTTP; ``too_large``: it is longer than was allowed.
    """

    def __init__(self, reason: Literal["lost", "timeout", "broken", "too_large"]) -> None:
        super().__init__(reason)
        self.reason = reason


async def post(
    reactor: IReactorTime,
    connect: Connect,
    url: bytes,
    headers: Headers,
    body: bytes,
    limit: int,
    answer_seconds: float | None = None,
) -> tuple[IResponse, bytes]:
    """The head and the body of an answer.

    Args:
        reactor: For the limits of time.
        connect: Makes the connection; what it fails with is passed on.
        url: Gives path and Host, unless ``headers`` has one. It is not dialled.
        headers: All fields but Content-Length and Connection.
        body: The request's.
        limit: The most octets of the answer's body.
        answer_seconds: The longest silence after the connection is made; None: no limit but the caller's.

    Raises:
        CallError: There is no whole answer.
    """
    door = _Door(reactor, connect, limit + FRAMING_MAX, answer_seconds)
    agent = Agent.usingEndpointFactory(reactor, door)
    try:
        response = await agent.request(b"POST", url, headers, _Whole(body))
        content = await _read(response, limit)
    except ResponseFailed as failed:
        door.abort()
        if any(each.check(CancelledError) for each in failed.reasons):
            raise CancelledError from None
        raise CallError(door.fault or ("lost" if isinstance(failed, ResponseNeverReceived) else "broken")) from None
    except Exception:
        door.abort()
        raise
    return response, content


def _read(response: IResponse, limit: int) -> Deferred[bytes]:
    collector = _Collector(limit)
    response.deliverBody(collector)
    return collector.whole


class _Guard(ProtocolWrapper):
    """Breaks a connection off whose answer is too long, or too long in coming.

    Attributes:
        fault: Which of the two it was.
    """

    factory: _Guards
    fault: Literal["timeout", "too_large"] | None = None
    _silence: IDelayedCall | None = None
    _received = 0
    _lost = False

    def expect(self, seconds: float) -> None:
        """The first byte is to come within ``seconds`` from now."""
        self._silence = self.factory.clock.callLater(seconds, self._give_up)

    def dataReceived(self, data: bytes) -> None:
        self._stop_waiting()
        self._received += len(data)
        if self._received > self.factory.octets:
            self.fault = "too_large"
            self.abortConnection()
        else:
            super().dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._lost = True
        self._stop_waiting()
        super().connectionLost(reason)

    def abort(self) -> None:
        """Break it off, if it is not closed already."""
        if not self._lost:
            self.abortConnection()

    def _give_up(self) -> None:
        self._silence = None
        self.fault = "timeout"
        self.abortConnection()

    def _stop_waiting(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None


class _Guards(WrappingFactory[_Guard]):
    noisy = False
    protocol = _Guard

    def __init__(self, wrapped: IProtocolFactory, octets: int, clock: IReactorTime) -> None:
        super().__init__(wrapped)
        self.octets = octets
        self.clock = clock


@implementer(IAgentEndpointFactory, IStreamClientEndpoint)
class _Door:
    """The one endpoint of one call, whatever its URL says.

    Args:
        reactor: For time limits.
        connect: Makes the connection.
        octets: How many may come in by it.
        answer_seconds: How long the first of them may take; None: as long as the call.
    """

    def __init__(self, reactor: IReactorTime, connect: Connect, octets: int, answer_seconds: float | None) -> None:
        self._reactor = reactor
        self._connect = connect
        self._octets = octets
        self._answer_seconds = answer_seconds
        self._guard: _Guard | None = None

    @property
    def fault(self) -> Literal["timeout", "too_large"] | None:
        """Why the connection was broken off from this side."""
        return None if self._guard is None else self._guard.fault

    def abort(self) -> None:
        """Break the connection off, if there is one."""
        if self._guard is not None:
            self._guard.abort()

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:  # noqa: N802 - Twisted's
        """See :class:`IAgentEndpointFactory`."""
        return self

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """See :class:`IStreamClientEndpoint`."""
        return Deferred.fromCoroutine(self._enter(protocolFactory))

    async def _enter(self, factory: IProtocolFactory) -> IProtocol:
        guard = await self._connect(_Guards(factory, self._octets, self._reactor))
        assert isinstance(guard, _Guard)
        self._guard = guard
        if self._answer_seconds is not None:
            guard.expect(self._answer_seconds)
        return guard.wrappedProtocol


@implementer(IBodyProducer)
class _Whole:
    """A request's body, written at once."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:  # noqa: N802 - Twisted's
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """It is all written."""

    resumeProducing = stopProducing = pauseProducing


class _Collector(Protocol):
    """Takes an answer's body.

    Attributes:
        whole: All of it. Cancelled, it takes no more; the connection is the caller's to end.
    """

    def __init__(self, limit: int) -> None:
        self.whole: Deferred[bytes] = Deferred()
        self._limit = limit
        self._body = bytearray()

    def dataReceived(self, data: bytes) -> None:
        if self.whole.called:
            return
        self._body += data
        if len(self._body) > self._limit:
            self.whole.errback(CallError("too_large"))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.whole.called:
            return
        if reason.check(ResponseDone):
            self.whole.callback(bytes(self._body))
        else:
            self.whole.errback(reason if reason.check(ResponseFailed) else CallError("broken"))
