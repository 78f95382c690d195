"""Where the services of nodes are: what is known of it, and what has answered (DS-36 to DS-39, DS-69)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from pair.addresses import spread, zones
from pair.discovery.addresses import PLACES_MAX, STRANGER_PLACES_MAX, candidates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pair.addresses import Interface, Place
    from pair.discovery.confirmed import Confirmed
    from pair.discovery.nodes import Nodes


class Whereabouts:
    """Says where to dial, and takes what came of it.

    Args:
        nodes: what is known of them.
        confirmed: where members have answered, over restarts.
        found: the interfaces of this host.
        is_member: whether the node with a UUID is one.
    """

    def __init__(
        self,
        nodes: Nodes,
        confirmed: Confirmed,
        found: Callable[[], Sequence[Interface]],
        is_member: Callable[[str], bool],
    ) -> None:
        self._nodes = nodes
        self._confirmed = confirmed
        self._found = found
        self._is_member = is_member

    def places(self, node: str, service: str) -> tuple[Place, ...]:
        """Where a service of a node may be, the likeliest first."""
        if node not in self._nodes.claims:
            return ()
        known = replace(self._nodes.reach(node, service), earlier=self._confirmed.places(node, service))
        most = STRANGER_PLACES_MAX if self._nodes.is_stranger(node) else PLACES_MAX
        return spread(candidates(service, known, most), zones(self._found()))

    def recall(self, node: str) -> None:
        """A node is a member: where it answered before a restart, it may answer again."""
        facts = self._nodes.facts(node)
        facts.confirmed = {**self._confirmed.last(node), **facts.confirmed}

    def confirm(self, node: str, service: str, place: Place) -> None:
        """A service of a node has answered at ``place``."""
        if node not in self._nodes.claims:
            return
        confirmed = self._nodes.facts(node).confirmed
        if confirmed.get(service) != place:
            confirmed[service] = place
            self._nodes.refresh(node)
        if self._is_member(node):
            self._confirmed.keep(node, service, place)

    def doubt(self, node: str, service: str) -> None:
        """A service of a node does not answer where it did last."""
        if node in self._nodes.claims and self._nodes.facts(node).confirmed.pop(service, None) is not None:
            self._nodes.refresh(node)

    def displace(self, node: str, place: Place) -> None:
        """``node`` answers at ``place``: whoever did so before is in doubt (DS-69)."""
        for each in self._nodes.entries:
            if each.uuid not in (None, node) and self._nodes.facts(each.key).confirmed.get("ni") == place:
                self.doubt(each.key, "ni")
                self._nodes.take(self._nodes.liveness.doubt(each.key))
