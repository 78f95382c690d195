"""What this node tells of itself: addresses, the ports of its services, its cluster (DS-7 to DS-9, DS-31 to DS-34)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pair.addresses import parse_advertised
from pair.discovery.addresses import rank
from pair.discovery.bursts import GATHER_SECONDS
from pair.events import Signal
from pair.logs import Logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.addresses import Interface

log = Logger()


class Own(Struct, frozen=True):
    """What others are told; the best address first. None for the cluster: it is in none."""

    addresses: tuple[str, ...] = ()
    services: dict[str, int] = {}
    cluster: str | None = None


class OwnRecord:
    """Puts it together, and tells when it is another.

    Args:
        clock: for changes that come together.
        found: the interfaces of this host.
        sources: what the kernel would send from over its default routes.
        cluster: the id of the cluster of which this node is a member.
        advertise: the setting ``node.advertise``.
        bind: the setting ``node.bind``.

    Attributes:
        now: what is told.
        changed: emits it when it is another.
    """

    def __init__(
        self,
        clock: IReactorTime,
        found: Callable[[], Sequence[Interface]],
        sources: Callable[[], Collection[str]],
        cluster: Callable[[], str | None],
        advertise: Sequence[str],
        bind: Sequence[str],
    ) -> None:
        self.now = Own()
        self.changed: Signal[Own] = Signal()
        self._clock = clock
        self._found = found
        self._sources = sources
        self._cluster = cluster
        self._advertised = parse_advertised(advertise)
        self._bind = bind
        self._ports: dict[str, int] = {}
        self._begun = False
        self._timer: IDelayedCall | None = None

    @property
    def port(self) -> int | None:
        """Where our own node-info listens; None: it does not."""
        return self._ports.get("ni")

    def register(self, key: str, port: int) -> None:
        """A service listens at ``port``."""
        self._ports[key] = port
        self.gather()

    def unregister(self, key: str) -> None:
        """A service listens no more."""
        self._ports.pop(key, None)
        self.gather()

    def gather(self) -> None:
        """Something is another; what changes shortly after goes with it (DS-7). The first look is not hastened.

        The ports of a start open in one turn, and are told in the next: whoever
        is invited by then must know where this node is, should the connection break.
        """
        if self._begun and (self._timer is None or not self._timer.active()):
            self._timer = self._clock.callLater(GATHER_SECONDS if self.now.services else 0, self.renew)

    def renew(self) -> None:
        """Look at everything anew; what is as before is no news (DS-34)."""
        self._begun = True
        addresses = rank(self._found(), self._sources(), self._advertised.addresses, self._bind)
        services = {key: self._advertised.ports.get(key, port) for key, port in self._ports.items()}
        own = Own(addresses, services, self._cluster())
        if own == self.now:
            return
        if own.addresses != self.now.addresses:
            log.info("Other nodes reach this one at {addresses}.", addresses=", ".join(own.addresses) or "no address")
        self.now = own
        self.changed.emit(own)

    def close(self) -> None:
        """Look at nothing any more, until :meth:`renew` is called again."""
        self._begun = False
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
