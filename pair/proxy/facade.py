"""One facade as a service: its port and its alias, the connections there, and who serves them (PX-2, PX-68)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from twisted.application.service import Service
from twisted.internet.defer import Deferred

from pair.engines.ports import Wish
from pair.protocols.firstbyte import FirstByteFactory
from pair.protocols.http_server import HTTPServerFactory
from pair.proxy.claim import Claim, Entries, Host
from pair.proxy.ingress import LIMITS, Ingress
from pair.proxy.listeners import Listen, Listeners, open_listeners, with_loopback
from pair.proxy.replies import family_of, refusal, reply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twisted.internet.interfaces import IProtocolFactory, IReactorTime

    from pair.engines.alias import Alias
    from pair.events import Signal
    from pair.interfaces import IErrorBook
    from pair.protocols.http1 import Fields
    from pair.proxy.admission import Admission
    from pair.records.endpoints import Endpoint

LAST_WORDS = 0.5
"""Seconds between the error frames of a stop and the end of all connections (OP-52, step 2)."""


def port_entries(facade: str) -> Entries:
    """What is reported of a facade's port; where a setting keeps it away, that is as wished (EN-46, EN-47, EN-49)."""
    bypassed, taken = f"proxy:port_bypassed:{facade}", f"proxy:port_taken:{facade}"
    return Entries({"bypassed": bypassed, "failed": taken}, quiet="setting")


def alias_entries(facade: str) -> Entries:
    """What is reported of an alias; where an engine of ours answers, that is as it should be (EN-54)."""
    blocked = f"proxy:alias_blocked:{facade}"
    return Entries({"bypassed": blocked, "failed": blocked}, quiet="engine")


class FacadeService(Service):
    """Serves one facade while it runs.

    Args:
        clock: for all limits.
        name: of the facade.
        admission: takes its requests.
        listen: opens a socket.
        addresses: of ``node.bind``; it listens on loopback besides where they leave that out.
        wish: where it is to listen.
        alias: where it is to listen besides (EN-54).
        host: whom to ask about ports.
        errors: where the claim's troubles are told.
        drain: seconds that open answers have at a stop.
        ingress: takes what comes over TLS; None: that is refused.
    """

    def __init__(
        self,
        clock: IReactorTime,
        name: str,
        admission: Admission,
        listen: Listen,
        addresses: Sequence[str],
        wish: Wish,
        alias: Alias | None,
        host: Host,
        errors: IErrorBook,
        drain: float,
        ingress: Ingress | None = None,
    ) -> None:
        self.setName(name)
        self._clock = clock
        self._facade = name
        self._admission = admission
        self._drain = drain
        self._ingress = ingress
        plain = HTTPServerFactory(clock, admission.received, self._refusal)
        secured: IProtocolFactory | None = None
        self._servers = [plain]
        if ingress is not None:
            members = HTTPServerFactory(clock, ingress.received, self._refusal, LIMITS)
            self._servers.append(members)
            secured = ingress.secure(members)

        def bind(addresses: Sequence[str]) -> Callable[[int], Listeners]:
            factory: IProtocolFactory = FirstByteFactory(clock, plain, secured)
            return lambda port: open_listeners(listen, factory, addresses, port)

        everywhere = bind(with_loopback(addresses))
        self._claim = Claim(clock, name, f"{name} facade", wish, everywhere, host, errors, port_entries(name))
        self._claims = [self._claim]
        if alias is not None:
            aside = replace(host, engine_at=lambda port: port in self._claim.ports or host.engine_at(port))
            there = Wish(alias.port, base=alias.port, chosen=True)
            self._claims.append(
                Claim(clock, name, f"{name} alias", there, bind(alias.hosts), aside, errors, alias_entries(name))
            )

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
        return frozenset[int]().union(*(each.ports for each in self._claims))

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return sum(each.connections for each in self._servers)

    def startService(self) -> None:
        """Take the port, or one that stands in for it."""
        super().startService()
        for each in self._claims:
            each.begin()

    def look(self) -> None:
        """Something changed on this host: a port that is held may be free."""
        for each in self._claims:
            each.look()

    def move(self, wish: Wish, keep: Callable[[], Deferred[None]]) -> Deferred[None]:
        """See :meth:`pair.proxy.claim.Claim.move`."""
        return Deferred.fromCoroutine(self._claim.move(wish, keep))

    def wish(self, wish: Wish) -> None:
        """See :meth:`pair.proxy.claim.Claim.wish`."""
        self._claim.wish(wish)

    def stopService(self) -> Deferred[None]:
        """Accept no more, let open answers end for the time of the drain, then break them off (PX-68)."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._admission.stopping = True
        if self._ingress is not None:
            self._ingress.stopping = True
        for ended in [each.end() for each in self._claims]:
            await ended
        # What the error frames need to leave the sockets is one turn; whoever reads no more is cut.
        ends = [
            self._clock.callLater(self._drain, self._admission.stop),
            *(self._clock.callLater(self._drain + LAST_WORDS, each.abort_all) for each in self._servers),
        ]
        for drained in [each.drain() for each in self._servers]:
            await drained
        for each in ends:
            if each.active():
                each.cancel()

    def _refusal(self, status: int, code: str) -> tuple[Fields, bytes]:
        """The answer to what never became a request."""
        answer = reply(refusal(code), family_of(self._facade, "/"), self._admission.next_id())
        return answer.fields, answer.body
