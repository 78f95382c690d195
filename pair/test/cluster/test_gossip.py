"""Tests of :mod:`pair.cluster.gossip`, with its links, dialogues and contacts, among nodes in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.contacts import HEARD_SECONDS, REFUSED_SECONDS
from pair.cluster.dialing import PeerUnreachable
from pair.cluster.gossip import FIRST_SECONDS, JITTER, KNOCK_SECONDS, NEWS_SECONDS, SYNC_SECONDS, TELL_SECONDS, Told
from pair.cluster.posting import CallError
from pair.cluster.statements import Note, encode
from pair.test.cluster.household import INSTANCE, LATENCY, Answer, Call, Household, Node
from pair.test.cluster.world import A, B, C, D, World, player

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

ROUND = 4 * LATENCY
"""More than an exchange or two take."""


def denied(call: Call, answer: Answer) -> Answer:
    """A refusal without a reason."""
    return Answer(403, b'{"error":{"code":"not_member"},"evidence":[]}', answer.address)


class GossipTestCase(SynchronousTestCase):
    """A, B and C are members, and each says so; nothing is started."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.household = Household(self.clock)
        self.world = World(A)
        self.said = [self.world.root, *self.world.enter(A, B, C)]
        self.a, self.b, self.c = (self.household.node(self.world, each, self.said) for each in (A, B, C))

    def start(self, *nodes: Node) -> None:
        for each in nodes:
            each.gossip.startService()
            self.addCleanup(each.gossip.stopService)

    def run_for(self, seconds: float) -> None:
        self.household.run(seconds)

    def since(self, count: int) -> list[Call]:
        return self.household.calls[count:]

    def settled(self) -> int:
        """A has made its first syncs; how many calls that were."""
        self.start(self.a)
        self.run_for(FIRST_SECONDS + ROUND)
        return len(self.household.calls)


