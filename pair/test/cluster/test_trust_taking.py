"""Tests of :mod:`pair.cluster.trust`: what others hand in (CL-77, CL-79 to CL-81, CL-95)."""

from __future__ import annotations

import shutil

from twisted.trial.unittest import SynchronousTestCase

from pair.cluster import alarms, merging
from pair.cluster.changes import PAIRING, SELF, Taken
from pair.cluster.pins import STRANGER, Caller
from pair.cluster.statements import Admit, encode, make
from pair.cluster.trust import REFUSALS_APART_MS
from pair.test.cluster.trusting import Node
from pair.test.cluster.world import World


def carried(node: Node) -> list[bytes]:
    return [encode(each) for each in node.trust.statements]


class TakeTests(SynchronousTestCase):
    """From members, and from those who introduce themselves."""

    def setUp(self) -> None:
        self.a, self.b, self.c = (Node(self, each) for each in "ABC")
        self.a.pair(self.b)

    def test_member(self) -> None:
        """From a member everything is taken that counts; the rest is dropped (CL-79)."""
        self.b.pair(self.c)
        foreign = World(self.c.player, real=True)
        batch = [*carried(self.b), b"nonsense", encode(foreign.root)]
        self.assertEqual(self.a.hear(self.b, batch), Taken(3))  # the admission of C, its join and its note
        self.assertEqual(self.a.members, {self.a.uuid, self.b.uuid, self.c.uuid})
        self.assertEqual(self.a.changes[-1].news_from, self.b.uuid)
        sources = {row[0] for row in self.a.sql("SELECT source FROM statement")}
        self.assertEqual(sources, {SELF, PAIRING, self.b.uuid})

    def test_nothing_new(self) -> None:
        """What is known already is no write, no change, no event (CL-98)."""
        changes, writes = len(self.a.changes), self.a.store.writes
        self.assertEqual(self.a.hear(self.b, carried(self.b)), Taken(0))
        self.assertEqual(self.a.hear(self.b, []), Taken(0))
        self.assertEqual((len(self.a.changes), self.a.store.writes), (changes, writes))

    def test_introduction(self) -> None:
        """A node that was admitted while we were off brings its own admission and is a member (CL-80)."""
        self.b.pair(self.c)
        self.assertEqual(self.a.trust.pins.check(self.c.seen), STRANGER)
        taken = self.a.hear(self.c, carried(self.c))
        self.assertFalse(taken.refused)
        self.assertEqual(self.a.trust.pins.check(self.c.seen).relation, "member")

    def test_admitted_brings_its_join(self) -> None:
        """The reply to the inviter was lost: the joiner brings its join itself (CL-51, CL-76)."""
        self.c.do(self.c.trust.join(self.a.peer, self.a.admit(self.c)))
        self.assertEqual(self.a.trust.pins.check(self.c.seen).relation, "admitted")
        self.assertEqual(self.a.hear(self.c, carried(self.c)), Taken(2))
        self.assertIn(self.c.uuid, self.a.members)

    def test_stranger(self) -> None:
        """A stranger's statements, be they good ones of ours, store nothing (CL-80)."""
        tables = self.a.tables()
        self.b.do(self.b.trust.note("other", [], []))
        elsewhere = World(self.c.player, real=True)
        admissions = [encode(elsewhere.admit(self.c.player, self.c.player.again(each))) for each in range(1, 64)]
        for batch in (carried(self.b), [], [encode(elsewhere.root), *admissions]):
            self.assertEqual(self.a.hear(self.c, batch), Taken(0, refused=True))
        self.assertEqual(self.a.tables(), tables)

    def test_too_large_an_introduction(self) -> None:
        """More than 64 statements are none (CL-80)."""
        self.b.pair(self.c)
        batch = [*carried(self.c)]
        view = self.c.view
        assert view is not None
        own = view.signs_as(self.c.leaf)
        assert own is not None
        for epoch in range(1, 64):
            body = Admit(self.b.uuid, epoch, self.b.leaf)
            batch.append(encode(make(body, view.cluster, own.incarnation, 1, self.c.player.sign)))
        self.assertTrue(self.a.hear(self.c, batch).refused)

    def test_own_leaf_and_lost_members(self) -> None:
        """A clone introduces nothing; who is a member no more when its turn comes is judged as what it is then."""
        batch = carried(self.b)
        clone = self.a.do(self.a.trust.take(batch, Caller("own", self.a.uuid), "192.0.2.9", self.a.leaf))
        self.assertTrue(clone.refused)
        was = self.a.trust.pins.check(self.b.seen)
        self.a.do(self.a.trust.remove(self.b.uuid))
        self.assertTrue(self.a.do(self.a.trust.take(batch, was, self.b.uuid, self.b.leaf)).refused)
        self.assertTrue(self.a.do(self.a.trust.take(batch, was, self.b.uuid)).refused)

    def test_in_no_cluster(self) -> None:
        """Who is in none takes nothing."""
        self.assertTrue(self.c.hear(self.b, carried(self.b)).refused)
        self.assertTrue(self.c.do(self.c.trust.take_evidence(carried(self.b), self.b.uuid)).refused)

    def test_refusals_are_audited_sparingly(self) -> None:
        """One row a minute tells how many introductions were refused (CL-104)."""
        for _ in range(5):
            self.a.hear(self.c, [])
        self.a.now += REFUSALS_APART_MS
        self.a.hear(self.c, [])
        self.a.turns.wait(self.a.store.flush())
        rows = [each for each in self.a.do(self.a.trust.audit_rows(100)) if each.event == "introduction_refused"]
        self.assertEqual([each.detail["count"] for each in rows], [5, 1])
        self.assertEqual(rows[0].detail["relation"], "stranger")

    def test_thread(self) -> None:
        """Many statements are verified in a thread, few where they come (CL-78); the next change waits for it."""
        view = self.b.view
        assert view is not None
        own = view.signs_as(self.b.leaf)
        assert own is not None
        many = [
            encode(make(Admit(self.c.uuid, each, self.c.leaf), view.cluster, own.incarnation, 1, self.b.player.sign))
            for each in range(1, 21)
        ]
        self.a.hear(self.b, many[:2])
        self.assertEqual(self.a.threaded, 0)
        self.assertEqual(self.a.hear(self.b, many), Taken(18))
        self.assertEqual(self.a.threaded, 1)

    def test_full(self) -> None:
        """When the set is full an entry names who signed the most, until the cluster is left (CL-81)."""
        self.patch(merging, "OTHERS_MAX", 8)
        self.patch(alarms, "OTHERS_MAX", 8)
        view = self.b.view
        assert view is not None
        own = view.signs_as(self.b.leaf)
        assert own is not None
        many = [
            encode(make(Admit(self.c.uuid, each, self.c.leaf), view.cluster, own.incarnation, 1, self.b.player.sign))
            for each in range(1, 9)
        ]
        self.assertEqual(self.a.hear(self.b, many), Taken(3))
        (entry,) = self.a.errors.entries()
        self.assertEqual(entry.id, "cluster:statements_full")
        self.assertIn(self.b.uuid, entry.message)
        self.a.start()
        self.assertEqual(self.a.conditions(), {"cluster:statements_full"})
        self.assertEqual(self.a.do(self.a.trust.remove(self.b.uuid)).removed, (self.b.uuid,))
        self.a.do(self.a.trust.leave())
        self.assertEqual(self.a.conditions(), set())


