"""Real multicast: by loopback on this machine, and by a cable between two hosts."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import stat
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any
from unittest import SkipTest, skipUnless

from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from pair.addresses import Interface, InterfaceAddress
from pair.discovery.airing import Said, open_airing
from pair.discovery.conditions import CONDITIONS as DISCOVERY
from pair.discovery.mdns import MulticastService
from pair.discovery.sending import Sent, legs
from pair.discovery.txt import Record, instance_name
from pair.errors.book import ErrorBook
from pair.errors.registry import Registry
from pair.hostlinks import interfaces
from pair.supervision.conditions import CONDITIONS as SUPERVISION
from pair.test.discovery.answers import PTR, fields
from pair.test.discovery.weather import Weather
from pair.test.integration.network import Host, cabled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pair.discovery.claims import Claim

GROUP, PORT = "224.0.0.251", 5353
_RECVTTL = 12
"""Linux's option to be told the TTL, for which Python has no name."""

LOOPBACK = (Interface("lo", (InterfaceAddress("127.0.0.1", 8),)),)
FIRST = "3f0c9a52-0000-4000-8000-000000000001"
SECOND = "9b1de001-0000-4000-8000-000000000002"
PATIENCE = 10.0
"""Seconds after which a test fails instead of hanging."""


@implementer(IReactorFromThreads)
class Reactor(Clock):
    """The test's thread is that of the reactor, and its clock goes as the real one does, while a test waits."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: queue.Queue[Callable[[], object]] = queue.Queue()

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None:
        self._asked.put(lambda: callable(*args, **kwargs))

    def until(self, what: str, there: Callable[[], object]) -> None:
        """Go on until it is there."""
        end = time.monotonic() + PATIENCE
        while not there():
            before = time.monotonic()
            if before > end:
                raise AssertionError(f"waited in vain for {what}")
            with contextlib.suppress(queue.Empty):
                self._asked.get(timeout=0.02)()
            self.advance(time.monotonic() - before)


class Node:
    """A service, and what it has heard."""

    def __init__(
        self, test: SynchronousTestCase, reactor: Reactor, uuid: str, links: Callable[[], Sequence[Interface]]
    ) -> None:
        self.uuid = uuid
        self.instance = instance_name("spark", uuid)
        self.errors = ErrorBook(uuid, Registry((*DISCOVERY, *SUPERVISION)), lambda: 0)
        self.service = MulticastService(reactor, uuid, "spark", True, links, self.errors)
        self.claims: list[Claim] = []
        self.service.heard.subscribe(self.claims.append)
        self.gone: list[str] = []
        self.service.left.subscribe(self.gone.append)
        self._reactor = reactor
        test.addCleanup(self.stop)

    def start(self, *addresses: str) -> None:
        self.service.publish(Record(self.uuid, None, addresses, {"ni": 14318, "ol": 11434}), addresses)
        self.service.startService()

    def stop(self) -> None:
        ended: list[object] = []
        self.service.stopService().addCallback(ended.append)
        self._reactor.until("the end", lambda: ended)

    def wait_for(self, other: Node) -> Claim:
        """The next claim on the other node."""
        self.claims.clear()
        self._reactor.until("a record", lambda: other.uuid in [each.uuid for each in self.claims])
        return next(each for each in self.claims if each.uuid == other.uuid)

    @property
    def entries(self) -> list[str]:
        return [each.id for each in self.errors.entries()]


def plain_socket(test: SynchronousTestCase, address: str) -> socket.socket:
    """One as another program opens it, which shares the port and hears the group."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    test.addCleanup(opened.close)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind(("", PORT))
    except OSError as error:
        raise SkipTest(f"another program has port {PORT} for itself") from error
    member = socket.inet_aton(GROUP) + socket.inet_aton(address)
    opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    opened.setsockopt(socket.IPPROTO_IP, _RECVTTL, 1)
    opened.setblocking(False)
    return opened


def received(opened: socket.socket) -> Iterator[tuple[bytes, int, int]]:
    """What has arrived: the packet, the port of its sender, and its TTL."""
    with contextlib.suppress(BlockingIOError):
        while True:
            data, ancillary, _, sender = opened.recvmsg(9000, 64)
            yield data, sender[1], next(struct.unpack("@i", value)[0] for _, _, value in ancillary)


