"""The directory: which nodes there are, and which of them are there."""

from __future__ import annotations

from msgspec.structs import replace
from twisted.logger import capturedLogs

from pair.addresses import Interface, InterfaceAddress, Place
from pair.discovery.claims import STRANGERS_MAX, Claim, Standing
from pair.discovery.txt import TTL_SECONDS, Record, instance_name
from pair.records.nodes import NodeAdded, NodeChanged, NodeRemoved, PresenceChanged
from pair.records.telemetry import Cpu, Memory
from pair.test.discovery.directing import (
    CLUSTER,
    EPOCH_MS,
    LAN,
    LOOPBACK,
    ME,
    A,
    B,
    C,
    DirectoryCase,
    address,
    at,
    info,
    record,
    renamed,
)


class OwnTests(DirectoryCase):
    """What this node tells of itself."""

    def test_self(self) -> None:
        """This node is in the directory, first of all and always online (DS-43)."""
        self.hear(A)
        mine, other = self.directory.entries()
        self.assertEqual((mine.key, mine.me, mine.presence, mine.relation), (ME, True, "online", "self"))
        self.assertEqual((mine.name, mine.ips, other.key), ("mine", ("192.168.1.2",), A))

    def test_ports(self) -> None:
        """The first ports are told at once; others that come and go within 200 ms are one update (DS-7)."""
        before = len(self.air.published)
        for key, port in (("ni", 14318), ("cl", 14321)):
            self.directory.register_port(key, port)
        self.clock.advance(0)
        first = {"ni": 14318, "cl": 14321}
        self.directory.register_port("ol", 11434)
        self.directory.unregister_port("ol")
        self.directory.register_port("lm", 1234)
        self.go(0.1)
        self.assertEqual(self.air.published[before:], [Record(ME, None, ("192.168.1.2",), first)])
        self.go(0.2)
        services = {**first, "lm": 1234}
        self.assertEqual(self.air.published[before + 1 :], [Record(ME, None, ("192.168.1.2",), services)])
        self.assertEqual((self.directory.own_record().services, self.entry(ME).services), (services, services))

    def test_cluster(self) -> None:
        """D02: the cluster's id is told within 2 s of joining and leaving, and right after a restart (DS-9)."""
        self.join(A)
        self.go(0.5)
        self.assertEqual(self.air.published[-1].cluster, CLUSTER)
        self.air.published.clear()
        self.restart()
        self.go(0.5)
        self.assertEqual({each.cluster for each in self.air.published}, {CLUSTER})
        self.standing, self.roster = Standing(ME), {}
        self.directory.trust_changed()
        self.go(0.5)
        self.assertIsNone(self.air.published[-1].cluster)
        self.assertEqual(self.others(), set())

    def test_cluster_untold(self) -> None:
        """D02: within a minute it is what this node knows of itself, though nobody has told of the change."""
        self.standing = Standing(ME, CLUSTER, frozenset((ME, A)))
        self.go(60)
        self.assertEqual(self.air.published[-1].cluster, CLUSTER)
        self.standing = Standing(ME)
        self.go(60)
        self.assertIsNone(self.air.published[-1].cluster)

    def test_advertise(self) -> None:
        """What ``node.advertise`` says is told as given, ports in place of our own (DS-32)."""
        settings = replace(self.settings, node=replace(self.settings.node, advertise=("203.0.113.7", "ni=24318")))
        self.restart(settings)
        self.directory.register_port("ni", 14318)
        self.go(0.3)
        own = self.directory.own_record()
        self.assertEqual((own.addresses, own.services), (("203.0.113.7", "192.168.1.2"), {"ni": 24318}))


