"""Tests of :mod:`pair.cluster.trust`: founding, admitting, joining (CL-48 to CL-52, CL-68, CL-69)."""

from __future__ import annotations

from hashlib import sha256

from msgspec.structs import replace
from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.changes import PAIRING, SELF, Objection
from pair.cluster.offers import objection
from pair.cluster.statements import Admit, Found, Join, Note, decode, encode, make
from pair.cluster.transitions import Held
from pair.protocols.pairing import Offer
from pair.test.cluster.trusting import INVITE, START, Node
from pair.test.cluster.world import World


class FoundTests(SynchronousTestCase):
    """The inviter's half."""

    def setUp(self) -> None:
        self.a, self.b = Node(self, "A"), Node(self, "B")

    def test_founds(self) -> None:
        """In no cluster, the first admission founds one, named after the node; one transaction, one change (CL-49)."""
        writes = self.a.store.writes
        offer = self.a.admit(self.b)
        self.assertEqual(self.a.store.writes, writes + 1)
        (change,) = self.a.changes
        self.assertIsNone(change.before)
        self.assertIs(change.after, self.a.view)
        self.assertIs(change.pins, self.a.trust.pins)
        self.assertEqual(change.news_from, SELF)
        view = self.a.view
        assert view is not None
        self.assertEqual((view.name, offer.name, offer.cluster), ("A's cluster", "A's cluster", view.cluster))
        self.assertEqual([each.node for each in view.members], [self.a.uuid])
        self.assertEqual([each.node for each in view.admitted], [self.b.uuid])
        self.assertEqual((view.members[0].name, view.members[0].ports), ("A", (("cl", 14321),)))
        kinds = [type(decode(each).body) for each in offer.statements]
        self.assertEqual(kinds, [Found, Note, Admit])

    def test_is_stored(self) -> None:
        """It is the same after a restart (CL-99)."""
        self.a.admit(self.b)
        view, root = self.a.view, self.a.trust.root
        self.a.start()
        self.assertEqual((self.a.view, self.a.trust.root), (view, root))
        self.assertEqual(self.a.changes, [])

    def test_admits_more(self) -> None:
        """In a cluster it founds no other, and proves the way from the root to itself (CL-39)."""
        c = Node(self, "C")
        self.a.pair(self.b)
        offer = self.b.admit(c)
        kinds = [type(decode(each).body) for each in offer.statements]
        self.assertEqual(kinds, [Found, Admit, Join, Note, Admit])
        self.assertIsNone(c.trust.offer_objection(self.b.peer, offer))
        self.assertEqual(len(self.b.sql("SELECT * FROM membership")), 1)

    def test_epoch(self) -> None:
        """The epoch is the joiner's least, or one above the last that joined (CL-69)."""
        self.a.pair(self.b)
        view = self.a.view
        assert view is not None
        member = view.member(self.b.uuid)
        assert member is not None
        self.assertEqual(member.epoch, START)
        for least, epoch in ((1, START + 1), (START + 5, START + 5)):
            offer = self.a.do(self.a.trust.admit(self.b.peer, least, INVITE))
            admission = decode(offer.statements[-1]).body
            assert isinstance(admission, Admit)
            self.assertEqual(admission.epoch, epoch)

    def test_last_epoch(self) -> None:
        """A UUID whose epochs are used up is not admitted; that takes another identity."""
        offer = self.a.do(self.a.trust.admit(self.b.peer, 2**53 - 1, INVITE))
        own = self.b.do(self.b.trust.join(self.a.peer, offer))
        self.a.do(self.a.trust.keep(own, PAIRING))
        refused = self.a.fail(self.a.trust.admit(self.b.peer, 1, INVITE), Objection)
        self.assertEqual(refused.reason, "identity_clash")

    def test_objections(self) -> None:
        """Our own UUID, and a member's with another leaf, are clones; the member itself is not (CL-48)."""
        self.assertEqual(self.a.trust.objection(self.a.peer), "identity_clash")
        self.assertEqual(self.a.trust.objection(Node(self, "A", "twin").peer), "identity_clash")
        self.a.pair(self.b)
        twin = Node(self, "B", "twin")
        self.assertEqual(self.a.trust.objection(twin.peer), "identity_clash")
        self.assertEqual(self.a.fail(self.a.trust.admit(twin.peer, 1, INVITE), Objection).reason, "identity_clash")
        self.assertIsNone(self.a.trust.objection(self.b.peer))

    def test_full(self) -> None:
        """With 64 members nobody new is admitted, but a member may be admitted again (CL-81)."""
        self.a.pair(self.b)
        view = self.a.view
        assert view is not None
        held = Held(self.a.uuid, self.a.leaf, view=replace(view, members=view.members * 32))
        self.assertEqual(objection(held, Node(self, "C").peer), "cluster_full")
        self.assertIsNone(objection(held, self.b.peer))

    def test_no_room_for_statements(self) -> None:
        """Where no other member would take the admission, nobody is admitted (CL-81)."""
        self.a.pair(self.b)
        note = next(each for each in self.a.trust.statements if isinstance(each.body, Note))
        held = Held(self.a.uuid, self.a.leaf, view=self.a.view, statements=(note,) * 2046)
        self.assertEqual(objection(held, self.b.peer), "cluster_full")
        self.assertIsNone(objection(replace(held, statements=(note,) * 2045), self.b.peer))

    def test_keep(self) -> None:
        """The returned join makes the joiner a member, by news from the pairing (CL-51)."""
        own = self.b.do(self.b.trust.join(self.a.peer, self.a.admit(self.b)))
        self.a.do(self.a.trust.keep(own, PAIRING))
        self.assertEqual(self.a.members, {self.a.uuid, self.b.uuid})
        self.assertEqual(self.a.changes[-1].news_from, PAIRING)
        self.a.do(self.a.trust.keep(own, PAIRING))
        self.assertEqual(len(self.a.changes), 2)

    def test_retract(self) -> None:
        """A cluster founded for somebody who did not join is deleted without a trace but the audit (CL-52)."""
        self.a.admit(self.b)
        self.assertTrue(self.a.do(self.a.trust.retract(INVITE)))
        self.assertIsNone(self.a.view)
        self.assertEqual(self.a.tables()[1:], [[], [], []])
        self.assertEqual(self.a.audited(event="retracted"), [("retracted", self.a.uuid, self.a.uuid)])
        self.a.start()
        self.assertIsNone(self.a.view)
        self.assertFalse(self.a.do(self.a.trust.retract(INVITE)))

    def test_retract_not(self) -> None:
        """Another invitation's cluster stays, one with somebody else in it too, and one from before a restart."""
        self.a.admit(self.b)
        self.assertFalse(self.a.do(self.a.trust.retract("ab" * 16)))
        self.a.admit(Node(self, "C"), "ab" * 16)
        self.assertFalse(self.a.do(self.a.trust.retract(INVITE)))
        self.assertIsNotNone(self.a.view)
        other = Node(self, "D")
        other.pair(self.b)
        self.assertFalse(other.do(other.trust.retract(INVITE)))
        self.assertEqual(len(other.members), 2)