class TimeTests(GossipTestCase):
    def test_first(self) -> None:
        """The first syncs are made 2 s after the start, with each member and nobody else (CL-83)."""
        self.start(self.a)
        self.run_for(FIRST_SECONDS - 0.1)
        self.assertEqual(self.household.calls, [])
        self.run_for(0.2)
        self.assertEqual({each.node for each in self.household.calls}, {B.node, C.node})
        self.assertEqual({each.request.instance for each in self.household.calls}, {INSTANCE})

    def test_equal(self) -> None:
        """Where both have the same, a sync is one request (CL-82)."""
        self.assertEqual(self.settled(), 2)
        self.assertEqual([each.request.statements for each in self.household.calls], [(), ()])

    def test_again_and_again(self) -> None:
        """Then they are made every 30 s, 20 % more or less (CL-83)."""
        asked: list[tuple[float, float]] = []
        self.a.gossip._uniform = lambda least, most: asked.append((least, most)) or most  # type: ignore[func-returns-value]
        self.start(self.a)
        self.run_for(FIRST_SECONDS + 3 * 36 + 1)
        self.assertEqual([each.at for each in self.household.to(B.node)], [2.0, 38.0, 74.0, 110.0])
        self.assertEqual(set(asked), {(-30 * JITTER, 30 * JITTER)})

    def test_own_statement(self) -> None:
        """What this node signs is told at once, to all in parallel, though not in the turn in which it is signed."""
        count = self.settled()
        self.a.trust.say(self.world.note(A, 1))
        self.assertEqual(self.since(count), [])
        now = self.clock.seconds()
        self.run_for(ROUND)
        self.assertEqual({(each.node, each.at) for each in self.since(count)[:2]}, {(B.node, now), (C.node, now)})
        self.assertEqual(self.a.trust.root, self.b.trust.root)
        self.assertEqual(self.a.trust.root, self.c.trust.root)

    def test_news(self) -> None:
        """News from peers are passed on within 2 s, those of several together (CL-83)."""
        count = self.settled()
        caller = self.a.trust.pins
        self.assertIsNotNone(caller.pin(B.node))
        for by, what in ((B, self.world.note(B, 1)), (C, self.world.note(C, 1))):
            self.a.trust._take([encode(what)], by.node)
            self.run_for(0.1)
        self.assertEqual(self.since(count), [])
        self.run_for(NEWS_SECONDS[1])
        openings = [each for each in self.since(count) if not each.request.want and not each.request.statements]
        self.assertEqual(sorted(each.node for each in openings), sorted((B.node, C.node)))
        self.assertEqual(self.b.trust.root, self.c.trust.root)

    def test_own_statement_after_news(self) -> None:
        """An own statement does not wait for the news that are waiting."""
        count = self.settled()
        self.a.trust._take([encode(self.world.note(B, 1))], B.node)
        self.a.trust.say(self.world.note(A, 1))
        self.run_for(ROUND)
        self.assertNotEqual(self.since(count), [])
        self.assertEqual(self.a.trust.root, self.b.trust.root)
        count = len(self.household.calls)
        self.run_for(NEWS_SECONDS[1])
        self.assertEqual(self.since(count), [])

    def test_seen_again(self) -> None:
        """A sync with a certain member can be asked for; with whom that is none, it is not made."""
        count = self.settled()
        self.a.gossip.sync_now((B.node, A.node, D.node))
        self.assertEqual([each.node for each in self.since(count)], [B.node])

    def test_knocked(self) -> None:
        """A hello in a member's name causes a sync with it, though not more than one in 10 s (CL-91)."""
        count = self.settled()
        for node in (B.node, B.node, D.node, C.node):
            self.a.gossip.knocked(node)
        self.run_for(ROUND)
        self.a.gossip.knocked(B.node)
        self.assertEqual([each.node for each in self.since(count)], [B.node, C.node])
        self.run_for(KNOCK_SECONDS)
        self.a.gossip.knocked(B.node)
        self.assertEqual([each.node for each in self.since(count)], [B.node, C.node, B.node])

    def test_one_at_a_time(self) -> None:
        """There is one sync with a peer at a time, and any number of reasons meanwhile cause one more (CL-83)."""
        count = self.settled()
        for _ in range(5):
            self.a.gossip.sync_now((B.node,))
        self.assertEqual(len(self.since(count)), 1)
        self.run_for(ROUND)
        self.assertEqual(len(self.since(count)), 2)
        self.run_for(1)
        self.assertEqual(len(self.since(count)), 2)

    def test_hung(self) -> None:
        """A peer that takes a request and says nothing is given up after 10 s, and nobody waits for it (CL-82)."""
        self.household.hung.add(B.node)
        self.a.trust._take([encode(self.world.note(A, 1))], "self")
        self.start(self.a)
        self.run_for(FIRST_SECONDS + ROUND)
        self.assertEqual(self.a.trust.root, self.c.trust.root)
        self.a.gossip.sync_now((B.node,))
        self.run_for(SYNC_SECONDS - 2 * ROUND)
        self.assertEqual(len(self.household.to(B.node)), 1)
        self.household.hung.clear()
        self.run_for(3 * ROUND)
        self.assertEqual(self.a.trust.root, self.b.trust.root)

    def test_stop(self) -> None:
        """Once stopped, it does nothing any more: no timer is left, and what was under way is given up (AR-11)."""
        self.settled()
        self.household.hung.add(B.node)
        self.a.trust.say(self.world.note(A, 1))
        self.run_for(ROUND)
        spread = self.a.gossip.spread()
        self.a.gossip.stopService()
        self.assertEqual(set(self.successResultOf(spread).untold), {B.node, C.node})
        self.assertEqual(self.clock.getDelayedCalls(), [])
        count = len(self.household.calls)
        self.a.trust.say(self.world.note(A, 2))
        self.a.gossip.sync_now()
        self.run_for(60)
        self.assertEqual(self.since(count), [])

    def test_new_and_gone(self) -> None:
        """Who comes in is synced with, and who is put out is not, not even to the end of a sync."""
        count = self.settled()
        self.household.hung.add(C.node)
        self.a.gossip.sync_now((C.node,))
        self.household.node(self.world, D, self.said)
        assert self.a.trust.view is not None
        out = self.world.put_out(A, self.a.trust.view, C.node)
        self.a.trust.say(*self.world.enter(A, D), *out)
        self.run_for(ROUND)
        self.assertEqual({each.node for each in self.since(count + 1)}, {B.node, D.node})
        self.run_for(60)
        self.assertEqual(len(self.household.to(C.node)), 2)


