"""Questions to a running engine over HTTP, and who answers them (EN-9 to EN-11).

Every question carries ``X-Pair-Probe: 1``, so that a facade that is asked by
mistake knows it for what it is. Which ports are ours, and so never asked, is
the caller's business.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from twisted.internet import error
from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.endpoints import HostnameEndpoint, TCP4ClientEndpoint, TCP6ClientEndpoint, wrapClientTLS
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.ssl import optionsForClientTLS
from twisted.web.client import (
    Agent,
    HTTPConnectionPool,
    RequestTransmissionFailed,
    ResponseDone,
    ResponseFailed,
    ResponseNeverReceived,
)
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IBodyProducer, IResponse
from zope.interface import implementer

from pair.engines.facts import Answer, Identity, ProbeRequest
from pair.logs import Logger
from pair.privacy import Secret, normalize_error

if TYPE_CHECKING:
    from twisted.internet.interfaces import IConsumer, IStreamClientEndpoint
    from twisted.python.failure import Failure
    from twisted.web.client import URI

    from pair.interfaces import IEngineKind
    from pair.records.engines import EngineAddress

CONNECT_SECONDS = 0.5
ANSWER_SECONDS = 3.0
BODY_BYTES = 8 << 20

log = Logger()

Ask = Callable[["EngineAddress", ProbeRequest, "Secret | None"], "Deferred[Answer]"]
"""Asks one question. Fails with :exc:`Refused` or :exc:`NoAnswer`, or as it was cancelled."""


class Refused(Exception):  # noqa: N818 - what became of a question, not a fault
    """Nobody listens there."""


class NoAnswer(Exception):  # noqa: N818 - what became of a question, not a fault
    """Somebody is there, or may be, and gave no answer that is of use."""


class Sighting(Struct, frozen=True):
    """Who was found at an address.

    ``nothing``: refused. ``engine``: identified. ``locked``: it wants a token
    before it says who it is. ``foreign``: it answers and is something else.
    ``unclear``: no statement can be made (EN-11).
    """

    who: Literal["nothing", "engine", "locked", "foreign", "unclear"]
    identity: Identity = Identity()
    slots: int | None = None


async def sight(ask: Ask, kind: IEngineKind, address: EngineAddress, credential: Secret | None) -> Sighting:
    """Ask the ``identity`` requests of a kind at an address."""
    answers: dict[str, Answer] = {}
    silent = False
    for purpose, request in kind.requests.items():
        if not purpose.startswith("identity"):
            continue
        try:
            answers[purpose] = await ask(address, request, credential)
        except Refused:
            return Sighting("nothing")
        except NoAnswer:
            silent = True
    identity = kind.identify(answers)
    if identity is not None:
        return Sighting("engine", identity, kind.slots(answers))
    if any(each.status in (401, 403) for each in answers.values()):
        return Sighting("locked")
    return Sighting("unclear" if silent else "foreign")


class Prober:
    """The :data:`Ask` that is used: HTTP/1.1, a connection for each question.

    Args:
        reactor: connects and keeps time.
    """

    def __init__(self, reactor: Any) -> None:
        self._clock = reactor
        self._agent = Agent.usingEndpointFactory(
            reactor, _Endpoints(reactor), pool=HTTPConnectionPool(reactor, persistent=False)
        )

    def __call__(self, address: EngineAddress, request: ProbeRequest, credential: Secret | None) -> Deferred[Answer]:
        """See :data:`Ask`. The limits: 500 ms to connect, 3 s in all, 8 MiB of body (EN-11)."""
        fields = Headers({b"X-Pair-Probe": [b"1"], b"Accept": [b"application/json"], b"User-Agent": [b"PAIR"]})
        if credential is not None:
            fields.addRawHeader(b"Authorization", b"Bearer " + credential.reveal().encode())
        body = None
        if request.body is not None:
            fields.addRawHeader(b"Content-Type", b"application/json")
            body = _Body(request.body)
        scheme = "https" if address.tls else "http"
        url = f"{scheme}://{address.authority}{request.path}".encode()
        answer: Deferred[Answer] = (
            self._agent.request(request.method.encode(), url, fields, body)
            .addCallback(_read)
            .addTimeout(ANSWER_SECONDS, self._clock, _out_of_time)
        )
        return answer.addErrback(_normalized)


def _out_of_time(_: object, seconds: float) -> Answer:
    raise NoAnswer


def _normalized(failure: Failure) -> Failure:
    if _was_cancelled(failure):
        raise CancelledError from None
    if failure.check(NoAnswer):
        return failure
    if failure.check(error.ConnectionRefusedError):
        raise Refused from None
    assert failure.value is not None
    log.debug("A question to an engine got no answer: {error}", error=normalize_error(failure.value))
    raise NoAnswer from None


def _was_cancelled(failure: Failure) -> bool:
    """Whether the asker gave up: endpoints and Agent each have a word of their own for it."""
    if failure.check(ResponseFailed, ResponseNeverReceived, RequestTransmissionFailed):
        return any(map(_was_cancelled, failure.value.reasons))  # type: ignore[union-attr]
    return failure.check(CancelledError, error.ConnectingCancelledError) is not None


def _read(response: IResponse) -> Deferred[Answer]:
    fields = {
        name.decode("latin-1").lower(): values[-1].decode("latin-1")
        for name, values in response.headers.getAllRawHeaders()
    }
    collected = _Collected()
    response.deliverBody(collected)
    return collected.done.addCallback(lambda body: Answer(response.code, fields, body))


class _Collected(Protocol):
    """A body of at most 8 MiB."""

    def __init__(self) -> None:
        self.done: Deferred[bytes] = Deferred(lambda _: self._abort())
        self._parts: list[bytes] = []
        self._room = BODY_BYTES

    def dataReceived(self, data: bytes) -> None:
        self._room -= len(data)
        if self._room < 0:
            self._abort()
        else:
            self._parts.append(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.done.called:
            return
        if self._room >= 0 and reason.check(ResponseDone, PotentialDataLoss):
            self.done.callback(b"".join(self._parts))
        else:
            self.done.errback(NoAnswer())

    def _abort(self) -> None:
        assert self.transport is not None
        self.transport.loseConnection()


@implementer(IBodyProducer)
class _Body:
    def __init__(self, body: bytes) -> None:
        self.length = len(body)
        self._body = body

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:  # noqa: N802
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None: ...

    def resumeProducing(self) -> None: ...

    def stopProducing(self) -> None: ...


@implementer(IAgentEndpointFactory)
class _Endpoints:
    """Literal addresses are dialled as they are: no resolver, no thread."""

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:  # noqa: N802
        host = uri.host.decode()
        endpoint: IStreamClientEndpoint
        if isIPAddress(host):
            endpoint = TCP4ClientEndpoint(self._reactor, host, uri.port, timeout=CONNECT_SECONDS)
        elif isIPv6Address(host):
            endpoint = TCP6ClientEndpoint(self._reactor, host, uri.port, timeout=CONNECT_SECONDS)
        else:
            endpoint = HostnameEndpoint(self._reactor, host, uri.port, timeout=CONNECT_SECONDS)
        return wrapClientTLS(optionsForClientTLS(host), endpoint) if uri.scheme == b"https" else endpoint