class JoinTests(SynchronousTestCase):
    """The joiner's half."""

    def setUp(self) -> None:
        self.a, self.b = Node(self, "A"), Node(self, "B")

    def test_joins(self) -> None:
        """One transaction stores statements, join, note, membership and epoch; then the view changes (CL-50)."""
        offer = self.a.admit(self.b)
        writes = self.b.store.writes
        own = self.b.do(self.b.trust.join(self.a.peer, offer))
        self.assertEqual(self.b.store.writes, writes + 1)
        self.assertEqual([type(decode(each).body) for each in own], [Join, Note])
        self.assertEqual(self.b.members, {self.a.uuid, self.b.uuid})
        (change,) = self.b.changes
        self.assertEqual((change.before, change.news_from), (None, PAIRING))
        view = self.b.view
        self.b.start()
        self.assertEqual(self.b.view, view)
        self.assertEqual(self.b.sql("SELECT epoch, counter FROM identity"), [(START, START)])
        sources = self.b.sql("SELECT kind, source FROM statement ORDER BY source, kind")
        self.assertEqual(sources, [(1, PAIRING), (2, PAIRING), (7, PAIRING), (3, SELF), (7, SELF)])

    def test_both_see_the_same(self) -> None:
        """After a pairing both have the same statements and so the same view (CL-70)."""
        self.a.pair(self.b)
        self.assertEqual(self.a.trust.root, self.b.trust.root)
        self.assertEqual(self.a.view, self.b.view)

    def test_least_epoch(self) -> None:
        """It is above all that were ever used, and above the clock, also after a restart with a clock set back."""
        self.assertEqual(self.b.trust.least_epoch(), START)
        self.a.pair(self.b)
        self.b.now = 5
        self.b.start()
        self.assertEqual(self.b.trust.least_epoch(), START + 1)

    def objected(self, offer: Offer, *, least: int = 0, by: Node | None = None) -> str | None:
        if least:
            self.b.now = least
            self.assertEqual(self.b.trust.least_epoch(), least)
        peer = (by or self.a).peer
        reason = self.b.trust.offer_objection(peer, offer)
        if reason is not None:
            self.assertEqual(self.b.fail(self.b.trust.join(peer, offer), Objection).reason, reason)
            self.assertEqual((self.b.view, self.b.changes, self.b.tables()[1:]), (None, [], [[], [], []]))
        return reason

    def test_bad_offers(self) -> None:
        """What does not make the inviter a member and us admitted stores nothing (CL-50)."""
        offer = self.a.admit(self.b)
        statements = offer.statements
        forged = statements[-1][:-1] + bytes([statements[-1][-1] ^ 1])
        elsewhere = World(self.a.player, real=True)
        bad = {
            "no statement": (*statements, b"nonsense"),
            "not admitted": statements[:-1],
            "bad signature": (*statements[:-1], forged),
            "no root": statements[1:],
            "another cluster": (encode(elsewhere.root), encode(elsewhere.admit(self.a.player, self.b.player))),
        }
        for why, those in bad.items():
            self.assertEqual(self.objected(replace(offer, statements=those)), "protocol_error", why)
        self.assertEqual(self.objected(offer, least=START + 1), "protocol_error")
        self.assertEqual(self.objected(offer, by=Node(self, "C")), "protocol_error")
        self.assertEqual(self.objected(offer, by=Node(self, "A", "twin")), "protocol_error")

    def test_time_passes(self) -> None:
        """An offer is held to the epoch that was said with the proof, not to the clock of when it comes (CL-50)."""
        offer = self.a.admit(self.b)
        self.b.now += 20_000
        self.assertIsNone(self.b.trust.offer_objection(self.a.peer, offer))
        self.b.do(self.b.trust.join(self.a.peer, offer))
        self.assertEqual(self.b.members, {self.a.uuid, self.b.uuid})

    def test_used_epoch(self) -> None:
        """An epoch that was used is not used again, whatever was said before (CL-69)."""
        offer = self.a.admit(self.b)
        self.b.do(self.b.trust.join(self.a.peer, offer))
        self.b.do(self.b.trust.leave())
        self.assertEqual(self.b.trust.offer_objection(self.a.peer, offer), "protocol_error")

    def test_clone_is_a_member(self) -> None:
        """Where our UUID is a member's with another key, we do not join: it would be a clash (CL-77)."""
        twin = Node(self, "B", "twin")
        self.a.pair(twin)
        view = self.a.view
        assert view is not None
        member = view.member(self.a.uuid)
        assert member is not None
        body = Admit(self.b.uuid, START, self.b.leaf)
        admission = make(body, view.cluster, member.incarnation, 1, self.a.player.sign)
        statements = (*self.a.trust.statements, admission)
        offer = Offer(view.cluster, view.name, tuple(map(encode, statements)))
        self.assertEqual(self.objected(offer), "identity_clash")

    def test_already_clustered(self) -> None:
        """Who is in a cluster joins no other (CL-50)."""
        c = Node(self, "C")
        offer = c.admit(self.b)
        self.a.pair(self.b)
        self.assertEqual(self.b.trust.offer_objection(c.peer, offer), "already_clustered")
        self.assertEqual(self.b.fail(self.b.trust.join(c.peer, offer), Objection).reason, "already_clustered")
        self.assertEqual(self.b.members, {self.a.uuid, self.b.uuid})

    def test_two_at_once(self) -> None:
        """Of two joins at the same time one wins; the other is judged after it (CL-98)."""
        c = Node(self, "C")
        offers = [(each.peer, each.admit(self.b)) for each in (self.a, c)]
        joins = [Deferred.fromCoroutine(self.b.trust.join(*each)) for each in offers]
        for each in joins:
            self.b.turns.wait(each)
        self.successResultOf(joins[0])
        self.assertEqual(self.failureResultOf(joins[1], Objection).value.reason, "already_clustered")

    def test_cancelled(self) -> None:
        """Who does not wait for a join any more does not stop it between the disk and the view."""
        join = Deferred.fromCoroutine(self.b.trust.join(self.a.peer, self.a.admit(self.b)))
        join.cancel()
        self.failureResultOf(join, CancelledError)
        self.b.turns.wait(self.b.store.flush())
        self.assertEqual(len(self.b.members), 2)


