"""Tests of :mod:`pair.cluster.trust`: remove, leave, being out, and coming back (CL-85 to CL-91, CL-96)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.changes import PAIRING, SELF, IsSelf, NoSuchNode, NotClustered
from pair.cluster.statements import Admit, Remove, encode, make
from pair.cluster.trustrows import ARCHIVES_KEPT
from pair.test.cluster.trusting import Node


class RemoveTests(SynchronousTestCase):
    """A founded the cluster and let in B, who let in C."""

    def setUp(self) -> None:
        self.a, self.b, self.c = (Node(self, each) for each in "ABC")
        self.a.pair(self.b)
        self.b.pair(self.c)
        self.a.call(self.b)

    def test_removes(self) -> None:
        """One transaction with its audit rows; view and pins are others at once (CL-18, CL-86)."""
        writes, changes = self.a.store.writes, len(self.a.changes)
        removal = self.a.do(self.a.trust.remove(self.b.uuid))
        self.assertEqual(removal.removed, (self.b.uuid,))
        self.assertEqual((self.a.store.writes, len(self.a.changes)), (writes + 1, changes + 1))
        self.assertEqual(self.a.members, {self.a.uuid, self.c.uuid})
        self.assertEqual(self.a.trust.pins.check(self.b.seen).relation, "former")
        self.assertIsNone(self.a.trust.pins.pin(self.b.uuid))
        self.assertEqual(self.a.audited(event="remove"), [("remove", self.a.uuid, self.b.uuid)])
        self.assertIs(self.a.changes[-1].pins, self.a.trust.pins)
        self.assertEqual(self.a.changes[-1].news_from, SELF)

    def test_with_admitted(self) -> None:
        """Those that the victim had let in go too, if so wished, but never we ourselves (CL-87)."""
        removal = self.a.do(self.a.trust.remove(self.b.uuid, with_admitted=True))
        self.assertEqual(removal.removed, tuple(sorted((self.b.uuid, self.c.uuid))))
        self.assertEqual(self.a.members, {self.a.uuid})
        removal = self.c.do(self.c.trust.remove(self.b.uuid, with_admitted=True))
        self.assertEqual(removal.removed, (self.b.uuid,))
        self.assertEqual(self.c.members, {self.a.uuid, self.c.uuid})

    def test_admitted_only(self) -> None:
        """One that was admitted and has not come yet can be removed (CL-86)."""
        d = Node(self, "D")
        self.a.admit(d)
        self.assertEqual(self.a.do(self.a.trust.remove(d.uuid)).removed, (d.uuid,))
        self.assertEqual(self.a.trust.pins.check(d.seen).relation, "former")

    def test_refusals(self) -> None:
        """Oneself, a node nobody knows, and out of a cluster (section 12); who is out already is no error (CL-87)."""
        d = Node(self, "D")
        self.assertEqual(self.a.fail(self.a.trust.remove(self.a.uuid), IsSelf).status, 409)
        self.assertEqual(self.a.fail(self.a.trust.remove(d.uuid), NoSuchNode).status, 404)
        self.assertEqual(d.fail(d.trust.remove(self.a.uuid), NotClustered).code, "not_clustered")
        self.a.do(self.a.trust.remove(self.b.uuid))
        changes = len(self.a.changes)
        self.assertEqual(self.a.do(self.a.trust.remove(self.b.uuid)).removed, ())
        self.assertEqual(len(self.a.changes), changes)

    def test_victim(self) -> None:
        """The next call of the victim gets evidence; it is out, whole, told of it, and free to pair (CL-85, CL-89)."""
        self.a.do(self.a.trust.remove(self.b.uuid))
        self.b.start()
        self.assertFalse(self.b.call(self.a))
        self.assertIsNone(self.b.view)
        (change,) = self.b.changes
        assert change.out is not None
        self.assertEqual((change.out.how, change.out.by, change.news_from), ("removed", self.a.uuid, self.a.uuid))
        self.assertIsNone(change.after)
        self.assertIsNone(change.pins.pin(self.a.uuid))
        self.assertEqual(self.b.conditions(), {f"cluster:removed:{self.a.uuid}"})
        (entry,) = self.b.errors.entries()
        self.assertIn(f"A's cluster: it was removed by A ({self.a.uuid}), at 2025-11-30", entry.message)
        self.assertEqual(self.b.sql("SELECT state FROM membership"), [("removed",)])
        self.assertEqual(self.b.sql("SELECT * FROM statement"), [])
        self.assertEqual(self.b.audited(event="out"), [("out", self.a.uuid, self.b.uuid)])
        d = Node(self, "D")
        d.pair(self.b)
        self.assertEqual(self.b.members, {self.b.uuid, d.uuid})

    def test_victim_after_a_month(self) -> None:
        """Also one that was off for long, and meets but one member, which has not removed it itself (test 13)."""
        self.a.do(self.a.trust.remove(self.b.uuid))
        self.a.call(self.c)
        self.b.now += 30 * 24 * 3600 * 1000
        self.b.start()
        self.assertEqual(self.b.members, {self.a.uuid, self.b.uuid, self.c.uuid})
        self.assertFalse(self.b.call(self.c))
        self.assertIsNone(self.b.view)
        self.assertEqual(self.b.conditions(), {f"cluster:removed:{self.a.uuid}"})

    def test_bare_refusal(self) -> None:
        """A refusal without evidence changes nothing, be it of all (CL-85)."""
        tables, changes = self.b.tables(), len(self.b.changes)
        for other in (self.a, self.c):
            self.b.do(self.b.trust.take_evidence((), other.uuid))
        self.assertEqual((self.b.tables(), len(self.b.changes)), (tables, changes))
        self.assertEqual(self.b.members, {self.a.uuid, self.b.uuid, self.c.uuid})

    def test_admitter_removed(self) -> None:
        """Whose admitter is out, unkept, is out with it, and its evidence says so (CL-73, CL-89)."""
        d = Node(self, "D")
        self.b.pair(d)  # A does not know of it
        self.a.do(self.a.trust.remove(self.b.uuid))
        self.a.call(self.c)
        self.a.hear(d, [encode(each) for each in d.trust.statements])  # refused, since B admits nobody any more
        self.assertNotIn(d.uuid, self.a.members)
        self.b.call(d)
        d.do(d.trust.take_evidence([encode(each) for each in self.a.trust.statements], self.a.uuid))
        self.assertIsNone(d.view)
        (out,) = [each.out for each in d.changes if each.out is not None]
        self.assertEqual((out.how, out.by), ("admitter_removed", self.a.uuid))
        self.assertEqual(d.audited(event="out"), [("out", self.a.uuid, d.uuid)])

    def test_admitted_again_unasked(self) -> None:
        """A member's unused admission does not keep in a node whose incarnation is cut: that takes a code (CL-71)."""
        view = self.a.view
        assert view is not None
        member, me = view.member(self.b.uuid), view.member(self.a.uuid)
        assert member is not None
        assert me is not None
        admission = make(
            Admit(self.b.uuid, member.epoch + 5, self.b.leaf), view.cluster, me.incarnation, 1, self.a.player.sign
        )
        cut = make(Remove(member.incarnation, ()), view.cluster, me.incarnation, 2, self.a.player.sign)
        self.b.do(self.b.trust.take_evidence([encode(admission), encode(cut)], self.a.uuid))
        self.assertIsNone(self.b.view)
        out = self.b.changes[-1].out
        assert out is not None
        self.assertEqual((out.how, out.by), ("removed", self.a.uuid))
        self.assertEqual(self.b.sql("SELECT state FROM membership"), [("removed",)])


