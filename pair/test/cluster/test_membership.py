"""Tests of the evaluation: :mod:`pair.cluster.closure`, ``standing``, ``membership`` and ``cutting``.

Signatures are a stand-in that can be checked; what depends on real ones is in ``test_statements``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.closure import prove
from pair.cluster.cutting import departure, keep_list, removal
from pair.cluster.membership import MEMBERS_MAX, Clash
from pair.cluster.statements import KEEP_MAX, Found, Remove, Statement, found
from pair.test.cluster import reference
from pair.test.cluster.world import B_TWIN, CAST, SETS, A, B, C, D, E, F, Player, World, check, play, player

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from pair.cluster.membership import View

SCRIPT = st.binary(min_size=40, max_size=200)


def names(view: View) -> set[str]:
    """The members, by the letters of their players."""
    letters = {each.node: letter for letter, each in zip("ABCDEF", CAST, strict=False)}
    return {letters.get(each.node, each.node) for each in view.members}


def standing(view: View) -> set[bytes]:
    return {each for each in view.standing.proven.incarnations if view.standing.stands(each)}


class RandomSetTests(SynchronousTestCase):
    """What holds of any set of statements, honest or not."""

    @settings(max_examples=SETS)
    @given(SCRIPT, st.randoms(use_true_random=False))
    def test_order(self, script: bytes, chance: random.Random) -> None:
        """Any order and repetition gives an equal view, which is that of the specification's own words (CL-70)."""
        world = World(A)
        statements = [world.root]
        play(script, world, statements)
        view = world.view(statements)
        shuffled = statements + chance.sample(statements, len(statements) // 2)
        chance.shuffle(shuffled)
        self.assertEqual(world.view(shuffled), view)

        stands, members, clashing, admitted = reference.evaluate(shuffled, world.cluster, check)
        self.assertEqual(standing(view), stands)
        self.assertEqual({each.node: (each.incarnation, each.name) for each in view.members}, members)
        self.assertEqual({each.node for each in view.clashes}, clashing)
        self.assertEqual({each.incarnation for each in view.admitted}, admitted)

    @settings(max_examples=SETS)
    @given(SCRIPT, SCRIPT)
    def test_finality(self, script: bytes, more: bytes) -> None:
        """What was cut stays cut, with the earlier incarnations of its leaf, whatever is said afterwards (CL-71)."""
        world = World(A)
        statements = [world.root]
        play(script, world, statements)
        before = world.view(statements)
        play(more, world, statements)
        after = world.view(statements)
        self.assertLessEqual(set(before.standing.ended), set(after.standing.ended))
        self.assertLessEqual(set(before.standing.dead), set(after.standing.dead))
        self.assertFalse(set(before.standing.ended) & standing(after))
        for member in after.members:
            self.assertNotIn(member.incarnation, before.standing.ended)

    @settings(max_examples=SETS)
    @given(SCRIPT, SCRIPT)
    def test_no_backdating(self, script: bytes, more: bytes) -> None:
        """Nodes that do not stand make nobody stand, together or alone, whatever instants they write (CL-72).

        But for an edge that all cuts of its signer keep already.
        """
        world = World(A)
        statements = [world.root]
        play(script, world, statements)
        before = world.view(statements)
        up = {before.standing.proven.incarnations[each].leaf for each in standing(before)}
        fallen = [each for each in CAST if each.leaf not in up]
        if not fallen:
            return
        world.now = -1  # as early as can be
        play(more, world, statements, fallen)
        after = world.view(statements)
        for each in standing(after) - standing(before):
            path = after.standing.path(each)
            self.assertTrue(
                any(edge.signer in after.standing.ended and edge.id in kept_before(before) for edge in path[1:])
            )

    @settings(max_examples=SETS)
    @given(SCRIPT, st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
    def test_honest_cut(self, script: bytes, one: int, other: int, third: int) -> None:
        """A removal, of one or of two, and a leave end those whom they mean and lose nobody else (CL-65)."""
        world = World(A)
        statements = [world.root]
        play(script, world, statements)
        before = world.view(statements)
        members = {each.node for each in before.members}
        by, gone = CAST[one], {CAST[other].node, CAST[third].node}
        member = before.signs_as(by.leaf)
        if member is None:
            return
        after = world.view([*statements, world.go(by, before)])
        self.assertLessEqual(members - {by.node}, {each.node for each in after.members})
        self.assertIsNone(after.member(by.node))

        gone.discard(by.node)
        after = world.view([*statements, *world.put_out(by.again(member.epoch), before, *gone)])
        self.assertLessEqual(members - gone, {each.node for each in after.members})
        self.assertFalse({each for each in standing(after) if after.standing.proven.incarnations[each].node in gone})


def kept_before(view: View) -> set[bytes]:
    """Ids that any cut kept."""
    return {each for cuts in view.standing.proven.cuts.values() for cut in cuts for each in cut.keep}


class EvaluateTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = World(A)
        self.statements: list[Statement] = [self.world.root]

    def say(self, *statements: Statement | Iterable[Statement]) -> None:
        for each in statements:
            self.statements += [each] if isinstance(each, Statement) else each

    def members(self) -> set[str]:
        return names(self.view())

    def view(self) -> View:
        return self.world.view(self.statements)

    def former(self) -> dict[str, tuple[str, str]]:
        letters = {each.node: letter for letter, each in zip("ABCDEF", CAST, strict=False)}
        return {letters[each.node]: (each.how, letters[each.by]) for each in self.view().former}

    def test_founder(self) -> None:
        """Who founds a cluster is its first member, and gives it its name."""
        view = self.view()
        self.assertEqual((view.name, view.cluster, names(view)), ("home", self.world.cluster, {"A"}))
        [member] = view.members
        self.assertEqual((member.admitted_by, member.joined_at, member.incarnation), (None, 0, A.id))

    def test_no_root(self) -> None:
        """Without its root, or with a forged one, a cluster has no members; nothing else can be its root (CL-64)."""
        entered = self.world.enter(A, B)
        self.assertEqual(self.world.view(entered).members, ())
        self.assertEqual(self.world.view(entered).name, "")
        forged = replace(self.world.root, signature=bytes(64))
        self.assertEqual(self.world.view([forged, *entered]).members, ())
        second = World(B).root
        self.assertNotEqual(second.cluster, self.world.cluster)
        self.assertEqual(self.world.view([second, *entered]).members, ())

    def test_second_found(self) -> None:
        """The founder's own second `found` is the root of another cluster, and nothing in this one (CL-64)."""
        body = self.world.root.body
        assert isinstance(body, Found)
        second = found(body, 1, A.stand_in)
        self.assertNotEqual(second.cluster, self.world.cluster)
        self.say(self.world.enter(A, B))
        before = self.view()
        self.say(second)
        self.assertEqual(self.view(), before)

    def test_admitted_until_it_joins(self) -> None:
        """Nobody is a member without having joined, and nobody admits before that (CL-76)."""
        self.say(self.world.admit(A, B), self.world.enter(B, C))
        view = self.view()
        self.assertEqual(names(view), {"A"})
        self.assertEqual([each.node for each in view.admitted], [B.node])
        self.assertEqual(view.admitted[0].admitted_by, A.node)
        self.say(self.world.join(B))
        self.assertEqual(self.members(), {"A", "B", "C"})
        self.assertEqual(self.view().admitted, ())

    def test_admitted_anew(self) -> None:
        """A member that is let in again is no `admitted` beside itself (CL-76)."""
        self.say(self.world.enter(A, B), self.world.admit(A, B.again(2)))
        self.assertEqual(self.view().admitted, ())
        self.assertEqual(self.view().member(B.node).epoch, 1)  # type: ignore[union-attr]
        self.say(self.world.join(B.again(2)))
        self.assertEqual(self.view().member(B.node).epoch, 2)  # type: ignore[union-attr]

    def test_bad_copy(self) -> None:
        """A copy with a bad signature neither counts nor keeps the good one out, on whichever side of it it comes."""
        admit, join = self.world.enter(A, B)
        bad = [replace(each, signature=bytes([byte]) * 64) for each in (admit, join) for byte in (0, 255)]
        self.assertEqual(names(self.world.view([self.world.root, *bad])), {"A"})
        for statements in ([admit, join, *bad], [*bad, admit, join]):
            self.assertEqual(names(self.world.view([self.world.root, *statements])), {"A", "B"})

    def test_signed_anew(self) -> None:
        """The same payload under another good signature is the same statement (CL-62)."""
        admit, join = self.world.enter(A, B)

        def lenient(leaf: bytes, payload: bytes, signature: bytes) -> bool:
            return check(leaf, payload, signature[:64]) or signature == bytes(64)

        again = replace(admit, signature=bytes(64))
        proven = prove([self.world.root, admit, join, again], self.world.cluster, lenient)
        self.assertEqual(sum(1 for _ in proven.in_order()), 3)

    def test_note(self) -> None:
        """The highest counter wins, then the highest id; notes of earlier incarnations do not count (step 8)."""
        self.say(
            self.world.enter(A, B),
            self.world.note(B, 2, "two", ("10.0.0.2",)),
            self.world.note(B, 1, "one"),
        )
        self.assertEqual(self.view().member(B.node).name, "two")  # type: ignore[union-attr]
        self.assertEqual(self.view().member(B.node).addresses, ("10.0.0.2",))  # type: ignore[union-attr]
        equal = [self.world.note(B, 2, name) for name in "xyz"]
        self.say(equal)
        highest = max([*equal, self.statements[3]], key=lambda each: each.id)
        self.assertEqual(self.view().standing.proven.notes[B.id], highest)
        self.say(self.world.enter(A, B.again(2)))
        self.assertEqual(self.view().member(B.node).name, "")  # type: ignore[union-attr]
        self.assertEqual(self.view().last_note(B.node).counter, 2)  # type: ignore[union-attr]
        self.assertIsNone(self.view().last_note(C.node))

    def test_removed(self) -> None:
        """A member takes another out; who and when is told."""
        self.say(self.world.enter(A, B, C), self.world.note(C, 1, "old"))
        cut = self.world.remove(B, C)
        self.say(cut)
        self.assertEqual(self.members(), {"A", "B"})
        [former] = self.view().former
        self.assertEqual((former.node, former.name, former.how, former.by), (C.node, "old", "removed", B.node))
        self.assertEqual((former.at, former.joined, former.leaf), (cut.issued_at, True, C.leaf))

    def test_nobody_removes_itself(self) -> None:
        """A `remove` by its own subject has no effect; to go is to leave (step 3)."""
        self.say(self.world.enter(A, B), self.world.remove(B, B))
        self.assertEqual(self.members(), {"A", "B"})

    def test_forged_leave(self) -> None:
        """Nobody leaves for another: the signature is that of the incarnation named (CL-62)."""
        self.say(self.world.enter(A, B, C))
        leave = self.world.leave(B)
        self.say(replace(leave, signature=C.stand_in(leave.payload)))
        self.assertEqual(self.members(), {"A", "B", "C"})

    def test_cut_before_it_is_known(self) -> None:
        """A cut that comes before the admission holds all the same (CL-70)."""
        self.say(self.world.enter(A, C), self.world.remove(C, B))
        self.assertEqual(self.members(), {"A", "C"})
        self.say(self.world.enter(A, B))
        self.assertEqual(self.members(), {"A", "C"})

    def test_backdated_admission(self) -> None:
        """What a removed node or its sock puppet signs afterwards lets nobody in, whatever instant it bears."""
        admit_b, join_b = self.world.enter(A, B)
        puppet = self.world.enter(B, C)
        self.say(admit_b, join_b, puppet, self.world.remove(A, B), self.world.enter(A, F))
        self.assertEqual(self.members(), {"A", "F"})
        self.world.now = 0
        self.say(self.world.enter(B, D), self.world.enter(C, E))
        self.assertEqual(self.members(), {"A", "F"})
        self.assertEqual({each.how for each in self.view().former}, {"removed", "admitter_removed"})

    def test_removed_node_may_remove(self) -> None:
        """Who was put out may still take members out, which no order of events could forbid (CL-74)."""
        self.say(self.world.enter(A, B, C), self.world.remove(A, B))
        self.assertEqual(self.members(), {"A", "C"})
        self.say(self.world.remove(B, C))
        self.assertEqual(self.members(), {"A"})

    def test_removal_meets_admission(self) -> None:
        """A removes B while B admits C: C is lost, is shown as such, and is paired again (CL-73)."""
        self.say(self.world.enter(A, B))
        before = self.view()
        self.say(self.world.enter(B, C), self.world.put_out(A, before, B.node))
        self.assertEqual(self.members(), {"A"})
        self.assertEqual(self.former(), {"B": ("removed", "A"), "C": ("admitter_removed", "A")})
        self.say(self.world.enter(A, C.again(2)))
        self.assertEqual(self.members(), {"A", "C"})

    def test_two_removers(self) -> None:
        """Of the keep lists of two cuts, only what stands in both holds (CL-73)."""
        self.say(self.world.enter(A, B, C))
        admit_d, join_d = self.world.enter(B, D)
        admit_e, join_e = self.world.enter(B, E)
        self.say(admit_d, join_d, admit_e, join_e)
        self.say(self.world.remove(A, B, admit_d, admit_e))
        self.assertEqual(self.members(), {"A", "C", "D", "E"})
        self.say(self.world.remove(C, B, admit_d))
        self.assertEqual(self.members(), {"A", "C", "D"})
        self.assertEqual(self.former()["E"], ("admitter_removed", "C"))

    def test_nearest_remover(self) -> None:
        """Of several cuts the one is told of whose signer is nearest to the root: its proof is short."""
        self.say(self.world.enter(A, B, C), self.world.enter(B, D), self.world.remove(C, B), self.world.remove(A, B))
        self.assertEqual(self.former(), {"B": ("removed", "A"), "D": ("admitter_removed", "A")})

    def test_mutual_removal(self) -> None:
        """A removes B while B removes A: both are out, what both keep stays (CL-74)."""
        self.say(self.world.enter(A, B), self.world.enter(B, C))
        before = self.view()
        one, other = self.world.put_out(A, before, B.node), self.world.put_out(B, before, A.node)
        for cuts in ([*one, *other], [*other, *one]):
            view = self.world.view([*self.statements, *cuts])
            self.assertEqual(names(view), {"C"})

    def test_founder_removed(self) -> None:
        """The founder has no rights of its own: it is removed like any other, and those it let in stay (CL-75)."""
        self.say(self.world.enter(A, B, C), self.world.enter(C, D))
        self.say(self.world.put_out(B, self.view(), A.node))
        self.assertEqual(self.members(), {"B", "C", "D"})
        self.say(self.world.enter(B, A.again(2)))
        self.assertEqual(self.members(), {"A", "B", "C", "D"})
        self.assertEqual(self.view().member(A.node).admitted_by, B.node)  # type: ignore[union-attr]

    def test_admitter_leaves(self) -> None:
        """Who leaves takes nobody along, the founder neither (CL-75)."""
        self.say(self.world.enter(A, B), self.world.enter(B, C), self.world.enter(C, D))
        for who in (B, A, C):
            self.say(self.world.go(who, self.view()))
        self.assertEqual(self.members(), {"D"})
        self.assertEqual({how for how, _ in self.former().values()}, {"left"})

    def test_rejoin(self) -> None:
        """Old cuts do not touch a new incarnation, and what was cut of the old one stays cut (CL-71, CL-91)."""
        self.say(self.world.enter(A, B), self.world.enter(B, C), self.world.remove(A, B))
        self.say(self.world.enter(A, B.again(2)))
        self.assertEqual(self.members(), {"A", "B"})
        self.assertEqual(set(self.former()), {"C"})
        self.say(self.world.leave(B.again(2)), self.world.enter(A, B.again(3)))
        self.assertEqual(self.members(), {"A", "B"})

    def test_re_paired_without_a_cut(self) -> None:
        """Let in twice and then removed once: out for good, with both incarnations (CL-71, CL-91)."""
        self.say(self.world.enter(A, C, B), self.world.enter(C, B.again(2)))
        self.say(self.world.remove(A, B.again(2)))
        self.assertEqual(self.members(), {"A", "C"})
        self.assertIn(B.id, self.view().standing.ended)

    def test_unwanted_epoch(self) -> None:
        """A cut of an incarnation that its node never joined does not reach the one it lives in (step 3)."""
        self.say(self.world.enter(A, B, C), self.world.admit(A, C.again(3)), self.world.remove(B, C.again(3)))
        self.assertEqual(self.members(), {"A", "B", "C"})
        self.assertEqual(self.view().former, ())

    def test_one_sided_removal(self) -> None:
        """Removed by one that could not tell it, and invited anew: two members, one let in anew (CL-91)."""
        self.say(self.world.enter(A, B))
        self.say(self.world.put_out(B, self.view(), A.node))
        self.say(self.world.enter(B, A.again(2)))
        self.assertEqual(self.members(), {"A", "B"})
        self.assertEqual(self.view().signs_as(A.leaf).epoch, 2)  # type: ignore[union-attr]

    def test_clash(self) -> None:
        """Two leaves under one UUID: neither is a member, both admitters are told, one removal ends it (CL-77)."""
        self.say(self.world.enter(A, B, C), self.world.enter(C, B_TWIN))
        self.assertEqual(self.members(), {"A", "C"})
        [clash] = self.view().clashes
        self.assertEqual(clash, Clash(B.node, tuple(sorted(clash.sides, key=lambda each: each.leaf))))
        self.assertEqual({each.leaf: each.admitted_by for each in clash.sides}, {B.leaf: A.node, B_TWIN.leaf: C.node})
        self.assertEqual(self.view().former, ())
        self.say(self.world.remove(A, B_TWIN))
        self.assertEqual(self.members(), {"A", "B", "C"})
        self.assertEqual(self.view().signs_as(B.leaf).node, B.node)  # type: ignore[union-attr]

    def test_lost_with_its_admitter(self) -> None:
        """Down a chain the cut that broke it is named; who never joined is former too."""
        self.say(self.world.enter(A, B), self.world.enter(B, C), self.world.admit(C, D), self.world.remove(A, B))
        self.assertEqual(
            self.former(), {"B": ("removed", "A"), "C": ("admitter_removed", "A"), "D": ("admitter_removed", "A")}
        )
        self.assertEqual([each.joined for each in self.view().former if each.node == D.node], [False])

    def test_self(self) -> None:
        """A node signs as the incarnation by which its own leaf is a member's, and as none otherwise (CL-78)."""
        self.say(self.world.enter(A, B, B.again(2)))
        self.assertEqual(self.view().signs_as(B.leaf).incarnation, B.again(2).id)  # type: ignore[union-attr]
        self.assertIsNone(self.view().signs_as(B_TWIN.leaf))
        self.say(self.world.leave(B.again(2)))
        self.assertIsNone(self.view().signs_as(B.leaf))

    def test_out(self) -> None:
        """A node is out when it ended, not when another one claims its UUID (CL-89)."""
        self.say(self.world.enter(A, B, C, B_TWIN))
        self.assertIsNone(self.view().signs_as(B.leaf))
        self.assertIsNone(self.view().former_as(B.leaf))
        self.say(self.world.remove(C, B))
        self.assertEqual(self.view().former_as(B.leaf).how, "removed")  # type: ignore[union-attr]

    def test_epoch(self) -> None:
        """The epoch is above all joined ones of the UUID; what was never joined does not drive it (CL-69)."""
        self.say(self.world.enter(A, C, B_TWIN.again(7)), self.world.admit(C, B.again(99)))
        self.assertEqual(self.view().epoch_for(B.node, 5), 8)
        self.assertEqual(self.view().epoch_for(B.node, 50), 50)
        self.assertEqual(self.view().epoch_for(D.node, 5), 5)

    def test_full(self) -> None:
        """With 64 members no more are invited (CL-81)."""
        others = [player(f"one of {number}") for number in range(MEMBERS_MAX - 1)]
        self.say(self.world.enter(A, *others[1:]))
        self.assertFalse(self.view().full)
        self.say(self.world.enter(A, others[0]))
        self.assertTrue(self.view().full)

    def test_admitted_by(self) -> None:
        """Whom a node let in, by any incarnation, and who is a member still (CL-87)."""
        self.say(self.world.enter(A, B), self.world.enter(B, C, D), self.world.enter(A, B.again(2)))
        self.say(self.world.enter(B.again(2), E), self.world.remove(A, C))
        self.assertEqual(set(self.view().admitted_by(B.node)), {D.node, E.node})


class KeepTests(SynchronousTestCase):
    """What honest cuts keep (CL-65)."""

    def setUp(self) -> None:
        self.world = World(A)

    def test_only_what_leads_to_members(self) -> None:
        """Kept are edges to members and to those that lead to one; the pending and the lost are not."""
        admit_c, join_c = self.world.enter(B, C)
        admit_d = self.world.admit(B, D)
        admit_e, join_e = self.world.enter(B, E)
        statements = [self.world.root, *self.world.enter(A, B), admit_c, join_c, admit_d, admit_e, join_e]
        statements += self.world.enter(E, F)
        statements += self.world.put_out(A, self.world.view(statements), E.node)
        view = self.world.view(statements)
        self.assertEqual(set(keep_list(view, B.leaf, {B.node})), {admit_c.id, admit_e.id})
        self.assertEqual(keep_list(view, D.leaf, {D.node}), ())

    def test_any_epoch(self) -> None:
        """Of an earlier incarnation too, which the cut of the later one reaches."""
        admit_c, join_c = self.world.enter(B, C)
        statements = [self.world.root, *self.world.enter(A, B), admit_c, join_c, *self.world.enter(A, B.again(2))]
        view = self.world.view(statements)
        cuts = removal(view, {B.node})
        self.assertEqual(
            {each.incarnation: each.keep for each in cuts}, {B.id: (admit_c.id,), B.again(2).id: (admit_c.id,)}
        )

    def test_unjoined_incarnations_are_ended_too(self) -> None:
        """A removal ends what was let in and never came, lest it come afterwards (CL-86)."""
        statements = [self.world.root, *self.world.enter(A, B), self.world.admit(A, B.again(2))]
        cuts = self.world.put_out(A, self.world.view(statements), B.node)
        self.assertEqual({each.subject for each in cuts}, {B.id, B.again(2).id})
        view = self.world.view([*statements, *cuts, self.world.join(B.again(2))])
        self.assertEqual(names(view), {"A"})
        self.assertEqual(removal(view, {B.node}), ())

    def test_by_way_of_an_earlier_incarnation(self) -> None:
        """An edge to a superseded incarnation is kept while that one's own admissions are needed."""
        admit_c, join_c = self.world.enter(B, C)
        admit_d, join_d = self.world.enter(C, D)
        statements = [self.world.root, *self.world.enter(A, B), admit_c, join_c, admit_d, join_d]
        statements += self.world.enter(A, C.again(2))
        after = self.world.view([*statements, *self.world.put_out(A, self.world.view(statements), B.node)])
        self.assertEqual(names(after), {"A", "C", "D"})

    def test_by_way_of_a_clash(self) -> None:
        """Nobody is lost because the way to it leads over a node whose UUID another one claims."""
        statements = [self.world.root, *self.world.enter(A, C), *self.world.enter(C, B), *self.world.enter(B, D)]
        statements += self.world.enter(A, B_TWIN)
        before = self.world.view(statements)
        self.assertEqual(names(before), {"A", "C", "D"})
        after = self.world.view([*statements, *self.world.put_out(A, before, C.node)])
        self.assertEqual(names(after), {"A", "D"})

    def test_with_admitted(self) -> None:
        """Removed together with those it let in, a node still loses nobody that they let in (CL-87)."""
        admit_c, join_c = self.world.enter(B, C)
        admit_d, join_d = self.world.enter(C, D)
        statements = [self.world.root, *self.world.enter(A, B), admit_c, join_c, admit_d, join_d]
        statements += self.world.enter(B, E)
        before = self.world.view(statements)
        gone = {B.node, *before.admitted_by(B.node)}
        cuts = self.world.put_out(A, before, *gone)
        self.assertEqual(
            {each.subject: each.keep for each in cuts}, {B.id: (admit_c.id,), C.id: (admit_d.id,), E.id: ()}
        )
        self.assertEqual(names(self.world.view([*statements, *cuts])), {"A", "D"})

    def test_leave(self) -> None:
        """A leave keeps what a removal of the same node would."""
        statements = [self.world.root, *self.world.enter(A, B), *self.world.enter(B, C)]
        view = self.world.view(statements)
        member = view.signs_as(B.leaf)
        assert member is not None
        self.assertEqual(removal(view, {B.node}), (Remove(B.id, departure(view, member).keep),))

    def test_more_than_fit(self) -> None:
        """A node that let others in hundreds of times is removed all the same, and nobody is lost."""
        statements = [self.world.root, *self.world.enter(A, B), self.world.join(C), self.world.join(D)]
        statements += [self.world.admit(B, who) for who in (C, D) for _ in range(KEEP_MAX)]
        before = self.world.view(statements)
        cuts = self.world.put_out(A, before, B.node)
        self.assertEqual([len(each.keep) for each in cuts], [2])
        self.assertEqual(names(self.world.view([*statements, *cuts])), {"A", "C", "D"})

    def test_more_than_there_is_room_for(self) -> None:
        """A member whose every path takes more than 256 edges of the node is lost with it, others are not."""
        middle: list[Player] = [player(f"step {number}") for number in range(KEEP_MAX + 1)]
        statements = [self.world.root, *self.world.enter(A, B, C), *self.world.enter(B, D)]
        for number, each in enumerate(middle):
            statements += self.world.enter(B.again(number + 1), each)
            statements += self.world.enter(each, B.again(number + 2))
        statements += self.world.enter(B.again(KEEP_MAX + 2), E)
        view = self.world.view(statements)
        gone = {B.node, *(each.node for each in middle)}
        self.assertEqual(names(view) & {"D", "E"}, {"D", "E"})
        keep = keep_list(view, B.leaf, gone)
        self.assertLessEqual(len(keep), KEEP_MAX)
        after = self.world.view([*statements, *self.world.put_out(A, view, *gone)])
        self.assertEqual(names(after), {"A", "C", "D"})
