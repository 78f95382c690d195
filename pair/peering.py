"""What all ports for other nodes have in common: this node's key, who is a member, and which of them are open.

Each port is a surface of its own (AR-19); here they are started, and it is
known where others find them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from twisted.application.service import Service

from pair.cluster.connections import PeerConnections
from pair.cluster.dialing import PinnedDial
from pair.cluster.tls import server_factory
from pair.control.views import Listener
from pair.events import Signal
from pair.supervision.child import SupervisedService
from pair.surfaces.callers import Callers
from pair.surfaces.listening import PeerSurface

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twisted.internet.interfaces import IProtocolFactory

    from pair.cluster.pins import PinTable
    from pair.cluster.tls import Credentials
    from pair.cluster.trust import TrustService
    from pair.interfaces import IErrorBook
    from pair.proxy.listeners import Listen
    from pair.supervision.ordered import OrderedServices
    from pair.surfaces.site import SurfaceSite


class Opened(Struct, frozen=True):
    """A port for other nodes is listened on; ``port`` None: it is so no more."""

    surface: str
    port: int | None


class Peering:
    """Opens ports for other nodes, and dials theirs.

    Args:
        reactor: makes all connections.
        credentials: of this node.
        node: its UUID.
        trust: who is a member.
        listen: opens a listening port.
        bind: where this node listens (``node.bind``).
        is_own_address: whether an IP literal is one of this host's.
        errors: told what keeps a port from being opened.

    Attributes:
        callers: who calls a port.
        opened: emits each port that is opened or closed.
    """

    def __init__(
        self,
        reactor: Any,
        credentials: Credentials,
        node: str,
        trust: TrustService,
        listen: Listen,
        bind: Sequence[str],
        is_own_address: Callable[[str], bool],
        errors: IErrorBook,
    ) -> None:
        self.callers = Callers(reactor, node, trust, is_own_address, errors)
        self.opened: Signal[Opened] = Signal()
        self._reactor = reactor
        self._credentials = credentials
        self._listen = listen
        self._bind = bind
        self._errors = errors
        self._connections = PeerConnections()
        self._ports: dict[str, int | None] = {}
        self._surfaces: dict[str, PeerSurface] = {}

    @property
    def numbers(self) -> frozenset[int]:
        """All ports on which this node is listened to by others."""
        return frozenset(each for each in self._ports.values() if each is not None)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The same for people (UI-31)."""
        host = self._bind[0]
        shown = f"[{host}]" if ":" in host else host
        return tuple(
            Listener(name, None, "failed") if port is None else Listener(name, f"{shown}:{port}", "bound")
            for name, port in self._ports.items()
        )

    @property
    def open(self) -> dict[str, int]:
        """The ports that are listened on, by the name of their surface."""
        return {name: port for name, port in self._ports.items() if port is not None}

    def renew(self, surface: str) -> None:
        """Listen anew on the port of one surface; its connections end."""
        self._surfaces[surface].give_up()

    def port(self, surface: str) -> int | None:
        """That of one surface; None while it does not listen."""
        return self._ports.get(surface)

    def dial(self, pins: Callable[[], PinTable]) -> PinnedDial:
        """Dials those whom the pins name at that moment."""
        return PinnedDial(self._reactor, self._credentials, pins, self._connections)

    def secure(self, wrapped: IProtocolFactory) -> IProtocolFactory:
        """Mutual TLS before ``wrapped``."""
        return server_factory(self._credentials, wrapped, self._connections, self._reactor)

    def cut(self, pins: PinTable) -> None:
        """Abort all connections with others than these (CL-18)."""
        self._connections.cut(pins)

    def add_connections(self, services: OrderedServices) -> None:
        """Put behind ``services`` what aborts all connections at the stop, when the surfaces are gone."""
        services.add("peer connections", _Cut(self._connections, self.callers))

    def add_surface(
        self,
        services: OrderedServices,
        name: str,
        port: int,
        make_sites: Callable[[], tuple[SurfaceSite, SurfaceSite | None]],
    ) -> None:
        """Put a surface behind ``services``.

        Args:
            services: all of the node.
            name: of the surface, as in the settings (``ports.<name>``).
            port: where it listens; 0 lets the kernel choose.
            make_sites: what it serves over TLS, and in the clear; None there: the same.
        """
        self._ports[name] = None

        def make() -> PeerSurface:
            tls, plain = make_sites()
            surface = PeerSurface(
                name,
                self._reactor,
                self._listen,
                port,
                tls,
                self._credentials,
                self._connections,
                self._errors,
                self._bind,
                plain,
            )
            surface.listening.subscribe(lambda port: self._note(name, port))
            self._surfaces[name] = surface
            return surface

        shown = name.replace("_", " ")
        services.add(f"{shown} surface", SupervisedService(name, make, self._reactor, self._errors))

    def _note(self, surface: str, port: int | None) -> None:
        self._ports[surface] = port
        self.opened.emit(Opened(surface, port))


class _Cut(Service):
    """The connections with peers, cut when this stops."""

    def __init__(self, connections: PeerConnections, callers: Callers) -> None:
        self._connections = connections
        self._callers = callers

    def stopService(self) -> None:
        """Abort them all."""
        super().stopService()
        self._callers.close()
        self._connections.abort_all()
