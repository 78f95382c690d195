"""What an invitation is refused with, and the form in which one node tells another (CL-42, CL-43, CL-46).

Pure. The texts are fixed; each names its cure.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

Where = Literal["here", "there"]
"""Who refuses: this node, or the one that is invited."""

RETRY_AFTER = b"Retry-After"

_OVER = "This invitation has ended, or a code was typed for it already. For a new try, invite again."

NO_CODE = {
    "pin": "A code of this invitation is six digits. Nothing is spent: type it again.",
    "long": "A code of this invitation is twenty characters, 0 to 9 and a to f. Nothing is spent: type it again.",
}
"""What is said of a typed text that has not the form of a code, by the kind of the code."""

ALREADY_HERE = "That node is a member of this node's cluster already. Who is: pair-admin cluster show."

NO_ADDRESS = (
    "No address of that node is known here. Invite it by one: pair-admin invite HOST:PORT, with the port that "
    "pair-admin pending names there; on this machine HOST is 127.0.0.1."
)
"""Two nodes of one machine hear each other, and do not take its addresses for the other's (DS-13)."""

_STATUS = {
    "version": 400,
    "pairing_off": 403,
    "no_such_invitation": 404,
    "already_clustered": 409,
    "ambiguous": 409,
    "cluster_full": 409,
    "identity_clash": 409,
    "invitation_over": 409,
    "is_self": 409,
    "pairing_busy": 409,
    "restart_needed": 409,
    "invalid_value": 422,
    "too_many": 429,
    "peer_failed": 502,
    "unreachable": 502,
}

_HERE = {
    "already_clustered": "This node is in a cluster already. Leave that first: pair-admin cluster leave.",
    "ambiguous": "There are several invitations. Name the one that is meant; pair-admin pending lists them.",
    "cluster_full": "The cluster has 64 members, the most that there may be. Remove one that is not used any more.",
    "identity_clash": "That node has the UUID of this one, or of a member with another key: it is a copy of its disk. "
    "Make a new identity on one of the two: pair-admin identity new.",
    "invalid_value": "That is neither an address (host, host:port or [IPv6]:port) nor the UUID of a node.",
    "invitation_over": _OVER,
    "is_self": "That is this node itself. Invite another one.",
    "no_such_invitation": "There is no such invitation. Invite anew.",
    "pairing_busy": "A code is being checked for another invitation. Try again when that has ended.",
    "restart_needed": "This node has a new identity, which is good from its next start on. Restart PAIR first.",
    "too_many": "There are 8 invitations under way already. Cancel one, or wait for their end.",
    "peer_failed": "What answers there breaks the rules of pairing. See that both run the same version of PAIR.",
    "unreachable": "No node of PAIR answered there. See that it runs, that the address is right, and that its "
    "firewall lets port 14321 pass.",
}

_THERE = {
    "version": "That node speaks no version of pairing that this one does. Update the older of the two.",
    "pairing_off": "That node takes no invitations: its setting cluster.pairing is off, or it waits to be started "
    "anew with its new identity.",
    "already_clustered": "That node is in a cluster already. If it shall come to this one, leave there first: "
    "pair-admin cluster leave.",
    "identity_clash": "That node has the UUID of this one: one is a copy of the other's disk. "
    "Make a new identity on one of the two: pair-admin identity new.",
    "is_self": "That is this node itself. Invite another one.",
    "too_many": "That node has enough invitations for now. Try again after ten seconds, or see to those it shows.",
}


class Refusal(Exception):  # noqa: N818 - it is the answer, not a fault
    """Nothing comes of a wish, and nothing has changed.

    Attributes:
        status: As in HTTP.
        code: For programs.
        message: For people: a fixed text that names the cure.
        details: What belongs to it: the ``state`` of an invitation that is over.
        node: The UUID of the other node that refuses, as it says.
    """

    node: str | None = None

    def __init__(self, code: str, where: Where = "here", *, message: str | None = None, **details: str) -> None:
        super().__init__(code)
        self.status = _STATUS[code]
        self.code = code
        self.message = (_HERE if where == "here" else _THERE)[code] if message is None else message
        self.details = details


class PairingReply(Struct, frozen=True):
    """What is answered to a pairing request. ``mac`` goes into ``X-Pair-Mac``, ``fields`` among the other fields."""

    status: int
    body: bytes
    mac: bytes | None = None
    fields: tuple[tuple[bytes, bytes], ...] = ()


class _Error(Struct, frozen=True):
    code: str
    message: str = ""


class _Told(Struct, frozen=True):
    error: _Error
    node: str | None = None


_MESSAGES = {
    "bad_mac": "This request is not the inviter's.",
    "bad_request": "This is no message of a pairing.",
    "invite_conflict": "There is another invitation by this name.",
    "no_such_invitation": "This node knows of no such invitation.",
    "out_of_order": "Another request was expected.",
}


def refuse(status: int, code: str, node: str | None = None, retry_after: int | None = None) -> PairingReply:
    """The answer that tells a peer of a refusal.

    Args:
        status: Of the answer.
        code: For the peer.
        node: Who refuses, where the refusal ends the peer's search (CL-57).
        retry_after: Seconds.
    """
    message = _MESSAGES.get(code) or _HERE.get(code, "This node does not take part in that.")
    body = msgspec.json.encode(_Told(_Error(code, message), node))
    return PairingReply(status, body, None, () if retry_after is None else ((RETRY_AFTER, b"%d" % retry_after),))


def read_refusal(status: int, body: bytes, node: str | None) -> Refusal | None:
    """The refusal of a hello, if an answer is one (CL-57).

    Args:
        status: Of the answer.
        body: Of the answer.
        node: The UUID of the node that is invited, where it is known: another's refusal is none.
    """
    try:
        told = msgspec.json.decode(body, type=_Told)
    except (ValueError, RecursionError):
        return None
    code = told.error.code
    if code not in _THERE or _STATUS[code] != status or (node is not None and told.node != node):
        return None
    refusal = Refusal(code, "there")
    refusal.node = told.node
    return refusal
