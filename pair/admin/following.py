"""The event stream as changes of tables (UI-62)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pair.admin.api import decoded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pair.admin.session import Session


class Table(Struct, frozen=True):
    """All that a topic has, by key."""

    topic: str
    rows: dict[str, Any]


class Change(Struct, frozen=True):
    """What a topic has under ``key`` now; None: nothing any more."""

    topic: str
    key: str
    value: Any


def followed(session: Session, topics: str | None, since: str | None = None) -> Iterator[Table | Change]:
    """What the service tells of ``topics``, without end. Raises as :meth:`pair.admin.api.Api.events`."""
    for event in session.api.events(topics=topics, since=since):
        if event.event == "snapshot":
            for topic, rows in decoded(event.data.encode())["topics"].items():
                yield Table(topic, {row["key"]: row["value"] for row in rows})
        elif event.event in ("upsert", "remove"):
            found = decoded(event.data.encode())
            yield Change(found["topic"], found["key"], found.get("value"))
