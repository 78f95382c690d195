"""The multicast service, with sockets that a test plays."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from pair.discovery.airing import Arrival
from pair.discovery.conditions import CONDITIONS as DISCOVERY
from pair.discovery.mdns import GOODBYE_SECONDS, MulticastService, advice
from pair.discovery.packets import Packet
from pair.discovery.sending import Leg, Sent
from pair.discovery.txt import Record, encode, instance_name, target_name
from pair.discovery.worker import Worker
from pair.errors.book import ErrorBook
from pair.errors.registry import Registry
from pair.supervision.conditions import CONDITIONS as SUPERVISION
from pair.test.discovery.test_addresses import DOCKER, ETH, HOST, LO

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pair.addresses import Interface
    from pair.discovery.airing import Ear, Said

ME = "3f0c9a52-0000-4000-8000-000000000001"
PEER = "9b1de001-0000-4000-8000-000000000002"
INSTANCE = instance_name("spark", PEER)


@implementer(IReactorFromThreads)
class Reactor(Clock):
    """Calls from threads are made at once, or kept while a test has ``busy`` set."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = False
        self.kept = 0

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None:
        if self.busy:
            self.kept += 1
        else:
            callable(*args, **kwargs)


class Calls(Worker):
    """The worker: each call is made when a test says so, or at once."""

    def __init__(self, in_reactor: Callable[..., object], name: str) -> None:
        self.waits = False
        self.ended = False
        self._asked: list[tuple[Callable[[], Any], Deferred[Any]]] = []

    def do(self, call: Callable[[], Any]) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self._asked.append((call, done))
        if not self.waits:
            self.make()
        return done

    def make(self) -> None:
        """Make the calls that wait."""
        asked, self._asked = self._asked, []
        for call, done in asked:
            try:
                result = call()
            except Exception:  # noqa: BLE001
                done.errback(Failure())
            else:
                done.callback(result)

    def end(self) -> None:
        self.ended = True


class Air:
    """One airing: what was asked of it, in order."""

    def __init__(self, legs: Sequence[Leg], ear: Ear, complete: bool) -> None:
        self.legs = legs
        self.ear = ear
        self.complete = complete
        self.said: list[Said] = []
        self.asked = 0
        self.closed: list[bool] = []

    def announce(self, said: Said) -> None:
        self.said.append(said)

    def ask(self) -> None:
        self.asked += 1

    def close(self, goodbye: bool) -> None:
        self.closed.append(goodbye)


class MulticastTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = Reactor()
        self.errors = ErrorBook(ME, Registry((*DISCOVERY, *SUPERVISION)), lambda: 0)
        self.found: Sequence[Interface] = (LO, ETH)
        self.airs: list[Air] = []
        self.complete = True
        self.trouble: Exception | None = None
        self.worker = Calls(self.reactor.callFromThread, "")
        self.service = MulticastService(
            self.reactor, ME, "home", True, lambda: self.found, self.errors, self._open, lambda *_: self.worker
        )
        self.claims: list[tuple[str | None, tuple[str, ...]]] = []
        self.service.heard.subscribe(lambda claim: self.claims.append((claim.uuid, claim.addresses)))
        self.gone: list[str] = []
        self.service.left.subscribe(self.gone.append)

    def _open(self, legs: Sequence[Leg], own: Collection[str], ear: Ear) -> Air:
        if self.trouble is not None:
            raise self.trouble
        self.airs.append(Air(legs, ear, self.complete))
        return self.airs[-1]

    @property
    def air(self) -> Air:
        return self.airs[-1]

    @property
    def entries(self) -> list[str]:
        return [each.id for each in self.errors.entries()]

    def start(self) -> None:
        self.service.startService()

    def publish(self, **services: int) -> None:
        self.service.publish(Record(ME, None, ("192.168.1.20",), services), ())

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 20)):
            self.reactor.advance(0.05)

    def arrive(self, packet: Packet, source: str = "192.168.1.9", own: bool = False) -> None:
        self.air.ear.arrived(Arrival(source, None, own, packet))

    def announced(self) -> int:
        """How many announcements there were, of two packets each."""
        self.pass_time(1.5)
        number, half = divmod(sum(len(each.said) for each in self.airs), 2)
        self.assertEqual(half, 0)
        return number