class LeaveTests(SynchronousTestCase):
    """CL-88, CL-90, test 14."""

    def setUp(self) -> None:
        self.a, self.b, self.c = (Node(self, each) for each in "ABC")
        self.a.pair(self.b)
        self.b.pair(self.c)
        self.a.call(self.b)

    def test_leaves(self) -> None:
        """It needs no peer: stored, out, and no entry about what one has done oneself."""
        changes = len(self.b.changes)
        leaving = self.b.do(self.b.trust.leave())
        assert leaving is not None
        self.assertIsNone(self.b.view)
        self.assertEqual(len(self.b.changes), changes + 1)
        out = self.b.changes[-1].out
        assert out is not None
        self.assertEqual((out.how, out.by, self.b.changes[-1].news_from), ("left", self.b.uuid, SELF))
        self.assertEqual(self.b.sql("SELECT cluster, state FROM membership"), [(leaving.cluster, "left")])
        self.assertEqual(self.b.conditions(), set())
        self.assertEqual(self.b.audited(event="leave"), [("leave", self.b.uuid, self.b.uuid)])
        self.assertIsNone(self.b.do(self.b.trust.leave()))

    def test_told(self) -> None:
        """Who is told, knows; whom the leaver had let in stays (CL-65)."""
        leaving = self.b.do(self.b.trust.leave())
        assert leaving is not None
        self.b.tell_leave(leaving, self.a)
        self.assertEqual(self.a.members, {self.a.uuid, self.c.uuid})
        self.assertTrue(self.c.call(self.a))
        self.assertEqual(self.c.members, {self.a.uuid, self.c.uuid})

    def test_all_off(self) -> None:
        """The others were off; they come back in any order and drop it, though it is in another cluster now."""
        for order in ((0, 1), (1, 0)):
            a, b, c, d = (Node(self, each) for each in "ABCD")
            a.pair(b)
            b.pair(c)
            a.call(b)
            b.do(b.trust.leave())
            d.pair(b)
            for number in order:
                other = (a, c)[number]
                other.start()
                self.assertFalse(other.call(b))
                self.assertEqual(other.members, {a.uuid, c.uuid})
                self.assertEqual(other.audited(event="leave"), [("leave", b.uuid, b.uuid)])
                b.start()
            self.assertEqual(b.members, {b.uuid, d.uuid})

    def test_founder_leaves(self) -> None:
        """The founder has no rights of its own: it may go, and those it let in stay (CL-75)."""
        leaving = self.a.do(self.a.trust.leave())
        assert leaving is not None
        self.a.tell_leave(leaving, self.c)
        self.c.call(self.b)
        self.assertEqual((self.b.members, self.c.members), ({self.b.uuid, self.c.uuid},) * 2)

    def test_alone(self) -> None:
        """The last one can leave too."""
        a = Node(self, "E")
        a.admit(self.a)
        self.assertIsNotNone(a.do(a.trust.leave()))
        self.assertIsNone(a.view)

    def test_archives(self) -> None:
        """The last 8 clusters are kept, and evidence is for those who were members there (CL-90)."""
        others = [Node(self, f"N{number}") for number in range(ARCHIVES_KEPT + 1)]
        a = Node(self, "E")
        for other in others:
            a.now += 1
            other.pair(a)
            a.do(a.trust.leave())
        a.start()
        self.assertEqual(a.sql("SELECT count(*) FROM cluster_archive"), [(ARCHIVES_KEPT,)])
        self.assertEqual([bool(a.trust.evidence(each.seen)) for each in others], [False] + [True] * ARCHIVES_KEPT)
        self.assertEqual(a.trust.evidence(self.b.seen), ())
        self.assertFalse(others[3].call(a))
        self.assertEqual(others[3].members, {others[3].uuid})


