"""The tables of trust: what they hold at the start, and how a transition is written (CL-90, CL-99, CL-100).

Each function gets a connection in a transaction. It must not know why
something is written: that is decided in :mod:`pair.cluster.transitions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from pair.cluster.audit import Entry, write_rows
from pair.cluster.proofs import Archive
from pair.cluster.statements import Statement, decode, encode, lp

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

ARCHIVES_KEPT = 8

Ended = Literal["left", "removed", "abandoned", "retracted"]
"""How a membership ended. Of one that is retracted nothing stays: there was never another member."""


class Stored(Struct, frozen=True):
    """What the tables hold. ``archives`` are the latest first; ``cluster`` is the one that this node is in."""

    epoch: int
    counter: int
    cluster: str | None
    statements: tuple[Statement, ...]
    archives: tuple[Archive, ...]


class Transition(Struct, frozen=True, kw_only=True):
    """What one transaction writes.

    Statements are added with where they came from. ``begins``: the node is in
    ``cluster`` from now on. ``ends``: it is not any more, and the statements
    go, but for what is in ``archive``.
    """

    at: int
    cluster: str
    epoch: int
    counter: int
    added: tuple[tuple[Statement, str], ...] = ()
    pruned: tuple[bytes, ...] = ()
    begins: bool = False
    ends: Ended | None = None
    archive: Archive | None = None
    audit: tuple[Entry, ...] = ()


def read(connection: sqlite3.Connection) -> Stored:
    """All of it.

    Raises:
        StatementError: Something stored as a statement is none.
    """
    epoch, counter = connection.execute("SELECT epoch, counter FROM identity").fetchone() or (0, 0)
    active = connection.execute("SELECT cluster FROM membership WHERE state = 'active'").fetchone()
    statements = connection.execute("SELECT payload, signature FROM statement ORDER BY rowid")
    archives = connection.execute("SELECT cluster, evidence, members FROM cluster_archive ORDER BY seq DESC")
    return Stored(
        epoch,
        counter,
        None if active is None else active[0],
        tuple(decode(lp(*parts)) for parts in statements),
        tuple(
            Archive(cluster, tuple(map(decode, _split(evidence))), frozenset(_pieces(members)))
            for cluster, evidence, members in archives
        ),
    )


def write(connection: sqlite3.Connection, transition: Transition) -> None:
    """Carry out ``transition``."""
    cluster, at = transition.cluster, transition.at
    connection.execute("UPDATE identity SET epoch = ?, counter = ?", (transition.epoch, transition.counter))
    if transition.begins:
        connection.execute("DELETE FROM cluster_archive WHERE cluster = ?", (cluster,))
        _be(connection, cluster, "active", at)
    if transition.ends is None:
        connection.executemany("DELETE FROM statement WHERE id = ?", ((each,) for each in transition.pruned))
        connection.executemany("INSERT INTO statement VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _rows(transition))
    else:
        connection.execute("DELETE FROM statement")
        _end(connection, transition, transition.ends)
    write_rows(connection, at, transition.audit)


def _rows(transition: Transition) -> Iterator[tuple[object, ...]]:
    for each, source in transition.added:
        kind = each.body.KIND
        yield each.id, each.cluster, kind, each.signer, each.payload, each.signature, transition.at, source


def _be(connection: sqlite3.Connection, cluster: str, state: str, at: int) -> None:
    connection.execute(
        "INSERT INTO membership (cluster, state, since_at) VALUES (?, ?, ?) "
        "ON CONFLICT (cluster) DO UPDATE SET state = excluded.state, since_at = excluded.since_at",
        (cluster, state, at),
    )


def _end(connection: sqlite3.Connection, transition: Transition, how: Ended) -> None:
    cluster, archive = transition.cluster, transition.archive
    if how == "retracted":
        connection.execute("DELETE FROM membership WHERE cluster = ?", (cluster,))
    else:
        _be(connection, cluster, how, transition.at)
    if archive is not None:
        evidence = lp(*map(encode, archive.evidence))
        connection.execute(
            "INSERT OR REPLACE INTO cluster_archive (cluster, evidence, members) VALUES (?, ?, ?)",
            (cluster, evidence, b"".join(sorted(archive.members))),
        )
        connection.execute(
            "DELETE FROM cluster_archive WHERE seq NOT IN (SELECT seq FROM cluster_archive ORDER BY seq DESC LIMIT ?)",
            (ARCHIVES_KEPT,),
        )


def _split(framed: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(framed):
        begin = at + 4
        at = begin + int.from_bytes(framed[at:begin], "big")
        yield framed[begin:at]


def _pieces(digests: bytes) -> Iterable[bytes]:
    return (digests[at : at + 32] for at in range(0, len(digests), 32))