class TalkTests(GossipTestCase):
    def test_large_difference(self) -> None:
        """300 statements that one lacks are there after one sync of few messages (CL-82)."""
        members = [player(f"member {number}") for number in range(50)]
        ours = [self.world.admit(A, each.again(epoch)) for epoch in range(1, 4) for each in members]
        theirs = [self.world.admit(B, each.again(epoch)) for epoch in range(1, 4) for each in members]
        self.a.trust._take(list(map(encode, ours)), "self")
        self.b.trust._take(list(map(encode, theirs)), "self")
        self.start(self.a)
        self.run_for(FIRST_SECONDS + ROUND)
        self.assertEqual(self.a.trust.root, self.b.trust.root)
        self.assertEqual(len(self.a.trust.statements), len(self.said) + 300)
        self.assertLessEqual(len(self.household.to(B.node)), 3)
        self.assertTrue(all(each.limit == 1024 * 1024 for each in self.household.calls))

    def test_broken_off(self) -> None:
        """What was got before a talk broke off is kept."""
        many = [self.world.admit(B, D.again(epoch)) for epoch in range(1, 600)]
        self.b.trust._take(list(map(encode, many)), "self")

        def third(call: Call, answer: Answer) -> Answer:
            if len(self.household.to(B.node)) == 3:
                raise CallError("broken")
            return answer

        self.household.fates[B.node] = third
        self.start(self.a)
        self.run_for(FIRST_SECONDS + 2 * ROUND)
        self.assertGreaterEqual(len(self.a.trust.statements), 512)
        self.assertNotEqual(self.a.trust.root, self.b.trust.root)
        self.run_for(NEWS_SECONDS[1] + ROUND)
        self.assertEqual(self.a.trust.root, self.b.trust.root)

    def test_introduction(self) -> None:
        """A member that was admitted while another was off introduces itself there (CL-80)."""
        late = self.household.node(self.world, D, [*self.said, *self.world.enter(B, D)])
        self.start(late)
        self.run_for(FIRST_SECONDS + 2 * ROUND)
        for each in (self.a, self.b, self.c):
            self.assertEqual(each.trust.root, late.trust.root)
        brought = [len(each.request.statements) for each in self.household.to(A.node)]
        self.assertEqual(brought, [0, 5, 0])

    def test_join_brought(self) -> None:
        """Who was admitted and whose join was lost brings it itself (CL-51)."""
        entering = self.world.enter(B, D)
        late = self.household.node(self.world, D, [*self.said, *entering])
        for each in (self.a, self.b):
            each.trust._take([encode(entering[0])], B.node)
        self.start(late)
        self.run_for(FIRST_SECONDS + 2 * ROUND)
        self.assertEqual(self.a.trust.root, late.trust.root)

    def test_removed(self) -> None:
        """A victim is told why, has it stored, and is out; then it calls nobody any more (CL-85, CL-89)."""
        assert self.a.trust.view is not None
        self.a.trust.say(*self.world.put_out(A, self.a.trust.view, B.node))
        self.household.down[C.node] = PeerUnreachable("timeout")
        self.start(self.b)
        self.run_for(FIRST_SECONDS + ROUND)
        self.assertIsNone(self.b.trust.view)
        count = len(self.household.calls)
        self.run_for(100)
        self.assertEqual(self.since(count), [])

    def test_other_cluster(self) -> None:
        """Who is in another cluster says so; without evidence nothing changes (CL-82)."""
        other = World(B, "other")
        away = self.household.node(other, B, [other.root, *other.enter(B, A)])
        self.settled()
        call = self.household.to(B.node)[-1]
        assert call.answer is not None
        self.assertEqual(call.answer.status, 409)
        self.assertIsNotNone(self.a.trust.view)
        self.assertIsNotNone(away.trust.view)

    def test_nonsense(self) -> None:
        """An answer that is none, of whatever status, changes nothing and stops nothing."""
        for status, body in ((200, b"nonsense"), (200, b"{}"), (500, b""), (429, b"{}"), (302, b"")):
            self.household.fates[B.node] = lambda call, answer, status=status, body=body: Answer(  # type: ignore[misc]
                status, body, answer.address
            )
            count = len(self.household.calls)
            self.a.gossip.startService()
            self.run_for(FIRST_SECONDS + ROUND)
            self.assertEqual(len(self.household.to(B.node)), 1, status)
            self.assertGreater(len(self.household.calls), count)
            self.a.gossip.stopService()
            self.household.calls.clear()
        self.assertEqual(self.a.errors.entries, {})

    def test_store_fails(self) -> None:
        """If what came cannot be stored, it is logged, and comes again with the next sync (AR-14)."""
        self.b.trust._take([encode(self.world.note(B, 1))], "self")
        self.a.trust.failing = OSError("no space")
        self.start(self.a)
        self.run_for(FIRST_SECONDS + ROUND)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.a.trust.failing = None
        self.run_for(36 + ROUND)
        self.assertEqual(self.a.trust.root, self.b.trust.root)

    def test_removed_meanwhile(self) -> None:
        """What a peer gave is not taken if it is no member any more when the talk is over."""
        note = self.world.note(B, 1)
        self.b.trust._take([encode(note)], "self")
        assert self.a.trust.view is not None
        out = self.world.put_out(A, self.a.trust.view, B.node)

        def remove(call: Call, answer: Answer) -> Answer:
            if call.request.want:
                self.a.trust.say(*out)
            return answer

        self.household.fates[B.node] = remove
        self.settled()
        self.assertNotIn(note, self.a.trust.statements)