class RejoinTests(SynchronousTestCase):
    """CL-91, test 15."""

    def setUp(self) -> None:
        self.a, self.b = Node(self, "A"), Node(self, "B")
        self.a.pair(self.b)

    def again(self, inviter: Node, joiner: Node) -> None:
        joiner.now += 10
        inviter.pair(joiner)
        self.assertEqual((inviter.members, joiner.members), ({inviter.uuid, joiner.uuid},) * 2)
        self.assertTrue(joiner.call(inviter))
        self.assertEqual(inviter.trust.root, joiner.trust.root)
        self.assertEqual((inviter.members, joiner.members), ({inviter.uuid, joiner.uuid},) * 2)
        self.assertNotIn("cluster:state_rolled_back", inviter.conditions() | joiner.conditions())

    def test_removed_one_sidedly(self) -> None:
        """A removes B, who learns of it and is invited again: a new incarnation, which the old cut does not touch."""
        self.a.do(self.a.trust.remove(self.b.uuid))
        self.b.call(self.a)
        self.again(self.a, self.b)
        self.assertEqual(self.b.sql("SELECT state FROM membership"), [("active",)])
        self.assertEqual(self.b.sql("SELECT * FROM cluster_archive"), [])

    def test_left_one_sidedly(self) -> None:
        """B left, which A does not know when it invites B again; neither does it later take effect on the new B."""
        leaving = self.b.do(self.b.trust.leave())
        assert leaving is not None
        self.again(self.a, self.b)
        self.a.do(self.a.trust.keep(leaving.statements, PAIRING))
        self.again_in_sync()

    def test_founder_left_one_sidedly(self) -> None:
        """The way from the root to the inviter leads over the joiner itself; it joins all the same."""
        leaving = self.a.do(self.a.trust.leave())
        assert leaving is not None
        self.again(self.b, self.a)
        self.b.do(self.b.trust.keep(leaving.statements, PAIRING))
        self.again_in_sync()

    def again_in_sync(self) -> None:
        self.b.call(self.a)
        self.a.call(self.b)
        self.assertEqual((self.a.members, self.b.members), ({self.a.uuid, self.b.uuid},) * 2)
        self.assertEqual(self.a.trust.root, self.b.trust.root)

    def test_paired_again_without_a_cut(self) -> None:
        """B lost its membership and is paired again; one removal then puts it out for good (CL-71)."""
        self.b.do(self.b.trust.abandon())
        self.again(self.a, self.b)
        self.a.do(self.a.trust.remove(self.b.uuid))
        self.assertEqual(self.a.members, {self.a.uuid})
        self.assertFalse(self.b.call(self.a))
        self.assertIsNone(self.b.view)

    def test_another_cluster(self) -> None:
        """A node that is out pairs with anybody."""
        self.b.do(self.b.trust.leave())
        c = Node(self, "C")
        self.again(c, self.b)
        self.assertEqual(self.b.sql("SELECT state FROM membership ORDER BY state"), [("active",), ("left",)])


class AbandonTests(SynchronousTestCase):
    """CL-96."""

    def test_abandons(self) -> None:
        """Membership is dropped without a word: nothing is signed that would end a twin's, and nothing is archived."""
        a, b = Node(self, "A"), Node(self, "B")
        a.pair(b)
        self.assertTrue(b.do(b.trust.abandon()))
        self.assertIsNone(b.view)
        self.assertEqual(b.sql("SELECT state FROM membership"), [("abandoned",)])
        self.assertEqual((b.trust.evidence(a.seen), b.sql("SELECT * FROM statement")), ((), []))
        change = b.changes[-1]
        self.assertEqual((change.after, change.out, change.news_from), (None, None, SELF))
        self.assertFalse(b.do(b.trust.abandon()))
        self.assertEqual(a.members, {a.uuid, b.uuid})
