"""The open connections with peers, in and out, of every service (CL-18).

Whoever a new view no longer names is cut off here, in the turn in which the
view changes. It knows neither TLS nor sockets.
"""

from __future__ import annotations

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
        self._open: set[PeerConnection] = set()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def handshakes(self) -> int:
        """How many have no peer yet."""
        return sum(each.peerLeaf is None for each in self._open)

    def add(self, connection: PeerConnection) -> None:
        """It was opened."""
        self._open.add(connection)

    def remove(self, connection: PeerConnection) -> None:
        """It is closed."""
        self._open.discard(connection)

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
        self._open.difference_update(connections)
        for each in connections:
            each.abortConnection()
        return len(connections)
