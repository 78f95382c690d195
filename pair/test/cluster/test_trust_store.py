"""Tests of :mod:`pair.cluster.trustbook`: what is on the disk and in force, and never one alone (CL-98 to CL-100)."""

from __future__ import annotations

import io
import sqlite3
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.logger import globalLogPublisher, textFileLogObserver
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.audit import ATTEMPTS_KEPT, ROWS_KEPT, Entry, write_rows
from pair.cluster.changes import PAIRING
from pair.cluster.statements import encode
from pair.statedir import StateError
from pair.store import StoreClosed
from pair.test.cluster.trusting import INVITE, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Act = Callable[[Node], Coroutine[Any, Any, object]]


class TransitionTests(SynchronousTestCase):
    """Each transition, with a write that fails and one that does not; and a kill on either side of it."""

    def whole(self, node: Node, act: Act) -> None:
        """It fails without a trace, then succeeds; a start from the disk gives what was in force (CL-98, CL-100)."""
        view, pins, tables, audit = node.view, node.trust.pins, node.tables(), node.audited()
        changes, entries = len(node.changes), node.conditions()
        node.store.broken = True
        node.fail(act(node), sqlite3.OperationalError)
        node.store.broken = False
        self.assertIs(node.view, view)
        self.assertIs(node.trust.pins, pins)
        self.assertEqual((len(node.changes), node.conditions()), (changes, entries))
        self.assertEqual((node.tables(), node.audited()), (tables, audit))

        node.start()  # as after a kill before the commit
        self.assertEqual(node.view, view)
        node.do(act(node))
        self.assertEqual(len(node.changes), 1)
        after, root = node.view, node.trust.root
        self.assertNotEqual(after, view)
        node.start()  # as after a kill behind it
        self.assertEqual((node.view, node.trust.root), (after, root))
        self.assertEqual(node.changes, [])

    def test_each(self) -> None:
        """Founding, joining, keeping, noting, taking, removing, leaving, being out, retracting, abandoning."""
        a, b, c, d = (Node(self, each) for each in "ABCD")
        epoch = b.trust.least_epoch()
        self.whole(a, lambda node: node.trust.admit(b.peer, epoch, INVITE))
        offer = a.admit(b)
        self.whole(b, lambda node: node.trust.join(a.peer, offer))
        own = [encode(each) for each in b.trust.statements]
        self.whole(a, lambda node: node.trust.keep(own, PAIRING))
        self.whole(b, lambda node: node.trust.note("other", [], []))
        b.pair(c)
        introduction = [encode(each) for each in c.trust.statements]
        stranger = a.trust.pins.check(c.seen)
        self.whole(a, lambda node: node.trust.take(introduction, stranger, c.uuid, c.leaf))
        self.whole(a, lambda node: node.trust.remove(b.uuid))
        told = a.trust.evidence(b.seen)
        self.whole(b, lambda node: node.trust.take_evidence(told, a.uuid))
        self.whole(a, lambda node: node.trust.leave())
        self.whole(c, lambda node: node.trust.abandon())
        d.admit(a)
        self.whole_retraction(d)

    def whole_retraction(self, node: Node) -> None:
        """A restart forgets the invitation, so here there is none in between."""
        view, tables = node.view, node.tables()
        node.store.broken = True
        node.fail(node.trust.retract(INVITE), sqlite3.OperationalError)
        node.store.broken = False
        self.assertEqual((node.view, node.tables()), (view, tables))
        self.assertTrue(node.do(node.trust.retract(INVITE)))
        node.start()
        self.assertIsNone(node.view)

    def test_closed(self) -> None:
        """After the store was closed nothing changes any more."""
        a, b = Node(self, "A"), Node(self, "B")
        a.turns.wait(a.store.close())
        a.fail(a.trust.admit(b.peer, 1, INVITE), StoreClosed)
        self.assertIsNone(a.view)

    def test_after_a_failure(self) -> None:
        """A change that failed does not hold up the next one."""
        a, b = Node(self, "A"), Node(self, "B")
        a.store.broken = True
        first = Deferred.fromCoroutine(a.trust.admit(b.peer, 1, INVITE))
        a.store.broken = False
        second = Deferred.fromCoroutine(a.trust.admit(b.peer, 1, INVITE))
        a.turns.wait(second)
        self.failureResultOf(first, sqlite3.OperationalError)
        self.successResultOf(second)
        self.assertEqual(len(a.changes), 1)

    def test_nothing_before_the_commit(self) -> None:
        """View, pins and news come in one turn, behind the commit, once (CL-98, P08)."""
        a, b = Node(self, "A"), Node(self, "B")
        a.pair(b)
        seen: list[object] = []
        a.trust.changed.subscribe(
            lambda change: seen.append(
                (a.trust.view is change.after, a.trust.pins is change.pins, b.uuid in a.members, self.on_disk(a))
            )
        )
        removal = Deferred.fromCoroutine(a.trust.remove(b.uuid))
        self.assertIn(b.uuid, a.members)
        a.turns.wait(removal)
        self.assertEqual(seen, [(True, True, False, 1)])

    def on_disk(self, node: Node) -> int:
        """How many removals its store has."""
        count: int = node.store.read(
            lambda connection: connection.execute("SELECT count(*) FROM statement WHERE kind = 4").fetchone()[0]
        )
        return count


