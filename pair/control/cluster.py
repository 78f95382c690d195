"""What the API says of the cluster and of invitations to it, and does for people there (UI-48 to UI-51).

It turns what the parts say into answers and refusals. Who may join, and what
a code is worth, is not decided here.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict

from pair.addresses import parse_node
from pair.cluster.refusing import Refusal
from pair.control.views import Collection
from pair.protocols.pairing.messages import Silent
from pair.records.cluster import AuditRow, CodeKind, Invitation
from pair.store import StoreClosed
from pair.surfaces.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pair.control.sources import Cluster, Invitations

RETRY_SECONDS = 10
"""After so long it may be worth to ask again where there were too many (CL-44)."""


class InviteBody(Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    """The body of ``POST /cluster/invitations``: one of ``node`` (UUID) and ``address`` (``host[:port]``)."""

    node: str | None = None
    address: str | None = None
    code_kind: CodeKind = "pin"


class AnswerBody(Silent, Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /cluster/invitations/{id}/answer``; ``code`` as it was typed, to accept."""

    accept: bool
    code: str | None = None


class NewIdentityBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of ``POST /cluster/identity/new``; ``abandon`` is needed in a cluster (CL-96)."""

    confirm: bool = False
    abandon: bool = False


class RemovalQuery(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The query of ``DELETE /cluster/members/{uuid}``: whether those that it let in are removed too (CL-87)."""

    with_admitted: bool = False


class AuditQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of ``GET /cluster/audit``."""

    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class Invited(Silent, Invitation, frozen=True, rename="camel", kw_only=True):
    """A new invitation, and the code that is shown here and never again (CL-101)."""

    code: str


class InvitationList(Collection, frozen=True):
    """``GET /cluster/invitations``: both directions, the newest last, ended ones for an hour."""

    invitations: tuple[Invitation, ...]


class Removed(Struct, frozen=True):
    """What came of a removal: whether there was one, of which nodes, and which members know of it by now (CL-86)."""

    removed: bool
    nodes: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()


class Left(Struct, frozen=True):
    """What came of leaving: false where there was no cluster to leave (CL-88)."""

    left: bool
    told: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()


class AuditList(Collection, frozen=True):
    """``GET /cluster/audit``: the newest first."""

    audit: tuple[AuditRow, ...]


class NodeIdentity(Struct, frozen=True):
    """Who this node is: its UUID and the digest of its certificate (CL-7).

    ``restart`` says that this is so from the next start of PAIR on.
    """

    node: str
    leaf: str
    restart: bool = False


async def invited(invitations: Invitations, asked: InviteBody) -> Invited:
    """A new invitation with its code (CL-43).

    Raises:
        Refused: There is nobody to invite, or that is refused here or there.
    """
    if (asked.node is None) == (asked.address is None):
        raise _invalid("node", "Say whom to invite: either a node or an address.")
    target = asked.address or parse_node(asked.node or "")
    if not target:
        raise _invalid("address" if asked.node is None else "node", "It names no node.")
    with refusals():
        invitation, code = await invitations.invite(target, asked.code_kind)
    return Invited(**asdict(invitation), code="".join(code.reveal().split()))


def invitation(invitations: Invitations, id: str) -> Invitation:
    """One of them.

    Raises:
        Refused: There is none of that id, or it ended long ago.
    """
    found = next((each for each in invitations.all() if each.id == id), None)
    if found is None:
        raise Refused(404, "no_such_invitation", "There is no such invitation; ended ones are kept for an hour only.")
    return found


async def answered(invitations: Invitations, id: str, answer: AnswerBody) -> Invitation:
    """It, accepted or declined.

    Returns:
        The invitation when it has ended, or as it is after 30 s (CL-46).

    Raises:
        Refused: It was not that simple; a wrong code is among the reasons.
    """
    with refusals():
        if not answer.accept:
            return invitations.decline(id)
        if answer.code is None:
            raise _invalid("code", "To accept an invitation takes its code.")
        ended = await invitations.accept(id, answer.code)
    if (ended.state, ended.reason) == ("voided", "wrong_code"):
        message = (
            "The code was wrong, and so this invitation is void on both sides. For a new try, invite again from the "
            "other machine, ten seconds after the last time at the earliest."
        )
        raise Refused(403, "wrong_code", message, state=ended.state)
    return ended


def cancelled(invitations: Invitations, id: str) -> Invitation:
    """It, withdrawn.

    Raises:
        Refused: There is none of that id, or it has ended.
    """
    with refusals():
        return invitations.cancel(id)


async def removed(cluster: Cluster, node: str, with_admitted: bool) -> Removed:
    """What came of removing ``node``, in any spelling of CL-4.

    Raises:
        Refused: This node is in no cluster, or ``node`` is it, or unknown.
    """
    found = parse_node(node)
    if found is None:
        raise Refused(404, "no_such_node", "No node has that id.")
    with refusals():
        return await cluster.remove(found, with_admitted)


async def left(cluster: Cluster) -> Left:
    """What came of leaving.

    Raises:
        Refused: It could not be written.
    """
    with refusals():
        return await cluster.leave()


async def renewed(cluster: Cluster, asked: NewIdentityBody) -> NodeIdentity:
    """The new identity of this node.

    Raises:
        Refused: It was not confirmed, the node is in a cluster (CL-96), or it could not be written.
    """
    if not asked.confirm:
        message = "The old identity is lost by that, and no other node knows the new one. Confirm it."
        raise Refused(409, "confirm_needed", message)
    if cluster.roster().cluster is not None and not asked.abandon:
        message = (
            "This node is in a cluster. Leave that first; or, if another machine goes on there under the same "
            "identity, abandon it."
        )
        raise Refused(409, "still_member", message)
    with refusals():
        return await cluster.renew()


@contextmanager
def refusals() -> Iterator[None]:
    """What the cluster refuses, in the form of the API."""
    try:
        yield
    except Refusal as why:
        fields = ((b"Retry-After", b"%d" % RETRY_SECONDS),) if why.status == 429 else ()
        raise Refused(why.status, why.code, why.message, fields=fields, **why.details) from None
    except (sqlite3.Error, StoreClosed):
        raise Refused(503, "store", "It could not be written to the disk; nothing has changed.") from None


def _invalid(path: str, message: str) -> Refused:
    return Refused(422, "invalid_value", message, path=path)
