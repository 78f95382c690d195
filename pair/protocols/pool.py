"""Connections kept for the next request, by target (PX-52)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionClosed
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from pair.protocols.http_client import Call, ClientConnection, DialTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IAddress, IDelayedCall, IProtocol, IReactorTime, IStreamClientEndpoint

    from pair.protocols.calls import ResponseReceiver, Target

_SWEEP_SECONDS = 1.0
_TIMEOUT = re.compile(rb"(?:^|[\s,;])timeout\s*=\s*(\d{1,9})(?!\d)", re.IGNORECASE)


class ClientPool:
    """Sends requests, each on a connection that is idle or on a new one.

    The connection that served last is taken first. One is closed when it has
    been idle for its time, when the other end closes it or sends on it
    unasked, and when ``max_idle`` rest for its target already.
    """

    def __init__(
        self,
        clock: IReactorTime,
        endpoint: Callable[[Target], IStreamClientEndpoint],
        connect_seconds: float = 3.0,
        upload_seconds: float = 30.0,
        max_idle: int = 32,
    ) -> None:
        """No connection yet.

        Args:
            clock: For all limits of time.
            endpoint: How a target is reached; for a ``tls`` one, TLS included.
            connect_seconds: For a new connection and its handshake together (PX-51).
            upload_seconds: How long a long request may wait for the socket (PX-51).
            max_idle: Idle connections kept for one target.
        """
        self._clock = clock
        self._endpoint = endpoint
        self._connect_seconds = connect_seconds
        self._upload_seconds = upload_seconds
        self._max_idle = max_idle
        self._idle: dict[Target, list[ClientConnection]] = {}
        self._open: set[ClientConnection] = set()
        self._dialling: set[Deferred[ClientConnection]] = set()
        self._sweeping: IDelayedCall | None = None
        self._closed: Deferred[None] | None = None

    def send(
        self,
        target: Target,
        head: bytes,
        body: bytes | None,
        receiver: ResponseReceiver,
        *,
        fresh: bool = False,
        head_only: bool = False,
        upgrade: bool = False,
    ) -> Call:
        """Send a request; ``receiver`` hears of the response, though not before this returns.

        A connection that served before and dies without a byte of response is
        replaced once by a new one, unseen by the receiver, if the body is kept
        (PX-50).

        Args:
            target: Where to.
            head: The whole request head, blank line included.
            body: All of the body; None where it follows by ``write_body`` and ``end_body``.
            receiver: Who is told.
            fresh: Use a new connection (PX-26).
            head_only: The request is a HEAD.
            upgrade: It asks for another protocol, with an empty body. After a 101 the body of the response
                is what comes on the connection, and :attr:`Call.switched` is where to write.
        """
        call = Call(
            target,
            head,
            body,
            receiver,
            head_only,
            upgrade,
            self._clock,
            self._upload_seconds,
            self,
        )
        call.start(None if fresh else self._take(target))
        return call

    def warm(self, target: Target) -> None:
        """Have a connection ready for ``target``, where none rests; one that cannot be had is no matter (PX-52)."""
        if self._closed is None and not self._idle.get(target):
            self.dial(target).addCallbacks(lambda ready: self._rest(ready, target.idle_seconds), lambda _: None)

    def drop(self, key: str) -> None:
        """Close idle connections to the targets called ``key``; those in use serve their call and no other."""
        for connection in self._open:
            if connection.target.key == key:
                connection.reusable = False
        for target in [each for each in self._idle if each.key == key]:
            for connection in self._idle.pop(target):
                connection.transport.loseConnection()

    def close(self) -> Deferred[None]:
        """Abort all connections; their calls fail, as does what is sent from now on.

        Returns:
            Fires when no socket is left.
        """
        if self._closed is None:
            self._closed = Deferred()
            self._idle.clear()
            if self._sweeping is not None:
                self._sweeping.cancel()
                self._sweeping = None
            for dialling in tuple(self._dialling):
                dialling.cancel()
            for connection in tuple(self._open):
                connection.transport.abortConnection()
            self._check_closed()
        return self._closed

    def dial(self, target: Target) -> Deferred[ClientConnection]:
        """See :class:`pair.protocols.http_client.Dialler`."""
        if self._closed is not None:
            return fail(ConnectionClosed())
        dialling = self._endpoint(target).connect(_Connections(self, target)).addCallback(_ready)
        dialling.addTimeout(self._connect_seconds, self._clock, _timed_out)
        self._dialling.add(dialling)

        def settled(result: ClientConnection | Failure) -> ClientConnection | Failure:
            self._dialling.discard(dialling)
            return result

        return dialling.addBoth(settled)

    def _take(self, target: Target) -> ClientConnection | None:
        """The idle connection that served last; what is past its time is closed on the way."""
        idle = self._idle.get(target)
        now = self._clock.seconds()
        while idle:
            connection = idle.pop()
            if connection.reusable and connection.idle_until > now:
                return connection
            connection.transport.loseConnection()
        return None

    def served(self, connection: ClientConnection, resting: bytes | None) -> None:
        """See :class:`pair.protocols.http_client.ConnectionOwner`."""
        self._rest(connection, _idle_seconds(resting, connection.target))

    def gone(self, connection: ClientConnection) -> None:
        """See :class:`pair.protocols.http_client.ConnectionOwner`."""
        self._open.discard(connection)
        idle = self._idle.get(connection.target)
        if idle and connection in idle:
            idle.remove(connection)
        self._check_closed()

    def _rest(self, connection: ClientConnection, life: float) -> None:
        idle = self._idle.setdefault(connection.target, [])
        if life <= 0 or len(idle) >= self._max_idle:
            connection.transport.loseConnection()
            return
        connection.idle_until = self._clock.seconds() + life
        idle.append(connection)
        if self._sweeping is None:
            self._sweeping = self._clock.callLater(_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Close what is past its time. One timer for all, none a request."""
        now = self._clock.seconds()
        for target, idle in list(self._idle.items()):
            kept = [each for each in idle if each.idle_until > now]
            for connection in idle:
                if connection.idle_until <= now:
                    connection.transport.loseConnection()
            if kept:
                self._idle[target] = kept
            else:
                del self._idle[target]
        self._sweeping = self._clock.callLater(_SWEEP_SECONDS, self._sweep) if self._idle else None

    def _check_closed(self) -> None:
        if self._closed is not None and not self._open and not self._closed.called:
            self._closed.callback(None)


class _Connections(Factory):
    """Makes the one connection of a dial."""

    noisy = False

    def __init__(self, pool: ClientPool, target: Target) -> None:
        self._pool = pool
        self._target = target

    def buildProtocol(self, address: IAddress | None) -> ClientConnection:
        """The socket is connected."""
        pool = self._pool
        connection = ClientConnection(self._target, pool)
        pool._open.add(connection)
        return connection


def _ready(connection: IProtocol) -> Deferred[ClientConnection]:
    assert isinstance(connection, ClientConnection)
    return connection.handshake or succeed(connection)


def _timed_out(result: object, seconds: float) -> Failure:
    return Failure(DialTimeoutError())


def _idle_seconds(resting: bytes | None, target: Target) -> float:
    """How long the connection may rest: a second less than the other end keeps it, if it says (PX-52)."""
    said = None if resting is None else _TIMEOUT.search(resting)
    return target.idle_seconds if said is None else int(said[1]) - 1.0
