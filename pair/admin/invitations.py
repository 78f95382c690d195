"""``invite``, ``pending``, ``accept``, ``decline``, ``cancel``: how a node comes into a cluster.

A code is shown by ``invite`` and typed at ``accept``, and is nowhere else
(CL-101). ``--wait`` asks the service again and again until an invitation ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from pair.admin.api import decoded, segment
from pair.admin.asking import read_code
from pair.admin.directory import known
from pair.admin.failures import CommandError, Failed
from pair.admin.grammar import Verb, with_session
from pair.admin.naming import find, means, named, uuid_of
from pair.admin.words import word
from pair.records.cluster import OVER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pair.admin.session import Session

    Row = Mapping[str, Any]

_PATH = "/cluster/invitations"

_POLL = 0.25
"""Seconds between two questions of ``--wait``."""

_ARRIVAL = 300.0
"""Seconds that ``accept --wait`` waits for an invitation, unless it is said."""

_WALK = 15.0
"""Seconds that the service may take to find the node that is invited (CL-56)."""

_PROOF = 30.0
"""Seconds after which ``accept`` is answered at the latest (CL-46)."""


class SeveralWait(CommandError):  # noqa: N818 - with its base it is
    """It has to be said which invitation is meant."""

    exit_code = 2

    def __init__(self, found: Sequence[Row], message: str) -> None:
        lines = [f"  {short_id(each)}  {_asked_by(each)}, tag {word(each['tag'])}" for each in found]
        error = {"code": "ambiguous", "message": message, "details": {"invitations": found}}
        super().__init__("ambiguous", "\n".join([message, *lines]), msgspec.json.encode({"error": error}))


def short_id(invitation: Row) -> str:
    """So much of an id as tells it from others; any beginning that does will be taken."""
    return word(invitation["id"])[:8]


@click.command("invite", cls=Verb)
@click.argument("target")
@click.option(
    "--code", "kind", type=click.Choice(["pin", "long"]), default="pin", help="Six digits, or twenty characters; pin."
)
@click.option("--wait", is_flag=True, help="Wait for the end; exit 1 if it is not a pairing.")
@with_session
def invite(session: Session, target: str, kind: str, wait: bool) -> int:
    """Invite a node, and show the code that is to be typed there.

    TARGET is a node that is known here, by its UUID or how that begins, or its name; or an address, HOST or HOST:PORT
    of its cluster port.
    """
    body = session.api.post(_PATH, {**_target(session, target), "codeKind": kind}, takes=_WALK)
    found = decoded(body)
    if not wait:
        session.show(body, lambda: _tables().code(found, session.now()))
        undo = session.command(f"cancel {short_id(found)}")
        session.hint(f"\nHow it goes: {session.command('pending')}. To take it back: {undo}")
        return 0
    session.line(found, lambda: _tables().code(found, session.now()))
    ended = _followed(session, found)
    session.line(ended, lambda: _tables().end(ended))
    return _verdict(session, ended)


@click.command("pending", cls=Verb)
@with_session
def pending(session: Session) -> None:
    """List invitations in both directions; those that ended too, for an hour."""
    body = session.api.get(_PATH)
    found = decoded(body)["invitations"]
    session.show(body, lambda: _tables().invitations(found, session.now()))
    for each in _waiting(found)[:1]:
        yes, no = (session.command(f"{verb} {short_id(each)}") for verb in ("accept", "decline"))
        session.hint("\nNames and UUIDs are what the other side says; the code proves them.")
        session.hint(f"To join: {yes}. If not: {no}")
    if not session.options.json:
        session.hint(_reached_at(session))


@click.command("accept", cls=Verb)
@click.argument("id", required=False)
@click.option(
    "--wait",
    type=click.FloatRange(0, 86400),
    is_flag=False,
    flag_value=_ARRIVAL,
    metavar="[S]",
    help="Wait for one to come, so many seconds; 300 if not given.",
)
@click.option("--from", "sender", metavar="NODE", help="Only one of that node: UUID or its beginning, name, address.")
@click.option("--code-stdin", is_flag=True, help="Read the code from standard input.")
@with_session
def accept(session: Session, id: str | None, wait: float | None, sender: str | None, code_stdin: bool) -> int:
    """Join the cluster of the node that invites this one.

    The code that it shows is asked for, or taken from PAIR_CODE or with --code-stdin. Without ID it is the only
    invitation that waits.
    """
    chosen = _chosen(session, id, sender, wait)
    session.hint(_tables().asker(chosen, session.now()))
    kind = "20 characters" if chosen["codeKind"] == "long" else "6 digits"
    code = read_code(session, code_stdin, f"Code that is shown there ({kind}): ")
    answer = {"accept": True, "code": code.reveal()}
    ended = _followed(session, decoded(session.api.post(f"{_path(chosen)}/answer", answer, takes=_PROOF)))
    session.show_value(ended, lambda: _tables().end(ended))
    return _verdict(session, ended)


@click.command("decline", cls=Verb)
@click.argument("id", required=False)
@click.option("--all", "every", is_flag=True, help="All that wait.")
@with_session
def decline(session: Session, id: str | None, every: bool) -> None:
    """Turn down an invitation to this node; without ID the only one that waits."""
    if every and id is not None:
        raise click.UsageError("ID and --all exclude each other.")
    if not every:
        body = session.api.post(f"{_path(_chosen(session, id))}/answer", {"accept": False})
        session.show(body, lambda: _tables().end(decoded(body)))
        return
    waiting = _waiting(_listed(session))
    found = [decoded(session.api.post(f"{_path(each)}/answer", {"accept": False})) for each in waiting]
    session.show_value({"invitations": found}, lambda: _tables().invitations(found, session.now()))


@click.command("cancel", cls=Verb)
@click.argument("id", required=False)
@with_session
def cancel(session: Session, id: str | None) -> None:
    """Take back an invitation that this node made; without ID the only one that is open."""
    body = session.api.delete(_path(_made_here(_listed(session), id)))
    session.show(body, lambda: _tables().end(decoded(body)))


def _target(session: Session, text: str) -> dict[str, str]:
    """Whom to invite, as the API takes it: a node that is known here by a name, else what may be a host's."""
    node = uuid_of(text)
    if node is None and not _is_address(text):
        roster = decoded(session.api.get("/cluster"))
        node = find(text, [*named(known(session)), *roster["members"], *roster["former"]])
    return {"address": text} if node is None else {"node": node}


