"""Asks nodes who they are: members by their pins, strangers in the clear (DS-37, DS-52, DS-56, DS-73).

It is what the directory asks by; what reads node-info is handed in. It must not
know what is done with an answer, nor where addresses come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred

from pair.cluster.dialing import PeerUnreachable
from pair.cluster.posting import CallError
from pair.events import Signal
from pair.protocols.dial import DialError, RaceLostError, race
from pair.records.asking import Answer, AskFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twisted.internet.interfaces import IReactorTime

    from pair.addresses import Place
    from pair.cluster.getting import Got, PeerGetter
    from pair.cluster.pins import PinTable
    from pair.records.asking import AskFault
    from pair.records.telemetry import NodeInfo

PATH = "/v1/node-info"

BODY_MAX = 256 * 1024
EACH_SECONDS = 1.0
"""For one address (DS-56)."""

_BY_WEIGHT: tuple[AskFault, ...] = ("unresolvable", "unreachable", "timeout", "refused", "not_pair", "other")
"""Of several addresses, what tells least first."""


class Asker:
    """Asks.

    Args:
        clock: For limits of time, and the intervals of a race.
        getter: Brings the answers.
        pins: Who is pinned now.
        decode: Node-info out of a body; None where it is none.

    Attributes:
        strayed: Emits each answer of another node than the one that was asked (DS-69).
    """

    def __init__(
        self,
        clock: IReactorTime,
        getter: PeerGetter,
        pins: Callable[[], PinTable],
        decode: Callable[[bytes], NodeInfo | None],
    ) -> None:
        self.strayed: Signal[Answer] = Signal()
        self._clock = clock
        self._getter = getter
        self._pins = pins
        self._decode = decode

    def node_info(self, node: str | None, places: Sequence[Place], seconds: float) -> Deferred[Answer]:
        """What a node says of itself.

        Args:
            node: Its UUID. If it is pinned it is asked over mutual TLS. Else
                the first answer counts that names it; None: the first of all.
            places: Where it may be, the likeliest first. Each has a second.
            seconds: For all of them.

        Returns:
            The answer. Fails with :class:`AskFailed`.
        """

        def too_late(_: object, __: float) -> Answer:
            raise AskFailed("timeout")

        if node is not None and self._pins().pin(node) is not None:
            asking = Deferred.fromCoroutine(self._ask_member(node, places, seconds))
        else:
            asking = Deferred.fromCoroutine(self._ask_strangers(node, places))
        return asking.addTimeout(seconds, self._clock, too_late)

    def knock(self, node: str | None, places: Sequence[Place], pinned: bool, seconds: float) -> Deferred[bool]:
        """Whether anybody is there: see :meth:`PeerGetter.knock`."""
        return self._getter.knock(node, places, pinned, seconds)

    async def _ask_member(self, node: str, places: Sequence[Place], seconds: float) -> Answer:
        try:
            got = await self._getter.get(node, places, PATH, BODY_MAX, seconds, EACH_SECONDS)
        except PeerUnreachable as miss:
            raise AskFailed(_of_miss(miss)) from None
        except CallError as error:
            raise AskFailed(_of_call(error)) from None
        if got.status == 403:
            raise AskFailed("refused")
        return self._read(node, got)

    async def _ask_strangers(self, node: str | None, places: Sequence[Place]) -> Answer:
        def attempt(place: Place) -> Deferred[Answer]:
            return Deferred.fromCoroutine(self._ask_stranger(node, place))

        try:
            return await race(self._clock, places, attempt, lambda error: isinstance(error, AskFailed))
        except RaceLostError as lost:
            words = (each.word for each in lost.misses if isinstance(each, AskFailed))
            raise AskFailed(max(words, key=_BY_WEIGHT.index, default="unreachable")) from None

    async def _ask_stranger(self, node: str | None, place: Place) -> Answer:
        try:
            got = await self._getter.plain(place, PATH, BODY_MAX, EACH_SECONDS)
        except DialError as error:
            raise AskFailed(error.reason) from None
        except CallError as error:
            raise AskFailed(_of_call(error)) from None
        return self._read(node, got)

    def _read(self, node: str | None, got: Got) -> Answer:
        """What ``got`` says, if it is of ``node`` (DS-52)."""
        info = self._decode(got.body) if got.status == 200 else None
        if info is None:
            raise AskFailed("not_pair")
        answer = Answer(info, got.place, got.leaf)
        if node is not None and info.host_uuid != node:
            self.strayed.emit(answer)
            raise AskFailed("other")
        return answer


def _of_miss(miss: PeerUnreachable) -> AskFault:
    match miss.reason:
        case "certificate":
            return "other"
        case "no_pin":
            return "refused"
        case "no_address":
            return "unreachable"
        case reason:
            return reason


def _of_call(error: CallError) -> AskFault:
    if error.reason == "timeout":
        return "timeout"
    return "refused" if error.reason == "lost" else "not_pair"
