"""Nodes that people, and the settings, give by their address (DS-70 to DS-76).

Each is asked at its address alone, by whatever name resolves to by then, and
what answers there is what it is. None is trusted for that.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, TypeVar

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, DeferredLock

from pair.addresses import parse_place
from pair.discovery.addresses import parse_manual
from pair.discovery.claims import Claim
from pair.discovery.held import Held
from pair.discovery.manualrows import Row, load, static_row
from pair.logs import Logger
from pair.records.asking import AskFailed
from pair.records.nodes import DEFAULT_PORTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twisted.internet.interfaces import IReactorTime

    from pair.addresses import Interface, Place
    from pair.discovery.asking import Asking, Me
    from pair.discovery.nodes import Nodes
    from pair.interfaces import IErrorBook
    from pair.records.asking import Answer
    from pair.records.nodes import ManualNode, ProbeResult
    from pair.store import Store

_T = TypeVar("_T")

PROBE_SECONDS = 2.0
"""For one probe, with the name's resolving."""

APART_SECONDS = 10.0
"""From the end of a probe to the next of a node that is there (DS-73)."""

FAILURES = 3
"""So many in a row are told of (DS-75)."""

log = Logger()


class StaticNode(Exception):  # noqa: N818 - a fact, not a fault
    """It comes from ``discovery.static_peers``, and only an edit of the settings removes it."""