class ContactTests(GossipTestCase):
    def test_last_seen(self) -> None:
        """Who answers is there, and so is who asks (CL-84)."""
        self.household.down[C.node] = PeerUnreachable("timeout")
        self.settled()
        seen = self.a.gossip.contacts.last_seen
        self.assertEqual(seen, {B.node: int(1000 * (FIRST_SECONDS + LATENCY))})
        self.a.gossip.contacts.heard(C.node)
        self.assertEqual(seen[C.node], int(1000 * self.clock.seconds()))

    def test_addresses(self) -> None:
        """An address that worked is tried first; then what is known, then what the note says (CL-84)."""
        self.a.trust._take([encode(self.world.note(B, 1, addresses=("10.0.0.7",)))], B.node)
        self.a.known[B.node] = ["fe80::1%eth0", "10.0.0.2"]
        self.settled()
        self.assertEqual(self.household.to(B.node)[0].addresses, ("fe80::1%eth0", "10.0.0.2", "10.0.0.7"))
        self.a.gossip.sync_now()
        self.assertEqual(self.household.to(B.node)[-1].addresses, ("10.0.0.2", "fe80::1%eth0", "10.0.0.7"))
        self.household.down[B.node] = PeerUnreachable("timeout")
        self.run_for(ROUND)
        self.a.gossip.sync_now()
        self.run_for(ROUND)
        self.a.gossip.sync_now()
        self.assertEqual(self.household.to(B.node)[-1].addresses[0], "fe80::1%eth0")

    def test_port(self) -> None:
        """The port is that of the note, else 14321."""
        said = self.world.say(B, Note(1, "b", (), (("cl", 15000), ("ni", 15001))))
        self.a.trust._take([encode(said)], B.node)
        self.settled()
        self.assertEqual(self.household.to(B.node)[0].port, 15000)
        self.assertEqual(self.household.to(C.node)[0].port, 14321)

    def test_refused(self) -> None:
        """If for 10 min everybody who answers refuses without a reason, that is told; one who does not ends it."""
        self.household.fates = {B.node: denied, C.node: denied}
        self.settled()
        self.run_for(REFUSED_SECONDS - 60)
        self.household.down[C.node] = PeerUnreachable("timeout")
        self.assertEqual(self.a.errors.entries, {})
        self.run_for(120)
        self.assertEqual(list(self.a.errors.entries), ["cluster:refused"])
        self.assertIsNotNone(self.a.trust.view)
        self.household.fates.clear()
        self.run_for(40)
        self.assertEqual(self.a.errors.entries, {})

    def test_refused_by_some(self) -> None:
        """As long as one member counts this node as one, the others' refusals are not told."""
        self.household.fates = {B.node: denied}
        self.settled()
        self.run_for(2 * REFUSED_SECONDS)
        self.assertEqual(self.a.errors.entries, {})

    def test_certificate(self) -> None:
        """A member behind whose addresses another certificate is shown is told of, until it answers (CL-12)."""
        self.household.down[B.node] = PeerUnreachable("certificate")
        self.settled()
        self.assertEqual(list(self.a.errors.entries), [f"cluster:certificate_changed:{B.node}"])
        self.household.down.clear()
        self.run_for(40)
        self.assertEqual(self.a.errors.entries, {})

    def test_seen_again(self) -> None:
        """A member that was not reached and asks something is tried at once; nobody is alarmed (CL-83)."""
        self.household.down[B.node] = PeerUnreachable("timeout")
        count = self.settled()
        self.household.down.clear()
        self.a.gossip.contacts.heard(C.node)
        self.assertEqual(self.since(count), [])
        self.a.gossip.contacts.heard(B.node)
        self.assertEqual([each.node for each in self.since(count)], [B.node])
        self.run_for(ROUND)
        self.assertEqual(self.a.errors.entries, {})

    def test_one_way(self) -> None:
        """A member that asks and cannot be reached is told of, until it can, or asks no more (CL-60)."""
        entry = f"cluster:one_way:{B.node}"
        self.household.down[B.node] = PeerUnreachable("timeout")
        self.settled()
        self.a.gossip.contacts.heard(B.node)
        self.run_for(ROUND)
        self.assertEqual(self.a.errors.entries[entry]["port"], 14321)
        self.assertEqual(self.a.gossip.contacts.one_way, {B.node})
        self.run_for(70)
        self.assertIn(entry, self.a.errors.entries)
        self.household.down.clear()
        self.a.gossip.sync_now()
        self.run_for(ROUND)
        self.assertEqual((self.a.errors.entries, self.a.gossip.contacts.one_way), ({}, set()))

    def test_one_way_at_once(self) -> None:
        """One that asks while it is dialled in vain is there, too; that it was there before says nothing."""
        self.settled()
        self.household.down[B.node] = PeerUnreachable("refused")
        self.a.gossip.contacts.heard(B.node)
        self.run_for(40)
        self.assertEqual(self.a.errors.entries, {})
        self.a.gossip.sync_now((B.node,))
        self.a.gossip.contacts.heard(B.node)
        self.run_for(ROUND)
        self.assertIn(f"cluster:one_way:{B.node}", self.a.errors.entries)
        self.run_for(HEARD_SECONDS + 40)
        self.assertEqual(self.a.errors.entries, {})

    def test_off(self) -> None:
        """A member that is off, or hears us and does not answer, is not behind a firewall."""
        for miss in (PeerUnreachable("refused", met=True), PeerUnreachable("no_address")):
            self.household.down[B.node] = miss
            self.a.gossip.startService()
            self.run_for(FIRST_SECONDS + ROUND)
            self.a.gossip.contacts.heard(B.node)
            self.run_for(ROUND)
            self.a.gossip.stopService()
        self.assertEqual(self.a.errors.entries, {})


