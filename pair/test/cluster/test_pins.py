"""Tests of :mod:`pair.cluster.pins` and of the proofs and evidence of :mod:`pair.cluster.proofs`."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.merging import merge
from pair.cluster.pins import STRANGER, Caller, PeerLeaf, PinTable
from pair.cluster.proofs import EVIDENCE_BYTES_MAX, archive, carried_size, evidence, proof
from pair.test.cluster.world import B_TWIN, CAST, A, B, C, D, E, F, World, check, play, player

if TYPE_CHECKING:
    import random

    from pair.cluster.membership import View
    from pair.cluster.proofs import Archive
    from pair.cluster.statements import Statement
    from pair.test.cluster.world import Player

SCRIPT = st.binary(min_size=40, max_size=200)


def table(view: View | None, own: Player = A, *archives: Archive) -> PinTable:
    return PinTable(view, own.node, own.leaf, archives)


def peer(who: Player) -> PeerLeaf:
    return PeerLeaf.of(who.leaf)


class PinTableTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = World(A)
        self.statements = [self.world.root, *self.world.enter(A, B, C), self.world.admit(A, D)]
        self.statements += [*self.world.enter(A, E), self.world.remove(A, E)]
        self.pins = table(self.world.view(self.statements))

    def test_callers(self) -> None:
        """Members, the admitted, former ones and strangers are told apart by their leaf (CL-16)."""
        self.assertEqual(self.pins.check(peer(B)), Caller("member", B.node, B.id))
        self.assertEqual(self.pins.check(peer(D)), Caller("admitted", D.node, D.id))
        self.assertEqual(self.pins.check(peer(E)), Caller("former", E.node, E.id))
        for who in (F, B_TWIN):
            self.assertEqual(self.pins.check(peer(who)), STRANGER)
        self.assertEqual(
            [each.pinned for each in map(self.pins.check, map(peer, (B, D, E, F)))], [True, True, False, False]
        )

    def test_whole_leaf(self) -> None:
        """The digest finds a pin, the DER must be equal to it; no leaf at all is a stranger's."""
        self.assertEqual(self.pins.check(PeerLeaf(B_TWIN.leaf, peer(B).digest)), STRANGER)
        self.assertEqual(self.pins.check(PeerLeaf(b"", bytes(32))), STRANGER)
        self.assertEqual(peer(B).digest, sha256(B.leaf).digest())

    def test_pin(self) -> None:
        """Members are dialled, and nobody else (CL-12)."""
        self.assertEqual(self.pins.pin(B.node), B.leaf)
        for who in (A, D, E, F):
            self.assertIsNone(self.pins.pin(who.node))

    def test_own_leaf(self) -> None:
        """This node's own leaf is no peer's, in a cluster or not (CL-20)."""
        for pins in (self.pins, table(None), table(self.world.view([*self.statements, self.world.leave(A)]))):
            self.assertEqual(pins.check(peer(A)), Caller("own", A.node))
            self.assertFalse(pins.check(peer(A)).pinned)

    def test_clash(self) -> None:
        """Neither side of a clash is pinned (CL-77)."""
        pins = table(self.world.view([*self.statements, *self.world.enter(C, B_TWIN)]))
        self.assertIsNone(pins.pin(B.node))
        for who in (B, B_TWIN):
            self.assertEqual(pins.check(peer(who)), STRANGER)

    def test_rejoined(self) -> None:
        """The latest of a leaf counts: admitted anew, then a member, whatever it was (CL-16)."""
        self.statements.append(self.world.admit(B, E.again(2)))
        self.assertEqual(table(self.world.view(self.statements)).check(peer(E)).relation, "admitted")
        self.statements.append(self.world.join(E.again(2)))
        self.assertEqual(
            table(self.world.view(self.statements)).check(peer(E)), Caller("member", E.node, E.again(2).id)
        )

    def test_no_cluster(self) -> None:
        """In no cluster everybody is a stranger, and nobody is dialled."""
        self.assertEqual(table(None).check(peer(B)), STRANGER)
        self.assertIsNone(table(None).pin(B.node))

    def test_evidence(self) -> None:
        """A former member is told its cut, a stranger nothing (CL-17)."""
        self.assertEqual([each.body.KIND for each in self.pins.evidence(peer(E))], [1, 2, 3, 4])
        for who in (A, B, D, F):
            self.assertEqual(self.pins.evidence(peer(who)), ())

    def test_archive(self) -> None:
        """The members of a cluster that this node left are told of it, from another cluster too (CL-88, CL-90)."""
        leave = self.world.go(A, self.world.view(self.statements))
        kept = archive(self.world.view([*self.statements, leave]), A.leaf)
        self.assertEqual(kept.cluster, self.world.cluster)
        self.assertEqual(kept.evidence, (self.world.root, leave))
        elsewhere = World(F)
        view = elsewhere.view([elsewhere.root, *elsewhere.enter(F, A)])
        for pins in (table(None, A, kept), table(view, A, kept)):
            self.assertEqual(pins.evidence(peer(B)), kept.evidence)
            self.assertEqual(pins.evidence(peer(E)), ())

    def test_archives(self) -> None:
        """Of several clusters that were shared, all are told of."""
        second = World(A, "second")
        kept = []
        for world in (self.world, second):
            statements = [world.root, *world.enter(A, B)]
            kept.append(archive(world.view([*statements, world.go(A, world.view(statements))]), A.leaf))
        self.assertEqual(table(None, A, *kept).evidence(peer(B)), kept[0].evidence + kept[1].evidence)

    def test_archive_without_an_end(self) -> None:
        """A cluster that was abandoned without a leave gives no evidence."""
        kept = archive(self.world.view(self.statements), A.leaf)
        self.assertEqual(kept.evidence, ())


class ProofTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = World(A)
        self.statements = [self.world.root, *self.world.enter(A, B), *self.world.enter(B, C), *self.world.enter(C, D)]

    def view(self) -> View:
        return self.world.view(self.statements)

    def test_proof(self) -> None:
        """A proof is the way from the root, joins included, and counts in an empty store (CL-39)."""
        told = proof(self.view(), C.id)
        self.assertEqual([each.body.KIND for each in told], [1, 2, 3, 2, 3])
        merged = merge((), told, self.world.cluster, check)
        self.assertEqual(merged.kept, told)
        self.assertIsNotNone(self.world.view(told).signs_as(C.leaf))

    def test_proof_is_live(self) -> None:
        """Of two ways the one is shown that holds, though it is longer."""
        self.statements += [self.world.admit(B, E), *self.world.enter(D, E)]
        self.statements.append(self.world.remove(A, B, self.statements[3]))
        view = self.view()
        self.assertIsNotNone(view.signs_as(E.leaf))
        self.assertEqual([each.subject for each in view.standing.path(E.id)], [A.id, B.id, C.id, D.id, E.id])

    def test_new_to_the_removed(self) -> None:
        """A node that was off is convinced though it knows nothing of whoever put it out, nor of its join."""
        before = list(self.statements)
        self.statements += self.world.enter(A, E)
        self.statements.append(self.world.remove(E, D))
        told = evidence(self.view(), D.id)
        merged = merge(before, told, self.world.cluster, check)
        self.assertIsNone(self.world.view(merged.kept).signs_as(D.leaf))

    def test_all_admitters(self) -> None:
        """Who was let in by two is told what became of both."""
        self.statements += [self.world.admit(A, E), *self.world.enter(B, E), *self.world.enter(A, F)]
        before = list(self.statements)
        self.statements += [self.world.remove(F, A, *before[:3], *(each for each in before if each.subject == F.id))]
        self.statements += [self.world.remove(F, B)]
        view = self.view()
        self.assertEqual({each.node: each.how for each in view.former}[E.node], "admitter_removed")
        merged = merge(before, evidence(view, E.id), self.world.cluster, check)
        self.assertIsNone(self.world.view(merged.kept).signs_as(E.leaf))

    def test_nothing_to_prove(self) -> None:
        """For who stands, and for who is not known, there is no evidence."""
        self.assertEqual(evidence(self.view(), B.id), ())
        self.assertEqual(evidence(self.view(), F.id), ())

    def test_too_long(self) -> None:
        """Evidence that does not fit is not told in part (CL-17)."""
        chain = [player(f"link {number}") for number in range(90)]
        statements: list[Statement] = [self.world.root]
        for by, who in zip((A, *chain), chain, strict=False):
            statements += self.world.enter(by, who)
        long = [*statements, self.world.remove(chain[-1], chain[-2])]
        self.assertEqual(evidence(self.world.view(long), chain[-2].id), ())
        short = [*statements, self.world.remove(chain[20], chain[-2])]
        told = evidence(self.world.view(short), chain[-2].id)
        self.assertLessEqual(carried_size(told), EVIDENCE_BYTES_MAX)

    @given(SCRIPT, st.randoms(use_true_random=False))
    def test_convinces(self, script: bytes, chance: random.Random) -> None:
        """Whoever knows part of a set, and adds the evidence, judges of a former incarnation as the whole set does."""
        world = World(A)
        said = [world.root]
        play(script, world, said)
        view = world.view(said)
        known = merge((), [world.root, *chance.sample(said, len(said) // 2)], world.cluster, check).kept
        for former in view.former:
            told = evidence(view, former.incarnation)
            self.assertTrue(told)
            merged = merge(known, told, world.cluster, check)
            self.assertFalse(world.view(merged.kept).standing.stands(former.incarnation))

    @given(SCRIPT)
    def test_table(self, script: bytes) -> None:
        """Each leaf has one relation, and it is that of the view (CL-16)."""
        world = World(A)
        said = [world.root]
        play(script, world, said)
        view = world.view(said)
        pins = table(view, F)
        members = {each.leaf for each in view.members}
        admitted = {each.leaf for each in view.admitted}
        known = {each.leaf for each in view.standing.proven.incarnations.values()}
        up = {each.leaf for each in view.standing.proven.incarnations.values() if view.standing.stands(each.id)}
        for who in CAST:
            expected = (
                "own"
                if who.leaf == F.leaf
                else "member"
                if who.leaf in members
                else "admitted"
                if who.leaf in admitted
                else "former"
                if who.leaf in known - up
                else "stranger"
            )
            self.assertEqual(pins.check(peer(who)).relation, expected)
