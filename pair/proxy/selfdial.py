"""Whether clients who dial a facade's port reach this process (EN-48).

A bind that succeeded does not say so: some systems let another program listen
on one address of a port that we have on all, and a firewall may send its
clients elsewhere.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Literal

from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as OutOfTime

from pair.protocols.calls import Target
from pair.records.engines import EngineAddress

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from twisted.internet.interfaces import IReactorTime
    from twisted.python.failure import Failure

    from pair.protocols.calls import UpstreamFailure
    from pair.protocols.pool import ClientPool
    from pair.protocols.response import ResponseHead
    from pair.proxy.listeners import Listeners

SECONDS = 1.0
"""For one answer."""

Who = Literal["us", "another", "nobody", "silent"]
"""Who answered. ``nobody``: there is no connection, so that no client is led astray either."""


class SelfDial:
    """Dials sockets of ours, and expects our own nonce.

    Args:
        clock: for the limit.
        pool: makes the connections.
        nonce: what a facade of this process answers a probe with (PX-16).
    """

    def __init__(self, clock: IReactorTime, pool: ClientPool, nonce: str) -> None:
        self._clock = clock
        self._pool = pool
        self._nonce = nonce.encode("ascii")

    def __call__(self, listeners: Listeners) -> Deferred[bool]:
        """Whether no one else answers at any loopback address that ``listeners`` have."""
        return Deferred.fromCoroutine(self._reaches_us(listeners))

    async def _reaches_us(self, listeners: Listeners) -> bool:
        for host in dialled(listeners.addresses):
            who = await self._ask(host, listeners.port)
            if who == "silent":  # the delay may have been ours
                who = await self._ask(host, listeners.port)
            if who in ("another", "silent"):
                return False
        return True

    def _ask(self, host: str, port: int) -> Deferred[Who]:
        authority = EngineAddress(host, port).authority.encode("ascii")
        target = Target("ourselves", host, port, authority)
        head = b"GET / HTTP/1.1\r\nHost: %b\r\nX-Pair-Probe: 1\r\nConnection: close\r\n\r\n" % authority
        answer = _Answer(self._nonce)
        call = self._pool.send(target, head, b"", answer, fresh=True)
        answer.who.addTimeout(SECONDS, self._clock).addErrback(_silent)

        def over(who: Who) -> Who:
            call.abort()
            return who

        return answer.who.addBoth(over)


class _Answer:
    """See :class:`pair.protocols.http_client.ResponseReceiver`; its head says it all."""

    def __init__(self, nonce: bytes) -> None:
        self.who: Deferred[Who] = Deferred()
        self._nonce = nonce

    def head_received(self, head: ResponseHead) -> None:
        self._tell("us" if head.value(b"x-pair-facade") == self._nonce else "another")

    def body_received(self, raw: bytes, parts: Sequence[bytes]) -> None: ...

    def response_ended(self) -> None: ...

    def response_lost(self, failure: UpstreamFailure) -> None:
        self._tell("nobody" if failure.kind == "connect" else "another")

    def _tell(self, who: Who) -> None:
        if not self.who.called:
            self.who.callback(who)


def dialled(addresses: Iterable[str]) -> tuple[str, ...]:
    """The loopback addresses at which clients reach sockets on ``addresses``. Pure."""
    found = []
    for each in map(ipaddress.ip_address, addresses):
        if each.is_unspecified:
            found.append("127.0.0.1" if each.version == 4 else "::1")
        elif each.is_loopback:
            found.append(str(each))
    return tuple(found)


def _silent(failure: Failure) -> Who:
    failure.trap(OutOfTime)
    return "silent"
