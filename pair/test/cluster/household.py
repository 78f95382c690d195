"""Nodes of one cluster that can call each other, without sockets, stores or real signatures, on one clock."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from twisted.internet.defer import Deferred

from pair.cluster.changes import Change, Leaving, Taken
from pair.cluster.dialing import PeerUnreachable
from pair.cluster.gossip import Gossip
from pair.cluster.merging import introduction, merge, set_root
from pair.cluster.pins import PeerLeaf, PinTable
from pair.cluster.proofs import archive
from pair.cluster.statements import encode, read
from pair.cluster.syncing import NotIntroduced, OtherCluster, SyncRequest, answer, read_request
from pair.events import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from twisted.internet.task import Clock

    from pair.cluster.membership import Member, View
    from pair.cluster.pins import Caller
    from pair.cluster.proofs import Archive
    from pair.cluster.statements import Statement
    from pair.test.cluster.world import Player, World

LATENCY = 0.002
INSTANCE = "9f3a6c0d51e2b774"


class Trustee:
    """A trust service that keeps its statements in memory only.

    Attributes:
        failing: What the next calls fail with.
    """

    def __init__(self, world: World, who: Player, statements: Iterable[Statement] = ()) -> None:
        self.changed: Signal[Change] = Signal()
        self.who = who
        self.failing: Exception | None = None
        self._world = world
        self._archives: tuple[Archive, ...] = ()
        self._put(merge((), statements, world.cluster, world.verify).kept)

    @property
    def me(self) -> Member | None:
        return None if self.view is None else self.view.signs_as(self.who.leaf)

    @property
    def root(self) -> bytes:
        return set_root(each.id for each in self.statements)

    def evidence(self, peer: PeerLeaf) -> tuple[bytes, ...]:
        return tuple(map(encode, self.pins.evidence(peer)))

    async def take(self, batch: Sequence[bytes], caller: Caller, source: str, leaf: bytes | None = None) -> Taken:
        if caller.relation != "member":
            assert leaf is not None
            news = read(batch).statements
            if self.view is None:
                return Taken(0, refused=True)
            if introduction(self.statements, news, self._world.cluster, leaf, self._world.verify) is None:
                return Taken(0, refused=True)
        return self._take(batch, source)

    async def take_evidence(self, statements: Sequence[bytes], from_node: str) -> Taken:
        return self._take(statements, from_node)

    def say(self, *statements: Statement) -> None:
        """This node signs something."""
        self._take(tuple(map(encode, statements)), "self")

    def leave(self) -> Leaving:
        view, pins = self.view, self.pins
        assert view is not None
        said = self._world.go(self.who, view)
        self.say(said)
        return Leaving(view.cluster, tuple(map(encode, self._archives[0].evidence)), view, pins)

    def _take(self, batch: Sequence[bytes], source: str) -> Taken:
        if self.failing is not None:
            raise self.failing
        before = self.view
        merged = merge(self.statements, read(batch).statements, self._world.cluster, self._world.verify)
        self._put(merged.kept)
        if merged.added:
            self.changed.emit(Change(before, self.view, self.pins, None, source))
        return Taken(len(merged.added))

    def _put(self, statements: tuple[Statement, ...]) -> None:
        view: View | None = self._world.view(statements)
        assert view is not None
        if view.former_as(self.who.leaf) is not None:
            self._archives = (archive(view, self.who.leaf),)
            view, statements = None, ()
        self.view = view if statements else None
        self.statements = statements
        self.pins = PinTable(self.view, self.who.node, self.who.leaf, self._archives)


class Answer(Struct):
    status: int
    body: bytes
    address: str


class Call(Struct):
    """A request that was sent, and the answer to it when there was one."""

    source: str
    node: str
    at: float
    request: SyncRequest
    addresses: tuple[str, ...]
    port: int
    limit: int
    body: bytes
    answer: Answer | None = None


class Entries:
    """An error book that holds ids."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[str, Any]] = {}

    def raise_entry(self, id: str, *, subject: object = None, **values: Any) -> None:
        self.entries[id] = values

    def clear(self, id: str) -> None:
        self.entries.pop(id, None)


