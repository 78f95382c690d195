"""One facade as a service: its port, the connections on it, and who serves them (PX-2, PX-68)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.application.service import Service
from twisted.internet.defer import Deferred

from pair.protocols.firstbyte import FirstByteFactory
from pair.protocols.http_server import HTTPServerFactory
from pair.proxy.claim import Claim
from pair.proxy.listeners import Listen, Listeners, open_listeners
from pair.proxy.replies import family_of, refusal, reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from twisted.internet.interfaces import IReactorTime

    from pair.events import Signal
    from pair.interfaces import IErrorBook
    from pair.protocols.http1 import Fields
    from pair.proxy.admission import Admission
    from pair.records.endpoints import BypassReason, Endpoint

LAST_WORDS = 0.5
"""Seconds between the error frames of a stop and the end of all connections (OP-52, step 2)."""


class FacadeService(Service):
    """Serves one facade while it runs.

    Args:
        clock: for all limits.
        name: of the facade.
        admission: takes its requests.
        listen: opens a socket.
        addresses: of ``node.bind``.
        port: the one it wants.
        chosen: a person chose that port (EN-46).
        takes_over: it may take that port though an engine is used to it (EN-47).
        stand_ins: ports that may stand in for it, best first.
        holder: who holds a port that is taken.
        errors: where the claim's troubles are told.
        drain: seconds that open answers have at a stop.
    """

    def __init__(
        self,
        clock: IReactorTime,
        name: str,
        admission: Admission,
        listen: Listen,
        addresses: Sequence[str],
        port: int,
        chosen: bool,
        takes_over: bool,
        stand_ins: Callable[[], Iterator[int]],
        holder: Callable[[int], BypassReason],
        errors: IErrorBook,
        drain: float,
    ) -> None:
        self.setName(name)
        self._clock = clock
        self._facade = name
        self._admission = admission
        self._listen = listen
        self._addresses = addresses
        self._drain = drain
        self._http = HTTPServerFactory(clock, admission.received, self._refusal)
        self._front = FirstByteFactory(clock, self._http)
        self._claim = Claim(clock, name, port, chosen, takes_over, self._bind, stand_ins, holder, errors)

    @property
    def endpoint(self) -> Endpoint:
        """Where it listens now, or why not."""
        return self._claim.endpoint

    @property
    def changed(self) -> Signal[Endpoint]:
        """Emits the endpoint when it changes."""
        return self._claim.changed

    @property
    def ports(self) -> frozenset[int]:
        """All ports on which it accepts."""
        return self._claim.ports

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return self._http.connections

    def startService(self) -> None:
        """Take the port, or one that stands in for it."""
        super().startService()
        self._claim.begin()

    def stopService(self) -> Deferred[None]:
        """Accept no more, let open answers end for the time of the drain, then break them off (PX-68)."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._admission.stopping = True
        await self._claim.end()
        # What the error frames need to leave the sockets is one turn; whoever reads no more is cut.
        ends = [
            self._clock.callLater(self._drain, self._admission.stop),
            self._clock.callLater(self._drain + LAST_WORDS, self._http.abort_all),
        ]
        await self._http.drain()
        for each in ends:
            if each.active():
                each.cancel()

    def _bind(self, port: int) -> Listeners:
        return open_listeners(self._listen, self._front, self._addresses, port)

    def _refusal(self, status: int, code: str) -> tuple[Fields, bytes]:
        """The answer to what never became a request."""
        answer = reply(refusal(code), family_of(self._facade, "/"), self._admission.next_id())
        return answer.fields, answer.body