def packet(uuid: str = PEER, *addresses: str, instance: str = INSTANCE) -> Packet:
    """As the node with this UUID sends it."""
    return Packet({instance: encode(Record(uuid, None, addresses))}, {instance: target_name(uuid)})


class AnnouncementTests(MulticastTestCase):
    def test_record(self) -> None:
        """Instance, target, port, TXT, and the addresses of the interfaces that are sent by (discovery page, 3)."""
        self.service.publish(Record(ME, None, ("203.0.113.5",), {"ni": 4711}), ["203.0.113.5"])
        self.start()
        self.reactor.advance(0)
        said = self.air.said[0]
        self.assertEqual(said.instance, "home-3f0c9a52._nvpair-node._tcp.local.")
        self.assertEqual(said.target, f"pair-{ME}.local.")
        self.assertEqual(said.port, 4711)
        self.assertEqual(said.text, encode(Record(ME, None, ("203.0.113.5",), {"ni": 4711})))
        self.assertEqual(said.addresses, ("203.0.113.5", "192.168.1.20", "fd00::20", "fe80::20"))
        self.assertEqual(self.air.legs, (Leg("eth0", "192.168.1.20", True),))

    def test_by_what(self) -> None:
        """The log says by which interfaces multicast goes."""
        with capturedLogs() as events:
            self.start()
        told = [formatEvent(each) for each in events]
        self.assertIn("Multicast goes by eth0.", told)

    def test_at_start_and_each_minute(self) -> None:
        """At once, each time in two packets, and again every 60 s (DS-23)."""
        self.publish(ni=14318)
        self.start()
        self.reactor.advance(0)
        self.assertEqual(len(self.air.said), 1)
        self.assertEqual(self.announced(), 1)
        self.pass_time(58)
        self.assertEqual(len(self.air.said), 2)
        self.pass_time(1)
        self.assertEqual(self.announced(), 2)
        self.pass_time(120)
        self.assertEqual(self.announced(), 4)

    def test_changes(self) -> None:
        """What is equal is no news; changes that come together are one announcement, of the last of them (DS-7)."""
        self.start()
        self.publish(ni=14318)
        self.assertEqual(self.announced(), 1)
        self.publish(ni=14318)
        self.assertEqual(self.announced(), 1)
        self.pass_time(3)
        for port in (1, 2, 3):
            self.publish(ni=14318, ol=port)
        self.assertEqual(self.announced(), 2)
        self.assertIn(b"ol=3", self.air.said[-1].text)

    def test_bursts(self) -> None:
        """Five changes in 3 s are at most two announcements, and the last change is in them (DS-23)."""
        self.start()
        self.publish(ni=14318)
        self.pass_time(10)
        before = len(self.air.said)
        for port in range(1, 6):
            self.publish(ni=14318, ol=port)
            self.pass_time(0.6)
        self.assertLessEqual(len({each.text for each in self.air.said[before:]}), 2)
        self.pass_time(3)
        self.assertIn(b"ol=5", self.air.said[-1].text)

    def test_question(self) -> None:
        """One question each time; where there is nothing to ask by, two as soon as there is (DS-54)."""
        self.service.ask()
        self.service.ask()
        self.start()
        self.assertEqual(self.air.asked, 1)
        self.pass_time(2)
        self.assertEqual(self.air.asked, 2, "who was asked the same by another a moment before is silent")
        self.service.ask()
        self.assertEqual(self.air.asked, 3)

    def test_end(self) -> None:
        """A goodbye, and nothing after it (DS-25); the service may be started again."""
        self.publish(ni=14318)
        self.start()
        self.reactor.advance(0)
        self.successResultOf(self.service.stopService())
        self.assertEqual(self.air.closed, [True])
        self.assertTrue(self.worker.ended)
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.start()
        self.reactor.advance(0)
        self.assertEqual(len(self.air.said), 1)

    def test_end_that_hangs(self) -> None:
        """The goodbye is waited for, but not longer than a second (DS-25)."""
        self.start()
        self.worker.waits = True
        stopped = self.service.stopService()
        self.reactor.advance(GOODBYE_SECONDS / 2)
        self.assertNoResult(stopped)
        self.reactor.advance(GOODBYE_SECONDS / 2)
        self.successResultOf(stopped)

    def test_end_while_opening(self) -> None:
        """What is still being opened is closed when it is."""
        self.worker.waits = True
        self.start()
        stopped = self.service.stopService()
        self.worker.make()
        self.assertNoResult(stopped)
        self.worker.make()
        self.successResultOf(stopped)
        self.assertEqual(self.air.closed, [True])


