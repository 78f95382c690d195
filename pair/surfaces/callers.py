"""Who calls a port for peers, and the refusal of all but members (CL-16, CL-17, CL-20).

Asked for each request, by the pins of the present view: one look-up, one
comparison. It must not know what is served to whom beyond that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pair.cluster.pins import STRANGER
from pair.metrics import Counter
from pair.records.errors import Subject
from pair.surfaces.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.cluster.pins import Caller, PeerLeaf, PinTable
    from pair.interfaces import IErrorBook
    from pair.surfaces.rules import Head, Peer

CLASH_SECONDS = 600.0
"""So long after it was last seen, another machine with our identity is thought to be gone."""

_CLOSE = ((b"Connection", b"close"),)

MTLS_REQUIRED = Refusal(
    403, "mtls_required", "This port is for members of the cluster, over mutual TLS.", fields=_CLOSE
)
IS_SELF = Refusal(403, "is_self", "This node calls itself.", fields=_CLOSE)
IDENTITY_CLASH = Refusal(
    403,
    "identity_clash",
    "Both nodes have the same identity: one is a copy of the other's disk. "
    "Make a new identity on one of the two: pair-admin identity new.",
    fields=_CLOSE,
)
_NOT_MEMBER = "This node does not count the caller as a member of its cluster."


class Pinned(Protocol):
    """What is asked of trust (``pair.cluster.trust.TrustService``)."""

    @property
    def pins(self) -> PinTable:
        """Who is who by the present view."""

    def evidence(self, peer: PeerLeaf) -> tuple[bytes, ...]:
        """What a refusal tells ``peer``."""


class Callers:
    """Knows who calls, for all ports for peers.

    Args:
        clock: for the end of an identity clash.
        node: UUID of this node.
        trust: who is a member.
        is_own_address: whether an IP literal, with a zone where it is link-local, is one of this host.
        errors: where an identity clash is told.

    Attributes:
        refused_total: counts refusals by reason: ``former``, ``stranger``, ``not_member`` for the rest (CL-106).
    """

    def __init__(
        self,
        clock: IReactorTime,
        node: str,
        trust: Pinned,
        is_own_address: Callable[[str], bool],
        errors: IErrorBook,
    ) -> None:
        self.refused_total = Counter()
        self._clock = clock
        self._node = node
        self._trust = trust
        self._is_own_address = is_own_address
        self._errors = errors
        self._clash_over: IDelayedCall | None = None

    def check(self, peer: Peer) -> Caller:
        """Who ``peer`` is at this moment."""
        return STRANGER if peer.leaf is None else self._trust.pins.check(peer.leaf)

    def objection(self, peer: Peer) -> Refusal | None:
        """Why ``peer`` is served nothing that is for members; None for a member."""
        if not peer.tls:
            return MTLS_REQUIRED
        caller = self.check(peer)
        return None if caller.relation == "member" else self.refuse(peer, caller)

    def refuse(self, peer: Peer, caller: Caller) -> Refusal:
        """The refusal of ``peer``, which is no member, with the evidence that is due to it.

        One that has this node's own leaf is this node, or else a copy of it.
        """
        reason = caller.relation if caller.relation in ("former", "stranger") else "not_member"
        self.refused_total.inc((reason,))
        if caller.relation == "own":
            if self._is_own_address(peer.address):
                return IS_SELF
            self._note_clash(peer.address)
            return IDENTITY_CLASH
        evidence = () if peer.leaf is None else self._trust.evidence(peer.leaf)
        return Refusal(403, "not_member", _NOT_MEMBER, fields=_CLOSE, evidence=evidence)

    def close(self) -> None:
        """Forget an identity clash."""
        if self._clash_over is not None:
            self._clash_over.cancel()
            self._end_clash()

    def _note_clash(self, address: str) -> None:
        self._errors.raise_entry(self._clash, subject=Subject(node=self._node), address=address)
        if self._clash_over is None:
            self._clash_over = self._clock.callLater(CLASH_SECONDS, self._end_clash)
        else:
            self._clash_over.reset(CLASH_SECONDS)

    def _end_clash(self) -> None:
        self._clash_over = None
        self._errors.clear(self._clash)

    @property
    def _clash(self) -> str:
        return f"cluster:identity_clash:{self._node}"


class MemberGuard:
    """Provides :class:`pair.surfaces.rules.Guard` for a port that serves members, over TLS, and nobody else.

    Args:
        callers: who is a member.
        limit: the most octets that a body may have.
    """

    def __init__(self, callers: Callers, limit: int) -> None:
        self._callers = callers
        self._limit = limit

    def check(self, head: Head) -> Refusal | None:
        """See :class:`pair.surfaces.rules.Guard`."""
        return self._callers.objection(head.peer)

    def body_limit(self, head: Head) -> int:
        """See :class:`pair.surfaces.rules.Guard`."""
        return self._limit
