"""``cluster`` and ``identity``: who is in, who was, and who this node is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pair.admin.api import decoded, segment
from pair.admin.asking import confirm, yes_option
from pair.admin.directory import names
from pair.admin.failures import Failed
from pair.admin.grammar import Noun, with_session
from pair.admin.naming import node_of
from pair.admin.words import short, word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pair.admin.session import Session

    Row = Mapping[str, Any]

_TELLING = 3.0
"""Seconds for which the service tells the other members before it answers (CL-88)."""

cluster = Noun("cluster", help="The cluster that this node is in.", alone="show")
identity = Noun("identity", help="Who this node is.", alone="show")


@cluster.command("show")
@with_session
def cluster_show(session: Session) -> None:
    """Show who is in the cluster, and who was."""
    body = session.api.get("/cluster")
    found = decoded(body)
    session.show(body, lambda: _tables().roster(found, session.now()))
    if found["cluster"] is None:
        session.hint(f"\nTo found one, invite another node: {session.command('invite ADDRESS')}")


@cluster.command("remove")
@click.argument("node")
@click.option("--with-admitted", is_flag=True, help="Remove those that it let in too.")
@yes_option
@with_session
def cluster_remove(session: Session, node: str, with_admitted: bool, yes: bool) -> None:
    """Put a node out of the cluster: UUID or how that begins, or name."""
    roster = decoded(session.api.get("/cluster"))
    if roster["cluster"] is None:
        raise Failed("not_clustered", "This node is in no cluster.")
    victim = node_of(node, roster["members"], roster["former"])
    confirm(session, _removal(roster, victim, with_admitted), yes)
    body = session.api.delete(f"/cluster/members/{segment(victim)}?withAdmitted={str(with_admitted).lower()}")
    session.show(body, lambda: _tables().removal(decoded(body), roster))


@cluster.command("leave")
@yes_option
@with_session
def cluster_leave(session: Session, yes: bool) -> None:
    """Take this node out of its cluster; no other member needs to be there."""
    roster = decoded(session.api.get("/cluster"))
    if roster["cluster"] is not None:
        name = word(roster["cluster"]["name"])
        confirm(session, f"Leave {name}? To come back this node needs to be invited anew.", yes)
    body = session.api.post("/cluster/leave", takes=_TELLING)
    session.show(body, lambda: _tables().leaving(decoded(body), roster))


@cluster.command("audit")
@click.option("--limit", type=click.IntRange(1, 500), metavar="N", help="At most so many; 100 if not given.")
@with_session
def cluster_audit(session: Session, limit: int | None) -> None:
    """List what was done to trust, the newest first."""
    body = session.api.get("/cluster/audit", limit=limit)
    session.show(body, lambda: _tables().audit(decoded(body)["audit"], session.now(), names(session)))


@identity.command("show")
@with_session
def identity_show(session: Session) -> None:
    """Show the UUID of this node and the digest of its certificate."""
    body = session.api.get("/cluster/identity")
    session.show(body, lambda: _tables().identity(decoded(body)))


@identity.command("new")
@click.option("--abandon", is_flag=True, help="Also in a cluster, which is not told: another machine goes on there.")
@yes_option
@with_session
def identity_new(session: Session, abandon: bool, yes: bool) -> None:
    """Make a new UUID, key and certificate: for one of two machines that are copies of one disk."""
    question = "Make a new identity? The old one is lost, and to any cluster this node is a new one then."
    confirm(session, question, yes)
    body = session.api.post("/cluster/identity/new", {"confirm": True, "abandon": abandon})
    session.show(body, lambda: _tables().identity(decoded(body)))


def _removal(roster: Row, victim: str, with_admitted: bool) -> str:
    """The question before a removal; it names those that ``victim`` has let in (CL-87)."""
    named = {str(each["node"]): f"{word(each['name'])} ({short(each['node'])})" for each in roster["members"]}
    admitted = [named[each["node"]] for each in roster["members"] if each["admittedBy"] == victim]
    question = f"Remove {named.get(victim, victim)} from {word(roster['cluster']['name'])}?"
    if not admitted:
        return question
    listed = ", ".join(admitted)
    return f"{question} It let in {listed}: {'they go too' if with_admitted else 'they stay'}."


def _tables() -> Any:
    """The module that draws; it is slow to load, and with ``--json`` nothing is drawn."""
    from pair.admin import cluster_format

    return cluster_format
