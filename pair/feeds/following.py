"""When a follower connects, and when it tries again (JB-20 to JB-25). A machine.

``Resting`` → ``Connecting`` → ``Following``; from a stream that ended, or that
was not to be had, it goes to ``Waiting`` and from there to the next one; from
one that is not the origin's, to ``Shunning``, which nothing cuts short. It must
not know what is made of the records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from automat import TypeMachineBuilder

from pair.feeds.reader import (
    Beaten,
    CaughtUp,
    Changed,
    Fault,
    Foreign,
    Greeted,
    Incompatible,
    Left,
    Removed,
    Replaced,
)
from pair.logs import Logger
from pair.privacy import clean_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IDelayedCall, IReactorTime
    from twisted.python.failure import Failure

    from pair.feeds.reader import FeedReader, Told
    from pair.feeds.watch import Watch

R = TypeVar("R")

WAITS = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds between tries; the last for all that follow. Each up to ``JITTER`` of it more or less (JB-21)."""

JITTER = 0.2
PROVEN_SECONDS = 10.0
"""A stream that was live for so long makes the waits short again."""

NUDGE_SECONDS = 1.0
"""From one try to the next, whatever word comes: records, which anybody sends, bring any number of new addresses."""

HELLO_SECONDS = 5.0
SILENCE_SECONDS = 12.0
SHUN_SECONDS = 60.0

log = Logger()


class NotReachedError(Exception):
    """A stream was not to be had. Its text is a fixed word or two, for the log."""


class Receiver(Protocol):
    """Where a stream is delivered."""

    def received(self, data: bytes) -> None:
        """The next bytes."""

    def lost(self) -> None:
        """Its connection is gone, by whatever cause: called once, and last."""


class Stream(Protocol):
    """The body of an answer with 200. Nothing of it is read before it is delivered."""

    def deliver(self, receiver: Receiver) -> None:
        """Give it to ``receiver``."""

    def abort(self) -> None:
        """Close the connection at once. Calling it again, or of one that is gone, does nothing."""


class Course(Protocol):
    """What can happen to a follower."""

    def follow(self) -> None:
        """It is to follow from now on."""

    def rest(self) -> None:
        """It is not to follow any more."""

    def nudge(self) -> None:
        """There is a reason to think that the origin can be reached now."""

    def _due(self) -> None:
        """The wait is over."""

    def _reached(self, stream: Stream) -> None:
        """There is a stream."""

    def _missed(self) -> None:
        """There is none."""

    def _ended(self) -> None:
        """It has ended."""

    def _spurned(self) -> None:
        """It was none of the origin's, or none that this node understands."""


@dataclass
class Core(Generic[R]):
    """What the machine works with."""

    clock: IReactorTime
    ask: Callable[[], Deferred[Stream]]
    reader: FeedReader[R]
    watch: Watch[R]
    uniform: Callable[[float, float], float]
    settled: Callable[[], None]
    tries: int = 0
    tried_at: float = -math.inf
    nudged: bool = False
    open: set[Session[R]] = field(default_factory=set)

    @property
    def early(self) -> float:
        """How long it is too early to try again, though there is word of the origin."""
        return max(0.0, self.tried_at + NUDGE_SECONDS - self.clock.seconds())

    def wait(self) -> float:
        """How long to wait now, in seconds."""
        if self.nudged:
            self.nudged = False
            return self.early
        wait = WAITS[min(self.tries, len(WAITS) - 1)]
        self.tries += 1
        return wait * self.uniform(1 - JITTER, 1 + JITTER)


class Attempt(Generic[R]):
    """A stream that was asked for. Given up, nothing more is heard of it."""

    def __init__(self, machine: Course, core: Core[R]) -> None:
        core.nudged = False
        core.tried_at = core.clock.seconds()
        self._machine = machine
        self._watch = core.watch
        self._given_up = False
        self._going = core.ask()
        self._going.addCallbacks(self._came, self._failed)

    def give_up(self) -> None:
        """It is not wanted any more."""
        self._given_up = True
        self._going.cancel()

    def _came(self, stream: Stream) -> None:
        if self._given_up:
            stream.abort()
        else:
            self._machine._reached(stream)

    def _failed(self, failure: Failure) -> None:
        if self._given_up:
            return
        known = failure.check(NotReachedError) is not None
        if not known:
            log.failure("A stream was not asked for as it should be.", failure)
        self._watch.broken(str(failure.value) if known else "a fault in PAIR")
        self._machine._missed()