def _is_address(text: str) -> bool:
    """Whether ``text`` is one beyond doubt; a host's name may be a node's too."""
    return any(sign in text for sign in ":%[") or ("." in text and text.replace(".", "").isdecimal())


def _made_here(found: Sequence[Row], id: str | None) -> Row:
    """The one of ``found`` that this node made and that is meant.

    Raises:
        SeveralWait: There are several.
        Failed: There is none.
    """
    if id is not None:
        return _identified(id, found, "out") or {"id": id}
    opened = [each for each in found if each["direction"] == "out" and each["state"] not in OVER]
    if len(opened) > 1:
        raise SeveralWait(opened, "Several invitations of this node are open. Say which is meant, by its id:")
    if not opened:
        raise Failed("no_such_invitation", "This node has no open invitation to take back.")
    return opened[0]


def _reached_at(session: Session) -> str:
    """Where another machine invites this one, for whoever waits for that."""
    listeners = decoded(session.api.get("/service"))["listeners"]
    address = next((each["address"] for each in listeners if each["name"] == "cluster"), None)
    if address is None:
        return "\nThe port for other machines is not open, so none can invite this one."
    return f"\nOther machines invite this one at port {address.rpartition(':')[2]}."


def _chosen(session: Session, id: str | None, sender: str | None = None, wait: float | None = None) -> Row:
    """The invitation to this node that is meant.

    Args:
        session: The run.
        id: Its id, or how that begins.
        sender: Who made it.
        wait: Seconds to wait until it is there; none are where this node takes no invitations.

    Raises:
        SeveralWait: There are several.
        Failed: There is none.
    """
    until = session.now() + (wait or 0) * 1000
    while True:
        found = _listed(session)
        if id is not None:
            one = _identified(id, found, "in")
            if one is not None:
                return one
        else:
            waiting = [each for each in _waiting(found) if sender is None or _is_from(sender, each)]
            if len(waiting) > 1:
                raise SeveralWait(
                    waiting, "Several invitations wait here. Say which is meant, by its id or by --from:"
                )
            if waiting:
                return waiting[0]
        closed = _why_closed(session)
        if closed is not None or session.now() >= until:
            raise Failed("no_such_invitation", closed or _none_waits(session))
        session.sleep(_POLL)


def _why_closed(session: Session) -> str | None:
    """Why no invitation to this node will come, and what to do about it; None where one may."""
    if decoded(session.api.get("/cluster/identity"))["restart"]:
        return "This node has a new identity, and takes no invitations before PAIR is started anew."
    if decoded(session.api.get("/cluster"))["cluster"] is not None:
        leave = session.command("cluster leave")
        return f"This node is in a cluster, and takes no invitations. To leave that: {leave}"
    return None


def _none_waits(session: Session) -> str:
    return f"There is no such invitation here. To wait for one: {session.command('accept --wait')}"


def _identified(id: str, found: Sequence[Row], direction: str) -> Row | None:
    """The one of ``found`` whose id is, or begins with, ``id``.

    Raises:
        Failed: There are several.
    """
    meant = [each for each in found if each["direction"] == direction and str(each["id"]).startswith(id.lower())]
    if len(meant) > 1:
        raise Failed("ambiguous", "Several invitations have an id that begins so. Give more of it.")
    return meant[0] if meant else None


def _is_from(sender: str, invitation: Row) -> bool:
    peer = invitation["peer"]
    return sender == peer["address"] or (peer["node"] is not None and means(sender, peer))


def _asked_by(invitation: Row) -> str:
    peer = invitation["peer"]
    return f"{word(peer['name'])} at {word(peer['address'])}"


def _waiting(found: Sequence[Row]) -> list[Row]:
    """Those of ``found`` that wait for a person here."""
    return [each for each in found if each["direction"] == "in" and each["state"] == "waiting"]


def _listed(session: Session) -> list[Row]:
    found: list[Row] = decoded(session.api.get(_PATH))["invitations"]
    return found


def _path(invitation: Row) -> str:
    return f"{_PATH}/{segment(str(invitation['id']))}"


def _followed(session: Session, found: Row) -> Row:
    """The invitation when it has ended."""
    while found["state"] not in OVER:
        session.sleep(_POLL)
        found = decoded(session.api.get(_path(found)))
    return found


def _verdict(session: Session, ended: Row) -> int:
    if ended["state"] != "paired":
        return 1
    session.hint(f"\nWho is in: {session.command('cluster show')}")
    return 0


def _tables() -> Any:
    """The module that draws; it is slow to load, and with ``--json`` nothing is drawn."""
    from pair.admin import cluster_format

    return cluster_format
