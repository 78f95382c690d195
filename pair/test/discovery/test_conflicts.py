"""Replacement and clash."""

from __future__ import annotations

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from pair.discovery.conflicts import Clashes, Mismatches, Nomination, Party, Sighting, judge, nominate
from pair.records.nodes import NodeEntry

OLD = NodeEntry("old", "old", "spark", "online", "stranger", ips=("10.0.0.1", "10.0.0.2"))
NEW = NodeEntry("new", "new", "spark", "online", "stranger", ips=("10.0.0.9", "10.0.0.2"))
FOUND = Nomination("old", "new", "10.0.0.2")


class ReplacementTests(SynchronousTestCase):
    """A wiped machine comes back under a new UUID (DS-63 to DS-65)."""

    def test_nominated(self) -> None:
        """One name and one address, and the old one unproven for 300 s (DS-63)."""
        self.assertEqual(nominate(NEW, [Party(OLD, 0.0)], 300.0), (FOUND,))
        self.assertEqual(nominate(NEW, [Party(OLD, 0.1)], 300.0), ())

    def test_not_nominated(self) -> None:
        """Another name, no shared address, the same node, self, or one without a UUID."""
        for old in (
            replace(OLD, name="box"),
            replace(OLD, ips=("10.0.0.1",)),
            replace(OLD, uuid="new"),
            replace(OLD, me=True),
            replace(OLD, uuid=None),
        ):
            self.assertEqual(nominate(NEW, [Party(old, 0.0)], 999.0), ())
        self.assertEqual(nominate(replace(NEW, me=True), [Party(OLD, 0.0)], 999.0), ())

    def test_proof(self) -> None:
        """The old one goes if the shared address answers as the new one and the old one nowhere (DS-64)."""
        self.assertEqual(judge(FOUND, "new", answered=False, member=False), "drop")

    def test_without_proof(self) -> None:
        """A name and an address prove nothing: the victim of a liar stays (DS-64)."""
        for names in (None, "old", "third"):
            self.assertEqual(judge(FOUND, names, answered=False, member=False), "keep")

    def test_awake_again(self) -> None:
        """The old node answers meanwhile: both stay (DS-64)."""
        self.assertEqual(judge(FOUND, "new", answered=True, member=False), "keep")

    def test_member(self) -> None:
        """A member is never superseded, and shown as offline (DS-65)."""
        self.assertEqual(judge(FOUND, "new", answered=False, member=True), "offline")


class ClashTests(SynchronousTestCase):
    """Two machines with one UUID (DS-67, DS-68)."""

    def setUp(self) -> None:
        self.clashes = Clashes("me", "i0")

    def see(self, *seen: tuple[float, str, str]) -> list[bool]:
        return [self.clashes.see(Sighting("a", at, address, instance)) for at, address, instance in seen]

    def test_alternating(self) -> None:
        """Two processes at two addresses, one of which comes back after the other (DS-67)."""
        self.assertEqual(self.see((0, "x", "i1"), (2, "y", "i2"), (4, "x", "i1")), [False, False, True])
        self.assertEqual(self.clashes.standing(4), {"a"})

    def test_restart(self) -> None:
        """A process that restarts is seen before and after, at both its addresses, and not again (DS-67)."""
        seen = self.see((0, "x", "i1"), (1, "y", "i1"), (2, "x", "i2"), (3, "y", "i2"), (4, "x", "i2"))
        self.assertEqual(any(seen), False)
        self.assertEqual(self.clashes.standing(4), frozenset())

    def test_one_address(self) -> None:
        """At one address there is one machine."""
        self.assertFalse(any(self.see((0, "x", "i1"), (1, "x", "i2"), (2, "x", "i1"))))

    def test_slowly(self) -> None:
        """What lies more than 10 s apart is not put together."""
        self.assertFalse(any(self.see((0, "x", "i1"), (5, "y", "i2"), (10, "x", "i1"))))

    def test_leaves(self) -> None:
        """Two certificates for one UUID are two machines."""
        self.assertFalse(self.clashes.see(Sighting("a", 0, "x", leaf="1")))
        self.assertFalse(self.clashes.see(Sighting("a", 1, "x", "i1")))
        self.assertTrue(self.clashes.see(Sighting("a", 2, "x", leaf="2")))

    def test_cleared(self) -> None:
        """It stands for 10 minutes after it was last seen."""
        self.see((0, "x", "i1"), (1, "y", "i2"), (2, "x", "i1"), (3, "y", "i2"))
        self.assertEqual(self.clashes.standing(602), {"a"})
        self.assertEqual(self.clashes.standing(603), frozenset())

    def test_own(self) -> None:
        """Our UUID by another process at an address that is not ours is a clash; our own answer is none (DS-68)."""
        self.assertFalse(self.clashes.see(Sighting("me", 0, "10.0.0.1", "i9"), own_address=True))
        self.assertFalse(self.clashes.see(Sighting("me", 0, "10.0.0.2", "i0")))
        self.assertFalse(self.clashes.see(Sighting("me", 0, "10.0.0.2")))
        self.assertTrue(self.clashes.see(Sighting("me", 0, "10.0.0.2", "i9")))
        self.assertEqual(self.clashes.standing(1), {"me"})

    def test_many(self) -> None:
        """What is remembered is bounded, of one UUID and of all."""
        for number in range(2000):
            self.clashes.see(Sighting(str(number), 0, "x", "i"))
            self.clashes.see(Sighting("a", 0, str(number), "i"))
        self.assertFalse(self.clashes.see(Sighting("a", 1, "z", "j")))
        self.assertTrue(self.clashes.see(Sighting("a", 2, "x", "i")))


class MismatchTests(SynchronousTestCase):
    """Members that announce another cluster (DS-49)."""

    def test_minute(self) -> None:
        """After 60 s it is told of, until they agree."""
        mismatches = Mismatches()
        mismatches.hear("a", True, 0)
        mismatches.hear("a", True, 30)
        self.assertEqual(mismatches.standing(59.9), frozenset())
        self.assertEqual(mismatches.standing(60), {"a"})
        mismatches.hear("a", False, 61)
        self.assertEqual(mismatches.standing(99), frozenset())