class SurroundingsTests(DirectoryCase):
    """Interfaces come and go, and the machine sleeps (test 5)."""

    def test_interfaces(self) -> None:
        """A change is acted on once it has come to rest, within 5 s (DS-26)."""
        self.go(3)
        other = Interface("eth1", (InterfaceAddress("10.0.0.2", 24),))
        for links in ([LOOPBACK], [LOOPBACK, LAN, other]):
            self.links = links
            before = self.air.moves
            self.go(5)
            self.assertEqual(self.air.moves, before + 1)
            ips = tuple(each.addresses[0].ip for each in links[1:])
            self.assertEqual(self.air.published[-1].addresses, ips)
            self.assertEqual(self.entry(ME).ips, ips or ("127.0.0.1",))

    def test_ranking(self) -> None:
        """An unchanged ranking announces nothing (DS-34)."""
        self.go(1)
        before = list(self.air.published)
        self.go(40)
        self.assertEqual((self.air.published, self.air.moves), (before, 0))

    def test_wake(self) -> None:
        """A wake sees to the sockets, tells all who are to try again, and ends all waits (DS-27, DS-62)."""
        self.join(A)
        self.go(60)
        self.assertEqual(self.presence(A), "offline")
        woken: list[None] = []
        self.directory.woken.subscribe(woken.append)
        self.answer(A)
        self.slept = 3600.0
        self.go(2)
        self.assertEqual((self.air.moves, len(woken), self.presence(A)), (1, 1, "online"))