class NoteTests(SynchronousTestCase):
    """What a node says of itself (CL-68)."""

    def setUp(self) -> None:
        self.a, self.b = Node(self, "A"), Node(self, "B")

    def note(self, name: str) -> bool:
        return self.a.do(self.a.trust.note(name, ["192.0.2.1"], [("cl", 14321)]))

    def counter(self) -> int:
        (row,) = self.a.sql("SELECT counter FROM identity")
        counter: int = row[0]
        return counter

    def test_in_no_cluster(self) -> None:
        """It is remembered, and is in the first note that there is."""
        self.assertFalse(self.note("desk"))
        self.a.pair(self.b)
        view = self.b.view
        assert view is not None
        self.assertEqual({each.name for each in view.members}, {"desk", "B"})
        self.assertEqual(view.name, "desk's cluster")

    def test_only_what_differs(self) -> None:
        """A note is signed if something in it is new; it takes the place of the one before (CL-79)."""
        self.a.pair(self.b)
        count, changes = len(self.a.trust.statements), len(self.a.changes)
        self.assertFalse(self.note("A"))
        self.assertEqual(len(self.a.changes), changes)
        self.assertTrue(self.note("desk"))
        self.assertEqual((len(self.a.changes), len(self.a.trust.statements)), (changes + 1, count))
        self.assertEqual(self.a.sql("SELECT count(*) FROM statement"), [(count,)])
        self.assertFalse(self.note("desk"))
        self.a.call(self.b)
        self.assertEqual(self.a.view, self.b.view)

    def test_counter(self) -> None:
        """A counter is above all that were used, and above the clock (CL-68)."""
        self.a.pair(self.b)
        self.assertEqual(self.counter(), START)
        self.a.now = 5
        self.a.start()
        self.note("one")
        self.assertEqual(self.counter(), START + 1)
        self.a.now = START + 60_000
        self.note("two")
        self.assertEqual(self.counter(), START + 60_000)


