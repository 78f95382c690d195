"""How a target is reached: by address and port, never by a URL (CL-13)."""

from __future__ import annotations

import errno
from collections import deque
from socket import gaierror
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from twisted.internet.abstract import isIPAddress, isIPv6Address
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.error import (
    ConnectError,
    ConnectingCancelledError,
    ConnectionClosed,
    DNSLookupError,
    NoRouteError,
    TCPTimedOutError,
)
from twisted.internet.error import TimeoutError as ConnectTimeoutError
from twisted.internet.ssl import optionsForClientTLS

from pair.protocols.eager import eager_endpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from twisted.internet.interfaces import (
        IDelayedCall,
        IProtocol,
        IProtocolFactory,
        IReactorTime,
        IStreamClientEndpoint,
    )
    from twisted.python.failure import Failure

    from pair.protocols.calls import Target

C = TypeVar("C")
T = TypeVar("T")

CONNECT_SECONDS = 3.0

STAGGER_SECONDS = 0.3
AT_ONCE = 4

_NO_WAY = (errno.EHOSTUNREACH, errno.ENETDOWN, errno.EINVAL)
"""Besides ``ENETUNREACH``, for which Twisted has an error. The last is that of a link-local address without a zone."""

DialReason = Literal["refused", "timeout", "unreachable", "unresolvable"]


class DialError(Exception):
    """There is no connection to an address.

    Attributes:
        reason: ``refused``: it is none, or nobody listens; ``timeout``: it
            took too long; ``unreachable``: no way leads there;
            ``unresolvable``: the name has no address.
    """

    def __init__(self, reason: DialReason) -> None:
        super().__init__(reason)
        self.reason = reason


def address_endpoint(reactor: Any, host: str, port: int) -> IStreamClientEndpoint:
    """The endpoint of an address, dialled as it is, or of a name, resolved at each dial.

    Args:
        reactor: makes the connections.
        host: an IPv4 or IPv6 literal, the latter with a zone where it needs one; or a name.
        port: its port.

    Raises:
        UnicodeError: ``host`` is neither.
    """
    if isIPAddress(host) or isIPv6Address(host):
        return eager_endpoint(reactor, host, port)
    return HostnameEndpoint(reactor, host.encode("idna"), port)


def engine_endpoint(reactor: Any, target: Target) -> IStreamClientEndpoint:
    """The endpoint of an engine. TLS is checked against the system's authorities and the target's host.

    Args:
        reactor: makes the connections.
        target: the engine.
    """
    endpoint = address_endpoint(reactor, target.host, target.port)
    if not target.tls:
        return endpoint
    return wrapClientTLS(optionsForClientTLS(target.host), endpoint)


async def dial(
    reactor: Any, host: str, port: int, factory: IProtocolFactory, seconds: float = CONNECT_SECONDS
) -> IProtocol:
    """What ``factory`` built, connected to ``host`` and ``port`` (see :func:`address_endpoint`).

    Raises:
        DialError: There is none within ``seconds``.
    """

    def too_late(_: object, __: float) -> IProtocol:
        raise DialError("timeout")

    try:
        connected = address_endpoint(reactor, host, port).connect(factory)
        return await connected.addTimeout(seconds, reactor, too_late)
    except ConnectingCancelledError:
        raise CancelledError from None  # Else whoever dials in turn would take it for a failure, and go on.
    except (ConnectTimeoutError, TCPTimedOutError):
        raise DialError("timeout") from None
    except DNSLookupError:
        raise DialError("unresolvable") from None
    except ConnectError as error:
        no_way = isinstance(error, NoRouteError) or error.osError in _NO_WAY
        raise DialError("unreachable" if no_way else "refused") from None
    except gaierror:
        raise DialError("unreachable") from None  # Of a literal it means a zone that this host has not.
    except (ConnectionClosed, OSError, ValueError):
        raise DialError("refused") from None


class RaceLostError(Exception):
    """No candidate of a race was the right one.

    Attributes:
        misses: Why, of each that was tried, in the order in which they failed.
    """

    def __init__(self, misses: Sequence[Exception]) -> None:
        super().__init__()
        self.misses = tuple(misses)


def race(
    clock: IReactorTime,
    candidates: Iterable[C],
    attempt: Callable[[C], Deferred[T]],
    is_miss: Callable[[Exception], bool],
) -> Deferred[T]:
    """Try candidates in order, but not one only after the other: the first that succeeds wins (DS-37).

    The next one begins 300 ms after the one before it, or as soon as one
    fails; at most 4 are under way at once. When one has won the others are
    cancelled.

    Args:
        clock: For the intervals.
        candidates: The best first.
        attempt: Begins one; cancelled, it gives up.
        is_miss: Whether a failure is that of its candidate alone. Any other ends the race.

    Returns:
        What the winner gave. Fails with :class:`RaceLostError`, or with what
        ended the race.
    """
    return _Race(clock, candidates, attempt, is_miss).outcome


class _Race(Generic[C, T]):
    def __init__(
        self,
        clock: IReactorTime,
        candidates: Iterable[C],
        attempt: Callable[[C], Deferred[T]],
        is_miss: Callable[[Exception], bool],
    ) -> None:
        self.outcome: Deferred[T] = Deferred(lambda _: self._end())
        self._clock = clock
        self._left = deque(candidates)
        self._attempt = attempt
        self._is_miss = is_miss
        self._under_way: list[Deferred[T]] = []
        self._misses: list[Exception] = []
        self._timer: IDelayedCall | None = None
        self._over = False
        self._go_on()

    def _go_on(self) -> None:
        """Begin the next one, if there is one and room for it; lost is a race in which nothing is left to do."""
        self._stop_timer()
        if self._left and len(self._under_way) < AT_ONCE:
            # One that fails at once has begun the next when this returns; so the clock is set first.
            candidate = self._left.popleft()
            if self._left:
                self._timer = self._clock.callLater(STAGGER_SECONDS, self._due)
            going = self._attempt(candidate)
            self._under_way.append(going)
            going.addCallbacks(self._win, self._miss, callbackArgs=(going,), errbackArgs=(going,))
        elif not self._left and not self._under_way:
            self._end()
            self.outcome.errback(RaceLostError(self._misses))

    def _due(self) -> None:
        self._timer = None
        self._go_on()

    def _win(self, result: T, going: Deferred[T]) -> None:
        self._under_way.remove(going)
        self._end()
        self.outcome.callback(result)

    def _miss(self, failure: Failure, going: Deferred[T]) -> None:
        if self._over:
            return
        self._under_way.remove(going)
        error = failure.value
        if isinstance(error, Exception) and self._is_miss(error):
            self._misses.append(error)
            self._go_on()
        else:
            self._end()
            self.outcome.errback(failure)

    def _end(self) -> None:
        self._over = True
        self._stop_timer()
        losers, self._under_way = self._under_way, []
        for each in losers:
            each.cancel()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
