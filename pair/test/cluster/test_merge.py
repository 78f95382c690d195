"""Tests of :mod:`pair.cluster.merging`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.merging import (
    CUTS_MAX,
    INTRODUCTION_STATEMENTS_MAX,
    MESSAGE_BYTES_MAX,
    MESSAGE_STATEMENTS_MAX,
    OTHERS_MAX,
    Merged,
    busiest,
    difference,
    introduction,
    merge,
    messages,
    set_root,
)
from pair.cluster.proofs import carried_size, proof
from pair.cluster.statements import Remove
from pair.test.cluster.world import SETS, A, B, C, D, E, World, check, play, player

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterable

    from pair.cluster.statements import Statement

SCRIPT = st.binary(min_size=40, max_size=200)


def ids(statements: Iterable[Statement]) -> set[bytes]:
    return {each.id for each in statements}


class RandomMergeTests(SynchronousTestCase):
    @settings(max_examples=SETS)
    @given(SCRIPT, st.randoms(use_true_random=False))
    def test_batches(self, script: bytes, chance: random.Random) -> None:
        """In whatever batches, orders and repetitions a set comes, the store and the view end up the same (CL-79)."""
        world = World(A)
        said = [world.root]
        play(script, world, said)
        whole = merge((), said, world.cluster, check)
        store: tuple[Statement, ...] = ()
        changed = True
        while changed:
            coming = said + chance.sample(said, len(said) // 3)
            chance.shuffle(coming)
            changed = False
            while coming:
                size = chance.randrange(1, 40)
                batch, coming = coming[:size], coming[size:]
                merged = merge(store, batch, world.cluster, check)
                changed = changed or bool(merged.added)
                store = merged.kept
        self.assertEqual(ids(store), ids(whole.kept))
        self.assertEqual(world.view(store), world.view(said))

    @given(SCRIPT, st.randoms(use_true_random=False))
    def test_stores(self, script: bytes, chance: random.Random) -> None:
        """Two stores merged either way are the same one, and merging again changes nothing (CL-79)."""
        world = World(A)
        said = [world.root]
        play(script, world, said)
        one, other = (
            merge((), [world.root, *chance.sample(said, chance.randrange(len(said)))], world.cluster, check).kept
            for _ in range(2)
        )
        this, that = merge(one, other, world.cluster, check), merge(other, one, world.cluster, check)
        self.assertEqual(ids(this.kept), ids(that.kept))
        self.assertEqual(world.view(this.kept), world.view((*one, *other)))
        again = merge(this.kept, one, world.cluster, check)
        self.assertEqual((ids(again.kept), again.added, again.pruned), (ids(this.kept), (), ()))
        self.assert_accounted(one, other, this)

    def assert_accounted(self, store: Collection[Statement], batch: Collection[Statement], merged: Merged) -> None:
        self.assertEqual(ids(merged.kept), (ids(store) | ids(merged.added)) - set(merged.pruned))
        self.assertLessEqual(set(merged.pruned), ids(store))
        self.assertFalse(ids(merged.added) & ids(store))
        self.assertEqual(
            len(merged.added) + merged.known + merged.foreign + merged.discarded + merged.surplus, len(ids(batch))
        )

    @given(SCRIPT, st.integers(2, 5), st.randoms(use_true_random=False))
    def test_gossip(self, script: bytes, nodes: int, chance: random.Random) -> None:
        """Stores that exchange their differences, in small messages, become equal (CL-82)."""
        world = World(A)
        said = [world.root]
        play(script, world, said)
        stores = [
            merge((), [world.root, *chance.sample(said, chance.randrange(len(said)))], world.cluster, check).kept
            for _ in range(nodes)
        ]
        whole = merge((), [each for store in stores for each in store], world.cluster, check).kept
        for caller in (*range(nodes), *range(nodes)):  # twice around the ring
            called = (caller + 1) % nodes
            mine, theirs = stores[caller], stores[called]
            gap = difference(mine, ids(theirs))
            for each in (each for each in theirs if each.id in gap.want):
                stores[caller] = merge(stores[caller], [each], world.cluster, check).kept
            for each in gap.give:
                stores[called] = merge(stores[called], [each], world.cluster, check).kept
            self.assertEqual(set_root(ids(stores[caller])), set_root(ids(stores[called])))
        for store in stores:
            self.assertEqual(ids(store), ids(whole))


class MergeTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = World(A)
        self.store: tuple[Statement, ...] = (self.world.root,)

    def merge(self, *batch: Statement, bounded: bool = True) -> Merged:
        merged = merge(self.store, batch, self.world.cluster, check, bounded=bounded)
        self.store = merged.kept
        return merged

    def test_added(self) -> None:
        """What counts is taken, what is known is not taken again (CL-79)."""
        entered = self.world.enter(A, B)
        merged = self.merge(*entered, *entered, self.world.root)
        self.assertEqual((ids(merged.added), merged.pruned, merged.known), (ids(entered), (), 1))
        self.assertEqual(self.merge(*entered).known, 2)

    def test_foreign(self) -> None:
        """Statements of other clusters are dropped (CL-79)."""
        elsewhere = World(B)
        merged = self.merge(elsewhere.root, *elsewhere.enter(B, C))
        self.assertEqual((merged.added, merged.foreign), ((), 3))

    def test_first(self) -> None:
        """An empty store begins with the root; without it nothing counts."""
        entered = self.world.enter(A, B)
        self.store = ()
        self.assertEqual(self.merge(*entered).discarded, 2)
        self.assertEqual(ids(self.merge(self.world.root, *entered).added), ids([self.world.root, *entered]))

    def test_another_root(self) -> None:
        """A store keeps its root; a second one for the same id, which would take a broken hash, is foreign."""
        second = replace(self.world.root, id=bytes(32))
        merged = self.merge(second)
        self.assertEqual((merged.kept, merged.foreign), ((self.world.root,), 1))

    def test_discarded_comes_again(self) -> None:
        """What proves nothing yet is not kept, and counts when it comes with its ground (CL-79)."""
        admit, join = self.world.enter(A, B)
        orphan = self.world.note(B, 1)
        self.assertEqual(self.merge(join, orphan).discarded, 2)
        self.assertEqual(self.store, (self.world.root,))
        self.assertEqual(ids(self.merge(orphan, join, admit).added), ids([admit, join, orphan]))

    def test_bad_signature(self) -> None:
        """A bad copy is discarded, beside the good one too."""
        admit, _ = self.world.enter(A, B)
        bad = replace(admit, signature=bytes(64))
        self.assertEqual(self.merge(bad).discarded, 1)
        self.assertEqual(self.merge(bad, admit).added, (admit,))

    def test_notes(self) -> None:
        """Of each signer one note is kept, the winning one (CL-79)."""
        first, third = self.world.note(A, 1), self.world.note(A, 3)
        self.merge(first)
        merged = self.merge(third, self.world.note(A, 2))
        self.assertEqual((merged.added, merged.pruned, merged.discarded), ((third,), (first.id,), 1))
        self.assertEqual(self.merge(first).added, ())

    def test_joins(self) -> None:
        """Of each signer one join is kept, the one with the lowest id; edges and cuts are never pruned (CL-79)."""
        joins = sorted((self.world.join(B) for _ in range(3)), key=lambda each: each.id)
        lasting = [self.world.admit(A, B), self.world.admit(A, B), self.world.remove(A, B), self.world.remove(A, B)]
        self.merge(*lasting, *joins[1:])
        self.assertEqual(ids(self.store), ids([self.world.root, *lasting, joins[1]]))
        self.assertEqual(self.merge(joins[0]).pruned, (joins[1].id,))

    def test_order(self) -> None:
        """A store lists each statement behind those on which it rests."""
        said = [*self.world.enter(A, B), *self.world.enter(B, C), *self.world.enter(C, D)]
        said += [self.world.remove(D, A), self.world.note(D, 1)]
        self.merge(*reversed(said))
        self.assertEqual(ids(self.store), ids([self.world.root, *said]))
        for count in range(len(self.store)):
            merged = merge((), self.store[:count], self.world.cluster, check)
            self.assertEqual(len(merged.kept), count)


class BoundTests(SynchronousTestCase):
    """CL-81."""

    def setUp(self) -> None:
        self.world = World(A)
        self.entered = self.world.enter(A, B, C)
        others = [self.world.admit(B, D) for _ in range(OTHERS_MAX - 6)]
        self.note = self.world.note(C, 1)
        self.store = merge((), [self.world.root, *self.entered, self.note, *others], self.world.cluster, check).kept
        self.assertEqual(len(self.store), OTHERS_MAX)

    def merge(self, *batch: Statement, bounded: bool = True) -> Merged:
        return merge(self.store, batch, self.world.cluster, check, bounded=bounded)

    def test_full_of_others(self) -> None:
        """A full set takes cuts and no more edges; the entry can name who filled it."""
        cut = self.world.remove(A, B)
        merged = self.merge(*self.world.enter(A, E), self.world.note(B, 1), cut)
        self.assertEqual(merged.added, (cut,))
        self.assertEqual((merged.surplus, merged.discarded), (3, 0))
        self.assertEqual(busiest(merged.kept), B.id)

    def test_ground_of_the_refused(self) -> None:
        """A cut whose signer there was no room for is not kept either."""
        merged = self.merge(*self.world.enter(A, E), self.world.remove(E, B))
        self.assertEqual((merged.added, merged.surplus, merged.discarded), ((), 2, 1))

    def test_room_for_some(self) -> None:
        """What fits is taken in the order in which it counts, so that no join is without its admission."""
        fewer = [each for each in self.store if each.id not in ids(self.store[-2:])]
        merged = merge(fewer, self.world.enter(A, E), self.world.cluster, check)
        self.assertEqual(len(merged.added), 2)
        merged = merge(self.store[:-1], self.world.enter(A, E), self.world.cluster, check)
        self.assertEqual([each.body.KIND for each in merged.added], [2])

    def test_later_note(self) -> None:
        """A later note takes the place of the one before it, in a full set too."""
        later = self.world.note(C, 2)
        merged = self.merge(later)
        self.assertEqual((merged.added, merged.pruned, merged.surplus), ((later,), (self.note.id,), 0))

    def test_full_of_cuts(self) -> None:
        """Beyond their bound cuts are refused; what the node signs itself is not bounded."""
        self.store = self.store[:10]
        self.store = self.merge(*(self.world.remove(B, D) for _ in range(CUTS_MAX))).kept
        self.assertEqual(sum(each.is_cut for each in self.store), CUTS_MAX)
        again = self.world.remove(A, D)
        note = self.world.note(A, 1)
        merged = self.merge(again, note)
        self.assertEqual((merged.added, merged.surplus), ((note,), 1))
        self.assertEqual(ids(self.merge(again, note, bounded=False).added), ids([again, note]))

    def test_full_of_cuts_and_a_first_one(self) -> None:
        """Whoever fills the set with cuts does not keep itself in by that: the first cut of a known node is taken."""
        self.store = self.store[:10]
        nobody = (Remove(each.to_bytes(32, "big"), ()) for each in range(CUTS_MAX))
        self.store = self.merge(*(self.world.say(B, each) for each in nobody)).kept
        self.assertEqual(sum(each.is_cut for each in self.store), CUTS_MAX)
        cuts = [self.world.remove(A, B), self.world.remove(C, B), self.world.remove(C, E), self.world.leave(A)]
        merged = self.merge(*cuts)
        self.assertEqual((len(merged.added), merged.surplus), (2, 2))
        self.assertEqual({each.subject for each in merged.added}, {B.id, A.id})
        self.store = merged.kept
        self.assertEqual(len(self.merge(*cuts).added), 0)


class IntroductionTests(SynchronousTestCase):
    """CL-80."""

    def setUp(self) -> None:
        self.world = World(A)
        self.store = (self.world.root, *self.world.enter(A, B, C))

    def introduce(self, batch: list[Statement]) -> Merged | None:
        return introduction(self.store, batch, self.world.cluster, D.leaf, check)

    def test_admitted_while_we_were_off(self) -> None:
        """A node brings the edges that lead to it, and is let in with all that it brings."""
        entered = [*self.world.enter(B, D)]
        merged = self.introduce([*proof(self.world.view([*self.store, *entered]), D.id), self.world.note(D, 1)])
        assert merged is not None
        self.assertEqual([each.body.KIND for each in merged.added], [2, 3, 7])
        self.assertIsNotNone(self.world.view(merged.kept).signs_as(D.leaf))

    def test_to_bring_its_join(self) -> None:
        """Being admitted is enough."""
        self.assertIsNotNone(self.introduce([self.world.admit(B, D)]))

    def test_stranger(self) -> None:
        """Any number of sound statements that do not make the sender one of us store nothing."""
        world = World(D)
        strange = [world.root, *world.enter(D, E)]
        foreign = [self.world.admit(D, E), self.world.join(D), self.world.remove(D, A), self.world.admit(D, D)]
        others = self.world.enter(B, E)
        for batch in (strange, foreign, others, [], [*strange, *foreign, *others]):
            self.assertIsNone(self.introduce(batch))

    def test_removed(self) -> None:
        """Who was put out does not come back by what it signs, nor by whom it let in (CL-72)."""
        entered = self.world.enter(B, D)
        self.store = (*self.store, *entered, self.world.remove(A, D), self.world.enter(D, E)[0], self.world.join(E))
        self.assertIsNone(self.introduce([self.world.admit(D, D.again(2)), self.world.admit(E, D.again(2)), *entered]))
        self.assertIsNotNone(self.introduce([self.world.admit(C, D.again(2))]))

    def test_clashing(self) -> None:
        """Who claims the UUID of a member is let in by nobody's introduction."""
        twin = player("D", "twin")
        self.store = (*self.store, *self.world.enter(A, twin))
        self.assertIsNone(self.introduce(self.world.enter(B, D)))

    def test_too_many(self) -> None:
        """More than 64 statements or 128 KiB are not looked at."""
        good = self.world.admit(B, D)
        notes = [self.world.note(A, number + 1) for number in range(INTRODUCTION_STATEMENTS_MAX - 1)]
        self.assertIsNotNone(self.introduce([good, *notes]))
        self.assertIsNone(self.introduce([good, *notes, self.world.note(A, 1)]))
        keep = [self.world.admit(A, E) for _ in range(256)]
        long = [self.world.remove(A, E, *keep) for _ in range(12)]
        self.assertIsNone(self.introduce([good, *long]))
        self.assertIsNotNone(self.introduce([good, *long[1:]]))


