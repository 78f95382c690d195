"""What the directory needs of others: somebody who asks nodes, and somebody who hears multicast.

Who they are is decided above. The one needs what only the cluster has, the
other threads and sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twisted.internet.defer import Deferred

    from pair.addresses import Place
    from pair.discovery.claims import Claim
    from pair.discovery.txt import Record
    from pair.events import Signal
    from pair.records.asking import Answer


class Me(Struct, frozen=True):
    """This node: its UUID, its name, and the nonce of this process (DS-78)."""

    uuid: str
    name: str
    instance: str


class Asking(Protocol):
    """Asks nodes over TCP, 1 s for each address (DS-37, DS-56)."""

    def node_info(self, node: str | None, places: Sequence[Place], seconds: float) -> Deferred[Answer]:
        """What a node-info says.

        A node of whom there is a pin is asked over mutual TLS, and whoever
        cannot prove to be it does not count.

        Args:
            node: Whose; None: anybody's.
            places: Where to ask, in order of preference.
            seconds: For all of it.

        Raises:
            AskFailed: Nobody answered as was expected (:class:`pair.records.asking.AskFailed`).
        """

    def knock(self, node: str | None, places: Sequence[Place], pinned: bool, seconds: float) -> Deferred[bool]:
        """Whether there is a connection to be had at any of ``places``; with ``pinned``, by a proof of identity."""


class Multicast(Protocol):
    """What is heard of other nodes' records, and told of our own (section 4)."""

    heard: Signal[Claim]
    """Each SRV or TXT that arrives."""

    left: Signal[str]
    """The name of the instance in each goodbye."""

    last_foreign: float | None
    """When the last packet came from another host, by the directory's clock; None: none ever did."""

    def publish(self, record: Record, addresses: Sequence[str]) -> None:
        """This is our record from now on, with these A and AAAA."""

    def ask(self) -> None:
        """Send one question (DS-54)."""

    def moved(self) -> None:
        """Interfaces are other ones, or this host has slept: see to the sockets, and announce."""