class RosterTests(SynchronousTestCase):
    """Section 12's record."""

    def test_none(self) -> None:
        """In no cluster there is none, and nobody."""
        a = Node(self, "A")
        roster = a.trust.roster({})
        self.assertEqual((roster.cluster, roster.me, roster.members), (None, a.uuid, ()))

    def test_members_and_former(self) -> None:
        """Members with their leaf, admitter and last sight; former ones with how and by whom."""
        a, b, c = (Node(self, each) for each in "ABC")
        a.pair(b)
        a.pair(c)
        a.admit(Node(self, "D"))
        a.do(a.trust.remove(c.uuid))
        roster = a.trust.roster({b.uuid: 77}, {b.uuid: ["one_way"]})
        assert roster.cluster is not None
        self.assertEqual(roster.cluster.name, "A's cluster")
        members = {each.node: each for each in roster.members}
        self.assertEqual(set(members), {a.uuid, b.uuid})
        about = members[b.uuid]
        self.assertEqual((about.admitted_by, about.last_seen_at, about.flags), (a.uuid, 77, ("one_way",)))
        self.assertEqual(about.leaf, f"sha256:{sha256(b.leaf).hexdigest()}")
        self.assertIsNone(members[a.uuid].admitted_by)
        (former,) = roster.former
        self.assertEqual((former.node, former.name, former.how, former.by), (c.uuid, "C", "removed", a.uuid))
