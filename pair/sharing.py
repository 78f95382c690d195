"""What the members of a cluster tell each other all the time: jobs, errors, and what each offers (jobs page).

Each node publishes its own, and follows that of every other member. What each
part does is its own business; here is who is told of whom.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pair
from pair.engines.offers import Offers
from pair.engines.publishing import InventoryPublisher
from pair.errors import bounds as error_bounds
from pair.errors.publishing import ErrorPublisher
from pair.errors.view import ErrorView
from pair.feeds.alarms import FeedAlarms
from pair.feeds.codec import StructCodec
from pair.feeds.followers import Followers
from pair.feeds.publisher import Feed
from pair.feeds.reader import Changed, Replaced
from pair.jobs import bounds as job_bounds
from pair.jobs.service import JobService
from pair.records.errors import ServiceError
from pair.records.inventory import RECORDS_MAX, InventoryCodec, TelemetryRecord
from pair.records.jobs import Job
from pair.records.nodes import NodeChanged, PresenceChanged
from pair.surfaces.feeds import ERRORS, MODELS, STREAM, WORKLOADS, feed_site
from pair.telemetry.reduce import decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.defer import Deferred

    from pair.cluster.getting import FeedStream
    from pair.clustering import Clustering
    from pair.errors.book import ErrorBook
    from pair.feeds.codec import Codec
    from pair.feeds.followers import FeedNews
    from pair.feeds.following import Stream
    from pair.feeds.watch import FeedFinding, FeedState
    from pair.jobs.history import HistoryService
    from pair.jobs.ledger import JobLedger
    from pair.neighbours import Neighbours
    from pair.records.engines import NodeInventory
    from pair.records.inventory import InventoryRecord
    from pair.records.nodes import NodeEvent
    from pair.settings import Settings
    from pair.supervision.ordered import OrderedServices
    from pair.surfaces.site import SurfaceSite

R = TypeVar("R")

JOBS_MAX = 25_000
"""Own jobs under way, and those that ended a short while ago (JB-48), some of which wait to be removed (JB-49)."""

ERRORS_MAX = 1000
"""Entries of a full book, and of one that was full a moment ago."""


class Sharing:
    """The three feeds, both ends of each; built and not started.

    Args:
        reactor: of the process.
        settings: of this node.
        node: its UUID.
        ledger: its jobs.
        history: those that have ended.
        book: its errors.
        inventory: what it offers.
        cancel: breaks off an own job.
        cluster: who is a member, and the ports for them.
        neighbours: where members are, and what they are.
        now: epoch milliseconds.
        run: the nonce of this process.

    Attributes:
        jobs: those of all members.
        errors: what is wrong with all members.
        offers: what the other members offer, by UUID.
        offered: emits what a member offers when that is another.
        withdrawn: emits the UUID of one that is no member any more.
    """

    def __init__(
        self,
        reactor: Any,
        settings: Settings,
        node: str,
        ledger: JobLedger,
        history: HistoryService,
        book: ErrorBook,
        inventory: Callable[[], NodeInventory],
        cancel: Callable[[str], bool],
        cluster: Clustering,
        neighbours: Neighbours,
        now: Callable[[], int],
        run: str,
    ) -> None:
        self._offers = offers = Offers(reactor, lambda: self._inventory_followers.tables())
        self.offers, self.offered, self.withdrawn = offers.by_node, offers.offered, offers.withdrawn
        self._reactor = reactor
        self._settings = settings
        self._node = node
        self._cluster = cluster
        self._neighbours = neighbours
        self._now = now
        self._run = run
        self._unreadable: dict[str, dict[str, FeedFinding]] = {}
        self._alarms = FeedAlarms(book, self._name_of)
        job_codec = StructCodec(Job, "id", "origin", job_bounds.within_bounds)
        error_codec = StructCodec(ServiceError, "id", "node", error_bounds.within_bounds)
        inventory_codec = InventoryCodec(decode)
        self._job_feed = self._feed("jobs", job_codec, JOBS_MAX)
        self._error_feed = self._feed("errors", error_codec, ERRORS_MAX)
        self._inventory_feed = self._feed("inventory", inventory_codec, RECORDS_MAX)
        self._job_followers = self._followers("jobs", WORKLOADS, job_codec, JOBS_MAX, "wl")
        self._error_followers = self._followers("errors", ERRORS, error_codec, ERRORS_MAX, "er")
        self._inventory_followers = self._followers("inventory", MODELS, inventory_codec, RECORDS_MAX, "em")
        self.jobs = JobService(reactor, node, ledger, history, self._job_feed, cancel, now)
        self.errors = ErrorView(reactor, node, book)
        self._error_publisher = ErrorPublisher(reactor, book, self._error_feed)
        self.publisher = InventoryPublisher(reactor, self._inventory_feed, inventory, neighbours.info)

        self._job_followers.news.subscribe(lambda told: self.jobs.news(told.origin, told.news))
        self._job_followers.state_changed.subscribe(self.jobs.feed_state)
        self._job_followers.dropped.subscribe(self.jobs.forget)
        self._error_followers.news.subscribe(lambda told: self.errors.news(told.origin, told.news))
        self._error_followers.dropped.subscribe(self.errors.forget)
        self._inventory_followers.news.subscribe(self._offered)
        self._inventory_followers.state_changed.subscribe(neighbours.collector.feed_state)
        self._inventory_followers.dropped.subscribe(self._dropped)
        self.offered.subscribe(lambda offer: neighbours.directory.inventory_told(offer.node, now()))
        neighbours.directory.events.subscribe(self._node_event)
        neighbours.directory.woken.subscribe(lambda _: self._nudge(None))
        cluster.loaded.subscribe(lambda _: self._set_members())
        cluster.trust.changed.subscribe(lambda _: self._set_members())

    def add_surfaces(self, services: OrderedServices) -> None:
        """Put the ports for members behind ``services``; they stop when nobody is served any more."""
        ports, document = self._settings.ports, self.publisher.document
        peering = self._cluster.peering
        peering.add_surface(
            services, "workloads", ports.workloads, lambda: (self._site(self._job_feed, WORKLOADS), None)
        )
        peering.add_surface(services, "errors", ports.errors, lambda: (self._site(self._error_feed, ERRORS), None))
        peering.add_surface(
            services,
            "inventory",
            ports.inventory,
            lambda: (self._site(self._inventory_feed, MODELS, document, local=True), None),
        )

    def add_feeds(self, services: OrderedServices) -> None:
        """Put behind ``services`` what is published, and what is followed."""
        for feed in (self._job_feed, self._error_feed, self._inventory_feed):
            services.add(f"{feed.feed} feed", feed)
        services.add("jobs", self.jobs)
        services.add("errors", self.errors)
        services.add("errors of this node", self._error_publisher)
        services.add("inventory", self.publisher)
        services.add("inventory of others", self._offers)
        for followers in self._all_followers:
            services.add(f"{followers.feed} of others", followers)

    @property
    def _all_followers(self) -> tuple[Followers[Any], ...]:
        return self._job_followers, self._error_followers, self._inventory_followers

    # What they are made of.

    def _feed(self, name: str, codec: Codec[R], most: int) -> Feed[R]:
        feed = Feed(self._reactor, name, self._node, pair.__version__, codec, most, self._run, self._now)
        self._alarms.watch(feed)
        return feed

    def _followers(self, name: str, path: str, codec: Codec[R], most: int, service: str) -> Followers[R]:
        directory, getter = self._neighbours.directory, self._neighbours.getter

        def connect(node: str, path: str) -> Deferred[Stream]:
            return getter.stream(node, directory.places(node, service), path).addCallback(confirmed, node)

        def confirmed(stream: FeedStream, node: str) -> Stream:
            directory.confirm(node, service, stream.place)
            return stream

        reactor, alarms, stream = self._reactor, self._alarms, path + STREAM
        followers = Followers(reactor, connect, self._node, name, stream, codec, alarms, self._now, most=most)
        followers.heard.subscribe(lambda node: self._neighbours.note(node, "feed"))
        followers.state_changed.subscribe(self._feed_state)
        followers.incompatible.subscribe(self._incompatible)
        return followers

    def _site(
        self, feed: Feed[Any], path: str, document: Callable[[], bytes] | None = None, local: bool = False
    ) -> SurfaceSite:
        callers = self._cluster.peering.callers
        return feed_site(self._reactor, feed, path, callers, self._neighbours.heard, document, local)

    def _name_of(self, node: str) -> str:
        entry = self._neighbours.directory.get(node)
        return node if entry is None else entry.name

    # What they are told.

    def _set_members(self) -> None:
        members = frozenset(each.node for each in self._cluster.fellows())
        for each in self._all_followers:
            each.members(members)

    def _nudge(self, node: str | None) -> None:
        for each in self._all_followers:
            each.nudge(node)

    def _node_event(self, event: NodeEvent) -> None:
        match event:
            case PresenceChanged(uuid=uuid, old=old, new=new):
                self.jobs.presence(uuid, old, new)
                self.errors.presence(uuid, old, new)
                if new == "online":
                    self._nudge(uuid)
            case NodeChanged(entry=entry, old=before) if entry.uuid is not None and set(entry.ips) - set(before.ips):
                self._nudge(entry.uuid)

    def _feed_state(self, state: FeedState) -> None:
        """The last of a node's live feeds has closed: is it still there (DS-55)?"""
        if state.state == "stale" and all(each.state(state.origin).state != "live" for each in self._all_followers):
            self._neighbours.directory.doubt(state.origin)

    def _incompatible(self, finding: FeedFinding) -> None:
        """A node is incompatible as long as any of its feeds is (OP-58)."""
        known = self._unreadable.setdefault(finding.origin, {})
        if finding.incompatible is None:
            known.pop(finding.feed, None)
        else:
            known[finding.feed] = finding
        text = None
        if known:
            text = "It speaks no version of the protocol that this node speaks. Update the older of the two."
        self._neighbours.directory.warn(finding.origin, "incompatible", text)

    def _offered(self, told: FeedNews[InventoryRecord]) -> None:
        changes = told.news.changes if isinstance(told.news, Replaced) else (told.news,)
        for each in changes:
            if isinstance(each, Changed) and isinstance(each.record, TelemetryRecord):
                self._neighbours.collector.fed(told.origin, each.record)
        self._offers.news(told.origin, changes)

    def _dropped(self, node: str) -> None:
        self._unreadable.pop(node, None)
        self._offers.forget(node)
