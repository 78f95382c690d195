"""``error``: what is wrong now, on all nodes."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from pair.admin.api import decoded, segment
from pair.admin.directory import listed, names
from pair.admin.failures import Failed
from pair.admin.grammar import Noun, with_session
from pair.admin.naming import entry_of
from pair.admin.words import word

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pair.admin.session import Session

    Row = Mapping[str, Any]

error = Noun("error", help="What is wrong now.")

_node = click.option("--node", metavar="NODE", help="The node whose it is, where several have one of that id.")


@error.command("list")
@with_session
def error_list(session: Session) -> None:
    """List what is wrong now on all nodes, the worst first."""
    body = session.api.get("/errors")
    found = decoded(body)
    session.show(body, lambda: _tables().errors(found["errors"], found["hidden"], session.now(), names(session)))


@error.command("dismiss")
@click.argument("id")
@with_session
def error_dismiss(session: Session, id: str) -> None:
    """Take an entry of this node from sight, on all nodes; what still holds is out of sight until it comes anew.

    ID may be cut.
    """
    entry = _entry(session, id, None, own_first=True)
    try:
        body = session.api.post(f"/errors/{segment(entry['node'])}/dismiss/{segment(entry['id'])}")
    except Failed as refused:
        if refused.code != "not_origin":
            raise
        node = names(session).of(entry["node"])
        hide = session.command(f"error hide {quote(entry['id'])} --node {quote(node)}")
        message = f"Only {node} can dismiss what it says. To hide it on this node: {hide}"
        raise Failed(refused.code, message, refused.body) from None
    holds = " It holds, and is shown again when it has gone and comes anew." if entry["cleared"] == "auto" else ""
    session.show(body, lambda: f"Dismissed: {word(entry['id'])}.{holds}")


@error.command("hide")
@click.argument("id")
@_node
@with_session
def error_hide(session: Session, id: str, node: str | None) -> None:
    """Take an entry of any node from sight, on this one, until it comes anew. ID may be cut."""
    entry = _entry(session, id, node)
    body = session.api.post(f"/errors/{segment(entry['node'])}/hide/{segment(entry['id'])}")
    session.show(body, lambda: f"Hidden on this node: {word(entry['id'])}")


def _entry(session: Session, id: str, node: str | None, own_first: bool = False) -> Row:
    """The entry of that id, or the only one whose id begins so.

    Args:
        session: The run.
        id: It, or its beginning.
        node: Whose; None: any node's.
        own_first: Where several nodes have it, this one's is meant.

    Raises:
        Failed: There is none, or it is not clear which is meant.
    """
    entries: Sequence[Row] = decoded(session.api.get("/errors"))["errors"]
    if node is not None:
        uuid = entry_of(node, listed(session))["uuid"]
        entries = [each for each in entries if each["node"] == uuid]
    found = [each for each in entries if each["id"] == id] or [each for each in entries if each["id"].startswith(id)]
    if own_first and len(found) > 1:
        me = decoded(session.api.get("/service"))["node"]
        found = [each for each in found if each["node"] == me] or found
    if not found:
        raise Failed("no_such_error", f"No such entry is shown. What is: {session.command('error list')}")
    if len(found) > 1:
        called = names(session)
        several = ", ".join(f"{word(each['id'])} of {called.of(each['node'])}" for each in found)
        more = "Give more of the id." if own_first else "Give more of the id, or --node."
        raise Failed("ambiguous", f"Several entries are meant by that: {several}. {more}")
    return found[0]


def _tables() -> Any:
    """The module that draws; it is slow to load, and with ``--json`` nothing is drawn."""
    from pair.admin import format  # noqa: A004

    return format