class ManualNodes(Service):
    """Those that there are.

    Args:
        clock: for probes.
        me: this node.
        nodes: where they are claimed.
        asking: asks.
        store: where the table ``manual_node`` is.
        errors: told of those that do not answer, or as another node than before.
        static: the setting ``discovery.static_peers``.
        found: the interfaces of this host.
        own_port: that of our own node-info; None: it has none.
        pinned: whether a node can be asked to prove who it is.
        answered: told of each answer: whose, what, and whether it was proven.
        now: epoch milliseconds.
        new_id: a new id for a row.
    """

    def __init__(
        self,
        clock: IReactorTime,
        me: Me,
        nodes: Nodes,
        asking: Asking,
        store: Store,
        errors: IErrorBook,
        static: Sequence[str],
        found: Callable[[], Sequence[Interface]],
        own_port: Callable[[], int | None],
        pinned: Callable[[str], bool],
        answered: Callable[[Answer, bool], None],
        now: Callable[[], int],
        new_id: Callable[[], str] = lambda: secrets.token_hex(6),
    ) -> None:
        self._clock = clock
        self._me = me
        self._nodes = nodes
        self._asking = asking
        self._store = store
        self._held = Held(errors)
        self._static = static
        self._found = found
        self._own_port = own_port
        self._pinned = pinned
        self._answered = answered
        self._now = now
        self._new_id = new_id
        self._rows: dict[str, Row] = {}
        # What people do is done one after the other: two may give one address at once.
        self._lock = DeferredLock()

    def startService(self) -> None:
        """Take up those that are stored or set, and probe them."""
        super().startService()
        static = {place: static_row(place, self._now()) for place in map(_place, self._static)}
        stored = [row for row in load(self._store) if row.place not in static]
        for row in (*stored, *static.values()):
            self._begin(row)

    def stopService(self) -> None:
        """Probe no more."""
        super().stopService()
        rows, self._rows = self._rows, {}
        for row in rows.values():
            row.rest()

    # What people do.

    def all(self) -> tuple[ManualNode, ...]:
        """Those that there are, the oldest first."""
        return tuple(row.record for row in sorted(self._rows.values(), key=lambda row: (row.added_at, row.id)))

    def add(self, text: str) -> Deferred[tuple[ManualNode, bool]]:
        """Add the node at the address ``text``, or confirm that whoever answers there is meant (DS-71, DS-74).

        Returns:
            A Deferred of the node, and whether it is new. It fails with
            :exc:`~pair.discovery.addresses.ManualError` where there is no such
            address to add. It goes on when it is cancelled.
        """
        return _detached(self._lock.run(lambda: Deferred.fromCoroutine(self._add(text))))

    def remove(self, id: str) -> Deferred[bool]:
        """Remove one; whether there was one. As with :meth:`add`.

        Raises:
            StaticNode: By the Deferred: it is set in the file.
        """
        return _detached(self._lock.run(lambda: Deferred.fromCoroutine(self._remove(id))))

    async def _add(self, text: str) -> tuple[ManualNode, bool]:
        own_port = self._own_port() or DEFAULT_PORTS["ni"]
        added = [row.place for row in self._rows.values() if not row.static]
        place = parse_manual(text, self._found(), own_port, added)
        row = next((row for row in self._rows.values() if row.place == place), None)
        if row is not None:
            if row.uuid != row.answers:
                await row.store(self._store, uuid=row.answers)
            self._judge(row)
            self._probe(row)
            return row.record, False
        row = Row(self._new_id(), place, self._now())
        await row.store(self._store)
        self._begin(row)
        return row.record, True

    async def _remove(self, id: str) -> bool:
        row = self._rows.get(id)
        if row is None:
            return False
        if row.static:
            raise StaticNode(id)
        await row.delete(self._store)
        self._rows.pop(id, None)
        self._nodes.drop(row.key, "manual", id)
        row.rest()
        self._held.set(_unreachable(row), False)
        self._held.set(_changed(row), False)
        return True

    # Probes.

    def places(self, key: str) -> frozenset[Place]:
        """The addresses that were given for a node."""
        return frozenset(row.place for row in self._rows.values() if row.key == key)

    def probe(self, key: str) -> Deferred[bool]:
        """Ask at all addresses that were given for a node; gives whether it answered at any. It does not fail."""
        return Deferred.fromCoroutine(_any([self._probe(row) for row in self._rows.values() if row.key == key]))

    def _begin(self, row: Row) -> None:
        self._rows[row.id] = row
        self._nodes.put(Claim("manual", row.answers, row.id, row.place))
        if row.probing is None and row.result == "never":  # a node that is new is checked at once
            self._probe(row)

    def _probe(self, row: Row) -> Deferred[bool]:
        """Probe one now; whoever asks while it is being probed gets the same answer."""
        told: Deferred[bool] = Deferred()
        row.waiting.append(told)
        if row.probing is None:
            row.unwait()
            row.probing = Deferred.fromCoroutine(self._turn(row))
            if row.probing.called:
                row.probing = None
        return told

    async def _turn(self, row: Row) -> None:
        good = False
        try:
            good = await self._ask(row)
        except CancelledError:
            pass  # the node was removed, or the service stops
        except Exception:  # noqa: BLE001 - the next probe is made all the same
            log.failure("A probe of a node added by address failed by a fault of PAIR.")
        row.probing = None
        if self._rows.get(row.id) is row:
            self._wait(row)
        waiting, row.waiting = row.waiting, []
        for each in waiting:
            each.callback(good)

    def _wait(self, row: Row) -> None:
        row.unwait()
        row.timer = self._clock.callLater(APART_SECONDS, self._again, row)

    def _again(self, row: Row) -> None:
        entry = self._nodes.entries.get(row.key)
        if entry is not None and entry.presence == "offline":
            self._wait(row)  # it is probed whenever the node is checked (DS-62)
        else:
            self._probe(row)

    async def _ask(self, row: Row) -> bool:
        proven = row.answers is not None and self._pinned(row.answers)
        try:
            try:
                answer = await self._asking.node_info(row.answers if proven else None, (row.place,), PROBE_SECONDS)
            except AskFailed as failed:
                if not (proven and failed.word == "other"):
                    raise
                # It is not who it was: then who is it?
                proven = False
                answer = await self._asking.node_info(None, (row.place,), PROBE_SECONDS)
        except AskFailed as failed:
            self._failed(row, "not_pair" if failed.word == "other" else failed.word)
            return False
        return self._took(row, answer, proven)

    def _took(self, row: Row, answer: Answer, proven: bool) -> bool:
        uuid = answer.info.host_uuid
        impostor = row.answers == uuid and self._pinned(uuid) and not proven
        double = uuid == self._me.uuid and answer.info.instance != self._me.instance
        if impostor or double:
            self._failed(row, "not_pair")
            if double:
                self._answered(answer, False)
            return False
        if row.answers != uuid:
            if row.answers is None:
                row.uuid = uuid
            row.answers = uuid
            self._nodes.learn(row.id, uuid)
        renewed = row.succeed(self._now())
        self._held.set(_unreachable(row), False)
        self._judge(row)
        if renewed:
            row.store_later(self._store)
        self._answered(answer, proven)
        return True

    def _failed(self, row: Row, word: ProbeResult) -> None:
        row.result = word
        row.failures += 1
        if row.failures == FAILURES:
            self._held.set(_unreachable(row), True, address=row.place, result=word)

    def _judge(self, row: Row) -> None:
        """Whether another answers there than the one that was meant."""
        self._held.set(_changed(row), row.uuid != row.answers, address=row.place)


async def _any(probes: Sequence[Deferred[bool]]) -> bool:
    return any([await each for each in probes])


def _place(text: str) -> Place:
    return parse_place(text, DEFAULT_PORTS["ni"])


def _unreachable(row: Row) -> str:
    return f"discovery:manual_unreachable:{row.id}"


def _changed(row: Row) -> str:
    return f"discovery:manual_identity_changed:{row.id}"


def _detached(work: Deferred[_T]) -> Deferred[_T]:
    """The outcome of ``work``, which goes on though nobody waits for it any more."""
    outcome: Deferred[_T] = Deferred()
    work.addCallbacks(outcome.callback, outcome.errback)
    return outcome
