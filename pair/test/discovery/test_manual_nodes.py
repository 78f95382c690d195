"""Nodes that people, or the settings, give by their address."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from msgspec.structs import replace
from twisted.internet.defer import Deferred

from pair.addresses import Place
from pair.discovery.addresses import MANUAL_MAX, ManualError
from pair.discovery.claims import STRANGERS_MAX
from pair.discovery.manual import StaticNode
from pair.records.asking import Answer
from pair.records.nodes import ManualNode, NodeRekeyed
from pair.test.discovery.directing import ME, A, B, DirectoryCase, at, info, record

if TYPE_CHECKING:
    from pair.records.nodes import NodeEntry

THERE = Place("10.0.0.9", 14318)


class ManualCase(DirectoryCase):
    """A directory to which nodes are added by hand."""

    def add(self, text: str = "10.0.0.9") -> ManualNode:
        node, _ = self.successResultOf(self.directory.manual.add(text))
        return node

    def reason(self, text: str) -> str:
        error: ManualError = self.failureResultOf(self.directory.manual.add(text), ManualError).value
        return error.reason

    def only(self) -> ManualNode:
        (node,) = self.directory.manual.all()
        return node

    def be_there(self, node: str = A) -> None:
        self.asking.there[THERE] = info(node)

    @property
    def probes(self) -> int:
        return sum(places == (THERE,) for _, places in self.asking.asked)


class AddTests(ManualCase):
    """What people may add (DS-70 to DS-72)."""

    def test_forms(self) -> None:
        """Each form of the grammar is a place, with the port of node-info where it names none."""
        forms = {
            " Spark ": ("spark", 14318),
            "spark.local:80": ("spark.local", 80),
            "10.0.0.9": ("10.0.0.9", 14318),
            "10.0.0.9:9": ("10.0.0.9", 9),
            "fd00::9": ("fd00::9", 14318),
            "[fd00::8]": ("fd00::8", 14318),
            "[fd00::8]:9": ("fd00::8", 9),
            "fe80::9%eth0": ("fe80::9%eth0", 14318),
            "[fe80::9%eth0]:9": ("fe80::9%eth0", 9),
        }
        for text, place in forms.items():
            node = self.add(text)
            self.assertEqual((node.address, node.port), place)
        self.assertEqual(len(self.directory.manual.all()), len(forms))

    def test_refused(self) -> None:
        """What is no address, or ours, is refused, and why (DS-71)."""
        self.directory.register_port("ni", 14318)
        refused = {
            "": "bad_address",
            "http://spark": "bad_address",
            "spark/x": "bad_address",
            "me@spark": "bad_address",
            "spark:0": "bad_port",
            "spark:65536": "bad_port",
            "localhost": "is_self",
            "127.0.0.1": "is_self",
            "192.168.1.2": "is_self",
        }
        self.assertEqual({text: self.reason(text) for text in refused}, refused)
        self.assertEqual(self.add("192.168.1.2:9").port, 9)

    def test_too_many(self) -> None:
        """Of manual nodes there is a number, those of the settings not counted; one may be named again."""
        for number in range(MANUAL_MAX):
            self.add(f"10.1.0.{number}")
        self.assertEqual(self.reason("10.1.1.1"), "too_many")
        self.assertFalse(self.successResultOf(self.directory.manual.add("10.1.0.3"))[1])

    def test_again(self) -> None:
        """An address that is there already is an update, though two people give it at once."""
        first = self.directory.manual.add("10.0.0.9")
        second = self.directory.manual.add(" 10.0.0.9:14318 ")
        (node, created), (same, anew) = self.successResultOf(first), self.successResultOf(second)
        self.assertEqual((node.id, created, anew), (same.id, True, False))

    def test_stored_first(self) -> None:
        """What cannot be written is not added, and not removed (DS-72)."""
        self.store.full = True
        self.failureResultOf(self.directory.manual.add("10.0.0.9"), sqlite3.OperationalError)
        self.assertEqual((self.directory.manual.all(), self.others()), ((), set()))
        self.store.full = False
        node = self.add()
        self.store.full = True
        self.failureResultOf(self.directory.manual.remove(node.id), sqlite3.OperationalError)
        self.assertEqual(self.only().id, node.id)

    def test_restart(self) -> None:
        """It is there after a restart, with whom it was found to be."""
        self.be_there()
        added = self.add()
        self.asking.there.clear()
        self.restart()
        node = self.only()
        self.assertEqual((node.id, node.uuid, node.added_at, node.last_ok_at), (added.id, A, self.now(), self.now()))
        self.assertEqual((node.result, self.entry(A).claims, self.presence(A)), ("never", ("manual",), "offline"))

    def test_remove(self) -> None:
        """What is removed is gone, from the disk too; what is not there is not removed."""
        node = self.add()
        self.assertEqual(self.others(), {"manual:10.0.0.9:14318"})
        self.assertTrue(self.successResultOf(self.directory.manual.remove(node.id)))
        self.assertFalse(self.successResultOf(self.directory.manual.remove(node.id)))
        self.assertEqual(self.others(), set())
        self.restart()
        self.assertEqual(self.directory.manual.all(), ())

    def test_remove_during_probe(self) -> None:
        """A node that is removed while it is probed does not come back."""
        self.asking.held = []
        node = self.add()
        probe = self.directory.probe("manual:10.0.0.9:14318")
        self.assertTrue(self.successResultOf(self.directory.manual.remove(node.id)))
        self.failureResultOf(probe, KeyError)
        (held,) = self.asking.held
        self.assertTrue(held.called)
        self.asking.held = None
        self.go(30)
        self.assertEqual((self.others(), self.told()), (set(), []))

    def test_caller_gone(self) -> None:
        """Whoever does not wait for the end has added it all the same."""
        slow: Deferred[None] = Deferred()
        self.directory.manual._lock.run(lambda: slow)
        adding = self.directory.manual.add("10.0.0.9")
        adding.cancel()
        self.failureResultOf(adding)
        slow.callback(None)
        self.assertEqual(self.only().address, "10.0.0.9")


class ProbeTests(ManualCase):
    """Who answers there (DS-73 to DS-76)."""

    def test_found(self) -> None:
        """The first answer says who it is: the claim moves to its UUID, and gives no trust (DS-74, DS-76)."""
        self.asking.held = []
        self.add()
        key = "manual:10.0.0.9:14318"
        self.assertEqual((self.presence(key), self.entry(key).name), ("offline", "10.0.0.9:14318"))
        self.asking.held[0].callback(Answer(info(A), THERE))
        self.assertEqual(
            [(each.old_key, each.new_key) for each in self.events if isinstance(each, NodeRekeyed)], [(key, A)]
        )
        entry = self.entry(A)
        self.assertEqual((entry.presence, entry.claims, entry.relation), ("online", ("manual",), "stranger"))
        self.assertEqual((entry.trusted, entry.member, entry.name), (False, False, "host-a"))
        node = self.only()
        self.assertEqual((node.uuid, node.result, node.last_ok_at), (A, "ok", self.now()))

    def test_merged(self) -> None:
        """What multicast tells of the same node is one entry with it, whichever came first (DS-74)."""
        self.hear(A)
        self.be_there()
        self.add()
        entry = self.entry(A)
        self.assertEqual((self.others(), entry.claims), ({A}, ("mdns", "manual")))
        self.assertEqual(entry.ips, ("10.0.0.9", "192.168.1.10"))
        self.air.left.emit(record(A).id)
        self.go(60)
        self.assertEqual(self.presence(A), "online")

    def test_every_ten_seconds(self) -> None:
        """It is probed at once, and then every 10 s (DS-73)."""
        self.be_there()
        self.add()
        self.assertEqual(self.probes, 1)
        self.go(61)
        self.assertEqual(self.probes, 7)

    def test_offline(self) -> None:
        """While it is offline it is probed with waits up to 30 s, and told of after three failures (DS-62, DS-75)."""
        node = self.add()
        self.go(1)
        self.assertEqual((self.probes, self.told(), self.only().result), (1, [], "timeout"))
        self.go(10)
        id = f"discovery:manual_unreachable:{node.id}"
        self.assertEqual((self.probes, self.told()), (3, [id]))
        self.go(300)
        self.assertEqual(self.probes, 13)
        (entry,) = self.errors.entries()
        self.assertEqual((entry.count, "(timeout)" in entry.message), (1, True))
        self.be_there()
        self.go(31)
        self.assertEqual((self.presence(A), self.told()), ("online", []))

    def test_results(self) -> None:
        """Why nobody answers is shown as it is."""
        self.add()
        for word in ("refused", "unreachable", "unresolvable", "not_pair"):
            self.asking.there[THERE] = word
            self.go(31)
            self.assertEqual(self.only().result, word)

    def test_silent(self) -> None:
        """Once found it stays when it falls silent, as offline; and its UUID with it (DS-57, DS-74)."""
        self.be_there()
        self.add()
        self.asking.there.clear()
        self.go(60)
        self.assertEqual((self.presence(A), self.only().uuid), ("offline", A))
        self.asking.open.add(Place(THERE.host, 14322))
        self.go(60)
        self.assertEqual((self.presence(A), self.asking.knocked), ("offline", []))

    def test_another_answers(self) -> None:
        """Another node at the address takes the claim over; a person is told until it is confirmed (DS-74)."""
        self.be_there()
        node = self.add()
        self.be_there(B)
        self.go(11)
        id = f"discovery:manual_identity_changed:{node.id}"
        self.assertEqual((self.others(), self.told(), self.only().uuid), ({B}, [id], B))
        self.restart()
        self.go(1)
        self.assertEqual((self.others(), self.told()), ({B}, [id]))
        self.add()
        self.assertEqual(self.told(), [])
        self.restart()
        self.go(1)
        self.assertEqual((self.others(), self.told()), ({B}, []))

    def test_old_one_back(self) -> None:
        """If the old one answers there again, all is as it was."""
        self.be_there()
        self.add()
        self.be_there(B)
        self.go(11)
        self.be_there(A)
        self.go(11)
        self.assertEqual((self.others(), self.told()), ({A}, []))

    def test_removed_after_change(self) -> None:
        """Removing the node ends what is told of it."""
        self.be_there()
        node = self.add()
        self.be_there(B)
        self.go(11)
        self.successResultOf(self.directory.manual.remove(node.id))
        self.assertEqual((self.others(), self.told()), (set(), []))

    def test_member(self) -> None:
        """A member is asked for its proof; an impostor in the clear is nothing (DS-73)."""
        self.be_there()
        self.add()
        self.join(A)
        self.asking.proves[THERE] = A
        self.asking.asked.clear()
        self.go(11)
        self.assertIn((A, (THERE,)), self.asking.asked)
        self.assertNotIn((None, (THERE,)), self.asking.asked)
        self.assertEqual((self.only().result, self.presence(A)), ("ok", "online"))
        self.asking.proves.clear()
        self.go(21)
        self.assertEqual((self.only().result, self.only().uuid), ("not_pair", A))
        self.go(60)
        self.assertEqual(self.presence(A), "offline")

    def test_name_moves(self) -> None:
        """A name is asked anew each time, wherever it leads by then (DS-39)."""
        spark = Place("spark.local", 14318)
        self.asking.there[spark] = info(A)
        self.add("spark.local")
        self.directory.confirm(A, "ni", at(A))
        self.go(10)
        self.assertEqual(self.asking.asked[-1], (None, (spark,)))

    def test_own_name(self) -> None:
        """A name that leads to this very node is one more claim on it."""
        self.asking.there[Place("mine.local", 14318)] = info(ME, "our nonce")
        self.add("mine.local")
        self.go(60)
        entry: NodeEntry = self.entry(ME)
        self.assertEqual((entry.claims, entry.presence, entry.me), (("self", "manual"), "online", True))
        self.assertEqual((self.others(), self.told()), (set(), []))

    def test_double(self) -> None:
        """Another machine with our identity is that, and no node to be had (DS-68)."""
        self.asking.there[THERE] = info(ME, "another nonce")
        self.add()
        self.assertEqual((self.only().result, self.only().uuid), ("not_pair", None))
        self.assertEqual(self.told(), ["discovery:own_identity_clash"])

    def test_crowd(self) -> None:
        """Waiting in line behind many checks does not keep a node by hand from being probed at once."""
        for number in range(STRANGERS_MAX):
            self.hear(f"3f0c8a52-1d7e-4b6f-9a52-{number:012x}")
        self.go(60)
        self.be_there()
        self.add()
        self.assertEqual(self.presence(A), "online")


class StaticTests(ManualCase):
    """Those of the settings (DS-71)."""

    def setUp(self) -> None:
        super().setUp()
        discovery = replace(self.settings.discovery, static_peers=("10.0.0.9", "10.0.0.10:9"))
        self.static = replace(self.settings, discovery=discovery)

    def test_there(self) -> None:
        """They are manual nodes that only the file removes, and that are not stored."""
        self.be_there()
        self.restart(self.static)
        first, second = sorted(self.directory.manual.all(), key=lambda each: each.port, reverse=True)
        self.assertEqual((first.uuid, first.static, second.address), (A, True, "10.0.0.10"))
        self.failureResultOf(self.directory.manual.remove(first.id), StaticNode)
        ids = {each.id for each in self.directory.manual.all()}
        self.restart(self.static)
        self.assertEqual({each.id for each in self.directory.manual.all()}, ids)
        self.restart()
        self.assertEqual(self.directory.manual.all(), ())

    def test_typed_too(self) -> None:
        """One that a person adds as well is one node, and is the file's as long as it is there."""
        self.add()
        self.restart(self.static)
        self.assertEqual({each.static for each in self.directory.manual.all()}, {True})
        self.assertFalse(self.successResultOf(self.directory.manual.add("10.0.0.9"))[1])
        self.restart()
        self.assertFalse(self.only().static)

    def test_confirmed(self) -> None:
        """Another node there is confirmed like any other."""
        self.be_there()
        self.restart(self.static)
        self.be_there(B)
        self.go(11)
        changed = [each for each in self.told() if "identity_changed" in each]
        self.assertEqual(len(changed), 1)
        self.add()
        self.assertNotIn(changed[0], self.told())