class MulticastTests(DirectoryCase):
    """Nodes that multicast alone tells of."""

    def test_heard(self) -> None:
        """Whoever is heard is there at once, as a stranger, with what its record says."""
        self.air.heard.emit(record(A, "192.168.1.10", "10.9.9.9", ni=14318, cl=14321))
        entry = self.entry(A)
        self.assertEqual((entry.presence, entry.relation, entry.claims), ("online", "stranger", ("mdns",)))
        self.assertEqual((entry.ips, entry.services), (("192.168.1.10", "10.9.9.9"), {"ni": 14318, "cl": 14321}))
        self.assertEqual(self.directory.places(A, "cl"), (Place("192.168.1.10", 14321), Place("10.9.9.9", 14321)))
        self.assertEqual(self.of(NodeAdded)[-1].entry, entry)

    def test_revisions(self) -> None:
        """Events have consecutive revisions, whatever listeners do meanwhile (DS-3)."""
        self.directory.events.subscribe(lambda event: self.directory.warn(A, "odd", "It is odd."))
        self.hear(A, B)
        self.assertEqual(
            [each.revision for each in self.events], list(range(1, self.directory.revision + 1)), self.events
        )

    def test_one_name(self) -> None:
        """D14: two hosts of one name and one instance name are two nodes (DS-6, DS-24)."""
        twin = A[:-1] + "f"
        for uuid in (A, twin):
            self.air.heard.emit(record(uuid, f"192.168.1.{ord(uuid[-1])}", name="spark"))
        self.assertEqual(instance_name("spark", A), instance_name("spark", twin))
        self.assertEqual(self.others(), {A, twin})
        self.assertEqual({self.entry(each).name for each in (A, twin)}, {"spark"})

    def test_reflector(self) -> None:
        """D19: who is heard only in answer to questions is asked for long before its record ends, and stays."""
        gap = 0.0
        for _ in range(10 * 60 * 5):
            asks = self.air.asks
            self.clock.advance(0.1)
            gap = gap + 0.1 if asks == self.air.asks else 0.0
            self.assertLess(gap, 0.8 * TTL_SECONDS)
            if asks != self.air.asks:
                self.air.heard.emit(record(A, "10.9.9.9"))
        self.assertEqual((self.others(), self.presence(A), self.entry(A).ips), ({A}, "online", ("10.9.9.9",)))
        self.assertEqual((len(self.of(NodeRemoved)), self.asking.asked), (0, []))

    def test_misses(self) -> None:
        """Two misses are nothing (DS-55); after the third each kind of answer keeps it; two silent rounds end it."""
        self.hear(A)
        self.go(11, B)
        self.assertEqual((self.presence(A), self.asking.asked), ("online", []))
        self.answer(A)
        self.go(10, B)
        self.assertEqual(self.presence(A), "online")
        self.assertEqual(self.asking.asked[0], (A, (at(A),)))
        self.silence(A)
        self.asking.open.add(at(A, 14322))
        self.go(30, B)
        self.assertIn(at(A, 14322), self.asking.knocked)
        self.assertIn(self.presence(A), ("online", "suspect"))
        self.asking.open.clear()
        self.go(30, B)
        self.assertEqual(self.others(), {B})
        self.assertEqual(self.of(NodeRemoved)[-1].entry.key, A)

    def test_somebody_else(self) -> None:
        """A connection does not count where node-info names another host (DS-56)."""
        self.hear(A)
        self.asking.there[at(A)] = info(C)
        self.asking.open.add(at(A, 14322))
        self.go(30, B)
        self.assertEqual((self.others(), self.asking.knocked), ({B}, []))

    def test_no_inference_ports(self) -> None:
        """Nobody is ever asked at the port of a facade or an engine (DS-58, test 9)."""
        self.air.heard.emit(record(A, ol=11434, lm=1234))
        self.join(B)
        self.go(40)
        asked = {place.port for _, places in self.asking.asked for place in places}
        knocked = {place.port for place in self.asking.knocked}
        self.assertEqual((asked, knocked), ({14318}, {14322}))

    def test_lost_everyone(self) -> None:
        """Who hears nobody at all for 30 s is rather deaf itself: the seventh empty scan charges (DS-59)."""
        nodes = [A, B, C, A[:-1] + "d"]
        self.go(12, *nodes)
        self.go(36)
        self.assertEqual({self.presence(each) for each in nodes}, {"online"})
        self.assertEqual(self.asking.asked, [])
        self.go(30)
        self.assertEqual(self.others(), set())

    def test_forged_goodbye(self) -> None:
        """A goodbye that somebody else sent is found out (DS-61)."""
        self.hear(A)
        self.answer(A)
        self.air.left.emit(record(A).id)
        self.go(5, B)
        self.assertEqual(self.presence(A), "online")

    def test_goodbye(self) -> None:
        """Whoever says goodbye and is silent is gone within 5 s (DS-61)."""
        self.hear(A)
        self.air.left.emit(record(A).id)
        self.assertEqual(self.presence(A), "suspect")
        self.go(5, B)
        self.assertIsNone(self.presence(A))

    def test_too_many(self) -> None:
        """Of strangers a number are kept; members and nodes by hand are never displaced (DS-15)."""
        for number in range(STRANGERS_MAX + 3):
            self.hear(f"3f0c8a52-1d7e-4b6f-9a52-{number:012x}")
        self.assertEqual((len(self.others()), self.told()), (STRANGERS_MAX, ["discovery:too_many_nodes"]))
        self.join(A)
        self.successResultOf(self.directory.manual.add("192.168.1.77"))
        self.assertEqual(len(self.others()), STRANGERS_MAX + 2)
        self.go(180)
        self.assertEqual((len(self.others()), self.told()), (2, ["discovery:manual_unreachable:" + self.row()]))

    def row(self) -> str:
        return self.directory.manual.all()[0].id

    def test_blocked(self) -> None:
        """Nodes nearby that answer for a minute, and no multicast: something blocks it (DS-29)."""
        self.join(A)
        self.answer(A)
        for _ in range(13):
            self.go(5)
            self.directory.told(A, info(A), authenticated=True, place=at(A))
        self.go(5)
        self.assertEqual(self.told(), ["discovery:multicast_blocked"])
        self.air.last_foreign = self.clock.seconds()
        self.go(5)
        self.assertEqual(self.told(), [])

    def test_blocked_by_feeds(self) -> None:
        """Lines of a feed are answers too: a member with a live one is not polled (DS-29, DS-92)."""
        self.join(A)
        self.directory.confirm(A, "wl", at(A))
        for _ in range(13):
            self.go(5)
            self.directory.note(A, "feed")
        self.go(5)
        self.assertEqual(self.told(), ["discovery:multicast_blocked"])

    def test_not_blocked(self) -> None:
        """Nodes behind a router, and nodes that fell silent, say nothing of multicast."""
        self.join(A)
        self.directory.told(A, info(A), authenticated=True, place=at(A))
        for _ in range(20):
            self.go(5)
            self.directory.told(A, info(A), authenticated=True, place=Place("10.77.0.1", 14318))
        self.assertEqual(self.told(), [])


