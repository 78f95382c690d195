"""What is asked of trust, what it says of a change, and why it refuses one. Values only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pair.cluster.membership import Former, View
from pair.cluster.pins import PinTable
from pair.cluster.refusing import Refusal

if TYPE_CHECKING:
    from pair.protocols.pairing import Reason

SELF = "self"
"""Where a statement came from: this node signed it."""

PAIRING = "pairing"
"""Where a statement came from: the other side of a pairing brought it."""


class About(Struct, frozen=True):
    """What this node's notes say of it: at most 8 IP literals without zone, and a port for each service."""

    name: str
    addresses: tuple[str, ...] = ()
    ports: tuple[tuple[str, int], ...] = ()


class Change(Struct, frozen=True):
    """A new view is in force, and on the disk.

    ``before`` and ``after`` are None for no cluster. ``out`` is how this node
    ceased to be in it, where a cut says so. ``news_from`` is who brought the
    news: the UUID of a node, or :data:`SELF`, or :data:`PAIRING`.
    """

    before: View | None
    after: View | None
    pins: PinTable
    out: Former | None
    news_from: str


class Taken(Struct, frozen=True):
    """What came of a batch: how many statements are new, or that its sender may not hand any in (CL-80)."""

    added: int
    refused: bool = False


class Removal(Struct, frozen=True):
    """The nodes (UUIDs) that were put out; none where the one named was out already."""

    removed: tuple[str, ...]


class Leaving(Struct, frozen=True):
    """A cluster that this node has just left, for those who are to be told (CL-88).

    ``statements`` are the ``leave`` and what proves it. ``view`` and ``pins``
    are those of before: in the present ones there is nobody left to dial.
    """

    cluster: str
    statements: tuple[bytes, ...]
    view: View
    pins: PinTable


class Objection(Exception):  # noqa: N818 - it ends a pairing, and is no fault
    """A pairing may not be stored; ``reason`` is what both sides are told."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class NotClustered(Refusal):
    """This node is in no cluster, or its own UUID is in a clash there: it can put nobody out."""

    def __init__(self) -> None:
        Exception.__init__(self)
        self.status, self.code, self.details = 409, "not_clustered", {}
        self.message = "This node is a member of no cluster, so it can remove nobody."


class NoSuchNode(Refusal):
    """The cluster has never heard of that node."""

    def __init__(self) -> None:
        Exception.__init__(self)
        self.status, self.code, self.details = 404, "no_such_node", {}
        self.message = "No node of this cluster has that id; pair-admin cluster show lists them."


class IsSelf(Refusal):
    """A node does not remove itself (CL-87)."""

    def __init__(self) -> None:
        Exception.__init__(self)
        self.status, self.code, self.details = 409, "is_self", {}
        self.message = "That is this node itself. To leave the cluster: pair-admin cluster leave."
