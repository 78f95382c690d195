"""One request over one connection that is made for it, with limits to time and size.

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

from pair.logs import Logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from twisted.internet.interfaces import IConsumer, IDelayedCall, IProtocol, IProtocolFactory, IReactorTime
    from twisted.python.failure import Failure
    from twisted.web.client import URI
    from twisted.web.http_headers import Headers
    from twisted.web.iweb import IResponse

    from pair.feeds.following import Receiver

    Connect = Callable[[IProtocolFactory], Awaitable[IProtocol]]
    """Makes the connection; gives what the factory built."""

FRAMING_MAX = 65_536
"""What an answer may have besides its body: head, and the framing of chunks."""

log = Logger()


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
    """The head and the body of the answer to a POST. Arguments and failures are those of :func:`ask` and of both."""
    answer = await ask(reactor, connect, b"POST", url, headers, body, limit, answer_seconds)
    return answer.response, await answer.content()


async def ask(
    reactor: IReactorTime,
    connect: Connect,
    method: bytes,
    url: bytes,
    headers: Headers,
    body: bytes | None,
    limit: int,
    answer_seconds: float | None = None,
) -> Answer:
    """An answer that has begun.

    Args:
        reactor: For the limits of time.
        connect: Makes the connection; what it fails with is passed on.
        method: The request's.
        url: Gives path and Host, unless ``headers`` has one. It is not dialled.
        headers: All fields but Content-Length and Connection.
        body: The request's; None: it has none.
        limit: The most octets of the answer's body, unless it is a stream.
        answer_seconds: The longest silence after the connection is made; None: no limit but the caller's.

    Raises:
        CallError: There is none.
    """
    door = _Door(reactor, connect, limit + FRAMING_MAX, answer_seconds)
    agent = Agent.usingEndpointFactory(reactor, door)
    try:
        response = await agent.request(method, url, headers, None if body is None else _Whole(body))
    except ResponseFailed as failed:
        raise door.broken_by(failed) from None
    except Exception:
        door.abort()
        raise
    return Answer(response, door, limit)


class Answer:
    """An answer, read as far as its head. It is to be taken by one of the three: content, stream, or not at all.

    Attributes:
        response: Its head.
    """

    def __init__(self, response: IResponse, door: _Door, limit: int) -> None:
        self.response = response
        self._door = door
        self._limit = limit

    async def content(self) -> bytes:
        """Its body, as long as the limit at most.

        Raises:
            CallError: It has no such body.
        """
        collector = _Collector(self._limit)
        self.response.deliverBody(collector)
        try:
            return await collector.whole
        except ResponseFailed as failed:
            raise self._door.broken_by(failed) from None
        except Exception:
            self._door.abort()
            raise

    def deliver(self, receiver: Receiver) -> None:
        """Provide the body as a :class:`pair.feeds.following.Stream`, as it comes and as long as it may be."""
        self._door.lift_limit()
        self.response.deliverBody(_Passing(receiver, self.abort))
        lost = self._door.gone.addCallback(lambda _: receiver.lost())
        lost.addErrback(lambda failure: log.failure("The end of a stream was not taken as it should be.", failure))

    def abort(self) -> None:
        """Close the connection at once, if it is not closed already."""
        self._door.abort()


class _Guard(ProtocolWrapper):
    """Breaks a connection off whose answer is too long, or too long in coming.

    Attributes:
        fault: Which of the two it was.
        gone: Fires when the connection is lost, and whoever is behind has heard of it.
    """

    factory: _Guards
    fault: Literal["timeout", "too_large"] | None = None
    _silence: IDelayedCall | None = None
    _received = 0
    _limited = True
    _lost = False

    def __init__(self, factory: _Guards, wrapped: IProtocol) -> None:
        super().__init__(factory, wrapped)
        self.gone: Deferred[None] = Deferred()

    def expect(self, seconds: float) -> None:
        """The first byte is to come within ``seconds`` from now."""
        self._silence = self.factory.clock.callLater(seconds, self._give_up)

    def dataReceived(self, data: bytes) -> None:
        self._stop_waiting()
        self._received += len(data)
        if self._limited and self._received > self.factory.octets:
            self.fault = "too_large"
            self.abortConnection()
        else:
            super().dataReceived(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._lost = True
        self._stop_waiting()
        super().connectionLost(reason)
        self.gone.callback(None)

    def abort(self) -> None:
        """Break it off, if it is not closed already."""
        if not self._lost:
            self.abortConnection()

    def lift_limit(self) -> None:
        """The answer may be as long as it will."""
        self._limited = False

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
    def gone(self) -> Deferred[None]:
        """Fires when the connection that was made is lost. To be waited for once."""
        assert self._guard is not None, "there is an answer"
        return self._guard.gone

    def lift_limit(self) -> None:
        """By the connection that was made may come in whatever will."""
        assert self._guard is not None, "there is an answer"
        self._guard.lift_limit()

    def abort(self) -> None:
        """Break the connection off, if there is one."""
        if self._guard is not None:
            self._guard.abort()

    def broken_by(self, failed: ResponseFailed) -> Exception:
        """Break the connection off, and say what became of the call that Twisted gave up so."""
        self.abort()
        if any(each.check(CancelledError) for each in failed.reasons):
            return CancelledError()
        fault = None if self._guard is None else self._guard.fault
        return CallError(fault or ("lost" if isinstance(failed, ResponseNeverReceived) else "broken"))

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


class _Passing(Protocol):
    """Passes an answer's body on as it comes. A body that has ended leaves a connection of no use."""

    def __init__(self, receiver: Receiver, abort: Callable[[], None]) -> None:
        self._receiver = receiver
        self._abort = abort

    def dataReceived(self, data: bytes) -> None:
        try:
            self._receiver.received(data)
        except Exception:  # noqa: BLE001 - Twisted would take it for a fault of the answer, and not tell it
            log.failure("A stream was not read as it should be.")
            self._abort()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._abort()
