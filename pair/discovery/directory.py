"""The directory: the one place that knows which nodes there are, and which of them are there (DS-2).

It joins what is heard, told, typed and answered; each of these has a module of
its own, and what follows from them is pure. Nobody is trusted for being in it.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from twisted.application.service import MultiService
from twisted.internet.defer import CancelledError, Deferred, fail, succeed

from pair.discovery.checks import Aim, Checks
from pair.discovery.claims import Claim
from pair.discovery.confirmed import Confirmed
from pair.discovery.doubts import Doubts
from pair.discovery.liveness import SCAN_JITTER
from pair.discovery.manual import ManualNodes
from pair.discovery.nodes import Nodes
from pair.discovery.own import OwnRecord
from pair.discovery.sightings import Sightings
from pair.discovery.surroundings import Surroundings, system_clocks
from pair.discovery.whereabouts import Whereabouts
from pair.events import Signal
from pair.records.asking import Answer
from pair.records.nodes import NodeAdded, NodeChanged, NodeRekeyed, NodeRemoved
from pair.supervision.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.addresses import Interface, Place
    from pair.discovery.asking import Asking, Me, Multicast
    from pair.discovery.checks import Checked
    from pair.discovery.claims import Standing
    from pair.discovery.liveness import Clocks
    from pair.discovery.own import Own
    from pair.interfaces import IErrorBook
    from pair.records.nodes import EvidenceKind, NodeEntry, NodeEvent
    from pair.records.telemetry import NodeInfo
    from pair.settings import Settings
    from pair.store import Store

RANK_SECONDS = 15.0
"""Between two looks at our own addresses, though no interface has changed (DS-34)."""


class DirectoryService(MultiService):
    """Which nodes there are.

    Args:
        clock: seconds, for all that waits.
        me: this node.
        standing: whom it trusts; asked anew for each use.
        roster: the claims of the membership view, by UUID; they have to be known before the start.
        asking: asks nodes.
        multicast: hears them; None: there is none (``discovery.mdns``).
        errors: told of what people have to know.
        store: where manual nodes and confirmed addresses are kept.
        links: the interfaces of this host.
        sources: what the kernel would send from over its default routes.
        settings: of node and discovery.
        now: epoch milliseconds.
        uniform: a random number between two.
        clocks: all clocks of this machine.

    Attributes:
        events: emits what is told of each change; :meth:`entries` is what came of those before.
        own: emits what this node tells of itself when that is another.
        woken: emits when this machine has slept, for all that is to be tried again.
        manual: the nodes that were added by address.
    """

    name = "directory"

    def __init__(
        self,
        clock: IReactorTime,
        me: Me,
        standing: Callable[[], Standing],
        roster: Callable[[], Mapping[str, Claim]],
        asking: Asking,
        multicast: Multicast | None,
        errors: IErrorBook,
        store: Store,
        links: Callable[[], Sequence[Interface]],
        sources: Callable[[], Collection[str]],
        settings: Settings,
        now: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        uniform: Callable[[float, float], float] = random.uniform,
        clocks: Callable[[], Clocks] = system_clocks,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._me = me
        self._standing = standing
        self._roster = roster
        self._settings = settings
        self._uniform = uniform
        self._members: frozenset[str] = frozenset()
        self._scanning: IDelayedCall | None = None
        self._around = Surroundings(clock, links, clocks)
        self._nodes = Nodes(me.uuid, clock, now, standing, self._check)
        self._record = OwnRecord(
            clock,
            self.links,
            sources,
            lambda: standing().cluster,
            settings.node.advertise,
            settings.node.bind,
        )
        self._confirmed = Confirmed(store, now)
        self._whereabouts = Whereabouts(self._nodes, self._confirmed, self.links, lambda uuid: uuid in self._members)
        self.events: Signal[NodeEvent] = self._nodes.events
        self.own: Signal[Own] = self._record.changed
        self.woken: Signal[None] = Signal()
        self.manual = ManualNodes(
            clock,
            me,
            self._nodes,
            asking,
            store,
            errors,
            settings.discovery.static_peers,
            self.links,
            lambda: self._record.port,
            self._is_pinned,
            self._answered,
            now,
        )
        self._checks = Checks(
            clock,
            asking,
            self._aim,
            self.manual.probe,
            lambda answer, aim: self._answered(answer, aim.pinned),
            lambda uuid: self._whereabouts.doubt(uuid, "ni"),
            self._nodes.is_stranger,
        )
        self._doubts = Doubts(clock, me, self._nodes, asking, errors, standing, self.links, self._answered)
        self._sightings = Sightings(clock, me, self._nodes, self._doubts, multicast, errors, self.links)
        self._around.moved.subscribe(self._moved)
        self._around.woken.subscribe(self._woke)
        self._record.changed.subscribe(self._publish)
        self.events.subscribe(self._follow)
        self.addService(self._around)
        self.addService(Repeating(clock, RANK_SECONDS, self._record.renew, "The ranking of own addresses"))
        self.addService(self.manual)

    def startService(self) -> None:
        """Take up what is known, look for the rest. Blocks on the disk for a moment."""
        self._confirmed.load()
        self._nodes.liveness.break_off(self._clock.seconds())
        super().startService()
        self._publish(self._record.now)
        self.trust_changed()
        self._sightings.begin()
        self._nodes.take(())
        self._scan()

    def stopService(self) -> object:
        """Look for nobody any more; what is known stays."""
        self._sightings.end()
        if self._scanning is not None and self._scanning.active():
            self._scanning.cancel()
        self._record.close()
        self._checks.close()
        self._doubts.close()
        stopped = super().stopService()
        self._nodes.close()
        return stopped

    # What there is.

    @property
    def revision(self) -> int:
        """That of the last event."""
        return self._nodes.entries.revision

    @property
    def clashing(self) -> frozenset[str]:
        """The UUIDs by which more than one machine answers; with these nobody pairs (DS-67)."""
        return self._doubts.clashing

    def entries(self) -> tuple[NodeEntry, ...]:
        """All of them, this node first."""
        return tuple(sorted(self._nodes.entries, key=lambda each: not each.me))

    def get(self, key: str) -> NodeEntry | None:
        """The one with this key, which is its UUID where that is known."""
        return self._nodes.entries.get(key)

    def own_record(self) -> Own:
        """What this node tells of itself."""
        return self._record.now

    def places(self, node: str, service: str) -> tuple[Place, ...]:
        """Where to dial a service of a node, in order (DS-36, DS-38)."""
        return self._whereabouts.places(node, service)

    def links(self) -> tuple[Interface, ...]:
        """The interfaces of this host, as they were last seen."""
        return self._around.found

    # What others of this node tell.

    def register_port(self, key: str, port: int) -> None:
        """A service listens for other nodes at ``port`` (DS-7, DS-8)."""
        self._record.register(key, port)

    def unregister_port(self, key: str) -> None:
        """It listens no more."""
        self._record.unregister(key)

    def trust_changed(self) -> None:
        """Members, pins, those invited, or the cluster are others (DS-9, DS-41)."""
        if not self.running:
            return  # the start looks at them
        roster = {uuid: claim for uuid, claim in self._roster().items() if uuid != self._me.uuid}
        before, self._members = self._members, frozenset(roster)
        for uuid in before - self._members:
            self._nodes.facts(uuid).authenticated = None
            self._nodes.drop(uuid, "roster")
        for uuid, claim in roster.items():
            self._whereabouts.recall(uuid)
            self._nodes.put(claim)
        self._confirmed.retain(self._members)
        self._record.gather()
        self._nodes.refresh(*self._nodes.claims)

    def confirm(self, node: str, service: str, place: Place) -> None:
        """A service of a node has answered at ``place``, and proven to be the node's (DS-38)."""
        self._whereabouts.confirm(node, service, place)

    def doubt_place(self, node: str, service: str) -> None:
        """A service of a node could not be reached where it answered last."""
        self._whereabouts.doubt(node, service)

    def note(self, node: str, kind: EvidenceKind) -> None:
        """There is a sign of life of a node, proven by its identity (section 9)."""
        if node in self._nodes.claims:
            self._nodes.note(node, kind)
            if kind == "feed":
                self._sightings.answered(*(each.host for each in self._nodes.facts(node).confirmed.values()))
            self._doubts.proven(node)

    def doubt(self, node: str) -> None:
        """The last live feed from a node has closed."""
        self._nodes.take(self._nodes.liveness.doubt(node))

    def told(
        self, node: str, info: NodeInfo, authenticated: bool, place: Place | None = None, leaf: str | None = None
    ) -> None:
        """What a node-info says, or a record of telemetry.

        Args:
            node: Who was asked. What names another is not applied (DS-52).
            info: What came.
            authenticated: Whether it came over mutual TLS with the node's pin.
            place: Where from; None: over a feed, or from this very process.
            leaf: The digest of the certificate that was shown there.
        """
        if info.host_uuid != node:
            return
        if node not in self._nodes.claims:
            if place is not None:
                self._whereabouts.displace(node, place)
            return
        if place is not None:
            self._doubts.saw(Answer(info, place, leaf))
        if node == self._me.uuid:
            if place is None:
                self._nodes.tell(node, info, authenticated=True, proven=True)
            return
        proven = authenticated or node not in self._standing().members
        self._nodes.tell(node, info, authenticated, proven)
        if place is not None:
            self._sightings.answered(place.host)
        if proven:
            if place is not None:
                self._whereabouts.displace(node, place)
                self.confirm(node, "ni", place)
            self.note(node, "telemetry")

    def inventory_told(self, node: str, at: int) -> None:
        """What a node serves was told, at this time in epoch milliseconds."""
        if node in self._nodes.claims:
            self._nodes.facts(node).inventory_at = at
            self._nodes.refresh(node)

    def warn(self, node: str, code: str, text: str | None) -> None:
        """Add a warning to a node, or with None take it back."""
        self._nodes.warn(node, code, text)

    def probe(self, key: str) -> Deferred[NodeEntry]:
        """Ask a node now whether it is there (UI-35). The Deferred of its entry fails with KeyError for none."""
        entry = self.get(key)
        if entry is None:
            return fail(KeyError(key))
        return succeed(entry) if entry.me else self._checks.ask(key).addCallback(self._probed)

    # What happens.

    def _moved(self, found: tuple[Interface, ...]) -> None:
        self._record.renew()
        self._sightings.moved()
        self._nodes.take(self._nodes.liveness.moved(self._clock.seconds()))

    def _woke(self, _: None) -> None:
        self._sightings.moved()
        self._nodes.take(self._nodes.liveness.woken(self._clock.seconds()))
        self.woken.emit(None)

    def _follow(self, event: NodeEvent) -> None:
        if isinstance(event, NodeAdded):
            self._doubts.met(event.entry)
        elif isinstance(event, NodeChanged):
            if event.old.uuid is None:
                self._doubts.met(event.entry)
            if event.old.member != event.entry.member or "mdns" not in event.entry.claims:
                self._compare(event.entry)
        elif isinstance(event, NodeRemoved):
            self._compare(event.entry)
        elif isinstance(event, NodeRekeyed):
            self._checks.rekey(event.old_key, event.new_key)

    def _compare(self, entry: NodeEntry) -> None:
        if entry.uuid is not None:
            claims = self._nodes.claims.of(entry.uuid)
            self._doubts.compare(entry.uuid, next((each for each in claims if each.source == "mdns"), None))

    def _scan(self) -> None:
        jitter = self._uniform(-SCAN_JITTER, SCAN_JITTER)
        self._scanning = self._clock.callLater(self._settings.discovery.scan_interval + jitter, self._scan)
        scan = self._nodes.liveness.scan(self._clock.seconds())
        self._sightings.scanned(scan.ask)
        self._nodes.take(scan.actions)
        self._nodes.refresh(*self._nodes.claims)
        self._doubts.tick()

    # How it is done.

    def _is_pinned(self, uuid: str) -> bool:
        standing = self._standing()
        return uuid in standing.pins and uuid in standing.members

    def _publish(self, own: Own) -> None:
        self._nodes.put(
            Claim(
                "self",
                self._me.uuid,
                name=self._me.name,
                addresses=own.addresses,
                services=own.services,
            )
        )
        self._sightings.publish(own)

    def _check(self, key: str) -> None:
        if not self.running:
            return  # the start has it done
        waiting = self._checks.ask(key)
        waiting.addCallback(lambda checked: self._nodes.checked(checked.key, checked.answer))
        waiting.addErrback(lambda failure: failure.trap(CancelledError) and None)

    def _probed(self, checked: Checked) -> NodeEntry:
        if checked.answer is not None:
            self._nodes.checked(checked.key, checked.answer)
            self._nodes.refresh(checked.key)
        entry = self.get(checked.key)
        if entry is None:
            raise KeyError(checked.key)
        return entry

    def _aim(self, key: str) -> Aim:
        claims = self._nodes.claims.of(key)
        uuid = next((each.uuid for each in claims), None)
        member, pinned = uuid in self._standing().members, uuid is not None and self._is_pinned(uuid)
        if uuid is None or (member and not pinned):
            return Aim()
        by_hand = self.manual.places(key)
        ni = tuple(each for each in self.places(uuid, "ni") if each not in by_hand)
        # Of those that are known by hand a connection proves nothing: anything may listen there.
        em = self.places(uuid, "em") if member or not by_hand else ()
        return Aim(uuid, pinned, ni, em)

    def _answered(self, answer: Answer, proven: bool) -> None:
        self.told(answer.info.host_uuid, answer.info, proven, answer.place, answer.leaf)
