"""Carries one request at a time to the joiner, again and again until it is answered (CL-28, CL-54, CL-59).

A machine: it calls, pauses, and looks for the joiner anew when it cannot be
reached. Where it was last, it is always called before it is looked for: one
that has started anew says there that it knows of nothing, and would take the
hello of a search for a new invitation. The courier must not know what a request
says, nor judge an answer: it is told whether one was good.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from automat import TypeMachineBuilder
from msgspec import Struct

from pair.cluster.means import PlainReply  # noqa: TC001 - Automat reads the annotations of inputs
from pair.logs import Logger
from pair.privacy import normalize_error
from pair.protocols.pairing import ForeignReplyError
from pair.protocols.pairing.messages import Silent

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IDelayedCall, IReactorTime
    from twisted.python.failure import Failure

FAILURES = 3
"""So many without an answer between them, and the joiner is looked for anew; so many 404, and it has forgotten."""

_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 5.0

log = Logger()


class Parcel(Silent, Struct, frozen=True):
    """A request to be carried.

    ``seconds`` is how long one try may take, ``at`` the instant before which it
    does not leave, and ``until`` the one after which it is not tried again.
    """

    body: bytes
    mac: bytes
    seconds: float
    at: float = 0.0
    until: float = float("inf")


class Errands(Protocol):
    """What can happen to a courier."""

    def carry(self) -> None:
        """There is a new request. It takes the place of the one before."""

    def rest(self) -> None:
        """There is none any more."""

    def _due(self) -> None:
        """The pause is over."""

    def _seek(self) -> None:
        """The joiner is to be looked for."""

    def _answered(self, reply: PlainReply) -> None:
        """An answer came."""

    def _failed(self) -> None:
        """None came, or none that counts; or the joiner was not found."""

    def _found(self) -> None:
        """The joiner was found."""


class _Trip:
    """A call or a search under way, which can be given up so that nothing more is heard of it."""

    def __init__(self, going: Deferred[Any], done: Callable[..., None]) -> None:
        self._given_up = False
        self._done = done
        self._going = going
        self._going.addCallbacks(self._came, self._lost)
        self._going.addErrback(lambda failure: log.failure("A pairing request failed.", failure))

    def give_up(self) -> None:
        self._given_up = True
        self._going.cancel()

    def _came(self, result: PlainReply | bool) -> None:
        if not self._given_up:
            self._done(result)

    def _lost(self, failure: Failure) -> None:
        assert failure.value is not None, "it failed with something"
        if not self._given_up:
            log.debug("A pairing request had no answer: {error}.", error=normalize_error(failure.value))
            self._done(None)


@dataclass
class _Core:
    clock: IReactorTime
    post: Callable[[Parcel], Deferred[PlainReply]]
    search: Callable[[], Deferred[bool]]
    received: Callable[[bytes, bytes | None], None]
    forgotten: Callable[[], None]
    parcel: Parcel | None = None
    failures: int = 0
    misses: int = 0
    pause: float = field(default=0.0)

    def judge(self, machine: Errands, reply: PlainReply) -> None:
        """See what an answer is worth. A good one brings the next request, if there is one."""
        if reply.status == 404:
            self.misses += 1
            if self.misses >= FAILURES:
                self.parcel = None
                self.forgotten()
            else:
                self.retry(machine, self.misses)
            return
        parcel = self.parcel
        try:
            if reply.status != 200:
                raise ForeignReplyError
            self.received(reply.body, reply.mac)
        except ForeignReplyError:
            self.fail(machine)
        else:
            self.failures = self.misses = 0
            if self.parcel is parcel:
                self.parcel = None

    def fail(self, machine: Errands) -> None:
        """One more call without an answer."""
        self.failures += 1
        if self.failures < FAILURES:
            self.retry(machine, self.failures)
        else:
            machine._seek()

    def miss(self, machine: Errands) -> None:
        """It was not found."""
        self.retry(machine, self.failures + 1)

    def retry(self, machine: Errands, times: int) -> None:
        """The same again, after a pause."""
        now = self.clock.seconds()
        if self.parcel is None or now >= self.parcel.until:
            self.parcel = None
            return
        self.pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (times - 1))
        machine.carry()


def _pause(machine: Errands, core: _Core) -> IDelayedCall:
    pause, core.pause = core.pause, 0.0
    return core.clock.callLater(pause, machine._due)


def _call(machine: Errands, core: _Core) -> _Trip:
    assert core.parcel is not None, "there is a pause only before a request"

    def done(reply: PlainReply | None) -> None:
        if reply is None:
            machine._failed()
        else:
            machine._answered(reply)

    return _Trip(core.post(core.parcel), done)


def _search(machine: Errands, core: _Core) -> _Trip:
    def done(found: bool | None) -> None:
        if found:
            machine._found()
        else:
            machine._failed()

    return _Trip(core.search(), done)


def _build() -> Callable[[_Core], Errands]:
    builder = TypeMachineBuilder(Errands, _Core)
    idle = builder.state("Idle")
    pausing = builder.state("Pausing", _pause)
    calling = builder.state("Calling", _call)
    seeking = builder.state("Seeking", _search)

    idle.upon(Errands.carry).to(pausing).returns(None)
    idle.upon(Errands.rest).loop().returns(None)
    idle.upon(Errands._seek).to(seeking).returns(None)
    pausing.upon(Errands._due).to(calling).returns(None)

    @pausing.upon(Errands.rest).to(idle)
    def sleep(machine: Errands, core: _Core, timer: IDelayedCall) -> None:
        timer.cancel()

    @pausing.upon(Errands.carry).to(idle)
    def carry_that(machine: Errands, core: _Core, timer: IDelayedCall) -> None:
        timer.cancel()
        machine.carry()

    @calling.upon(Errands.rest).to(idle)
    @seeking.upon(Errands.rest).to(idle)
    def turn_back(machine: Errands, core: _Core, trip: _Trip) -> None:
        trip.give_up()

    @calling.upon(Errands.carry).to(idle)
    @seeking.upon(Errands.carry).to(idle)
    def change_over(machine: Errands, core: _Core, trip: _Trip) -> None:
        trip.give_up()
        machine.carry()

    @calling.upon(Errands._answered).to(idle)
    def judge(machine: Errands, core: _Core, trip: _Trip, reply: PlainReply) -> None:
        core.judge(machine, reply)

    @calling.upon(Errands._failed).to(idle)
    def try_again(machine: Errands, core: _Core, trip: _Trip) -> None:
        core.fail(machine)

    @seeking.upon(Errands._failed).to(idle)
    def miss(machine: Errands, core: _Core, trip: _Trip) -> None:
        core.miss(machine)

    @seeking.upon(Errands._found).to(calling)
    def go_there(machine: Errands, core: _Core, trip: _Trip) -> None:
        core.failures = 0

    return builder.build()


_make = _build()


class Courier:
    """Carries the requests of one invitation."""

    def __init__(
        self,
        clock: IReactorTime,
        post: Callable[[Parcel], Deferred[PlainReply]],
        search: Callable[[], Deferred[bool]],
        received: Callable[[bytes, bytes | None], None],
        forgotten: Callable[[], None],
    ) -> None:
        """One without a request yet.

        Args:
            clock: For the pauses.
            post: Sends one to where the joiner was last; fails if no answer came in its time.
            search: Looks for the joiner at all its addresses: whether it was found.
            received: Judges an answer with 200 and its MAC; raises ``ForeignReplyError`` if it is none.
            forgotten: Called when the joiner said three times in a row that it knows of nothing.
        """
        self._core = _Core(clock, post, search, received, forgotten)
        self._machine = _make(self._core)

    def carry(self, parcel: Parcel) -> None:
        """Carry this from now on, and no other."""
        self._core.parcel = parcel
        self._core.pause = max(0.0, parcel.at - self._core.clock.seconds())
        self._machine.carry()

    def rest(self) -> None:
        """Carry nothing any more."""
        self._core.parcel = None
        self._machine.rest()
