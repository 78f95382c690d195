"""This node among others: trust, pairing, gossip and the port for peers, joined (cluster page).

What each part does is its own business; here is who is told of whom, and what
people do to the cluster where it takes several parts.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.application.service import Service
from twisted.internet.threads import deferToThreadPool

from pair.addresses import is_own, zones
from pair.cluster.calls import PeerCaller, PlainCaller
from pair.cluster.changes import About
from pair.cluster.connections import PeerConnections
from pair.cluster.dialing import PinnedDial
from pair.cluster.dialogue import PORT, SERVICE
from pair.cluster.gossip import Gossip
from pair.cluster.hosts import published
from pair.cluster.identity import renew
from pair.cluster.invitations import Invitations
from pair.cluster.leaf import leaf_digest
from pair.cluster.tls import Credentials, server_factory
from pair.cluster.trust import TrustService
from pair.control.cluster import Left, NodeIdentity, Removed
from pair.control.sources import ClusterSources
from pair.control.views import Listener
from pair.hostlinks import interfaces
from pair.protocols.pairing import Party
from pair.proxy.ingress import NotMember, Peers
from pair.supervision.child import SupervisedService
from pair.supervision.repeating import Repeating
from pair.surfaces.callers import Callers
from pair.surfaces.cluster import ClusterApi, cluster_site
from pair.surfaces.listening import PeerSurface
from pair.surfaces.refusals import error_body, new_error_id
from pair.surfaces.rules import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from twisted.internet.interfaces import IProtocolFactory

    from pair.cluster.changes import Change
    from pair.cluster.identity import Identity
    from pair.cluster.pins import PeerLeaf, PinTable
    from pair.events import Signal
    from pair.ground import Ground
    from pair.interfaces import IErrorBook
    from pair.metrics import Source
    from pair.proxy.listeners import Listen
    from pair.records.cluster import AuditRow, Invitation, Roster
    from pair.settings import Settings
    from pair.supervision.ordered import OrderedServices

NOTE_SECONDS = 15.0
"""Between two looks whether what other nodes are told of this one still holds."""


class Clustering:
    """Everything by which this node is one of a cluster, built and not started.

    Attributes:
        trust: whom it counts as a member.
        invitations: those under way, in both directions.
    """

    def __init__(
        self,
        reactor: Any,
        settings: Settings,
        identity: Identity,
        ground: Ground,
        errors: IErrorBook,
        listen: Listen,
        now: Callable[[], int],
        instance: str,
    ) -> None:
        self._reactor = reactor
        self._settings = settings
        self._identity = identity
        self._ground = ground
        self._errors = errors
        self._listen = listen
        self._now = now
        self._name = unicodedata.normalize("NFC", settings.node.name)
        self._renewed: Identity | None = None
        self._surface: PeerSurface | None = None
        self._credentials = Credentials(identity.leaf, identity.key)
        self._connections = PeerConnections()
        pool = reactor.getThreadPool()
        self.trust = trust = TrustService(
            identity,
            About(self._name),
            ground.store,
            now,
            errors,
            in_thread=partial(deferToThreadPool, reactor, pool),
        )
        # Before all others are told: whoever is out is cut off in the turn in which that is so (CL-18).
        trust.changed.subscribe(self._cut_off)
        self.invitations = Invitations(
            reactor,
            partial(Party, identity.uuid, self._name, identity.key, identity.leaf),
            trust,
            PlainCaller(reactor),
            self._known_addresses,
            _is_own,
            errors,
            trust.record,
            pairing_enabled=lambda: settings.cluster.pairing,
            zones=lambda: zones(interfaces()),
            now=now,
        )
        self._gossip = Gossip(
            reactor,
            trust,
            self._caller(lambda: trust.pins),
            lambda node: (),
            errors,
            instance,
            settings.cluster.gossip_interval,
            now=now,
        )
        self._callers = Callers(reactor, identity.uuid, trust, _is_own, errors)
        self.invitations.paired.subscribe(self._paired)
        self.invitations.knocked.subscribe(self._gossip.knocked)

    # As others see it.

    @property
    def peers(self) -> Peers:
        """How the facades meet other nodes."""
        return Peers(self._secure, self._objection)

    @property
    def ports(self) -> frozenset[int]:
        """Those on which it listens."""
        port = None if self._surface is None else self._surface.port
        return frozenset(() if port is None else (port,))

    @property
    def listener(self) -> Listener:
        """Where other nodes reach it, for UI-31."""
        port = next(iter(self.ports), None)
        if port is None:
            return Listener("cluster", None, "failed")
        host = self._settings.node.bind[0]
        return Listener("cluster", f"[{host}]:{port}" if ":" in host else f"{host}:{port}", "bound")

    @property
    def sources(self) -> ClusterSources:
        """What the control API shows and does."""
        return ClusterSources(self, self.invitations)

    @property
    def figures(self) -> Mapping[str, Source]:
        """What is counted (OP-41, CL-106)."""
        return {
            "pair_pairing_total": self.invitations.ended_total,
            "pair_pairing_bad_mac_total": self.invitations.bad_macs,
            "pair_refused_total": lambda: {
                **self._callers.refused_total.values,
                ("pairing_limit",): self.invitations.limited.values.get((), 0),
            },
            "pair_cluster_statements": lambda: Counter(
                (type(each.body).__name__.lower(),) for each in self.trust.statements
            ),
            "pair_cluster_sync_age_seconds": lambda: {
                (node,): (self._now() - at) / 1000 for node, at in self._gossip.contacts.last_seen.items()
            },
            "pair_cluster_sync_total": self._gossip.contacts.syncs,
        }

    @property
    def changed(self) -> tuple[Signal[Any], ...]:
        """What tells that something shown is another now."""
        return self.trust.changed, self.invitations.changed

    def add_trust(self, services: OrderedServices) -> None:
        """Put behind ``services`` what must be known before anybody can ask (AR-12, CL-99)."""
        services.add("membership", _Loaded(self.trust), required=True)

    def add_peers(self, services: OrderedServices) -> None:
        """Put behind ``services`` what speaks with other nodes."""
        services.add("invitations", self.invitations)
        services.add("peer connections", _Cut(self._connections, self._callers))
        services.add("cluster surface", SupervisedService("cluster", self._make_surface, self._reactor, self._errors))
        services.add("notes", Repeating(self._reactor, NOTE_SECONDS, self._renew_note, "The note of this node"))
        services.add("gossip", self._gossip)

    # What people do (:class:`pair.control.sources.Cluster`).

    def roster(self) -> Roster:
        """Who is in the cluster, when each was last seen, and who was in it."""
        contacts = self._gossip.contacts
        return self.trust.roster(contacts.last_seen, dict.fromkeys(contacts.one_way, ("one_way",)))

    async def remove(self, node: str, with_admitted: bool) -> Removed:
        """Put a member out, and tell the others (CL-86, CL-87)."""
        removal = await self.trust.remove(node, with_admitted)
        if not removal.removed:
            return Removed(False)
        heard = await self._gossip.spread()
        return Removed(True, removal.removed, heard.told, heard.untold)

    async def leave(self) -> Left:
        """Leave the cluster, and tell the others once (CL-88)."""
        leaving = await self.trust.leave()
        if leaving is None:
            return Left(False)
        heard = await self._gossip.tell(leaving, self._caller(lambda: leaving.pins))
        return Left(True, heard.told, heard.untold)

    async def audit(self, limit: int) -> Sequence[AuditRow]:
        """What was done to trust, the newest first (CL-104)."""
        return await self.trust.audit_rows(limit)

    def identity(self) -> NodeIdentity:
        """Who this node is, or will be from its next start on."""
        renewed = self._renewed
        known = self._identity if renewed is None else renewed
        return NodeIdentity(known.uuid, leaf_digest(known.leaf), restart=renewed is not None)

    async def renew(self) -> NodeIdentity:
        """Make a new identity, good from the next start on; until then nobody is paired with (CL-96)."""
        await self.trust.abandon()
        self.invitations.retired = True
        self._renewed = await renew(self._ground.directory, self._ground.store, self._reactor.seconds())
        return self.identity()

    # What the parts are told.

    def _cut_off(self, change: Change) -> None:
        self._connections.cut(change.pins)

    def _paired(self, invitation: Invitation) -> None:
        """Each side dials the other at once (CL-51, CL-60)."""
        if invitation.peer.node is not None:
            self._gossip.sync_now([invitation.peer.node])

    def _objection(self, leaf: PeerLeaf | None, address: str) -> NotMember | None:
        refusal = self._callers.objection(Peer(address, tls=True, leaf=leaf))
        if refusal is None:
            return None
        fields = ((b"Content-Type", b"application/json"),)
        return NotMember(refusal.status, fields, error_body(refusal, new_error_id()))

    def _known_addresses(self, node: str) -> tuple[str, ...]:
        """Where a node said that it takes invitations, whether it is still a member or was one (CL-91)."""
        view = self.trust.view
        note = None if view is None else view.last_note(node)
        if note is None:
            return ()
        port = dict(note.ports).get(SERVICE, PORT)
        places = self._gossip.contacts.places(node, note.addresses)
        return tuple(f"[{each}]:{port}" if ":" in each else f"{each}:{port}" for each in places)

    async def _renew_note(self) -> None:
        addresses = published(self._settings.node.bind, interfaces())
        ports = tuple((SERVICE, port) for port in self.ports)
        await self.trust.note(self._name, addresses, ports)

    # What they are made of.

    def _secure(self, wrapped: IProtocolFactory) -> IProtocolFactory:
        return server_factory(self._credentials, wrapped, self._connections, self._reactor)

    def _caller(self, pins: Callable[[], PinTable]) -> PeerCaller:
        return PeerCaller(self._reactor, PinnedDial(self._reactor, self._credentials, pins, self._connections))

    def _make_surface(self) -> PeerSurface:
        api = ClusterApi(self._reactor, self.trust, self.invitations, self._callers, self._gossip.contacts.heard)
        self._surface = PeerSurface(
            "cluster",
            self._reactor,
            self._listen,
            self._settings.ports.cluster,
            cluster_site(self._reactor, api, self._callers),
            self._credentials,
            self._connections,
            self._errors,
            self._settings.node.bind,
        )
        return self._surface


class _Loaded(Service):
    """Trust, known from here on."""

    def __init__(self, trust: TrustService) -> None:
        self._trust = trust

    def startService(self) -> None:
        """Read and judge what is stored (CL-99).

        Raises:
            StateError: It is not whole.
        """
        super().startService()
        self._trust.load()


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


def _is_own(address: str) -> bool:
    return is_own(address, interfaces())
