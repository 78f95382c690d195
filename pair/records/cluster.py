"""The cluster as people and programs see it: invitations, the roster, the audit (cluster page, section 12)."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Direction = Literal["in", "out"]
InvitationState = Literal["waiting", "confirming", "paired", "declined", "cancelled", "expired", "voided", "failed"]
CodeKind = Literal["pin", "long"]
Ending = Literal["removed", "left", "admitter_removed"]

OVER: frozenset[InvitationState] = frozenset(("paired", "declined", "cancelled", "expired", "voided", "failed"))
"""The states that are final."""


class ClusterName(Struct, frozen=True):
    """Which cluster; the name is for people and no key."""

    id: str
    name: str


class InvitationPeer(Struct, frozen=True):
    """Who is on the other side, as far as it is known; until ``paired`` the name and the UUID are not proven."""

    node: str | None
    name: str | None
    address: str | None


class Invitation(Struct, frozen=True, rename="camel"):
    """One invitation as this node sees it.

    ``id`` is the wire's ``invite``. ``tag`` tells two prompts apart (CL-45) and
    is None as long as there is no answer to the hello. ``cluster`` is the one
    that was joined, once ``paired``.
    """

    id: str
    direction: Direction
    state: InvitationState
    reason: str | None
    peer: InvitationPeer
    tag: str | None
    code_kind: CodeKind
    created_at: int
    expires_at: int
    ended_at: int | None = None
    cluster: ClusterName | None = None

    @property
    def over(self) -> bool:
        """True when it has ended and will never change again."""
        return self.state in OVER


class RosterMember(Struct, frozen=True, rename="camel"):
    """A member. ``admitted_by`` is None for the founder, ``last_seen_at`` for one that was never seen."""

    node: str
    name: str
    leaf: str
    epoch: int
    joined_at: int
    admitted_by: str | None
    last_seen_at: int | None = None
    flags: tuple[str, ...] = ()


class RosterFormer(Struct, frozen=True):
    """A node that is in no more: how, by whom and when, as the signer's clock had it."""

    node: str
    name: str
    how: Ending
    by: str
    at: int


class Roster(Struct, frozen=True, rename={"me": "self"}):
    """Who is in the cluster; ``cluster`` is None while this node is in none. ``me`` is this node's UUID."""

    cluster: ClusterName | None
    me: str
    members: tuple[RosterMember, ...] = ()
    former: tuple[RosterFormer, ...] = ()


class AuditRow(Struct, frozen=True):
    """Something that was done to trust (CL-104). No codes, keys or certificates are in it."""

    id: int
    at: int
    event: str
    actor: str | None
    subject: str | None
    cluster: str | None
    detail: dict[str, Any]