class SyncTests(SynchronousTestCase):
    """CL-82."""

    def test_root(self) -> None:
        """The same statements have the same root, in whatever order they lie."""
        self.assertEqual(set_root([]).hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
        one, other = bytes(32), bytes(31) + b"\1"
        self.assertEqual(set_root([one, other]), set_root([other, one]))
        self.assertNotEqual(set_root([one, other]), set_root([one]))

    def test_difference_of_300(self) -> None:
        """What either side lacks is told apart, and fits into one message each way."""
        world = World(A)
        shared = [world.root, *world.enter(A, B)]
        ours = [world.admit(A, C) for _ in range(300)]
        theirs = [world.admit(B, C) for _ in range(300)]
        gap = difference([*shared, *ours], ids([*shared, *theirs]))
        self.assertEqual((gap.give, set(gap.want)), (tuple(ours), ids(theirs)))
        self.assertEqual(len(list(messages(gap.give))), 1)
        same = difference(shared, ids(shared))
        self.assertEqual((same.give, same.want), ((), ()))

    def test_messages(self) -> None:
        """No message has more than 512 statements or 1 MiB; none is empty, nothing is lost or moved."""
        world = World(A)
        short = [world.join(A) for _ in range(MESSAGE_STATEMENTS_MAX + 1)]
        self.assertEqual([len(each) for each in messages(short)], [MESSAGE_STATEMENTS_MAX, 1])
        keep = [world.admit(A, C) for _ in range(256)]
        long = [world.remove(A, B, *keep) for _ in range(200)]
        parts = list(messages(long))
        self.assertGreater(len(parts), 1)
        for each in parts:
            self.assertLessEqual(carried_size(each), MESSAGE_BYTES_MAX)
        self.assertEqual([each for part in parts for each in part], long)
        self.assertEqual(list(messages([])), [])