class InterfaceTests(MulticastTestCase):
    def test_moved(self) -> None:
        """Other interfaces: sockets anew, no goodbye, and one announcement within 5 s (DS-26)."""
        self.publish(ni=14318)
        self.start()
        self.assertEqual(self.announced(), 1)
        self.pass_time(10)
        self.found = (LO, ETH, DOCKER)
        self.service.moved()
        self.assertEqual(self.announced(), 2)
        self.assertEqual([each.closed for each in self.airs], [[False], []])
        self.assertEqual([each.name for each in self.air.legs], ["eth0", "docker0"])
        self.assertIn("172.17.0.1", self.air.said[-1].addresses)

    def test_moved_in_between(self) -> None:
        """Interfaces that change while the sockets are opened: they are opened anew."""
        self.worker.waits = True
        self.start()
        self.found = HOST
        self.service.moved()
        self.service.moved()
        self.worker.waits = False
        self.worker.make()
        self.assertEqual([each.closed for each in self.airs], [[False], []])
        self.assertEqual([each.name for each in self.air.legs], ["eth0", "docker0"])

    def test_none_at_start(self) -> None:
        """No interface is no error: sockets come up when one appears (DS-22)."""
        self.found = ()
        self.publish(ni=14318)
        self.start()
        self.pass_time(100)
        self.assertEqual((self.airs, self.entries), ([], []))
        self.found = (LO, ETH)
        self.service.moved()
        self.assertEqual(self.announced(), 1)

    def test_tentative(self) -> None:
        """An address that could not be used is tried once more, since the system may not have been done with it."""
        self.complete = False
        self.start()
        self.pass_time(100)
        self.assertEqual(len(self.airs), 2)
        self.service.moved()
        self.pass_time(100)
        self.assertEqual(len(self.airs), 4)

    def test_port_taken(self) -> None:
        """Another program has the port for itself: reported, and tried every minute (DS-20)."""
        self.trouble = OSError(errno.EADDRINUSE, "in use")
        self.publish(ni=14318)
        self.start()
        self.assertEqual(self.entries, ["discovery:multicast_port_taken"])
        self.assertIn("5353", self.errors.entries()[0].message)
        self.pass_time(90)
        self.assertEqual(self.errors.entries()[0].count, 2)
        self.trouble = None
        self.pass_time(31)
        self.assertEqual((len(self.airs), self.entries), (1, []))
        self.assertEqual(self.announced(), 1)

    def test_port_taken_at_the_end(self) -> None:
        """A stop leaves no entry and no timer."""
        self.trouble = OSError(errno.EADDRINUSE, "in use")
        self.start()
        self.successResultOf(self.service.stopService())
        self.assertEqual((self.entries, self.reactor.getDelayedCalls()), ([], []))

    def test_other_failures(self) -> None:
        """Whatever else goes wrong: reported, and tried after 1, 2, 4, … s (DS-30)."""
        self.trouble = RuntimeError("no")
        self.start()
        self.assertEqual(self.entries, ["supervision:down:multicast"])
        self.pass_time(1.1)
        self.pass_time(2.1)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 3)
        self.trouble = None
        self.pass_time(4.1)
        self.assertEqual((len(self.airs), self.entries), (1, []))

    def test_faults(self) -> None:
        """Three faults within a minute: closed, and built anew (DS-30)."""
        self.start()
        fault = Failure(ValueError("a fault"))
        for _ in range(2):
            self.air.ear.broke(fault)
            self.pass_time(50)
        self.pass_time(20)
        for closed in ([], [], [False]):
            self.air.ear.broke(fault)
            self.assertEqual(self.air.closed, closed)
        self.assertEqual(self.entries, ["supervision:down:multicast"])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 5)
        self.pass_time(1.1)
        self.assertEqual((len(self.airs), self.entries), (2, []))


