"""``route select``, ``auto`` and ``policy``: what a person decides of where requests go (UI-54, UI-55)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import click

from pair.admin.api import decoded
from pair.admin.directory import listed, names
from pair.admin.grammar import Verb, with_session
from pair.admin.naming import entry_of
from pair.settings.structs import Facade

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pair.admin.session import Session

_FACADES: tuple[str, ...] = get_args(Facade)

_facade = click.option("--facade", type=click.Choice(_FACADES), help="Only of this facade; else of all.")


@click.command("select", cls=Verb)
@click.argument("node")
@_facade
@with_session
def select(session: Session, node: str, facade: str | None) -> None:
    """Send requests to NODE wherever it can serve them; others stand in for it.

    NODE is self or a member: its UUID or how that begins, or its name.
    """
    entry = entry_of(node, listed(session))
    chosen = entry["uuid"] or entry["key"]
    _show(session, [session.api.put("/routing/selection", {"facade": each, "node": chosen}) for each in _of(facade)])
    session.hint(f"\nTo undo it: {session.command('route auto')}")


@click.command("auto", cls=Verb)
@_facade
@with_session
def auto(session: Session, facade: str | None) -> None:
    """Let the policy alone decide again."""
    _show(session, [session.api.delete(f"/routing/selection/{each}") for each in _of(facade)])


@click.command("policy", cls=Verb)
@click.argument("name", required=False)
@with_session
def policy(session: Session, name: str | None) -> None:
    """Put engines in order by the policy NAME from now on; without it, list those that there are."""
    if name is None:
        body = session.api.get("/routing")
        session.show(body, lambda: _tables().policies(decoded(body)))
    else:
        _show(session, [session.api.put("/routing/policy", {"policy": name})])


def _of(facade: str | None) -> Iterable[str]:
    return _FACADES if facade is None else (facade,)


def _show(session: Session, bodies: list[bytes]) -> None:
    """How requests are routed after the last change."""
    body = bodies[-1]
    session.show(body, lambda: _tables().routing(decoded(body), session.now(), names(session)))


def _tables() -> Any:
    """The module that draws; it is slow to load, and with ``--json`` nothing is drawn."""
    from pair.admin import format  # noqa: A004

    return format