class ClashTests(SynchronousTestCase):
    """One UUID, two leaves (CL-77)."""

    def setUp(self) -> None:
        self.a, self.b, self.c = (Node(self, each) for each in "ABC")
        self.twin = Node(self, "C", "twin")
        self.a.pair(self.b)
        self.a.pair(self.c)
        self.b.pair(self.twin)
        self.a.call(self.b)

    def test_clash(self) -> None:
        """Neither is pinned; an entry names both admitters, the audit has a row; removing ends it."""
        self.assertEqual(self.a.members, {self.a.uuid, self.b.uuid})
        self.assertIsNone(self.a.trust.pins.pin(self.c.uuid))
        (entry,) = self.a.errors.entries()
        self.assertEqual((entry.id, entry.severity), (f"cluster:leaf_clash:{self.c.uuid}", "error"))
        self.assertIn(f"A ({self.a.uuid})", entry.message)
        self.assertIn(f"B ({self.b.uuid})", entry.message)
        self.assertEqual(self.a.audited(event="clash"), [("clash", None, self.c.uuid)])
        self.a.start()
        self.assertEqual(self.a.conditions(), {f"cluster:leaf_clash:{self.c.uuid}"})
        self.a.do(self.a.trust.remove(self.c.uuid))
        self.assertEqual(self.a.conditions(), set())

    def test_in_it(self) -> None:
        """A node in a clash is not out; it signs nothing but its leave, and that ends the clash (CL-78, CL-89)."""
        self.c.do(self.c.trust.take_evidence(carried(self.a), self.a.uuid))
        self.assertIsNotNone(self.c.view)
        self.assertIsNone(self.c.trust.me)
        self.assertEqual(self.c.trust.objection(Node(self, "D").peer), "identity_clash")
        self.assertFalse(self.c.do(self.c.trust.note("x", [], [])))
        self.assertEqual(self.c.fail(self.c.trust.remove(self.a.uuid)).code, "not_clustered")
        self.c.start()
        self.assertIsNotNone(self.c.view)
        leaving = self.c.do(self.c.trust.leave())
        assert leaving is not None
        self.assertIsNone(self.c.view)
        self.a.do(self.a.trust.keep(leaving.statements, PAIRING))
        self.assertEqual(self.a.members, {self.a.uuid, self.b.uuid, self.twin.uuid})
        self.assertEqual(self.a.conditions(), set())


