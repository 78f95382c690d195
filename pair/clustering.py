"""This node in its cluster: trust, pairing and gossip, joined (cluster page).

What each part does is its own business; here is who is told of whom, and what
people do to the cluster where it takes several parts.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool

from pair.addresses import is_own, zones
from pair.cluster.calls import PeerCaller, PlainCaller
from pair.cluster.changes import About
from pair.cluster.dialogue import PORT, SERVICE
from pair.cluster.gossip import Gossip
from pair.cluster.identity import renew
from pair.cluster.invitations import Invitations
from pair.cluster.leaf import leaf_digest
from pair.cluster.statements import ADDRESSES_MAX
from pair.cluster.tls import Credentials
from pair.cluster.trust import TrustService
from pair.control.cluster import Left, NodeIdentity, Removed
from pair.control.sources import ClusterSources
from pair.events import Signal
from pair.hostlinks import interfaces
from pair.logs import Logger
from pair.peering import Peering
from pair.protocols.pairing import Party
from pair.proxy.ingress import NotMember, Peers
from pair.supervision.repeating import Repeating
from pair.surfaces.cluster import ClusterApi, cluster_site
from pair.surfaces.refusals import error_body, new_error_id
from pair.surfaces.rules import Peer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pair.addresses import Place
    from pair.cluster.changes import Change
    from pair.cluster.identity import Identity
    from pair.cluster.membership import Member
    from pair.cluster.pins import PeerLeaf, PinTable
    from pair.ground import Ground
    from pair.interfaces import IErrorBook
    from pair.metrics import Source
    from pair.proxy.listeners import Listen
    from pair.records.cluster import AuditRow, Invitation, Roster
    from pair.settings import Settings
    from pair.supervision.ordered import OrderedServices
    from pair.surfaces.site import SurfaceSite

log = Logger()

NOTE_SECONDS = 15.0
"""Between two looks whether what other nodes are told of this one still holds."""


class Clustering:
    """Everything by which this node is one of a cluster, built and not started.

    Args:
        reactor: of the process.
        settings: of this node.
        identity: its own.
        ground: its store and its state directory.
        errors: told of what is wrong with the cluster.
        listen: opens a listening port.
        now: epoch milliseconds.
        instance: the nonce of this process.
        places: where a service of a node, by its UUID, is looked for, the best place first.

    Attributes:
        trust: whom it counts as a member.
        invitations: those under way, in both directions.
        peering: the ports for other nodes.
        heard: emits the UUID of each member that asks something.
        loaded: emits once, at the start: from now on it is known who is a member.
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
        places: Callable[[str, str], Sequence[Place]],
    ) -> None:
        self.heard: Signal[str] = Signal()
        self.loaded: Signal[None] = Signal()
        self._reactor = reactor
        self._settings = settings
        self._identity = identity
        self._ground = ground
        self._errors = errors
        self._places = places
        self._now = now
        self._name = unicodedata.normalize("NFC", settings.node.name)
        self._renewed: Identity | None = None
        self._about: tuple[tuple[str, ...], tuple[tuple[str, int], ...]] | None = None
        pool = reactor.getThreadPool()
        self.trust = trust = TrustService(
            identity,
            About(self._name),
            ground.store,
            now,
            errors,
            in_thread=partial(deferToThreadPool, reactor, pool),
        )
        credentials = Credentials(identity.leaf, identity.key)
        self.peering = Peering(reactor, credentials, identity.uuid, trust, listen, settings.node.bind, _is_own, errors)
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
            lambda node: (place.host for place in places(node, SERVICE)),
            errors,
            instance,
            settings.cluster.gossip_interval,
            now=now,
        )
        self.heard.subscribe(self._gossip.contacts.heard)
        self.invitations.paired.subscribe(self._paired)
        self.invitations.knocked.subscribe(self._gossip.knocked)

    # As others see it.

    def members(self) -> frozenset[str]:
        """The UUIDs of the members of the cluster, and that of this node, which may be in none."""
        view = self.trust.view
        others = () if view is None else (each.node for each in view.members)
        return frozenset((self._identity.uuid, *others))

    def fellows(self) -> tuple[Member, ...]:
        """The members of the cluster, this node among them; none where it is in none (CL-78)."""
        view = self.trust.view
        return () if view is None or self.trust.me is None else view.members

    @property
    def peers(self) -> Peers:
        """How the facades meet other nodes."""
        return Peers(self.peering.secure, self._objection)

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
                **self.peering.callers.refused_total.values,
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

    def add_trust(self, services: OrderedServices) -> None:
        """Put behind ``services`` what must be known before anybody can ask (AR-12, CL-99)."""
        services.add("membership", _Loaded(self.trust, self.loaded), required=True)

    def add_peers(self, services: OrderedServices) -> None:
        """Put behind ``services`` what speaks with other nodes."""
        services.add("invitations", self.invitations)
        self.peering.add_connections(services)
        self.peering.add_surface(services, "cluster", self._settings.ports.cluster, lambda: (self._make_site(), None))
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

    def tell(self, addresses: Sequence[str], ports: Mapping[str, int]) -> None:
        """From now on other nodes find this one there; its note says so (CL-84)."""
        self._about = tuple(addresses[:ADDRESSES_MAX]), tuple(sorted(ports.items()))
        noting = Deferred.fromCoroutine(self._renew_note())
        noting.addErrback(lambda why: log.failure("The note of this node could not be written now.", why))

    def refused(self, node: str) -> None:
        """A member takes this node for none: a sync tells why."""
        self._gossip.knocked(node)

    # What the parts are told.

    def _cut_off(self, change: Change) -> None:
        self.peering.cut(change.pins)

    def _paired(self, invitation: Invitation) -> None:
        """Each side dials the other at once (CL-51, CL-60)."""
        if invitation.peer.node is not None:
            self._gossip.sync_now([invitation.peer.node])

    def _objection(self, leaf: PeerLeaf | None, address: str) -> NotMember | None:
        refusal = self.peering.callers.objection(Peer(address, tls=True, leaf=leaf))
        if refusal is None:
            return None
        fields = ((b"Content-Type", b"application/json"), (b"X-Pair-Error", refusal.code.encode("ascii")))
        return NotMember(refusal.status, fields, error_body(refusal, new_error_id()))

    def _known_addresses(self, node: str) -> tuple[str, ...]:
        """Where a node takes invitations: by what is heard of it, and by its note if it is or was a member (CL-91)."""
        found = [str(each) for each in self._places(node, SERVICE)]
        view = self.trust.view
        note = None if view is None else view.last_note(node)
        if note is not None:
            port = dict(note.ports).get(SERVICE, PORT)
            noted = self._gossip.contacts.places(node, note.addresses)
            found += (f"[{each}]:{port}" if ":" in each else f"{each}:{port}" for each in noted)
        return tuple(dict.fromkeys(found))

    async def _renew_note(self) -> None:
        if self._about is not None:
            await self.trust.note(self._name, *self._about)

    # What they are made of.

    def _caller(self, pins: Callable[[], PinTable]) -> PeerCaller:
        return PeerCaller(self._reactor, self.peering.dial(pins))

    def _make_site(self) -> SurfaceSite:
        callers = self.peering.callers
        api = ClusterApi(self._reactor, self.trust, self.invitations, callers, self.heard.emit)
        return cluster_site(self._reactor, api, callers)


class _Loaded(Service):
    """Trust, known from here on."""

    def __init__(self, trust: TrustService, loaded: Signal[None]) -> None:
        self._trust = trust
        self._loaded = loaded

    def startService(self) -> None:
        """Read and judge what is stored (CL-99), and tell all who go by it.

        Raises:
            StateError: It is not whole.
        """
        super().startService()
        self._trust.load()
        self._loaded.emit(None)


def _is_own(address: str) -> bool:
    return is_own(address, interfaces())