class Session(Generic[R]):
    """A stream that is being read."""

    def __init__(self, machine: Course, core: Core[R], stream: Stream) -> None:
        self._machine = machine
        self._core = core
        self._stream = stream
        self._over = False
        self._live_since: float | None = None
        self._silence = core.clock.callLater(HELLO_SECONDS, self._silent)
        core.open.add(self)
        core.reader.begin()
        stream.deliver(self)

    def received(self, data: bytes) -> None:
        """See :class:`Receiver`."""
        if self._over:
            return
        reader = self._core.reader
        lines = reader.lines
        told = reader.read(data)
        if reader.lines != lines:
            self._silence.reset(SILENCE_SECONDS)
            self._core.watch.line()
        for each in told:
            self._tell(each)

    def lost(self) -> None:
        """See :class:`Receiver`."""
        self._core.open.discard(self)
        if not self._over:
            self._end("the connection broke")
            self._machine._ended()
        self._core.settled()

    def close(self) -> None:
        """Read no more of it."""
        self._over = True
        if self._silence.active():
            self._silence.cancel()
        self._stream.abort()

    def _tell(self, told: Told[R]) -> None:
        if self._over:  # Whoever was told of the last one has stopped the follower.
            return
        watch = self._core.watch
        match told:
            case Changed() | Removed():
                watch.news.emit(told)
            case Replaced():
                watch.news.emit(told)
                self._become_live()
            case CaughtUp():
                self._become_live()
            case Beaten(at):
                watch.beaten(at)
            case Greeted():
                watch.greeted()
            case Left(reason):
                self._end(f"it took leave: {clean_text(reason, 32)}")
                self._machine._ended()
            case Fault(reason):
                self._end(f"the stream was faulty: {reason}")
                watch.faulty()
                self._machine._ended()
            case Foreign():
                self._end("it was another's stream")
                watch.foreign()
                self._machine._spurned()
            case Incompatible(protocols):
                self._end("it speaks another protocol")
                watch.incompatible(protocols)
                self._machine._spurned()

    def _become_live(self) -> None:
        if not self._over:
            self._live_since = self._core.clock.seconds()
            self._core.watch.live()

    def _silent(self) -> None:
        self._end("silent")
        self._machine._ended()

    def _end(self, reason: str) -> None:
        self.close()
        since = self._live_since
        if since is not None and self._core.clock.seconds() >= since + PROVEN_SECONDS:
            self._core.tries = 0
        self._core.watch.broken(reason)


def _wait(machine: Course, core: Core[Any]) -> IDelayedCall:
    return core.clock.callLater(core.wait(), machine._due)


def _shun(machine: Course, core: Core[Any]) -> IDelayedCall:
    return core.clock.callLater(SHUN_SECONDS, machine._due)


def _attempt(machine: Course, core: Core[Any]) -> Attempt[Any]:
    return Attempt(machine, core)


def _read(machine: Course, core: Core[Any], stream: Stream) -> Session[Any]:
    return Session(machine, core, stream)


def _build() -> Callable[[Core[Any]], Course]:
    builder = TypeMachineBuilder(Course, Core[Any])
    resting = builder.state("Resting")
    waiting = builder.state("Waiting", _wait)
    shunning = builder.state("Shunning", _shun)
    connecting = builder.state("Connecting", _attempt)
    following = builder.state("Following", _read)

    resting.upon(Course.follow).to(connecting).returns(None)
    resting.upon(Course.nudge).loop().returns(None)
    resting.upon(Course.rest).loop().returns(None)
    # What is heard in the very turn of a stop.
    resting.upon(Course._missed).loop().returns(None)
    resting.upon(Course._ended).loop().returns(None)
    resting.upon(Course._spurned).loop().returns(None)

    waiting.upon(Course._due).to(connecting).returns(None)
    shunning.upon(Course._due).to(connecting).returns(None)
    shunning.upon(Course.nudge).loop().returns(None)

    @waiting.upon(Course.nudge).loop()
    def soon(machine: Course, core: Core[Any], timer: IDelayedCall) -> None:
        if core.early:
            timer.reset(min(core.early, timer.getTime() - core.clock.seconds()))
        else:
            timer.cancel()
            machine._due()

    @waiting.upon(Course.rest).to(resting)
    @shunning.upon(Course.rest).to(resting)
    def sleep(machine: Course, core: Core[Any], timer: IDelayedCall) -> None:
        timer.cancel()

    connecting.upon(Course._reached).to(following).returns(None)
    connecting.upon(Course._missed).to(waiting).returns(None)

    @connecting.upon(Course.nudge).loop()
    def again(machine: Course, core: Core[Any], attempt: Attempt[Any]) -> None:
        core.nudged = True

    @connecting.upon(Course.rest).to(resting)
    def turn_back(machine: Course, core: Core[Any], attempt: Attempt[Any]) -> None:
        attempt.give_up()

    following.upon(Course.nudge).loop().returns(None)
    following.upon(Course._ended).to(waiting).returns(None)
    following.upon(Course._spurned).to(shunning).returns(None)

    @following.upon(Course.rest).to(resting)
    def leave(machine: Course, core: Core[Any], session: Session[Any]) -> None:
        session.close()

    return builder.build()


make_course = _build()
"""Makes a machine that rests."""
