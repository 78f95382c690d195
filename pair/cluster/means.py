"""What both sides of a pairing are given: clock, store of trust, calls, randomness.

It holds the words in which the drivers ask for those, and nothing of how they
are done.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pair.cluster.changes import Objection
from pair.logs import Logger
from pair.privacy import normalize_error
from pair.store import StoreClosed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IReactorTime
    from twisted.python.failure import Failure

    from pair.cluster.membership import View
    from pair.protocols.pairing import Offer, Party, Peer, Reason

PATH = "/v1/cluster/pairing"

QUIET_SECONDS = 0.06
"""A proof, and the answer to one, leave so long after what caused them (CL-35)."""

log = Logger()


class PlainReply(Protocol):
    """An answer to a pairing request."""

    @property
    def status(self) -> int:
        """Its status."""

    @property
    def mac(self) -> bytes | None:
        """Its ``X-Pair-Mac``."""

    @property
    def body(self) -> bytes:
        """Its whole body."""


class PlainCaller(Protocol):
    """Sends a request in the clear, by address (CL-13)."""

    def post(
        self, address: str, port: int, path: str, body: bytes, headers: Mapping[bytes, bytes], seconds: float
    ) -> Deferred[Any]:
        """A :class:`PlainReply`; fails if there is none within ``seconds``, 3 of them for the connection."""


class Trust(Protocol):
    """What a pairing asks of the cluster's statements, and has them store."""

    @property
    def view(self) -> View | None:
        """The cluster that this node is in; None: in none."""

    def least_epoch(self) -> int:
        """The least epoch by which this node may be admitted (CL-69)."""

    def objection(self, peer: Peer) -> Reason | None:
        """Why this joiner may not be admitted (CL-48)."""

    def offer_objection(self, peer: Peer, offer: Offer) -> Reason | None:
        """Why this offer may not be taken (CL-50)."""

    async def admit(self, peer: Peer, least_epoch: int, invite: str) -> Offer:
        """Store the joiner's ``admit``, and a new cluster if there is none (CL-49)."""

    async def join(self, peer: Peer, offer: Offer) -> tuple[bytes, ...]:
        """Store what is offered and become a member; gives the own ``join`` and ``note`` (CL-50)."""

    async def keep(self, statements: tuple[bytes, ...], source: str) -> object:
        """Store what the joiner returned (CL-51)."""

    async def retract(self, invite: str) -> object:
        """Delete a cluster that was founded by this invitation for nobody (CL-52)."""


@dataclass(frozen=True)
class Means:
    """What a driver works with.

    Attributes:
        clock: For all timers.
        now: Epoch milliseconds, to be shown.
        party: This node as it is now.
        trust: The cluster.
        caller: The network.
        entropy: Gives so many random bytes.
    """

    clock: IReactorTime
    now: Callable[[], int]
    party: Callable[[], Party]
    trust: Trust
    caller: PlainCaller
    entropy: Callable[[int], bytes]


def why(failure: Failure) -> Reason:
    """The reason with which an invitation ends when what it asked of :class:`Trust` failed."""
    error = failure.value
    if isinstance(error, Objection):
        return error.reason
    if isinstance(error, sqlite3.Error | StoreClosed):
        log.error("A pairing could not be stored: {error}.", error=normalize_error(error))
    else:
        log.failure("A pairing could not be stored.", failure)
    return "store"
