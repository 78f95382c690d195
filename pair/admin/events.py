"""``events``: each change of what the node shows, as it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pair.admin.api import decoded
from pair.admin.directory import names
from pair.admin.grammar import Verb, with_session

if TYPE_CHECKING:
    from pair.admin.session import Session


@click.command("events", cls=Verb)
@click.option("--topics", metavar="NAMES", help="Only these, with commas: jobs,nodes. telemetry comes only if named.")
@click.option("--since", metavar="ID", help="Only what came after this event, if that is still known.")
@with_session
def events(session: Session, topics: str | None, since: str | None) -> None:
    """Print each change of what the node shows, as it comes, until Ctrl-C; with --json one object a line.

    Without --json it says what has changed, from what to what, and leaves out changes of what it does not print.
    """
    telling = None
    for event in session.api.events(topics=topics, since=since):
        if event.event == "heartbeat":
            continue
        found = decoded(event.data.encode())
        if session.options.json:
            session.line({"event": event.event, "id": event.id, **found}, str)
            continue
        telling = telling or _wording().Telling(names(session))
        line = telling.line(event.event, found, session.now())
        if line is not None:
            session.write(f"{line}\n")


def _wording() -> Any:
    """The module that words them; with ``--json`` nothing is worded."""
    from pair.admin import event_words

    return event_words