class MemberTests(DirectoryCase):
    """Members are in the directory because they are members (DS-41)."""

    def test_without_multicast(self) -> None:
        """A member that is never heard is online within 10 s, after a restart too, where it answered (test 13)."""
        elsewhere = Place("10.50.0.9", 24318)
        self.answer(A)
        self.join(A)
        self.go(1)
        self.assertEqual((self.presence(A), self.entry(A).relation, self.entry(A).trusted), ("online", "member", True))
        self.directory.confirm(A, "ni", elsewhere)
        self.silence(A)
        self.asking.there[elsewhere], self.asking.proves[elsewhere] = info(A, cluster=CLUSTER), A
        self.restart()
        self.assertEqual(self.directory.places(A, "ni")[0], elsewhere)
        self.go(10)
        self.assertEqual((self.presence(A), self.entry(A).confirmed), ("online", {"ni": "10.50.0.9:24318"}))

    def test_blocked_port(self) -> None:
        """F08: a member is offline while its port is blocked, and back within one wait of 30 s (DS-62, test 13)."""
        self.answer(A)
        self.join(A)
        self.go(1)
        self.silence(A)
        self.go(60)
        self.assertEqual(self.presence(A), "offline")
        self.assertNotIn(NodeRemoved, {type(each) for each in self.events})
        self.answer(A)
        self.go(30)
        self.assertEqual(self.presence(A), "online")
        turns = [(each.old, each.new) for each in self.of(PresenceChanged)]
        self.assertEqual(
            turns,
            [("offline", "online"), ("online", "suspect"), ("suspect", "offline"), ("offline", "online")],
        )

    def test_sighting(self) -> None:
        """A record of a member that is offline has it checked at once; alone it proves nothing (DS-62)."""
        self.join(A)
        self.go(100)
        asked = len(self.asking.asked)
        self.hear(A)
        self.assertEqual((self.presence(A), len(self.asking.asked)), ("offline", asked + 1))
        self.answer(A)
        self.go(4)
        self.assertEqual(self.presence(A), "online")

    def test_attacker(self) -> None:
        """Who announces a member's UUID cannot prove it: the member stays trusted, and is reached (test 14)."""
        self.answer(A)
        self.join(A)
        self.go(1)
        evil = Place("192.168.1.66", 14318)
        self.asking.there[evil] = info(A, "other nonce", cluster=None)
        for _ in range(10):
            self.air.heard.emit(record(A, evil.host))
            self.go(5)
        self.assertIn(evil, self.directory.places(A, "ni"))
        self.assertEqual(self.directory.places(A, "ni")[0], at(A))
        entry = self.entry(A)
        self.assertEqual((entry.trusted, entry.presence, entry.cluster_uuid), (True, "online", CLUSTER))

    def test_unproven(self) -> None:
        """What a member says in the clear is no sign of life, and says nothing of its machine (DS-45)."""
        self.join(A)
        self.go(1)
        self.directory.told(A, replace(info(A), cpu=Cpu("x")), authenticated=False, place=at(A))
        entry = self.entry(A)
        self.assertEqual((entry.presence, entry.hardware, entry.confirmed), ("offline", None, {}))

    def test_inference(self) -> None:
        """Bytes of an answer 40 s ago keep a member, whatever else fails (DS-56, test 10)."""
        self.join(A)
        self.directory.note(A, "inference")
        self.go(55)
        self.assertEqual(self.presence(A), "online")

    def test_feed_closed(self) -> None:
        """The end of the last feed puts a member in doubt (section 9)."""
        self.join(A)
        self.directory.note(A, "feed")
        self.directory.doubt(A)
        self.assertEqual(self.presence(A), "suspect")

    def test_removed(self) -> None:
        """Who is a member no more is what multicast tells of it, or gone; its addresses are forgotten."""
        self.answer(A, B)
        self.hear(A)
        self.join(A, B)
        self.directory.told(A, info(A, cluster=CLUSTER), authenticated=True, place=at(A))
        self.assertEqual(self.store.read(rows), [(A, address(A)), (B, address(B))])
        self.roster, self.standing = {}, Standing(ME)
        self.directory.trust_changed()
        self.assertEqual(self.others(), {A})
        self.assertEqual((self.entry(A).relation, self.entry(A).trusted), ("stranger", False))
        self.assertEqual(self.store.read(rows), [])

    def test_other_cluster(self) -> None:
        """A member whose record names another cluster for a minute is told of, until they agree (DS-49)."""
        self.answer(A)
        self.join(A)
        other = record(A, cluster=C)
        for _ in range(11):
            self.air.heard.emit(other)
            self.go(5)
        self.assertEqual(self.told(), [])
        self.go(10)
        self.assertEqual(self.told(), [f"discovery:cluster_mismatch:{A}"])
        self.assertEqual([each.code for each in self.entry(A).warnings], ["cluster_mismatch"])
        self.air.heard.emit(record(A, cluster=CLUSTER))
        self.go(5)
        self.assertEqual((self.told(), self.entry(A).warnings), ([], ()))

    def test_stored_seldom(self) -> None:
        """That an address still answers is written once in a while, and of it no zone is (DS-39)."""
        self.answer(A)
        self.join(A)
        self.go(1)
        writes = self.store.writes
        for _ in range(10):
            self.directory.confirm(A, "ni", at(A))
            self.directory.confirm(A, "em", Place("fe80::1%eth0", 14322))
        self.assertEqual(self.store.writes, writes)
        self.assertEqual(self.directory.places(A, "em")[0], Place("fe80::1%eth0", 14322))
        self.clock.advance(7200)
        self.directory.confirm(A, "ni", at(A))
        self.assertEqual(self.store.writes, writes + 1)

    def test_doubted_place(self) -> None:
        """An address that fails is confirmed no more, and tried all the same (DS-38)."""
        self.join(A)
        there = Place("10.0.0.9", 14319)
        self.directory.confirm(A, "er", there)
        self.assertEqual(self.directory.places(A, "er")[0], there)
        self.directory.doubt_place(A, "er")
        self.assertEqual(self.directory.places(A, "er"), (at(A, 14319), there))
        self.assertEqual(self.entry(A).confirmed, {})

    def test_full_disk(self) -> None:
        """A disk that takes nothing costs the memory of addresses, and nothing else."""
        self.store.full = True
        self.answer(A)
        self.join(A)
        self.go(1)
        self.assertEqual(self.presence(A), "online")


