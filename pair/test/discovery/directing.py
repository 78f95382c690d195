"""A directory with a clock of its own, among nodes that a test makes up: nothing is sent, nothing is on a disk."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.addresses import Interface, InterfaceAddress, Place
from pair.discovery.asking import Me
from pair.discovery.claims import Claim, Standing
from pair.discovery.conditions import CONDITIONS
from pair.discovery.directory import DirectoryService
from pair.discovery.liveness import Clocks
from pair.discovery.txt import instance_name
from pair.errors.book import ErrorBook
from pair.errors.registry import Registry
from pair.events import Signal
from pair.records.asking import Answer, AskFailed
from pair.records.telemetry import NodeInfo
from pair.settings import Settings
from pair.store import MIGRATIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.discovery.txt import Record
    from pair.records.asking import AskFault
    from pair.records.nodes import NodeEntry, NodeEvent
    from pair.store import Work

T = TypeVar("T")

ME = "3f0c8a52-1d7e-4b6f-9a51-000000000000"
A = "3f0c8a52-1d7e-4b6f-9a51-00000000000a"
B = "3f0c8a52-1d7e-4b6f-9a51-00000000000b"
C = "3f0c8a52-1d7e-4b6f-9a51-00000000000c"
CLUSTER = "b7d0f6f0-0000-4000-8000-000000000001"
EPOCH_MS = 1_764_460_800_000

LAN = Interface("eth0", (InterfaceAddress("192.168.1.2", 24),))
LOOPBACK = Interface("lo", (InterfaceAddress("127.0.0.1", 8),))


def address(node: str) -> str:
    """Where the node with this UUID is, unless a test says otherwise."""
    return f"192.168.1.{int(node[-2:], 16) or 2}"


def at(node: str, port: int = 14318) -> Place:
    """Its node-info."""
    return Place(address(node), port)


def info(node: str, instance: str = "one", cluster: str | None = None) -> NodeInfo:
    """What the node says of itself."""
    return NodeInfo(host_uuid=node, instance=instance, name=f"host-{node[-1]}", cluster_uuid=cluster)


def record(node: str, *addresses: str, name: str = "", cluster: str | None = None, **services: int) -> Claim:
    """What is heard of the node."""
    name = name or f"host-{node[-1]}"
    return Claim(
        "mdns",
        node,
        instance_name(name, node),
        name=name,
        addresses=addresses or (address(node),),
        services=services or {"ni": 14318},
        cluster=cluster,
    )


class FakeAsking:
    """Provides :class:`pair.discovery.asking.Asking` among nodes as the test has them.

    What is not there does not answer within a second; all else is told at once.

    Attributes:
        there: Who answers a node-info where, or why nobody does.
        proves: Of those that have to prove it, who can, where.
        pins: Who has to.
        open: Where a connection is to be had.
        asked: Who was asked for, where.
        knocked: Where else it was tried.
        held: Once it is a list, each question waits in it until it is fired.
    """

    def __init__(self, clock: Clock) -> None:
        self.there: dict[Place, NodeInfo | AskFault] = {}
        self.proves: dict[Place, str] = {}
        self.pins: set[str] = set()
        self.open: set[Place] = set()
        self.asked: list[tuple[str | None, tuple[Place, ...]]] = []
        self.knocked: list[Place] = []
        self.held: list[Deferred[Answer]] | None = None
        self._clock = clock

    def node_info(self, node: str | None, places: Sequence[Place], seconds: float) -> Deferred[Answer]:
        self.asked.append((node, tuple(places)))
        if self.held is not None:
            held: Deferred[Answer] = Deferred()
            self.held.append(held)
            return held
        words: list[AskFault] = []
        for place in places:
            found = self.there.get(place, "timeout")
            if isinstance(found, NodeInfo):
                proof = self.proves.get(place) if node in self.pins else found.host_uuid
                if node in (None, proof):
                    return succeed(Answer(found, place, f"leaf of {proof}" if node in self.pins else None))
                found = "other"
            words.append(found)
        word: AskFault = "other" if "other" in words else words[-1] if words else "timeout"
        if word != "timeout":
            return fail(AskFailed(word))
        late: Deferred[Answer] = Deferred(lambda _: timer.cancel())
        timer = self._clock.callLater(min(1.0, seconds), late.errback, AskFailed(word))
        return late

    def knock(self, node: str | None, places: Sequence[Place], pinned: bool, seconds: float) -> Deferred[bool]:
        self.knocked += places
        good = [each for each in places if each in self.open]
        return succeed(any(self.proves.get(each) == node for each in good) if pinned else bool(good))


class FakeMulticast:
    """Provides :class:`pair.discovery.asking.Multicast`.

    Attributes:
        published: Each record, in order.
        asks: How many questions were sent.
        moves: How often it was told that interfaces have moved.
    """

    def __init__(self) -> None:
        self.heard: Signal[Claim] = Signal()
        self.left: Signal[str] = Signal()
        self.last_foreign: float | None = None
        self.published: list[Record] = []
        self.asks = 0
        self.moves = 0

    def publish(self, record: Record, addresses: Sequence[str]) -> None:
        if record not in self.published[-1:]:
            self.published.append(record)

    def ask(self) -> None:
        self.asks += 1

    def moved(self) -> None:
        self.moves += 1


class MemoryStore:
    """As :class:`pair.store.Store`, in memory and at once.

    Attributes:
        full: Whether writes fail.
        writes: How many were asked for.
    """

    def __init__(self) -> None:
        self.full = False
        self.writes = 0
        self._connection = sqlite3.connect(":memory:")
        for migration in MIGRATIONS:
            for statement in migration:
                self._connection.execute(statement)

    def read(self, work: Work[T]) -> T:
        return work(self._connection)

    def write(self, work: Work[T]) -> Deferred[T]:
        self.writes += 1
        if self.full:
            return fail(sqlite3.OperationalError("full"))
        return succeed(work(self._connection))

    def close(self) -> None:
        self._connection.close()


class DirectoryCase(SynchronousTestCase):
    """A directory that has begun, on a LAN."""

    settings = Settings()
    multicast: FakeMulticast | None

    def setUp(self) -> None:
        self.clock = Clock()
        self.clock.advance(1000)
        self.standing = Standing(ME)
        self.roster: dict[str, Claim] = {}
        self.links = [LOOPBACK, LAN]
        self.asking = FakeAsking(self.clock)
        self.air = FakeMulticast()
        self.store = MemoryStore()
        self.addCleanup(self.store.close)
        self.errors = ErrorBook(ME, Registry(CONDITIONS), self.now)
        self.slept = 0.0
        self.directory = self.make()
        self.start()

    def now(self) -> int:
        return EPOCH_MS + round(self.clock.seconds() * 1000)

    def clocks(self) -> Clocks:
        seconds = self.clock.seconds()
        return Clocks(seconds + self.slept, seconds, seconds + self.slept)

    def make(self, settings: Settings | None = None) -> DirectoryService:
        return DirectoryService(
            self.clock,
            Me(ME, "mine", "our nonce"),
            lambda: self.standing,
            lambda: self.roster,
            self.asking,
            self.air,
            self.errors,
            self.store,  # type: ignore[arg-type]
            lambda: tuple(self.links),
            lambda: ("192.168.1.2",),
            self.settings if settings is None else settings,
            self.now,
            lambda low, high: (low + high) / 2,
            self.clocks,
        )

    def start(self) -> None:
        self.events: list[NodeEvent] = []
        self.directory.events.subscribe(self.events.append)
        self.directory.startService()
        self.addCleanup(self.stop)

    def stop(self) -> None:
        if self.directory.running:
            self.directory.stopService()
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def restart(self, settings: Settings | None = None) -> None:
        self.stop()
        self.directory = self.make(settings)
        self.start()

    def go(self, seconds: float, *heard: str) -> None:
        """Let time pass; whoever is ``heard`` announces itself every 2 seconds, and at the end."""
        for step in range(round(seconds * 10)):
            if step % 20 == 0:
                self.hear(*heard)
            self.clock.advance(0.1)

    def hear(self, *nodes: str) -> None:
        for node in nodes:
            self.air.heard.emit(record(node))

    def join(self, *nodes: str) -> None:
        """This node is in a cluster with these, all of them pinned."""
        everybody = frozenset((ME, *nodes))
        self.standing = Standing(ME, CLUSTER, everybody, frozenset(nodes))
        self.asking.pins = set(nodes)
        self.roster = {
            node: Claim("roster", node, name=f"host-{node[-1]}", addresses=(address(node),)) for node in (ME, *nodes)
        }
        self.directory.trust_changed()

    def answer(self, *nodes: str) -> None:
        """These answer where they are, and can prove it."""
        for node in nodes:
            self.asking.there[at(node)] = info(node, cluster=CLUSTER)
            self.asking.proves[at(node)] = node

    def silence(self, *nodes: str) -> None:
        for node in nodes:
            self.asking.there.pop(at(node), None)

    def entry(self, key: str) -> NodeEntry:
        entry = self.directory.get(key)
        assert entry is not None, "it is in the directory"
        return entry

    def presence(self, key: str) -> str | None:
        entry = self.directory.get(key)
        return None if entry is None else entry.presence

    def told(self) -> list[str]:
        """The ids of the entries of the error book."""
        return sorted(each.id for each in self.errors.entries())

    def others(self) -> set[str]:
        """Who is in the directory besides us."""
        return {each.key for each in self.directory.entries()} - {ME}

    def of(self, kind: type[T]) -> list[T]:
        """The events of one kind."""
        return [each for each in self.events if isinstance(each, kind)]


def renamed(claim: Claim, name: str) -> Claim:
    """The record of a node by another name."""
    assert claim.uuid is not None, "a record has one"
    return replace(claim, name=name, id=instance_name(name, claim.uuid))
