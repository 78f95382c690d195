"""A port where other nodes reach this one, as long as it is listened on (OP-15).

It must not know what is served there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.application.service import Service
from twisted.internet.defer import Deferred, gatherResults
from twisted.python.failure import Failure
from zope.interface import implementer

from pair.cluster.tls import server_factory
from pair.events import Signal
from pair.logs import Logger
from pair.protocols.firstbyte import FirstByteFactory
from pair.proxy.listeners import PortDenied, PortTaken, open_listeners
from pair.records.errors import Subject
from pair.supervision.child import IFailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twisted.internet.interfaces import IReactorTime

    from pair.cluster.connections import PeerConnections
    from pair.cluster.tls import Credentials
    from pair.interfaces import IErrorBook
    from pair.proxy.listeners import Listen, Listeners
    from pair.surfaces.site import SurfaceSite

ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - it is for other machines

SILENT_MAX = 64
"""Connections to one port that have not said anything yet; they are anybody's."""

log = Logger()


class CutOffError(Exception):
    """The port is listened on, and yet nobody gets in."""


@implementer(IFailable)
class PeerSurface(Service):
    """Listens while it runs, for TLS and for what is in the clear.

    Args:
        name: of the surface, in log and error entries.
        reactor: for time limits.
        listen: opens a listening port; as :func:`pair.protocols.eager.listen_eager`, with the reactor in place.
        port: the port; 0 lets the kernel choose.
        site: what is served there.
        credentials: of this node.
        connections: where those of peers are known while they are open.
        errors: told while another program holds the port.
        addresses: where to listen.
        plain: what is served in the clear; None: the same.

    Attributes:
        listening: emits the port when it is listened on, and None when it is no more.
        failed: see :class:`IFailable`; emits when it is to be made anew.
    """

    def __init__(
        self,
        name: str,
        reactor: IReactorTime,
        listen: Listen,
        port: int,
        site: SurfaceSite,
        credentials: Credentials,
        connections: PeerConnections,
        errors: IErrorBook,
        addresses: Sequence[str] = ADDRESSES,
        plain: SurfaceSite | None = None,
    ) -> None:
        self.name = name
        self.listening: Signal[int | None] = Signal()
        self.failed: Signal[Failure] = Signal()
        self._sites = (site,) if plain is None else (site, plain)
        tls = server_factory(credentials, site, connections, reactor)
        self._factory = FirstByteFactory(reactor, self._sites[-1], tls, most=SILENT_MAX)
        self._listen = listen
        self._port = port
        self._errors = errors
        self._addresses = addresses
        self._listeners: Listeners | None = None

    @property
    def port(self) -> int | None:
        """The port on which it listens; None while it does not."""
        return None if self._listeners is None else self._listeners.port

    def startService(self) -> None:
        """Listen.

        Raises:
            PortTaken, PortDenied: The port cannot be had.
        """
        taken = f"ports:taken:{self.name}"
        try:
            self._listeners = open_listeners(self._listen, self._factory, self._addresses, self._port)
        except (PortTaken, PortDenied):
            self._errors.raise_entry(taken, subject=Subject(port=self._port), port=self._port)
            raise
        self._errors.clear(taken)
        log.info("Other nodes reach this one at port {port} ({surface}).", port=self.port, surface=self.name)
        super().startService()
        self.listening.emit(self.port)

    def give_up(self) -> None:
        """It is listened on, and yet nobody gets in: it is to be made anew."""
        self.failed.emit(Failure(CutOffError()))

    def stopService(self) -> Deferred[None]:
        """Accept no more; fires when all connections are gone."""
        super().stopService()
        listeners, self._listeners = self._listeners, None
        if listeners is not None:
            self.listening.emit(None)
        closing = [] if listeners is None else [listeners.close()]
        closing += [each.close() for each in self._sites]
        return gatherResults(closing).addCallback(lambda _: None)