class StartTests(SynchronousTestCase):
    """What the start makes of the tables (CL-99)."""

    def setUp(self) -> None:
        self.a, self.b = Node(self, "A"), Node(self, "B")
        self.a.pair(self.b)

    def stopped(self) -> str:
        error = self.assertRaises(StateError, self.a.start)
        self.assertIn(str(self.a.store.path), str(error))
        self.assertIn("backup", str(error))
        fault: str = error.fault
        return fault

    def test_no_statement(self) -> None:
        """One that cannot be decoded stops the start (73)."""
        self.a.sql("UPDATE statement SET payload = x'00' WHERE kind = 3")
        self.assertIn("cannot be read", self.stopped())

    def test_bad_signature(self) -> None:
        """One that does not verify stops the start, be it of no weight."""
        self.a.sql("UPDATE statement SET signature = zeroblob(64) WHERE kind = 7")
        self.assertIn("not signed", self.stopped())

    def test_lost_statements(self) -> None:
        """Where the root is missing, or what leads to others, they prove nothing."""
        self.a.sql("DELETE FROM statement WHERE kind = 2")
        self.assertIn("nothing leads to it", self.stopped())
        self.a.sql("DELETE FROM statement WHERE kind = 1")
        self.assertIn("nothing leads to it", self.stopped())

    def test_spoilt_archive(self) -> None:
        """What is kept as evidence is read too."""
        self.a.do(self.a.trust.leave())
        self.a.sql("UPDATE cluster_archive SET evidence = x'00000001ff'")
        self.assertIn("cannot be read", self.stopped())

    def test_without_a_membership(self) -> None:
        """Statements of no cluster of ours are not passed over."""
        self.a.sql("UPDATE membership SET state = 'left'")
        self.assertIn("nothing leads to it", self.stopped())

    def test_unfinished(self) -> None:
        """A store by which this node is out, and that does not say so yet, is brought in order first."""
        self.a.do(self.a.trust.remove(self.b.uuid))
        rows = self.a.sql("SELECT * FROM statement WHERE kind = 4")
        self.b.sql("INSERT INTO statement VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *rows[0])
        self.b.start()
        self.assertIsNone(self.b.view)
        self.assertEqual(self.b.changes, [])
        self.assertEqual(self.b.conditions(), {f"cluster:removed:{self.a.uuid}"})
        self.b.turns.wait(self.b.store.flush())
        self.assertEqual(self.b.sql("SELECT state FROM membership"), [("removed",)])
        self.assertEqual(self.b.sql("SELECT * FROM statement"), [])
        self.assertTrue(self.b.trust.evidence(self.a.seen))

    def test_another_identity(self) -> None:
        """A membership of another leaf is none of ours."""
        twin = Node(self, "A", "twin")
        for table in ("statement", "membership"):
            for row in self.a.sql(f"SELECT * FROM {table}"):
                twin.sql(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", *row)
        twin.start()
        self.assertIsNone(twin.view)
        self.assertEqual(twin.conditions(), set())
        twin.turns.wait(twin.store.flush())
        self.assertEqual(twin.sql("SELECT * FROM statement"), [])

    def test_one_active(self) -> None:
        """The store itself takes no second membership."""
        insert = self.a.store.write(
            lambda connection: connection.execute("INSERT INTO membership VALUES ('other', 'active', 1)")
        )
        self.a.turns.wait(insert)
        self.failureResultOf(insert, sqlite3.IntegrityError)


class AuditTests(SynchronousTestCase):
    """CL-104."""

    def test_statements(self) -> None:
        """Each new statement but a note has a row: signer, subject, cluster, and from whom it came."""
        a, b = Node(self, "A"), Node(self, "B")
        a.pair(b)
        self.assertEqual(a.audited(), [("found", a.uuid, a.uuid), ("admit", a.uuid, b.uuid), ("join", b.uuid, b.uuid)])
        rows = a.do(a.trust.audit_rows(2))
        self.assertEqual([(each.event, each.detail["from"]) for each in rows], [("join", PAIRING), ("admit", "self")])
        view = a.view
        assert view is not None
        self.assertEqual({each.cluster for each in rows}, {view.cluster})
        self.assertEqual({each.at for each in rows}, {a.now})

    def test_record(self) -> None:
        """Others add rows of their own."""
        a = Node(self, "A")
        a.do(a.trust.record("invitation", a.uuid, None, None, {"role": "inviter", "reason": None}))
        (row,) = a.do(a.trust.audit_rows(10))
        self.assertEqual(
            (row.event, row.actor, row.detail), ("invitation", a.uuid, {"role": "inviter", "reason": None})
        )

    def test_kept(self) -> None:
        """The last 10,000 are kept."""
        a = Node(self, "A")
        entries = [Entry("x", detail={"n": each}) for each in range(ROWS_KEPT + 3)]
        a.turns.wait(a.store.write(lambda connection: write_rows(connection, 1, entries)))
        rows = a.do(a.trust.audit_rows(20_000))
        self.assertEqual((len(rows), rows[0].detail["n"], rows[-1].detail["n"]), (ROWS_KEPT, ROWS_KEPT + 2, 3))

    def test_attempts(self) -> None:
        """What anybody can cause pushes out nothing else: it has its own bound."""
        a = Node(self, "A")
        events = ["remove", *(("invitation_ended", "introduction_refused") * (ROWS_KEPT // 2)), "leave"]
        entries = [Entry(event, a.uuid, detail={"n": at}) for at, event in enumerate(events)]
        a.turns.wait(a.store.write(lambda connection: write_rows(connection, 1, entries)))
        rows = a.do(a.trust.audit_rows(20_000))
        self.assertEqual((len(rows), rows[0].event, rows[-1].event), (ATTEMPTS_KEPT + 2, "leave", "remove"))
        self.assertEqual(rows[-2].detail["n"], ROWS_KEPT - ATTEMPTS_KEPT + 1)


class SecrecyTests(SynchronousTestCase):
    """CL-105, test 20."""

    def test_nothing_shows(self) -> None:
        """No leaf and no key is in the log, the audit, or an error entry; each view change is one info line."""
        written = io.StringIO()
        observer = textFileLogObserver(written)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        a, b = Node(self, "A"), Node(self, "B")
        a.pair(b)
        a.do(a.trust.remove(b.uuid))
        b.call(a)
        lines = [line for line in written.getvalue().splitlines() if "cluster" in line]
        self.assertEqual(len(lines), len(a.changes) + len(b.changes))
        shown = written.getvalue() + repr([each.do(each.trust.audit_rows(100)) for each in (a, b)])
        shown += repr(b.errors.entries())
        for node in (a, b):
            secrets = (node.leaf, node.player.key.private_bytes_raw(), node.player.key.public_key().public_bytes_raw())
            for secret in secrets:
                self.assertNotIn(secret.hex(), shown)
                self.assertNotIn(repr(secret)[2:-1][:40], shown)
