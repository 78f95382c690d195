"""What this node knows of others, and tells of itself: discovery, node-info and telemetry, joined (discovery page).

What each part does is its own business; here is who is told of whom.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, fail

import pair
from pair.cluster.asker import BODY_MAX, PATH, Asker
from pair.cluster.getting import PeerGetter
from pair.cluster.hosts import published
from pair.cluster.posting import CallError
from pair.discovery.asking import Me
from pair.discovery.claims import Claim, Standing
from pair.discovery.directory import DirectoryService
from pair.discovery.mdns import MulticastService
from pair.events import Signal
from pair.feeds.wire import PROTOCOLS
from pair.hostlinks import default_sources, interfaces
from pair.protocols.dial import DialError
from pair.records.asking import AskFailed
from pair.records.cluster import OVER
from pair.records.telemetry import NodeInfo, ProtocolRange
from pair.surfaces.node_info import node_info_sites
from pair.surfaces.ownports import OwnPorts
from pair.telemetry.collector import Collector
from pair.telemetry.reduce import decode, with_hardware

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pair.addresses import Place
    from pair.cluster.getting import Refused
    from pair.clustering import Clustering
    from pair.discovery.own import Own
    from pair.ground import Ground
    from pair.interfaces import IErrorBook
    from pair.peering import Opened
    from pair.records.asking import Answer
    from pair.records.nodes import EvidenceKind
    from pair.settings import Settings
    from pair.supervision.ordered import OrderedServices
    from pair.surfaces.site import SurfaceSite
    from pair.telemetry.collector import Told
    from pair.telemetry.sampler import Sampler

SERVICES = {"node_info": "ni", "errors": "er", "workloads": "wl", "cluster": "cl", "inventory": "em"}
"""The key of each surface in records (discovery page, section 3)."""

FACADES = {"ollama": "ol", "lmstudio": "lm"}
"""The same of the facades."""

ASK_SECONDS = 3.0
"""For a node-info, with all that it takes to reach the node (DS-51)."""


class Neighbours:
    """Finds other nodes, and tells them of this one; built and not started.

    Args:
        reactor: of the process.
        settings: of this node.
        node: its UUID.
        ground: its store.
        errors: told of what is wrong with the network.
        cluster: whom it trusts, and its ports for other nodes.
        sampler: how busy it is.
        now: epoch milliseconds.
        instance: the nonce of this process.

    Attributes:
        directory: which nodes there are.
        collector: how busy they are.
        getter: brings what they tell.
        proven: emits the UUID of a member that has answered, or told something, of its own.
    """

    def __init__(
        self,
        reactor: Any,
        settings: Settings,
        node: str,
        ground: Ground,
        errors: IErrorBook,
        cluster: Clustering,
        sampler: Sampler,
        now: Callable[[], int],
        instance: str,
    ) -> None:
        self.proven: Signal[str] = Signal()
        self._stopping = False
        self._reactor = reactor
        self._settings = settings
        self._node = node
        self._cluster = cluster
        self._errors = errors
        self._sampler = sampler
        self._instance = instance
        trust = cluster.trust
        name = settings.node.name
        self._standing = Standing(node)
        self.getter = PeerGetter(reactor, cluster.peering.dial(lambda: trust.pins))
        self._asker = Asker(reactor, self.getter, lambda: trust.pins, decode)
        self._multicast = (
            MulticastService(reactor, node, name, settings.discovery.ipv6, interfaces, errors)
            if settings.discovery.mdns
            else None
        )
        self.directory = directory = DirectoryService(
            reactor,
            Me(node, name, instance),
            self._stand,
            self._roster,
            self._asker,
            self._multicast,
            errors,
            ground.store,
            interfaces,
            default_sources,
            settings,
            now,
        )
        self.collector = collector = Collector(reactor, node, self.info, self._ask, random.uniform, now)
        cluster.loaded.subscribe(self._trust_changed)
        trust.changed.subscribe(self._trust_changed)
        cluster.invitations.changed.subscribe(self._trust_changed)
        cluster.heard.subscribe(self.heard)
        cluster.peering.opened.subscribe(self._opened)
        directory.own.subscribe(self._tell_of_itself)
        directory.events.subscribe(collector.node_event)
        directory.woken.subscribe(collector.nudge)
        collector.told.subscribe(self._told)
        self._asker.strayed.subscribe(self._strayed)
        self.getter.refused.subscribe(self._refused)

    def info(self) -> NodeInfo:
        """All that this node tells of itself, as of now (DS-77)."""
        own = self.directory.own_record()
        told = NodeInfo(
            host_uuid=self._node,
            instance=self._instance,
            name=self._settings.node.name,
            version=pair.__version__,
            protocol=ProtocolRange(PROTOCOLS.min, PROTOCOLS.max),
            cluster_uuid=self._standing.cluster,
            services=own.services,
            ips=own.addresses,
        )
        return with_hardware(told, self._sampler.hardware, time.monotonic())

    def note(self, node: str, kind: EvidenceKind) -> None:
        """There is a sign of life of a member, proven by its identity."""
        self.directory.note(node, kind)
        self.proven.emit(node)

    def heard(self, node: str) -> None:
        """A member has asked something of this node."""
        self.directory.note(node, "inbound")

    def stopping(self) -> None:
        """The node stops: from now on it tells and asks nobody anything, for that would look like life.

        That ports close one by one is no news, nor that feeds end, after which
        other nodes would be polled.
        """
        self._stopping = True

    def set_facades(self, ports: Mapping[str, int | None]) -> None:
        """These facades listen now, and have an engine behind them (DS-8)."""
        if self._stopping:
            return
        for facade, key in FACADES.items():
            port = ports.get(facade)
            if port is None:
                self.directory.unregister_port(key)
            else:
                self.directory.register_port(key, port)

    def add_directory(self, services: OrderedServices) -> None:
        """Put behind ``services`` what knows nodes.

        It stops behind all ports for other nodes: whoever hears our goodbye
        looks whether we are there, and must not find us (DS-61).
        """
        services.add("directory", self.directory)
        services.add("collector", self.collector)
        if self._multicast is not None:
            services.add("multicast", self._multicast)

    def add_surface(self, services: OrderedServices) -> None:
        """Put behind ``services`` what answers who this node is."""
        self._cluster.peering.add_surface(services, "node_info", self._settings.ports.node_info, self._make_sites)

    def add_own_ports(self, services: OrderedServices) -> None:
        """Put behind ``services`` what looks whether others can get in; all ports for other nodes are before it."""
        peering = self._cluster.peering
        services.add(
            "own ports",
            OwnPorts(
                self._reactor, self._own_address, lambda: peering.open, self._answers, peering.renew, self._errors
            ),
        )

    # What the parts ask.

    def _own_address(self) -> str | None:
        """The first published one that an interface of this host has: others may lead back by a router, or not."""
        own = {each.ip for link in self.directory.links() for each in link.addresses}
        return next((each for each in self.directory.own_record().addresses if each in own), None)

    def _answers(self, surface: str, place: Place) -> Deferred[bool]:
        if surface != "node_info":
            return self.getter.knock(None, (place,), pinned=False, seconds=ASK_SECONDS)
        return Deferred.fromCoroutine(self._answers_as_itself(place))

    async def _answers_as_itself(self, place: Place) -> bool:
        try:
            got = await self.getter.plain(place, PATH, BODY_MAX, ASK_SECONDS)
        except DialError:
            return False
        except CallError as error:
            # One that has no room for strangers just now closes the connection (DS-83), and is there all the same.
            return error.reason == "lost"
        info = decode(got.body)
        return info is not None and info.host_uuid == self._node and info.instance in (None, self._instance)

    def _stand(self) -> Standing:
        """Kept, since it is asked for often; never of another cluster than ours is now (DS-9)."""
        trust = self._cluster.trust
        stored = None if trust.view is None or trust.me is None else trust.view.cluster
        if stored != self._standing.cluster:
            self._standing = self._judge()
        return self._standing

    def _judge(self) -> Standing:
        trust = self._cluster.trust
        members = frozenset(each.node for each in self._cluster.fellows())
        invited = (each.peer.node for each in self._cluster.invitations.all() if each.state not in OVER)
        return Standing(
            self._node,
            None if trust.view is None or not members else trust.view.cluster,
            members,
            frozenset(each for each in members if trust.pins.pin(each) is not None),
            frozenset(each for each in invited if each is not None),
        )

    def _roster(self) -> Mapping[str, Claim]:
        return {
            each.node: Claim("roster", each.node, name=each.name, addresses=each.addresses, services=dict(each.ports))
            for each in self._cluster.fellows()
        }

    def _ask(self, node: str) -> Deferred[Answer]:
        if self._stopping:
            return fail(AskFailed("unreachable"))
        return self._asker.node_info(node, self.directory.places(node, "ni"), ASK_SECONDS)

    def _make_sites(self) -> tuple[SurfaceSite, SurfaceSite]:
        sites = node_info_sites(
            self._reactor,
            self.info,
            self._cluster.peering.callers,
            self._settings.telemetry.audience,
            self.directory.links,
            self.heard,
        )
        return sites.tls, sites.plain

    # What they tell.

    def _trust_changed(self, _: object) -> None:
        self._standing = self._judge()
        self.directory.trust_changed()

    def _opened(self, opened: Opened) -> None:
        if self._stopping:
            return
        key = SERVICES[opened.surface]
        if opened.port is None:
            self.directory.unregister_port(key)
        else:
            self.directory.register_port(key, opened.port)

    def _tell_of_itself(self, own: Own) -> None:
        if not own.services:
            # The node starts: until its ports are open, what it signed in its last run is the better word.
            return
        addresses = own.addresses or published(self._settings.node.bind, self.directory.links())
        self._cluster.tell(addresses, own.services)

    def _told(self, told: Told) -> None:
        self.directory.told(told.node, told.info, told.authenticated, told.place, told.leaf)
        if told.authenticated:
            self.proven.emit(told.node)

    def _strayed(self, answer: Answer) -> None:
        self.directory.told(
            answer.info.host_uuid, answer.info, authenticated=False, place=answer.place, leaf=answer.leaf
        )

    def _refused(self, refused: Refused) -> None:
        self._cluster.refused(refused.node)