class Household:
    """The network between nodes, each at the address ``10.0.0.<its place>``.

    Attributes:
        calls: All requests so far.
        down: UUIDs of nodes that nobody reaches.
        hung: UUIDs of nodes that take requests and answer none.
        fates: For a UUID, what becomes of its answers.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.calls: list[Call] = []
        self.down: dict[str, PeerUnreachable] = {}
        self.hung: set[str] = set()
        self.fates: dict[str, Callable[[Call, Answer], Answer]] = {}
        self.nodes: dict[str, Trustee] = {}

    def node(self, world: World, who: Player, statements: Iterable[Statement]) -> Node:
        self.nodes[who.node] = trustee = Trustee(world, who, statements)
        return Node(self, trustee)

    def address(self, node: str) -> str:
        return f"10.0.0.{list(self.nodes).index(node) + 1}"

    def to(self, node: str) -> list[Call]:
        return [each for each in self.calls if each.node == node]

    def run(self, seconds: float) -> None:
        """Let time pass, from one event to the next."""
        end = self.clock.seconds() + seconds
        while (due := min((each.getTime() for each in self.clock.getDelayedCalls()), default=inf)) <= end:
            self.clock.rightNow = due  # a sum of differences may stay below it for ever
            self.clock.advance(0)
        self.clock.rightNow = end


class Phone:
    """The calls of one node."""

    def __init__(self, household: Household, trustee: Trustee) -> None:
        self._household = household
        self._trustee = trustee

    def post(
        self, node: str, path: str, body: bytes, limit_bytes: int, addresses: Sequence[str], port: int = 14321
    ) -> Deferred[Any]:
        household = self._household
        me = self._trustee.who
        call = Call(
            me.node,
            node,
            household.clock.seconds(),
            read_request(body),
            tuple(addresses),
            port,
            limit_bytes,
            body,
        )
        household.calls.append(call)
        if node in household.hung:
            return Deferred()

        def hang_up(_: Deferred[Any]) -> None:
            if ringing.active():
                ringing.cancel()

        waiting: Deferred[Any] = Deferred(hang_up)
        ringing = household.clock.callLater(LATENCY, self._ring, call, waiting)
        return waiting

    def _ring(self, call: Call, waiting: Deferred[Any]) -> None:
        if call.node in self._household.down:
            waiting.errback(self._household.down[call.node])
            return

        def bring(result: Any) -> None:
            if not waiting.called:
                waiting.callback(result)

        Deferred.fromCoroutine(self._answer(call)).addBoth(bring)

    async def _answer(self, call: Call) -> Answer:
        there, address = self._household.nodes[call.node], self._household.address(call.node)
        leaf = PeerLeaf.of(self._trustee.who.leaf)
        was_pinned = there.pins.check(leaf).pinned
        try:
            reply = await answer(there, call.request, leaf, self._household.address(call.source))
        except (NotIntroduced, OtherCluster) as refusal:
            status = 403 if isinstance(refusal, NotIntroduced) else 409
            body = msgspec.json.encode({"error": {"code": "x"}, "evidence": there.evidence(leaf)})
            result = Answer(status, body, address)
        else:
            result = Answer(200, msgspec.json.encode(reply), address)
        if was_pinned and not there.pins.check(leaf).pinned:
            raise PeerUnreachable("refused", met=True)  # it cut us off in the middle of that (CL-18)
        if call.node in self._household.fates:
            result = self._household.fates[call.node](call, result)
        call.answer = result
        return result


class Node:
    """A node with its gossip."""

    def __init__(self, household: Household, trustee: Trustee) -> None:
        self.trust = trustee
        self.uuid = trustee.who.node
        self.phone = Phone(household, trustee)
        self.errors = Entries()
        self.known: dict[str, list[str]] = {}
        self.gossip = Gossip(
            household.clock,
            trustee,
            self.phone,
            lambda node: self.known.get(node, [household.address(node)]),
            self.errors,  # type: ignore[arg-type]  # as much of a book as is asked for
            INSTANCE,
            uniform=lambda least, most: (least + most) / 2,
        )
