"""The audit: what was done to trust, by whom, and who told us (CL-104).

A row is written in the transaction of what it tells. Codes, keys and leaves
are in none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from pair.cluster.statements import Admit, Found, Join, Leave, Note, Remove
from pair.records.cluster import AuditRow

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from pair.cluster.membership import View
    from pair.cluster.statements import Statement

ROWS_KEPT = 10_000

ATTEMPTS_KEPT = 2_000
"""Rows about :data:`_ATTEMPTS`, of those: anybody can cause them, and they must not push out what was done."""

_ATTEMPTS = ("invitation_ended", "introduction_refused")

_EVENTS: dict[type, str] = {Found: "found", Admit: "admit", Join: "join", Remove: "remove", Leave: "leave"}


class Entry(Struct, frozen=True):
    """A row to be written. ``actor`` and ``subject`` are UUIDs of nodes."""

    event: str
    actor: str | None = None
    subject: str | None = None
    cluster: str | None = None
    detail: dict[str, Any] = {}


def told_by(view: View, statements: Iterable[tuple[Statement, str]]) -> Iterator[Entry]:
    """The rows for new statements of a cluster, each with whom it came from; notes have none."""
    nodes = view.standing.proven.incarnations
    for statement, source in statements:
        if isinstance(statement.body, Note):
            continue
        subject = nodes.get(statement.subject)
        detail = {"from": source, "issuedAt": statement.issued_at}
        yield Entry(
            _EVENTS[type(statement.body)],
            nodes[statement.signer].node,
            None if subject is None else subject.node,
            view.cluster,
            detail,
        )


def write_rows(connection: sqlite3.Connection, at: int, entries: Iterable[Entry]) -> None:
    """Add rows, in their order, and let the oldest go, those about attempts before others.

    Args:
        connection: In a transaction.
        at: Epoch milliseconds.
        entries: What happened.
    """
    connection.executemany(
        "INSERT INTO trust_audit (at, event, actor, subject, cluster, detail) VALUES (?, ?, ?, ?, ?, ?)",
        (
            (at, each.event, each.actor, each.subject, each.cluster, msgspec.json.encode(each.detail).decode())
            for each in entries
        ),
    )
    connection.execute(
        "DELETE FROM trust_audit WHERE event IN (?, ?) AND id <= "
        "(SELECT id FROM trust_audit WHERE event IN (?, ?) ORDER BY id DESC LIMIT 1 OFFSET ?)",
        (*_ATTEMPTS, *_ATTEMPTS, ATTEMPTS_KEPT),
    )
    connection.execute(
        "DELETE FROM trust_audit WHERE id <= (SELECT id FROM trust_audit ORDER BY id DESC LIMIT 1 OFFSET ?)",
        (ROWS_KEPT,),
    )


def read_rows(connection: sqlite3.Connection, limit: int) -> list[AuditRow]:
    """The newest rows, the newest first."""
    rows = connection.execute(
        "SELECT id, at, event, actor, subject, cluster, detail FROM trust_audit ORDER BY id DESC LIMIT ?", (limit,)
    )
    return [
        AuditRow(id, at, event, actor, subject, cluster, msgspec.json.decode(detail, type=dict[str, Any]))
        for id, at, event, actor, subject, cluster, detail in rows
    ]