class RolledBackTests(SynchronousTestCase):
    """The state directory was restored from an old copy (CL-95, test 19)."""

    def setUp(self) -> None:
        self.a, self.b = Node(self, "A"), Node(self, "B")
        self.a.pair(self.b)

    def copy(self) -> None:
        """Make a copy of B's store."""
        self.b.turns.wait(self.b.store.close())
        shutil.copy(self.b.store.path, f"{self.b.store.path}.old")
        self.b.store.open()

    def restore(self) -> None:
        self.b.turns.wait(self.b.store.close())
        shutil.copy(f"{self.b.store.path}.old", self.b.store.path)
        self.b.store.open()
        self.b.start()

    def test_note(self) -> None:
        """Own statements come back and are merged; counters go beyond them; an entry says so."""
        self.copy()
        self.b.now += 1000
        self.b.do(self.b.trust.note("new", [], []))
        self.b.call(self.a)
        self.restore()
        self.b.now = 5
        self.b.call(self.a)
        self.assertEqual(self.b.conditions(), {"cluster:state_rolled_back"})
        self.assertEqual(self.b.view, self.a.view)
        (row,) = self.b.sql("SELECT counter FROM identity")
        self.assertGreater(row[0], self.a.now)
        self.assertTrue(self.b.do(self.b.trust.note("newer", [], [])))
        self.b.call(self.a)
        view = self.a.view
        assert view is not None
        self.assertIn("newer", {each.name for each in view.members})

    def test_admission_and_removal(self) -> None:
        """Also what it did to others."""
        self.copy()
        c = Node(self, "C")
        self.b.pair(c)
        self.b.do(self.b.trust.remove(c.uuid))
        self.b.call(self.a)
        self.restore()
        self.assertEqual(self.b.trust.pins.check(c.seen).relation, "stranger")
        self.b.call(self.a)
        self.assertEqual(self.b.conditions(), {"cluster:state_rolled_back"})
        self.assertEqual(self.b.trust.pins.check(c.seen).relation, "former")

    def test_leave(self) -> None:
        """A leave that comes back is one: the node is out."""
        self.copy()
        leaving = self.b.do(self.b.trust.leave())
        assert leaving is not None
        self.b.tell_leave(leaving, self.a)
        self.restore()
        self.assertFalse(self.b.call(self.a))
        self.assertIsNone(self.b.view)
        self.assertEqual(self.b.sql("SELECT state FROM membership"), [("left",)])
        self.assertEqual(self.b.conditions(), {"cluster:state_rolled_back", f"cluster:removed:{self.b.uuid}"})

    def test_later_incarnation(self) -> None:
        """A later incarnation comes back: its epoch counts as used (CL-69)."""
        self.copy()
        self.b.do(self.b.trust.leave())
        self.b.now += 50
        self.a.pair(self.b)
        self.restore()
        self.b.now = 5
        self.b.call(self.a)
        self.assertIn("cluster:state_rolled_back", self.b.conditions())
        self.assertEqual(self.b.trust.least_epoch(), self.a.now + 51)
        self.assertEqual(self.b.view, self.a.view)
