"""``node``: the machines that are known, and those that are looked for at an address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pair.admin.api import decoded, segment
from pair.admin.directory import listed
from pair.admin.failures import Failed
from pair.admin.grammar import Noun, with_session
from pair.admin.naming import entry_of, names_of, place_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pair.admin.session import Session

    Row = Mapping[str, Any]

_PROBING = 10.0
"""Seconds that the service may take to ask a node at all its addresses."""

node = Noun("node", help="The machines that are known: members of the cluster, and others.")


@node.command("list")
@click.option("--long", "whole", is_flag=True, help="With whole UUIDs.")
@with_session
def node_list(session: Session, whole: bool = False) -> None:
    """List the nodes that are known."""
    body = session.api.get("/nodes")
    session.show(body, lambda: _tables().nodes(decoded(body)["nodes"], session.now(), whole))


@node.command("show")
@click.argument("node", default="self")
@with_session
def node_show(session: Session, node: str) -> None:
    """Show one node, this one if none is named; NODE is a UUID or how that begins, or a name."""
    body = session.api.get(f"/nodes/{segment(str(entry_of(node, listed(session))['key']))}")
    session.show(body, lambda: _tables().node(decoded(body), session.now()))


@node.command("add")
@click.argument("address")
@with_session
def node_add(session: Session, address: str) -> None:
    """Look for a node at an address too (HOST or HOST:PORT of its node-info); this pairs with nobody."""
    body = session.api.post("/nodes/manual", {"address": address})
    session.show(body, lambda: _tables().given(decoded(body)))
    session.hint(f"\nWhether it answers: {session.command('node list')}. To pair: {session.command('invite ADDRESS')}")


@node.command("remove")
@click.argument("address")
@with_session
def node_remove(session: Session, address: str) -> None:
    """Look at an address no more; ADDRESS may also be the node that was found there."""
    given = _given(session, address)
    body = session.api.delete(f"/nodes/manual/{segment(str(given['id']))}")
    session.show(body, lambda: f"Removed: {place_of(given)}")


@node.command("probe")
@click.argument("node")
@with_session
def node_probe(session: Session, node: str) -> int:
    """Ask a node now, at all its addresses that are known; exit 1 if it does not answer."""
    key = str(entry_of(node, listed(session))["key"])
    body = session.api.post(f"/nodes/{segment(key)}/probe", takes=_PROBING)
    found = decoded(body)
    session.show(body, lambda: _tables().probed(found, session.now()))
    return 0 if found["answered"] else 1


@node.command("drain")
@click.argument("node", default="self")
@click.option("--reason", metavar="TEXT", help="For whoever asks why.")
@with_session
def node_drain(session: Session, node: str, reason: str | None) -> None:
    """Let this node take no new work; what is under way ends normally, and its clients are served by others."""
    _drain(session, node, {"drained": True, "reason": reason})
    session.hint(f"\nTo undo it: {session.command('node undrain')}")


@node.command("undrain")
@click.argument("node", default="self")
@with_session
def node_undrain(session: Session, node: str) -> None:
    """Let this node take work again."""
    _drain(session, node, {"drained": False})


def _drain(session: Session, node: str, asked: Row) -> None:
    body = session.api.put(f"/nodes/{segment(str(entry_of(node, listed(session))['key']))}/drain", asked)
    session.show(body, lambda: _tables().nodes([decoded(body)], session.now()))


def _given(session: Session, text: str) -> Row:
    """The address that ``text`` is, or the only one of the node that it means.

    Raises:
        Failed: There is none, or there are several.
    """
    nodes = listed(session)
    every: dict[str, Row] = {str(each["id"]): each for node in nodes for each in node["manual"]}
    found = [each for each in every.values() if text in names_of(each)]
    if not found:
        found = list(entry_of(text, nodes)["manual"])
        if not found:
            raise Failed("no_such_address", "That node was not added by its address, so there is none to remove.")
    if len(found) > 1:
        several = ", ".join(map(place_of, found))
        raise Failed("ambiguous", f"Several addresses are meant by that: {several}. Say which.")
    return found[0]


def _tables() -> Any:
    """The module that draws; it is slow to load, and with ``--json`` nothing is drawn."""
    from pair.admin import node_format

    return node_format
