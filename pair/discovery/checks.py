"""Rounds of checks: whether a node answers at all, when nothing else shows that it is there (DS-56)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore

from pair.addresses import Place
from pair.logs import Logger
from pair.records.asking import AskFailed
from pair.records.nodes import EvidenceKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IReactorTime

    from pair.discovery.asking import Asking
    from pair.records.asking import Answer

AT_ONCE = 8
"""Rounds of strangers, and as many of others, who do not wait for strangers: anybody can make up hundreds of these."""

ROUND_SECONDS = 2.0
NODE_INFO_SECONDS = 1.5
"""How long a round may take, and that part of it in which node-info has to answer."""

log = Logger()


class Aim(Struct, frozen=True):
    """How a node is asked.

    ``uuid`` is None while it is not known; with ``pinned`` it has to prove who
    it is. ``ni`` and ``em`` are where its two services may be, none where a
    service is not to be asked.
    """

    uuid: str | None = None
    pinned: bool = False
    ni: tuple[Place, ...] = ()
    em: tuple[Place, ...] = ()


class Checked(Struct, frozen=True):
    """How a round ended: who the node is by then, and what answered; None: nothing."""

    key: str
    answer: EvidenceKind | None


class _Round:
    """One that is under way, or waits for its turn."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.waiting: list[Deferred[Checked]] = []
        self.work: Deferred[None] | None = None


class Checks:
    """The rounds of all nodes, one for each node, and of each kind :data:`AT_ONCE` at once.

    Args:
        clock: for their time limits.
        asking: asks.
        aim: how the node with a key is to be asked, when its turn comes.
        by_hand: asks at the addresses that people gave for it; gives whether it answered, and does not fail.
        answered: told of each answer of a node-info.
        silent: told the UUID of each node of which no node-info answered.
        stranger: whether multicast alone tells of the node with a key.
    """

    def __init__(
        self,
        clock: IReactorTime,
        asking: Asking,
        aim: Callable[[str], Aim],
        by_hand: Callable[[str], Deferred[bool]],
        answered: Callable[[Answer, Aim], None],
        silent: Callable[[str], None],
        stranger: Callable[[str], bool],
    ) -> None:
        self._clock = clock
        self._asking = asking
        self._aim = aim
        self._by_hand = by_hand
        self._answered = answered
        self._silent = silent
        self._stranger = stranger
        self._slots = DeferredSemaphore(AT_ONCE)
        self._strangers_slots = DeferredSemaphore(AT_ONCE)
        self._rounds: dict[str, _Round] = {}

    def ask(self, key: str) -> Deferred[Checked]:
        """Check a node. Whoever asks while it is being checked gets the same answer."""
        waiting: Deferred[Checked] = Deferred()
        there = self._rounds.get(key)
        if there is not None:
            there.waiting.append(waiting)
            return waiting
        begun = self._rounds[key] = _Round(key)
        begun.waiting.append(waiting)
        slots = self._strangers_slots if self._stranger(key) else self._slots
        begun.work = slots.run(lambda: Deferred.fromCoroutine(self._turn(begun)))
        begun.work.addErrback(lambda failure: failure.trap(CancelledError) and None)
        return waiting

    def rekey(self, old: str, new: str) -> None:
        """The key of a node is another; a round under way tells its end by the new one."""
        there = self._rounds.pop(old, None)
        if there is not None:
            there.key = new
            self._rounds.setdefault(new, there)

    def close(self) -> None:
        """Cancel all rounds, and those who wait for them."""
        rounds, self._rounds = self._rounds, {}
        for each in reversed(rounds.values()):  # or the first would make room for the next
            waiting, each.waiting = each.waiting, []
            if each.work is not None:
                each.work.cancel()
            for one in waiting:
                one.cancel()

    async def _turn(self, turn: _Round) -> None:
        answer: EvidenceKind | None = None
        try:
            answer = await self._round(turn.key)
        except CancelledError:
            raise
        except Exception:  # noqa: BLE001 - a fault in one check must not leave its node unchecked for ever
            log.failure("A check of a node failed by a fault of PAIR.")
        if self._rounds.get(turn.key) is turn:
            del self._rounds[turn.key]
        for each in turn.waiting:
            each.callback(Checked(turn.key, answer))

    async def _round(self, key: str) -> EvidenceKind | None:
        aim = self._aim(key)
        ends = self._clock.seconds() + ROUND_SECONDS
        hand = self._by_hand(key)
        mistaken = False
        if aim.ni:
            try:
                answer = await self._asking.node_info(aim.uuid, aim.ni, NODE_INFO_SECONDS)
            except AskFailed as failed:
                mistaken = failed.word == "other"
                if aim.uuid is not None:
                    self._silent(aim.uuid)
            else:
                self._answered(answer, aim)
                return "probe_ni"
        if await hand:
            return "probe_ni"
        # Of a stranger any connection counts, unless it is known to be somebody else's.
        if aim.em and (aim.pinned or not mistaken):
            left = max(ROUND_SECONDS - NODE_INFO_SECONDS, ends - self._clock.seconds())
            if await self._asking.knock(aim.uuid, aim.em, aim.pinned, left):
                return "probe_em"
        return None