def sockets_on_the_port() -> Iterator[socket.socket]:
    """All sockets of this process that are bound to the port of multicast DNS."""
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as found:
                    if found.family in (socket.AF_INET, socket.AF_INET6) and found.getsockname()[1] == PORT:
                        yield found


@skipUnless(sys.platform == "linux", "the sockets of other systems are others")
class LoopbackTests(SynchronousTestCase):
    """Two services on one host that has nothing but loopback."""

    def setUp(self) -> None:
        self.reactor = Reactor()
        self.plain = plain_socket(self, "127.0.0.1")
        self.first = Node(self, self.reactor, FIRST, lambda: LOOPBACK)
        self.second = Node(self, self.reactor, SECOND, lambda: LOOPBACK)

    def start(self) -> None:
        self.second.start("192.0.2.8")
        self.first.start("192.0.2.7")
        self.second.wait_for(self.first)

    def test_find_one_another(self) -> None:
        """Each hears the record of the other, whole, and not its own (DS-16, DS-43)."""
        self.second.start("192.0.2.8", "192.0.2.9")
        self.first.start("192.0.2.7")
        for node, other, addresses in (
            (self.first, self.second, ("192.0.2.8", "192.0.2.9")),
            (self.second, self.first, ("192.0.2.7",)),
        ):
            node.service.ask()
            claim = node.wait_for(other)
            self.assertEqual((claim.name, claim.id, claim.addresses), ("spark", other.instance, addresses))
            self.assertEqual((claim.services, claim.records), ({"ni": 14318, "ol": 11434}, addresses))
            self.assertNotIn(node.uuid, [each.uuid for each in node.claims])

    def test_as_made_up(self) -> None:
        """The network of :mod:`pair.test.discovery.weather` goes as the real one does.

        A question is answered at once, the same question within a second is not, and after that it is.
        """
        self.start()
        self.pass_time(2.5)
        self.second.claims.clear()
        real = []
        for _ in range(3):
            self.second.service.ask()
            self.pass_time(0.6)
            real.append(len(self.second.claims))

        weather = Weather(2, 0.0)
        weather.run(8.0)
        made_up, said = [], weather.sent["answer"]
        for _ in range(3):
            for each in weather.cast(weather.hosts[0], "question"):
                each.asked()
            weather.run(0.6)
            made_up.append(weather.sent["answer"] - said)
        self.assertEqual((real, made_up), ([1, 1, 2], [1, 1, 2]))

    def pass_time(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        self.reactor.until("that time", lambda: time.monotonic() > end)

    def test_change(self) -> None:
        """A change is heard, with no word of how it was before (DS-23)."""
        self.start()
        self.first.service.publish(Record(FIRST, SECOND, ("192.0.2.6",), {}), ())
        self.assertEqual(self.second.wait_for(self.first).cluster, SECOND)
        self.assertEqual(self.second.claims[0].services, {})

    def test_goodbye(self) -> None:
        """It is heard, once, when a service stops (DS-25, DS-61), and not when it opens its sockets anew (DS-26)."""
        self.start()
        self.first.service.moved()
        self.second.wait_for(self.first)
        self.assertEqual(self.second.gone, [])
        self.first.stop()
        self.reactor.until("the goodbye", lambda: self.second.gone)
        self.assertEqual(self.second.gone, [self.first.instance])

    def test_sockets(self) -> None:
        """All share the port by SO_REUSEADDR, none by SO_REUSEPORT; a plain socket hears as well (DS-19)."""
        self.start()
        found = [
            [each.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT)]
            for each in sockets_on_the_port()
        ]
        self.assertEqual(found, [[1, 0]] * 5, "one to hear and one to send for each service, and the plain one")
        self.assertTrue(any(b"_nvpair-node" in data for data, _, _ in received(self.plain)))

    def test_fault(self) -> None:
        """What is raised in the library's thread is told, and ends nothing (DS-30)."""
        told: queue.Queue[object] = queue.Queue()

        class Told:
            arrived = sent = broke = staticmethod(told.put)

        airing = open_airing(legs(LOOPBACK, ipv6=True), ["127.0.0.1"], Told())
        self.addCleanup(airing.close, goodbye=False)
        airing.announce(Said("no instance of our type.", "pair.local.", 14318, b"", ()))
        self.assertIsInstance(told.get(timeout=PATIENCE), Failure)
        airing.ask()
        self.assertEqual(told.get(timeout=PATIENCE), Sent(True))

    def test_wire(self) -> None:
        """Port 5353, TTL 255, questions for multicast and without known answers, 120 s (DS-17, DS-18; page, 3)."""
        self.start()
        self.second.service.ask()
        self.second.wait_for(self.first)
        packets = [each for each in received(self.plain) if b"_nvpair-node" in each[0]]
        self.assertEqual({(port, ttl) for _, port, ttl in packets}, {(PORT, 255)})
        questions = [fields(data) for data, _, _ in packets if not data[2] & 0x80]
        self.assertEqual(questions, [[(PTR, 1, None)]])
        answers = [each for data, _, _ in packets if data[2] & 0x80 for each in fields(data)]
        self.assertEqual({seconds for _, _, seconds in answers}, {120})


