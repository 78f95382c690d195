"""What multicast brings to the directory, and what it does not (DS-15, DS-29, DS-43, DS-61)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pair.discovery.blocked import Deafness, is_near
from pair.discovery.claims import STRANGERS_MAX
from pair.discovery.held import Held
from pair.discovery.txt import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twisted.internet.interfaces import IReactorTime

    from pair.addresses import Interface
    from pair.discovery.asking import Me, Multicast
    from pair.discovery.claims import Claim
    from pair.discovery.doubts import Doubts
    from pair.discovery.nodes import Nodes
    from pair.discovery.own import Own
    from pair.interfaces import IErrorBook

TOO_MANY = "discovery:too_many_nodes"
BLOCKED = "discovery:multicast_blocked"


class Sightings:
    """Takes records and goodbyes as they are heard, and publishes our own.

    Args:
        clock: seconds.
        me: this node.
        nodes: where records are claims.
        doubts: looks into those that contradict others.
        multicast: hears them; None: nothing is heard, and nothing published.
        errors: told of too many nodes, and of multicast that is blocked.
        found: the interfaces of this host.
    """

    def __init__(
        self,
        clock: IReactorTime,
        me: Me,
        nodes: Nodes,
        doubts: Doubts,
        multicast: Multicast | None,
        errors: IErrorBook,
        found: Callable[[], Sequence[Interface]],
    ) -> None:
        self._clock = clock
        self._me = me
        self._nodes = nodes
        self._doubts = doubts
        self._multicast = multicast
        self._held = Held(errors)
        self._found = found
        self._deafness = Deafness()
        self._subscriptions: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Take what is heard from now on."""
        if self._multicast is not None:
            self._subscriptions = [
                self._multicast.heard.subscribe(self._heard),
                self._multicast.left.subscribe(self._left),
            ]

    def end(self) -> None:
        """Take nothing any more."""
        for unsubscribe in self._subscriptions:
            unsubscribe()
        self._subscriptions = []

    def publish(self, own: Own) -> None:
        """Tell other nodes of this one."""
        if self._multicast is not None:
            record = Record(self._me.uuid, own.cluster, own.addresses, own.services)
            self._multicast.publish(record, own.addresses)

    def moved(self) -> None:
        """Interfaces are others, or this host has slept."""
        if self._multicast is not None:
            self._multicast.moved()

    def answered(self, *addresses: str) -> None:
        """A node has answered by unicast, at one of these addresses."""
        found = self._found()
        if any(is_near(each, found) for each in addresses):
            self._deafness.answered(self._clock.seconds())

    def scanned(self, ask: bool) -> None:
        """A scan is due; ``ask``: with a question."""
        if not self._nodes.claims.crowded:
            self._held.set(TOO_MANY, False)
        if self._multicast is not None:
            blocked = self._deafness.holds(self._multicast.last_foreign, self._clock.seconds())
            self._held.set(BLOCKED, blocked)
            if ask:
                self._multicast.ask()

    def _heard(self, claim: Claim) -> None:
        uuid = claim.uuid
        if uuid is None:
            return
        if uuid == self._me.uuid:
            self._doubts.announced(claim, ())
            return
        known = [each for each in self._nodes.claims.of(uuid) if each.source == "mdns"]
        if self._nodes.put(claim):
            self._nodes.take(self._nodes.liveness.heard(uuid, self._clock.seconds()))
            self._doubts.announced(claim, known)
        else:
            self._held.set(TOO_MANY, True, limit=STRANGERS_MAX)

    def _left(self, instance: str) -> None:
        for key in self._nodes.claims.named(instance):
            self._nodes.take(self._nodes.liveness.goodbye(key, self._clock.seconds()))
