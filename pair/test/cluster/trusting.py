"""Nodes with a real store and real keys, which pair and talk by calls, without a network."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred

from pair.cluster.changes import PAIRING, About, Change, Leaving, Taken
from pair.cluster.conditions import CONDITIONS
from pair.cluster.identity import Identity
from pair.cluster.pins import PeerLeaf
from pair.cluster.statements import encode
from pair.cluster.trust import TrustService
from pair.errors.book import ErrorBook
from pair.errors.conditions import CONDITIONS as ERRORS
from pair.errors.registry import Registry
from pair.protocols.pairing import Peer
from pair.store import Store
from pair.test.cluster.world import player
from pair.test.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from twisted.trial.unittest import SynchronousTestCase

    from pair.cluster.membership import View
    from pair.protocols.pairing import Offer

T = TypeVar("T")

INVITE = "0f" * 16
START = 1_764_460_800_000


class FaultyStore(Store):
    """A store that can be told to fail: then each work is done, and is rolled back at its end.

    Attributes:
        broken: Whether it fails.
        writes: How many were asked for.
    """

    broken = False
    writes = 0

    def write(self, work: Callable[[sqlite3.Connection], T]) -> Deferred[T]:
        self.writes += 1
        broken = self.broken

        def all_of_it(connection: sqlite3.Connection) -> T:
            result = work(connection)
            if broken:
                raise sqlite3.OperationalError("disk I/O error")
            return result

        return super().write(all_of_it)


class Node:
    """A node of this name; with ``key``, another that has the UUID of the one of this name.

    Attributes:
        trust: Its trust, from the last start on.
        changes: What that has emitted.
        errors: Its error entries.
        now: Its clock, in epoch milliseconds.
        threaded: How often work was given to a thread.
    """

    trust: TrustService

    def __init__(self, test: SynchronousTestCase, name: str, key: str = "") -> None:
        self.name = name
        self.player = player(name, key)
        self.uuid, self.leaf = self.player.node, self.player.leaf
        self.now = START
        self.threaded = 0
        self.turns = Turns()
        self.store = FaultyStore(Path(test.mktemp()), self.turns)
        self.store.open()
        test.addCleanup(lambda: self.turns.wait(self.store.close()))
        self._test = test
        self.sql("INSERT INTO identity (only, uuid, digest) VALUES (1, ?, 'sha256:')", self.uuid)
        self.start()

    def start(self) -> None:
        """Start, once more maybe: what was in memory is gone."""
        self.errors = ErrorBook(self.uuid, Registry((*CONDITIONS, *ERRORS)), lambda: self.now)
        self.changes: list[Change] = []
        self.trust = TrustService(
            Identity(self.uuid, self.player.key, self.leaf),
            About(self.name, ("192.0.2.1",), (("cl", 14321),)),
            self.store,
            lambda: self.now,
            self.errors,
            entropy=bytes,
            in_thread=self._in_thread,
        )
        self.trust.changed.subscribe(self.changes.append)
        self.trust.load()

    def _in_thread(self, work: Callable[[], T], /) -> Deferred[T]:
        self.threaded += 1
        done: Deferred[T] = Deferred()
        self.turns.callFromThread(lambda: done.callback(work()))
        return done

    @property
    def peer(self) -> Peer:
        """It, as the other side of a pairing."""
        return Peer(self.uuid, self.name, self.leaf)

    @property
    def seen(self) -> PeerLeaf:
        """It, as others see it in a handshake."""
        return PeerLeaf.of(self.leaf)

    @property
    def view(self) -> View | None:
        return self.trust.view

    @property
    def members(self) -> set[str]:
        """The UUIDs of whom it counts as members."""
        return set() if self.view is None else {each.node for each in self.view.members}

    def begin(self, change: Coroutine[Any, Any, T]) -> Deferred[T]:
        """Begin something and wait until it is over."""
        done = Deferred.fromCoroutine(change)
        self.turns.wait(done)
        return done

    def do(self, change: Coroutine[Any, Any, T]) -> T:
        """Its result."""
        return self._test.successResultOf(self.begin(change))

    def fail(self, change: Coroutine[Any, Any, Any], *kinds: type[Exception]) -> Any:
        """The exception that it fails with."""
        return self._test.failureResultOf(self.begin(change), *kinds).value

    def sql(self, statement: str, *values: object) -> list[Any]:
        """What a statement gives, in a transaction of its own."""
        rows = self.store.write(lambda connection: connection.execute(statement, values).fetchall())
        self.turns.wait(rows)
        return self._test.successResultOf(rows)

    def tables(self) -> list[list[Any]]:
        """All that the store has of trust, but for the audit."""
        return [
            self.sql(f"SELECT * FROM {table} ORDER BY 1")
            for table in ("identity", "statement", "membership", "cluster_archive")
        ]

    def audited(self, *, event: str | None = None) -> list[Any]:
        """The audit, the oldest first, as event, actor and subject."""
        rows = self.do(self.trust.audit_rows(10_000))[::-1]
        return [(each.event, each.actor, each.subject) for each in rows if event in (None, each.event)]

    def conditions(self) -> set[str]:
        return {each.id for each in self.errors.entries()}

    # Among nodes.

    def admit(self, joiner: Node, invite: str = INVITE) -> Offer:
        """Let ``joiner`` in, as if it had just proven itself."""
        return self.do(self.trust.admit(joiner.peer, joiner.trust.least_epoch(), invite))

    def pair(self, joiner: Node) -> None:
        """Let ``joiner`` in, who joins and says so."""
        own = joiner.do(joiner.trust.join(self.peer, self.admit(joiner)))
        self.do(self.trust.keep(own, PAIRING))

    def hear(self, sender: Node, batch: Sequence[bytes]) -> Taken:
        """``sender`` calls and hands this in."""
        caller = self.trust.pins.check(sender.seen)
        return self.do(self.trust.take(batch, caller, sender.uuid, sender.leaf))

    def call(self, other: Node) -> bool:
        """Sync with ``other``, which it has to know as a member; whether that takes it for one."""
        self._test.assertIsNotNone(self.trust.pins.pin(other.uuid))
        mine = [encode(each) for each in self.trust.statements]
        if other.trust.pins.check(self.seen).relation != "member" and other.hear(self, mine).refused:
            self.do(self.trust.take_evidence(other.trust.evidence(self.seen), other.uuid))
            return False
        self.hear(other, [encode(each) for each in other.trust.statements])
        other.hear(self, mine)
        return True

    def tell_leave(self, leaving: Leaving, other: Node) -> None:
        """Tell a member of the cluster that it has left."""
        self._test.assertEqual(leaving.pins.pin(other.uuid), other.leaf)
        other.hear(self, leaving.statements)