def is_up(host: Host) -> bool:
    """Whether its cable carries; the kernel takes its time to say so."""
    return host.interface in [each.name for each in links(host)]


def links(host: Host) -> Sequence[Interface]:
    """The interfaces of this host."""
    with host.inside():
        return interfaces()


@skipUnless(sys.platform == "linux", "only Linux has network namespaces")
class CableTests(SynchronousTestCase):
    """Two hosts."""

    def setUp(self) -> None:
        self.reactor = Reactor()
        self.near, self.far = cabled(self, "near0", "far0")
        self.reactor.until("the cable", lambda: all(map(is_up, (self.near, self.far))))
        self.first = Node(self, self.reactor, FIRST, lambda: links(self.near))
        self.second = Node(self, self.reactor, SECOND, lambda: links(self.far))

    def start(self, node: Node, host: Host) -> None:
        with host.inside():  # its threads are then there, too
            node.start(host.address)

    def test_addresses(self) -> None:
        """All addresses of the other host, link-local ones by the interface that they were heard by (DS-13)."""
        self.start(self.first, self.near)
        self.start(self.second, self.far)
        claim = self.second.wait_for(self.first)
        self.assertEqual(claim.addresses, ("10.77.0.1",))
        self.assertLessEqual(
            {"10.77.0.1", "fe80::1%far0"}, set(claim.records), "besides the system's own link-local one"
        )
        self.assertTrue(all(each.endswith("%far0") for each in claim.records[1:]))
        self.assertIsNotNone(self.second.service.last_foreign)

    def test_other_address(self) -> None:
        """A host that is given another address is heard from there, though nobody asks (DS-26)."""
        self.start(self.first, self.near)
        self.start(self.second, self.far)
        self.second.wait_for(self.first)
        self.near.readdress(7)
        self.first.service.moved()
        self.reactor.until(
            "the new address", lambda: [each for each in self.second.claims if "10.77.0.7" in each.records]
        )

    def test_denied(self) -> None:
        """Nothing goes out: an entry after 15 s, which the first success clears (DS-28)."""
        near0 = Interface("near0", (InterfaceAddress(self.near.address, 24),))
        node = Node(self, self.reactor, FIRST, lambda: (near0,))

        def asks() -> list[str]:
            self.reactor.advance(1)
            node.service.ask()
            return node.entries

        self.start(node, self.near)
        self.set_link("down")
        self.reactor.until("the entry", lambda: asks() == ["discovery:multicast_denied"])
        self.set_link("up")
        self.reactor.until("the end of it", lambda: asks() == [])

    def set_link(self, state: str) -> None:
        with self.near.inside():
            subprocess.run(["ip", "link", "set", self.near.interface, state], check=True)

    def test_port_taken(self) -> None:
        """A program that has the port for itself is reported, and waited for (DS-20)."""
        with self.near.inside():
            holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            holder.bind(("", PORT))
        self.addCleanup(holder.close)
        self.start(self.second, self.far)
        self.start(self.first, self.near)
        self.reactor.until("the entry", lambda: self.first.entries == ["discovery:multicast_port_taken"])
        holder.close()
        self.reactor.advance(60)
        self.second.wait_for(self.first)
        self.assertEqual(self.first.entries, [])