class ToldTests(DirectoryCase):
    """What nodes say of themselves."""

    def test_hardware(self) -> None:
        """The last good hardware is kept; what withholds it changes nothing (DS-44)."""
        self.hear(A)
        self.directory.told(A, replace(info(A), cpu=Cpu("x", 4), memory=Memory(8)), authenticated=False)
        self.go(1)
        self.directory.told(A, info(A), authenticated=False)
        entry = self.entry(A)
        assert entry.hardware is not None
        self.assertEqual((entry.hardware.cpu, entry.hardware_at), (Cpu("x", 4), EPOCH_MS + 1_000_000))

    def test_another(self) -> None:
        """An answer that names another, or of a node that is gone, is not applied (DS-52)."""
        self.hear(A)
        self.directory.told(A, replace(info(B), cpu=Cpu("x")), authenticated=False)
        self.directory.told(C, replace(info(C), cpu=Cpu("x")), authenticated=False)
        self.assertEqual((self.others(), self.entry(A).hardware), ({A}, None))

    def test_own(self) -> None:
        """What this node reads of itself is shown like that of others."""
        self.directory.told(ME, replace(info(ME), cpu=Cpu("x")), authenticated=True)
        hardware = self.entry(ME).hardware
        assert hardware is not None
        self.assertEqual((hardware.cpu, self.told()), (Cpu("x"), []))

    def test_inventory(self) -> None:
        """When a node's inventory came is kept, and is no news."""
        self.hear(A)
        before = len(self.events)
        self.directory.inventory_told(A, 5)
        self.assertEqual((self.entry(A).inventory_at, len(self.events)), (5, before))

    def test_cluster(self) -> None:
        """What a stranger's node-info says of its cluster beats its record (DS-45)."""
        self.air.heard.emit(record(A, cluster=C))
        self.assertEqual(self.entry(A).cluster_state, "other")
        self.directory.told(A, info(A, cluster=None), authenticated=False)
        self.assertEqual((self.entry(A).cluster_uuid, self.entry(A).cluster_state), (None, "none"))

    def test_warnings(self) -> None:
        """Warnings come and go by their code."""
        self.hear(A)
        self.directory.warn(A, "incompatible", "It speaks another protocol.")
        self.directory.warn(C, "incompatible", "")
        self.assertEqual([each.code for each in self.entry(A).warnings], ["incompatible"])
        self.directory.warn(A, "incompatible", None)
        self.assertEqual((self.entry(A).warnings, len(self.of(NodeChanged)) >= 2), ((), True))

    def test_reused_lease(self) -> None:
        """D16: a node at whose address another answers is in doubt (DS-69)."""
        self.hear(A, B)
        self.directory.told(A, info(A), authenticated=False, place=at(A))
        self.directory.told(B, info(B), authenticated=False, place=at(A))
        self.assertEqual((self.presence(A), self.presence(B)), ("suspect", "online"))
        self.assertEqual(self.entry(B).confirmed, {"ni": str(at(A))})
        self.assertEqual(self.entry(A).confirmed, {})

    def test_reused_lease_of_a_member(self) -> None:
        """D16: who answers at a member's address is another node, without its trust; hardly a line tells of it."""
        self.join(A)
        self.answer(A)
        self.directory.told(A, info(A, cluster=CLUSTER), authenticated=True, place=at(A))
        self.assertEqual(self.entry(A).confirmed, {"ni": str(at(A))})
        self.asking.there[at(A)] = info(B)
        del self.asking.proves[at(A)]
        with capturedLogs() as lines:
            for _ in range(60):
                self.hear(B)
                self.directory.told(B, info(B), authenticated=False, place=at(A))
                self.go(1)
        one, other = self.entry(A), self.entry(B)
        self.assertEqual((one.presence, one.member, one.trusted), ("offline", True, True))
        self.assertEqual((other.presence, other.member, other.trusted), ("online", False, False))
        self.assertEqual(other.confirmed, {"ni": str(at(A))})
        self.assertLessEqual(len(lines), 1, lines)

    def test_unknown_at_the_address(self) -> None:
        """So it is where the other is known by nothing else."""
        self.hear(A)
        self.directory.told(A, info(A), authenticated=False, place=at(A))
        self.directory.told(B, info(B), authenticated=False, place=at(A))
        self.assertEqual((self.presence(A), self.others()), ("suspect", {A}))

    def test_probe(self) -> None:
        """Whoever asks for a check gets the entry as it is then (UI-35)."""
        self.join(A)
        self.go(2)
        self.answer(A)
        entry = self.successResultOf(self.directory.probe(A))
        self.assertEqual((entry.key, entry.presence), (A, "online"))
        self.go(3)
        entry = self.successResultOf(self.directory.probe(A))
        self.assertEqual((entry.evidence, entry.last_heard_at), ("probe_ni", self.now()))
        self.assertEqual(self.successResultOf(self.directory.probe(ME)).key, ME)
        self.failureResultOf(self.directory.probe(B), KeyError)

    def test_silent_probe(self) -> None:
        """A check that a person asked for, and that is silent, ends nobody."""
        self.hear(A)
        for _ in range(3):
            probe = self.directory.probe(A)
            self.clock.advance(1.0)
            self.assertEqual(self.successResultOf(probe).presence, "online")


