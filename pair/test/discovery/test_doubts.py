"""Nodes that may have been replaced, and machines that have one identity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pair.addresses import Place
from pair.discovery.conflicts import CLASH_KEPT_SECONDS
from pair.records.asking import Answer
from pair.records.nodes import NodeRemoved
from pair.test.discovery.directing import ME, A, B, C, DirectoryCase, at, info, record

if TYPE_CHECKING:
    from pair.discovery.claims import Claim

SHARED = "192.168.1.50"
THERE = Place(SHARED, 14318)


def spark(uuid: str) -> Claim:
    return record(uuid, SHARED, name="spark")


class ReplacementTests(DirectoryCase):
    """A wiped machine comes back with another UUID (DS-63 to DS-65, test 15)."""

    def be_old(self) -> None:
        """The node A is heard for longer than it may be without proof."""
        for _ in range(155):
            self.air.heard.emit(spark(A))
            self.go(2)
        self.asking.asked.clear()
        self.asking.there[THERE] = info(B)

    def test_proven(self) -> None:
        """With proof the old node's claim is dropped, and it is gone."""
        self.be_old()
        self.air.heard.emit(spark(B))
        self.assertIn((None, (THERE,)), self.asking.asked)
        self.assertEqual(self.others(), {B})
        self.assertEqual([each.entry.key for each in self.of(NodeRemoved)], [A])

    def test_not_proven(self) -> None:
        """Without an answer of the new one at the shared address nothing changes."""
        for answer in ("timeout", info(A), info(C)):
            self.be_old()
            self.asking.there[THERE] = answer
            self.air.heard.emit(spark(B))
            self.go(2)
            self.assertEqual(self.others(), {A, B})
            self.restart()

    def test_old_one_answers(self) -> None:
        """A machine whose name and address are claimed by another stays as long as it answers anywhere."""
        self.be_old()
        self.air.heard.emit(record(A, "192.168.1.51", SHARED, name="spark"))
        self.asking.there[Place("192.168.1.51", 14318)] = info(A)
        self.air.heard.emit(spark(B))
        self.assertEqual(self.others(), {A, B})
        self.assertEqual(self.presence(A), "online")

    def test_proven_lately(self) -> None:
        """One that has proven to be there within 300 s is not even asked about."""
        self.be_old()
        self.directory.told(A, info(A), authenticated=False)
        self.air.heard.emit(spark(B))
        self.assertEqual((self.others(), self.asking.asked), ({A, B}, []))

    def test_wakes_meanwhile(self) -> None:
        """The old one shows that it is there while it is looked for: it stays."""
        self.be_old()
        self.asking.held = []
        self.air.heard.emit(spark(B))
        self.asking.held[0].callback(Answer(info(B), THERE))
        self.clock.advance(0.5)
        self.directory.note(A, "inbound")
        self.clock.advance(0.5)
        self.asking.held[1].cancel()
        self.assertEqual(self.others(), {A, B})

    def test_member(self) -> None:
        """A member is never superseded: it stays, with a warning, until it proves to be there (DS-65)."""
        self.asking.there[THERE] = info(B)
        self.join(A)
        self.go(310)
        self.air.heard.emit(spark(A))
        self.roster[A] = spark(A)
        self.air.heard.emit(record(B, SHARED, name=self.entry(A).name))
        self.go(3)
        self.assertEqual(self.others(), {A, B})
        entry = self.entry(A)
        self.assertEqual((entry.presence, [each.code for each in entry.warnings]), ("offline", [f"replaced_by:{B}"]))
        self.directory.note(A, "inbound")
        self.assertEqual(self.entry(A).warnings, ())


class ClashTests(DirectoryCase):
    """Machines that have one identity (DS-67, DS-68, test 16)."""

    ONE = Place("192.168.1.60", 14318)
    TWO = Place("192.168.1.61", 14318)

    def alternate(self, times: int = 6) -> None:
        """Both announce themselves by turns."""
        for number in range(times):
            self.air.heard.emit(record(A, (self.ONE, self.TWO)[number % 2].host))
            self.go(1)

    def test_two_machines(self) -> None:
        """Two that answer by turns as one UUID are told of, until 10 min after they were last seen."""
        self.asking.there = {self.ONE: info(A, "one"), self.TWO: info(A, "two")}
        self.alternate()
        self.assertEqual(self.told(), [f"discovery:identity_clash:{A}"])
        self.assertEqual([each.code for each in self.entry(A).warnings], ["identity_clash"])
        self.assertEqual(self.directory.clashing, {A})
        del self.asking.there[self.TWO]
        for _ in range(round(CLASH_KEPT_SECONDS / 10) + 2):
            self.air.heard.emit(record(A, self.ONE.host))
            self.go(10)
        self.assertEqual((self.told(), self.entry(A).warnings, self.directory.clashing), ([], (), frozenset()))

    def test_gone(self) -> None:
        """Of strangers who are known no more nothing is told: whoever makes up new ones does not fill the book."""
        self.asking.there = {self.ONE: info(A, "one"), self.TWO: info(A, "two")}
        self.alternate()
        self.assertEqual(self.told(), [f"discovery:identity_clash:{A}"])
        self.asking.there = {}
        self.go(90)
        self.assertEqual((self.others(), self.told()), (set(), []))
        self.assertEqual(self.directory.clashing, {A})

    def test_moved(self) -> None:
        """One that moves to another address, with a restart or without, is one."""
        self.asking.there = {self.TWO: info(A, "two")}
        self.alternate(2)
        self.assertEqual(self.told(), [])

    def test_two_addresses(self) -> None:
        """One that announces two addresses by turns is one."""
        self.asking.there = {self.ONE: info(A, "one"), self.TWO: info(A, "one")}
        self.alternate()
        self.assertEqual(self.told(), [])

    def test_two_certificates(self) -> None:
        """Two certificates for one UUID are two machines, wherever they are."""
        self.hear(A)
        self.directory.told(A, info(A), authenticated=False, place=at(A), leaf="one")
        self.directory.told(A, info(A), authenticated=False, place=at(A), leaf="two")
        self.assertEqual(self.told(), [f"discovery:identity_clash:{A}"])

    def test_seldom(self) -> None:
        """However often two alternate, they are asked about every 10 s at most."""
        self.alternate(20)
        self.assertLessEqual(len(self.asking.asked), 6)

    def test_own(self) -> None:
        """A record with our UUID is looked into: if a node-info there has it too, there is another such machine."""
        self.air.heard.emit(record(ME, self.ONE.host))
        self.go(2)
        self.assertEqual((self.told(), self.others()), ([], set()))
        self.asking.there[self.ONE] = info(ME, "another nonce")
        self.go(10)
        self.air.heard.emit(record(ME, self.ONE.host))
        self.assertEqual(self.told(), ["discovery:own_identity_clash"])
        (entry,) = self.errors.entries()
        self.assertIn("pair-admin identity new", entry.message)
        self.go(CLASH_KEPT_SECONDS + 10)
        self.assertEqual(self.told(), [])

    def test_own_echo(self) -> None:
        """Our own record, from ourselves or from an address that leads here, is nothing."""
        self.asking.there[self.ONE] = info(ME, "our nonce")
        for host in ("192.168.1.2", self.ONE.host):
            self.air.heard.emit(record(ME, host))
        self.go(20)
        self.assertEqual((self.told(), self.asking.asked), ([], [(None, (self.ONE,))]))