class SendingTests(MulticastTestCase):
    def test_errors(self) -> None:
        """D11: a send that fails stops nothing; it is one line a minute (DS-28)."""
        self.start()
        with capturedLogs() as events:
            for _ in range(100):
                self.air.ear.sent(Sent(True, {"eth0": errno.ENOBUFS}))
        self.assertEqual([each["interface"] for each in events], ["eth0"])
        self.publish(ni=14318)
        self.service.ask()
        self.arrive(packet())
        self.assertEqual((len(self.airs), self.air.asked, len(self.claims), self.announced()), (1, 1, 1, 1))

    def test_all_errors(self) -> None:
        """D11: nothing leaves for two minutes: two lines; then all is well at once."""
        self.start()
        with capturedLogs() as events:
            for _ in range(100):
                self.air.ear.sent(Sent(False, {"eth0": errno.EHOSTUNREACH}))
                self.pass_time(1.2)
        self.assertEqual(len([each for each in events if each.get("interface") == "eth0"]), 2)
        self.air.ear.sent(Sent(True))
        self.service.ask()
        self.assertEqual((len(self.airs), self.air.asked, self.entries), (1, 1, []))

    def test_denied(self) -> None:
        """D07: nothing leaves for 15 s: one entry, which the first success clears (DS-28)."""
        self.start()
        denied = Sent(False, {"eth0": errno.EHOSTUNREACH})
        self.air.ear.sent(denied)
        self.pass_time(14)
        self.air.ear.sent(denied)
        self.assertEqual(self.entries, [])
        self.pass_time(2)
        self.air.ear.sent(denied)
        self.air.ear.sent(denied)
        self.assertEqual(self.entries, ["discovery:multicast_denied"])
        self.assertEqual(self.errors.entries()[0].count, 1)
        self.air.ear.sent(Sent(True))
        self.assertEqual(self.entries, [])

    def test_advice(self) -> None:
        """D07: on macOS it names the setting, and whose entry there counts, which how PAIR was started tells."""
        by_service, by_hand = advice("darwin", started_by_system=True), advice("darwin", started_by_system=False)
        for each in (by_service, by_hand):
            self.assertIn("Privacy & Security, Local Network", each)
        self.assertIn("as a service", by_service)
        self.assertIn("from a terminal", by_hand)
        self.assertNotIn("Privacy", advice("linux", started_by_system=True))

    def test_denied_and_then_without_interface(self) -> None:
        """What cannot be sent at all is not denied."""
        self.start()
        for _ in range(2):
            self.air.ear.sent(Sent(False, {"eth0": errno.EPERM}))
            self.pass_time(20)
        self.air.ear.sent(Sent(False, {"eth0": errno.EPERM}))
        self.found = ()
        self.service.moved()
        self.assertEqual(self.entries, [])