class LifeTests(DirectoryCase):
    def test_again(self) -> None:
        """A directory that is stopped in the middle of a check goes on when it is started again."""
        self.join(A)
        probe = self.directory.probe(A)
        self.stop()
        self.failureResultOf(probe)
        self.answer(A)
        self.directory.startService()
        self.go(10)
        self.assertEqual(self.presence(A), "online")

    def test_before_the_start(self) -> None:
        """What is told before the start is taken up by it; until then nothing is asked, nor waited for."""
        self.stop()
        self.directory = self.make()
        self.answer(A)
        self.join(A)
        self.directory.register_port("ni", 14318)
        self.directory.note(A, "inbound")
        self.assertEqual((self.clock.getDelayedCalls(), self.directory.entries(), self.asking.asked), ([], (), []))
        self.air.published.clear()
        self.start()
        self.assertEqual(self.air.published, [Record(ME, CLUSTER, ("192.168.1.2",), {"ni": 14318})])
        self.assertEqual(self.presence(A), "online")

    def test_after_the_stop(self) -> None:
        """Nor after the stop."""
        self.join(A)
        self.directory.note(A, "feed")
        self.stop()
        asked = len(self.asking.asked)
        self.directory.doubt(A)
        self.directory.trust_changed()
        self.go(60)
        self.assertEqual((self.presence(A), len(self.asking.asked)), ("suspect", asked))

    def test_renamed(self) -> None:
        """A host that is renamed is one node, by its new name."""
        self.hear(A)
        self.air.heard.emit(renamed(record(A), "anew"))
        self.assertEqual((self.others(), self.entry(A).name), ({A}, "anew"))

    def test_nobody(self) -> None:
        """A claim without UUID, which no record is, is nothing."""
        self.air.heard.emit(Claim("mdns"))
        self.assertEqual(self.others(), set())


def rows(connection: object) -> list[tuple[str, str]]:
    return connection.execute("SELECT uuid, address FROM peer_address ORDER BY uuid").fetchall()  # type: ignore[attr-defined, no-any-return]