class ToldTests(GossipTestCase):
    def test_spread(self) -> None:
        """Whoever has signed something learns who has it, and waits for the rest 2 s at most (CL-86)."""
        self.settled()
        self.household.hung.add(C.node)
        note = self.world.note(A, 1)
        self.a.trust.say(note)
        spread = self.a.gossip.spread()
        self.run_for(1.9)
        self.assertNoResult(spread)
        self.run_for(0.2)
        self.assertEqual(self.successResultOf(spread), Told((B.node,), (C.node,)))
        self.assertIn(note, self.b.trust.statements)

    def test_spread_joins(self) -> None:
        """A sync under way that began with the news is waited for; one from before is followed by another."""
        count = self.settled()
        self.a.trust.say(self.world.note(A, 1))
        self.run_for(0)
        spread = self.a.gossip.spread()
        self.run_for(ROUND)
        self.assertEqual(set(self.successResultOf(spread).told), {B.node, C.node})
        self.assertEqual(len(self.since(count)), 4)  # an opening and a gift to each
        count = len(self.household.calls)
        self.a.gossip.sync_now()
        note = self.world.note(A, 2)
        self.a.trust.say(note)
        spread = self.a.gossip.spread()
        self.run_for(2 * ROUND)
        self.assertEqual(set(self.successResultOf(spread).told), {B.node, C.node})
        self.assertIn(note, self.b.trust.statements)

    def test_nobody(self) -> None:
        """With no members there is nobody to tell."""
        self.assertEqual(self.successResultOf(self.a.gossip.spread()), Told((), ()))

    def leave(self) -> Deferred[Told]:
        return self.a.gossip.tell(self.a.trust.leave(), self.a.phone)

    def test_leave(self) -> None:
        """A leave is told once to all in parallel, though each cuts the leaver off for it (CL-18, CL-88)."""
        self.settled()
        telling = self.leave()
        self.run_for(ROUND)
        self.assertEqual(set(self.successResultOf(telling).told), {B.node, C.node})
        for each in (self.b, self.c):
            self.assertEqual([each.node for each in each.trust.view.members], sorted((B.node, C.node)))  # type: ignore[union-attr]
        count = len(self.household.calls)
        self.run_for(100)
        self.assertEqual(self.since(count), [])

    def test_leave_address(self) -> None:
        """Members are told where they last answered, though this node has forgotten them."""
        self.settled()
        self.a.known = {each.node: [] for each in (B, C)}
        telling = self.leave()
        self.run_for(ROUND)
        self.assertEqual(set(self.successResultOf(telling).told), {B.node, C.node})
        self.assertEqual(self.household.to(B.node)[-1].addresses, ("10.0.0.2",))
        self.assertEqual(self.a.gossip.contacts.last_seen, {})

    def test_leave_known(self) -> None:
        """Who has heard it from another refuses the leaver for it, and so knows."""
        leaving = self.a.trust.leave()
        self.b.trust._take(leaving.statements, C.node)
        telling = self.a.gossip.tell(leaving, self.a.phone)
        self.run_for(ROUND)
        self.assertEqual(set(self.successResultOf(telling).told), {B.node, C.node})
        self.assertEqual(len(self.household.to(B.node)), 1)

    def test_leave_unheard(self) -> None:
        """Who is off, hangs, or refuses for no reason is untold, after 3 s at most (CL-88)."""
        self.household.node(self.world, D, self.said)
        self.a.trust.say(*self.world.enter(A, D))
        self.household.down[B.node] = PeerUnreachable("timeout")
        self.household.hung.add(C.node)
        self.household.fates[D.node] = denied
        telling = self.leave()
        self.run_for(TELL_SECONDS - 0.1)
        self.assertNoResult(telling)
        self.run_for(0.2)
        self.assertEqual(set(self.successResultOf(telling).untold), {B.node, C.node, D.node})
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_returns(self) -> None:
        """A member that was off when this node left meets the leave at its next sync, and drops it (CL-88)."""
        self.household.down = {each.node: PeerUnreachable("timeout") for each in (B, C)}
        telling = self.leave()
        self.run_for(ROUND)
        self.assertEqual(self.successResultOf(telling).told, ())
        self.household.down = {C.node: PeerUnreachable("timeout")}
        self.start(self.b)
        self.run_for(FIRST_SECONDS + ROUND)
        assert self.b.trust.view is not None
        self.assertNotIn(A.node, [each.node for each in self.b.trust.view.members])
