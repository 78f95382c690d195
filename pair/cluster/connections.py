"""The open connections with peers, in and out, of every service (CL-18).

Whoever a new view no longer names is cut off here, in the turn in which the
view changes. It knows neither TLS nor sockets.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pair.cluster.pins import PeerLeaf, PinTable


class PeerConnection(Protocol):
    """A connection under mutual TLS."""

    @property
    def peerLeaf(self) -> PeerLeaf | None:  # noqa: N802 - named by CL-15
        """The leaf that the peer showed; None as long as the handshake goes on."""

    def abortConnection(self) -> None:
        """Close it at once, whatever is under way."""


class PeerConnections:
    """Those that are open, in the handshake or after it."""

    def __init__(self) -> None:
        self._open: dict[PeerConnection, bool] = {}  # in the order in which they came, and whether they came in

    def __len__(self) -> int:
        return len(self._open)

    @property
    def handshakes(self) -> int:
        """How many that came in have no peer yet."""
        return sum(incoming and each.peerLeaf is None for each, incoming in self._open.items())

    def add(self, connection: PeerConnection, incoming: bool = False) -> None:
        """It was opened; ``incoming``: by the other end."""
        self._open[connection] = incoming

    def remove(self, connection: PeerConnection) -> None:
        """It is closed."""
        self._open.pop(connection, None)

    def make_room(self) -> None:
        """Abort the one that came in first of those that have no peer yet."""
        waiting = (each for each, incoming in self._open.items() if incoming and each.peerLeaf is None)
        self._abort(islice(waiting, 1))

    def cut(self, pins: PinTable) -> int:
        """Abort each whose peer is neither member nor admitted by ``pins``, and say how many that were.

        One whose handshake goes on has no peer yet; it is judged when that is
        done: an incoming one by each request (CL-16), one of ours by its dial.
        """
        return self._abort(
            each for each in self._open if each.peerLeaf is not None and not pins.check(each.peerLeaf).pinned
        )

    def abort_all(self) -> int:
        """Abort every one, and say how many that were."""
        return self._abort(self._open)

    def _abort(self, doomed: Iterable[PeerConnection]) -> int:
        connections = tuple(doomed)
        for each in connections:
            del self._open[each]
        for each in connections:
            each.abortConnection()
        return len(connections)
