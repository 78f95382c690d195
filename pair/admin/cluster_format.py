"""Invitations, the roster and the audit for a person. Pure: values in, something for rich out.

What another node says of itself is shown as that until a code has proven it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from pair.admin.tables import facts, section, state, table
from pair.admin.words import NOTHING, ago, note, short, span, word

if TYPE_CHECKING:
    from pair.admin.naming import Names

Row = Mapping[str, Any]

_ENDS = {
    "paired": "Paired with {name}.",
    "declined": "The invitation was declined.",
    "cancelled": "The invitation was taken back.",
    "expired": "The invitation has expired: nobody typed the code in time. For a new try, invite again.",
    "voided": "The invitation is void on both sides, and its code of no use any more. For a new try, invite again.",
    "failed": "The pairing has failed. For a new try, invite again.",
}

_REASONS = {
    "wrong_code": "The code was wrong.",
    "protocol_error": "The other side broke the rules of pairing, or somebody interfered.",
    "unreachable": "The other side cannot be reached.",
    "no_answer": "The other side fell silent at the last step; it may yet appear by itself.",
    "peer_restarted": "The other side was started anew meanwhile.",
    "already_clustered": "The node that is invited is in a cluster already.",
    "cluster_full": "The cluster has 64 members, the most that there may be.",
    "identity_clash": "The other node has the UUID of this one or of a member: it is a copy of its disk.",
    "joined_another_cluster": "This node has joined another cluster meanwhile.",
    "store": "It could not be written to the disk.",
    "peer_failed": "The other side could not finish it.",
}


def code(found: Row, now: int) -> RenderableType:
    """A new invitation with its code, which is to be read from afar and typed elsewhere."""
    peer = found["peer"]
    text, size = str(found["code"]), 5 if found["codeKind"] == "long" else 3
    groups = " ".join(text[at : at + size] for at in range(0, len(text), size))
    return Group(
        Text(f"Code for {word(peer.get('name'))} at {word(peer.get('address'))}:"),
        "",
        Text(f"    {groups}", style="bold"),
        "",
        Text(f"Type it on that machine within {span(found['expiresAt'] - now)}: pair-admin accept"),
        Text(f"It is asked for there under the tag {word(found.get('tag'))}; another tag is another invitation."),
    )


def asker(found: Row, now: int) -> str:
    """Who wants this node to join, and that it is only said so."""
    peer = found["peer"]
    return (
        f"A node that calls itself {word(peer.get('name'))}, at {word(peer.get('address'))}, invites this one: "
        f"tag {word(found.get('tag'))}, {ago(found.get('createdAt'), now)}."
    )


def end(found: Row) -> RenderableType:
    """How an invitation ended."""
    text = word(found["state"])
    said = _ENDS.get(text, text).format(name=word(found["peer"].get("name")))
    in_cluster = found.get("cluster")
    if in_cluster:
        said += f" This node is in the cluster {word(in_cluster['name'])}."
    reason = found.get("reason")
    why = "" if reason is None else _REASONS.get(reason, word(reason)) + " "
    return Text(why + said)


def invitations(found: Iterable[Row], now: int) -> RenderableType:
    """The invitations in both directions."""
    rows = [
        (
            word(each["id"])[:8],
            "from" if each["direction"] == "in" else "to",
            word(each["peer"].get("name")),
            word(each["peer"].get("address")),
            word(each.get("tag")),
            state(each["state"]),
            ago(each.get("createdAt"), now),
            _remark(each, now),
        )
        for each in found
    ]
    titles = ("ID", "WAY", "NODE", "ADDRESS", "TAG", "STATE", "MADE", "NOTE")
    return table(titles, rows, "There are no invitations.")


def _remark(invitation: Row, now: int) -> str:
    if invitation.get("endedAt") is None:
        return f"ends in {span(invitation['expiresAt'] - now)}"
    reason = invitation.get("reason")
    return note(_REASONS.get(reason, reason) if reason else None)


def roster(found: Row, now: int) -> RenderableType:
    """Who is in, and who was."""
    names = _names(found)
    former = [
        (
            short(each["node"]),
            word(each.get("name")),
            word(each["how"]).replace("_", " "),
            _named(each.get("by"), names),
            ago(each.get("at"), now),
        )
        for each in found["former"]
    ]
    parts: list[RenderableType] = [Text("This node is in no cluster.", style="dim")]
    in_cluster = found["cluster"]
    if in_cluster is not None:
        parts = [
            Text.assemble((word(in_cluster["name"]), "bold"), f"  {word(in_cluster['id'])}"),
            _members(found, names, now),
        ]
    if former:
        drawn = table(("NODE", "NAME", "HOW", "BY", "WHEN"), former, "")
        parts.append(section("No longer in", drawn))
    return Group(*parts)


def _members(found: Row, names: Mapping[str, str], now: int) -> RenderableType:
    rows = [
        (
            short(each["node"]),
            word(each.get("name")),
            fingerprint(each.get("leaf")),
            ago(each.get("joinedAt"), now),
            _named(each.get("admittedBy"), names),
            "this node" if each["node"] == found["self"] else ago(each.get("lastSeenAt"), now),
            ", ".join(word(flag).replace("_", " ") for flag in each.get("flags", ())),
        )
        for each in found["members"]
    ]
    titles = ("NODE", "NAME", "CERTIFICATE", "JOINED", "LET IN BY", "SEEN", "NOTE")
    return table(titles, rows, "There are no members.")


def removal(found: Row, before: Row) -> RenderableType:
    """What came of a removal; ``before`` is the roster that it was done to."""
    if not found["removed"]:
        return Text("It is no member, so there was nothing to do.")
    names = _names(before)
    return Text(f"Removed: {_listed(found.get('nodes', ()), names)}.{_told(found, names)}")


def leaving(found: Row, before: Row) -> RenderableType:
    """What came of leaving."""
    if not found["left"]:
        return Text("This node is in no cluster, so there was nothing to do.")
    return Text(f"This node has left {word((before['cluster'] or {}).get('name'))}.{_told(found, _names(before))}")


def audit(found: Iterable[Row], now: int, called: Names) -> RenderableType:
    """What was done to trust."""
    rows = [
        (
            ago(each.get("at"), now),
            word(each["event"]).replace("_", " "),
            called.of(each.get("actor")),
            called.of(each.get("subject")),
            note(
                ", ".join(
                    _detail(name, value, now) for name, value in each.get("detail", {}).items() if value is not None
                )
            ),
        )
        for each in found
    ]
    return table(("WHEN", "EVENT", "BY", "NODE", "DETAIL"), rows, "Nothing was done yet.")


def identity(found: Row) -> RenderableType:
    """Who this node is."""
    drawn = facts([("node", word(found["node"])), ("certificate", word(found.get("leaf")))])
    return Group(drawn, Text("It is so from the next start of PAIR on.")) if found.get("restart") else drawn


def fingerprint(leaf: str | None) -> str:
    """The short form of a certificate's digest: its first 16 digits in fours (CL-7)."""
    digits = word(leaf and leaf.removeprefix("sha256:"))[:16]
    return " ".join(digits[at : at + 4] for at in range(0, len(digits), 4))


def _names(roster: Row) -> dict[str, str]:
    return {str(each["node"]): word(each.get("name")) for each in (*roster["former"], *roster["members"])}


def _named(node: str | None, names: Mapping[str, str]) -> str:
    return NOTHING if node is None else names.get(node, short(node))


def _listed(nodes: Iterable[str], names: Mapping[str, str]) -> str:
    return ", ".join(f"{names[node]} ({short(node)})" if node in names else short(node) for node in nodes)


def _told(found: Row, names: Mapping[str, str]) -> str:
    """Which members know of it, and that the others will hear it later."""
    told, untold = found.get("told", ()), found.get("untold", ())
    said = f" Told: {_listed(told, names)}." if told else ""
    return said + (f" Not reached, and told at the next contact: {_listed(untold, names)}." if untold else "")


def _detail(name: str, value: object, now: int) -> str:
    return f"signed {ago(value, now)}" if name == "issuedAt" and isinstance(value, int) else f"{name} {value}"
