"""What an exchange tells its driver to do, and the words that both use.

Pure. A driver carries out the actions of one call in their order. Those that
hold proofs or certificates show nothing of them.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from pair.protocols.pairing.messages import EndState, Silent
from pair.protocols.pairing.parties import Peer

FinalState = Literal["paired"] | EndState
State = Literal["waiting", "confirming"] | FinalState
"""Where an invitation stands (cluster page, 5.3)."""

LIVE = ("waiting", "confirming")

Reason = Literal[
    "wrong_code",
    "protocol_error",
    "unreachable",
    "no_answer",
    "peer_restarted",
    "already_clustered",
    "cluster_full",
    "identity_clash",
    "joined_another_cluster",
    "store",
    "peer_failed",
]

_COMMON: dict[str | None, Reason] = {
    "wrong_code": "wrong_code",
    "protocol_error": "protocol_error",
    "already_clustered": "already_clustered",
    "cluster_full": "cluster_full",
    "identity_clash": "identity_clash",
    "joined_another_cluster": "joined_another_cluster",
}
"""Reasons that mean the same on both sides; any other one of the peer's is here ``peer_failed``."""


class OverError(Exception):
    """It is too late for this; ``state`` says what came first (CL-55)."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.state = state


class Ended(Struct, frozen=True):
    """The invitation is in a final state. Told once."""

    state: FinalState
    reason: Reason | None = None


# Of the inviter.


class Send(Silent, Struct, frozen=True):
    """POST this, and again with the same bytes until a reply to it has a good MAC. It replaces the ``Send`` before."""

    body: bytes
    mac: bytes


class Admit(Silent, Struct, frozen=True):
    """The joiner has proven itself: store its ``admit`` and what goes with it, then call ``admitted`` (CL-49)."""

    peer: Peer
    epoch: int


class Keep(Silent, Struct, frozen=True):
    """Store these statements of the joiner, which is a member now (CL-51)."""

    statements: tuple[bytes, ...]


class Retract(Struct, frozen=True):
    """The joiner said that it did not join: a cluster founded for it alone is deleted (CL-52)."""


# Of the joiner.


class Answer(Silent, Struct, frozen=True):
    """Answer the request that is open: 200 with this body and, but for a hello, this MAC."""

    body: bytes
    mac: bytes | None


class Refuse(Struct, frozen=True):
    """Answer the request just judged with this status and error code. Nothing has changed."""

    status: int
    code: str


class Hold(Struct, frozen=True):
    """Leave the request just judged open. It takes the place of one that was."""


class Show(Struct, frozen=True):
    """The invitation may now be shown to people (CL-31)."""


class Offer(Silent, Struct, frozen=True):
    """What the inviter, proven, invites to."""

    cluster: str
    name: str
    statements: tuple[bytes, ...]


class Join(Silent, Struct, frozen=True):
    """Store the offer with the own ``join`` and ``note``, change the view, then call ``joined`` (CL-50)."""

    peer: Peer
    offer: Offer


InviterAction = Send | Admit | Keep | Retract | Ended
JoinerAction = Answer | Refuse | Hold | Show | Join | Ended


def common_reason(state: EndState, told: str | None) -> Reason | None:
    """What our side calls the reason for which the peer ended it in ``state``."""
    if state not in ("voided", "failed"):
        return None
    return _COMMON.get(told, "peer_failed")