class HearingTests(MulticastTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.start()

    def test_others(self) -> None:
        """Each SRV or TXT that arrives is a claim, new or not; our own addresses lead nowhere (DS-13, DS-55)."""
        for _ in range(2):
            self.arrive(packet(PEER, "192.168.1.9", "192.168.1.20", "127.0.0.1"))
        self.assertEqual(self.claims, [(PEER, ("192.168.1.9",))] * 2)

    def test_reflector(self) -> None:
        """D19: what a reflector passes on counts as from the node itself, at its own addresses, each time."""
        for _ in range(2):
            self.service.ask()
            self.arrive(packet(PEER, "10.9.9.9"), "192.168.1.254")
            self.pass_time(60)
        self.assertEqual((self.claims, self.air.asked), ([(PEER, ("10.9.9.9",))] * 2, 2))

    def test_own_record(self) -> None:
        """It comes back from our own sockets, and is dropped; from another host it is not (DS-43, DS-68)."""
        own = packet(ME, "192.168.1.9", instance=instance_name("home", ME))
        self.arrive(own, "192.168.1.20", own=True)
        self.assertEqual(self.claims, [])
        self.arrive(own)
        self.assertEqual(self.claims, [(ME, ("192.168.1.9",))])

    def test_zone(self) -> None:
        """The network of the sender tells by which interface its link-local addresses are reached (DS-13)."""
        records: list[tuple[str, ...]] = []
        self.service.heard.subscribe(lambda claim: records.append(claim.records))
        sent = packet(PEER)
        sent = Packet(sent.texts, sent.targets, (), {target_name(PEER): ("fe80::9",)})
        self.arrive(sent, "8.8.8.8")
        self.arrive(sent)
        self.assertEqual(records, [(), ("fe80::9%eth0",)])

    def test_goodbye(self) -> None:
        """It is told once, though it comes several times; our own is not (DS-61)."""
        bye = Packet(gone=(INSTANCE,))
        self.arrive(bye)
        self.pass_time(0.25)
        self.arrive(bye, "fd00::9")
        self.assertEqual(self.gone, [INSTANCE])
        self.pass_time(1)
        self.arrive(bye)
        self.assertEqual(self.gone, [INSTANCE] * 2)
        own = Packet(gone=(instance_name("home", ME),))
        self.arrive(own, "192.168.1.20", own=True)
        self.assertEqual(len(self.gone), 2)
        self.arrive(own)
        self.assertEqual(len(self.gone), 3)

    def test_records_without_end(self) -> None:
        """Of a flood only so much is looked at, of ours all, and packets of others are heard all the same (DS-29)."""
        for _ in range(2000):
            self.arrive(packet(PEER, "192.168.1.9"))
        self.assertLess(len(self.claims), 1024)
        self.pass_time(1)
        before = len(self.claims)
        self.arrive(packet(PEER, "192.168.1.9"))
        self.assertEqual(len(self.claims), before + 1)
        self.assertEqual(self.service.last_foreign, self.reactor.seconds())

    def test_goodbyes_without_end(self) -> None:
        """Of a flood of them no more than so many are told in a second (DS-61)."""
        for at in range(0, 1000, 100):
            self.arrive(Packet(gone=tuple(instance_name(f"host{each}", PEER) for each in range(at, at + 100))))
        self.assertEqual(len(self.gone), 256)
        self.pass_time(1)
        self.arrive(Packet(gone=(INSTANCE,)))
        self.assertEqual(self.gone[256:], [INSTANCE])

    def test_foreign(self) -> None:
        """When another host was last heard, with whatever (DS-29)."""
        self.pass_time(5)
        self.arrive(packet(), own=True)
        self.assertIsNone(self.service.last_foreign)
        self.arrive(Packet())
        self.assertEqual(self.service.last_foreign, self.reactor.seconds())

    def test_old_sockets(self) -> None:
        """What comes late by sockets that are closed is not heard."""
        old = self.air
        self.service.moved()
        old.ear.arrived(Arrival("192.168.1.9", None, False, packet()))
        old.ear.broke(Failure(ValueError("late")))
        self.assertEqual(self.claims, [])

    def test_flood(self) -> None:
        """While the reactor is busy not more than so much waits for it; then it hears again (DS-15)."""
        self.reactor.busy = True
        for _ in range(10_000):
            self.arrive(packet())
        self.assertEqual(self.reactor.kept, 256)
