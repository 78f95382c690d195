"""Lists of models, answered from what is known already (PX-69 to PX-74).

The merge is :mod:`pair.proxy.merge`; here is when to read an engine's list
again before answering, and how long to wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, DeferredList

from pair.proxy.merge import listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from twisted.internet.interfaces import IReactorTime

    from pair.interfaces import ILocalEngines
    from pair.proxy.request import ClientRequest
    from pair.routing.candidates import NodeFacts

FRESH = 10.0
"""Seconds for which an engine's list counts as fresh (PX-69)."""

GRACE = 30.0
"""Seconds for which an engine that missed the wait is not waited for again (PX-70)."""


class Listings:
    """Answers the routes of the class *listing*.

    Args:
        clock: for the wait.
        engines: of this node.
        nodes: all that is known of the nodes now.
        wait: ``proxy.list_wait``, in seconds.
        explain: ``proxy.explain``.
    """

    def __init__(
        self,
        clock: IReactorTime,
        engines: ILocalEngines,
        nodes: Callable[[], Iterable[NodeFacts]],
        wait: float,
        explain: bool,
    ) -> None:
        self._clock = clock
        self._engines = engines
        self._nodes = nodes
        self._wait = wait
        self._explain = explain
        self._refreshing: dict[str, Deferred[None]] = {}
        self._missed: dict[str, float] = {}

    def answer(self, request: ClientRequest, ended: Callable[[ClientRequest], None]) -> None:
        """Answer now if every list is fresh, else within the wait; then call ``ended`` with it."""
        late = self._late()

        def overran(result: object, _: float) -> object:
            self._missed |= dict.fromkeys(self._refreshing.keys() & late, self._clock.seconds() + GRACE)
            return result

        def respond(_: object) -> None:
            if not request.exchange.done:
                self._respond(request)
            ended(request)

        waiting = DeferredList([self._read(each) for each in late], consumeErrors=True)
        waiting.addTimeout(self._wait, self._clock, onTimeoutCancel=overran)
        waiting.addBoth(respond)
        request.exchange.lost = waiting.cancel

    def _late(self) -> list[str]:
        """The engines whose list is old and worth waiting for; all old ones are being read from now on."""
        now = self._clock.seconds()
        late = []
        for engine in self._engines.inventory().engines:
            status = engine.status
            old = status.models_at is None or now - status.models_at / 1000 > FRESH
            if not (status.routable and old):
                continue
            self._refresh(status.id)
            if now >= self._missed.get(status.id, 0):
                late.append(status.id)
        return late

    def _refresh(self, engine: str) -> None:
        if engine in self._refreshing:
            return
        reading = self._refreshing[engine] = self._engines.refresh(engine)

        def read(_: object) -> None:
            del self._refreshing[engine]

        reading.addBoth(read)

    def _read(self, engine: str) -> Deferred[None]:
        """Fires when the list of ``engine`` was read; to cancel it is to wait no longer, the reading goes on."""
        one: Deferred[None] = Deferred()
        shared = self._refreshing.get(engine)
        if shared is None:
            one.callback(None)
        else:
            shared.addBoth(lambda _: None if one.called else one.callback(None))
        return one

    def _respond(self, request: ClientRequest) -> None:
        route = request.route
        assert route is not None, "a list has a route"
        explain = request.explained(self._explain)
        request.respond(200, b"application/json", listing(request.facade, route, self._nodes(), explain=explain))
