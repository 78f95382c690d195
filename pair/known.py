"""The nodes as people are shown them: what the directory, their offers and their jobs say of each (UI-33)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pair.control.nodes import NodeView, node_views

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pair.neighbours import Neighbours
    from pair.records.engines import NodeInventory
    from pair.records.nodes import ManualNode
    from pair.records.telemetry import Sample
    from pair.sharing import Sharing


class KnownNodes:
    """Provides :class:`pair.control.sources.Nodes`.

    Args:
        own: what this node offers.
        neighbours: which nodes there are, and how busy.
        sharing: what they offer, and work on.
    """

    def __init__(self, own: Callable[[], NodeInventory], neighbours: Neighbours, sharing: Sharing) -> None:
        self._own = own
        self._directory = neighbours.directory
        self._collector = neighbours.collector
        self._sharing = sharing

    def all(self) -> Sequence[NodeView]:
        """See :class:`pair.control.sources.Nodes`."""
        own = self._own()
        offers = {own.node: own, **self._sharing.offers}
        return node_views(self._directory.entries(), offers, self._sharing.jobs.pending(), self.manual())

    def get(self, node: str) -> NodeView | None:
        """See :class:`pair.control.sources.Nodes`."""
        return next((each for each in self.all() if each.key == node), None)

    def telemetry(self, node: str, window_ms: int) -> Sequence[Sample]:
        """See :class:`pair.control.sources.Nodes`."""
        return self._collector.history(node, window_ms)

    def manual(self) -> Sequence[ManualNode]:
        """See :class:`pair.control.sources.Nodes`."""
        return self._directory.manual.all()

    def add(self, address: str) -> Awaitable[tuple[ManualNode, bool]]:
        """See :class:`pair.control.sources.Nodes`."""
        return self._directory.manual.add(address)

    def remove(self, id: str) -> Awaitable[bool]:
        """See :class:`pair.control.sources.Nodes`."""
        return self._directory.manual.remove(id)

    def probe(self, key: str) -> Awaitable[object]:
        """See :class:`pair.control.sources.Nodes`."""
        return self._directory.probe(key)
