"""Engines as our child processes: start, output, end (EN-22 to EN-24, EN-35, EN-72).

A child lives on when we die by force; its record then leads the next start of
ours back to it. So there is no signal tied to our death, and a child does not
mind that its output goes nowhere: the shim leaves SIGPIPE ignored.
"""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import LoopingCall, deferLater

from pair.engines import spawnling
from pair.engines.processes import ChildRecord, Mark, Processes, same
from pair.engines.rings import OutputRing
from pair.logs import Logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from twisted.internet.interfaces import IDelayedCall, IReactorProcess, IReactorTime
    from twisted.python.failure import Failure

    from pair.engines.facts import Launch
    from pair.engines.memory import EngineMemory

log = Logger()

_OURS = ("PAIR_", "WATCHDOG_", "LISTEN_")
_LOOK_SECONDS = 1.0
_STEP_SECONDS = 0.1
_KILL_SECONDS = 1.0
"""How long the kernel may take to end what got KILL."""
_OUTPUT_SECONDS = 0.5
"""How long we go on reading after the exit: a process of its own may hold the pipes for ever."""


def child_environment(ours: Mapping[str, str], kind: Mapping[str, str]) -> dict[str, str]:
    """Ours, without what is meant for us alone, and what the kind adds (EN-72)."""
    kept = {name: value for name, value in ours.items() if name != "NOTIFY_SOCKET" and not name.startswith(_OURS)}
    return {**kept, **kind}


class Child:
    """One process that we started, or that our former self did.

    Args:
        record: who it is.
        ring: its output; stays empty for one that was taken back.

    Attributes:
        running: False once it has ended.
    """

    def __init__(self, record: ChildRecord, ring: OutputRing, processes: Processes, clock: IReactorTime) -> None:
        self.record = record
        self.ring = ring
        self.running = True
        self._processes = processes
        self._clock = clock
        self._reason = ""
        self._waiters: list[Deferred[str]] = []

    def when_ended(self) -> Deferred[str]:
        """Fires with the way in which it ended: ``exit code 1``, ``signal 9`` …"""
        waiter: Deferred[str] = Deferred()
        if self.running:
            self._waiters.append(waiter)
        else:
            waiter.callback(self._reason)
        return waiter

    def ended(self, reason: str) -> None:
        """It is gone."""
        if not self.running:
            return
        self.running, self._reason = False, reason
        self.ring.note(f"ended: {reason}")
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.callback(reason)

    def identify(self) -> ChildRecord:
        """The record, from now on with the executable that the process shows (EN-23)."""
        shown = self._processes.look(self.record.mark.pid)
        if shown is not None and same(self.record.mark, shown):
            self.record = ChildRecord(self.record.engine, self.record.port, self.record.boot, shown)
        return self.record

    async def stop(self, grace: float) -> bool:
        """TERM to its group; after ``grace`` seconds KILL to all that is left of it (EN-35).

        Returns:
            Whether no process of it is left.
        """
        leader = self.record.mark
        kin = self._processes.descendants(leader.pid) if self.running else ()
        self._processes.send(leader, signal.SIGTERM, group=True)
        if not await self._gone_within(grace, leader, *kin):
            self._processes.send(leader, signal.SIGKILL, group=True)
            for each in kin:
                self._processes.send(each, signal.SIGKILL)
        if not await self._gone_within(_KILL_SECONDS, leader, *kin):
            return False
        await self._noticed()
        return True

    async def _gone_within(self, seconds: float, *marks: Mark) -> bool:
        deadline = self._clock.seconds() + seconds
        while any(same(mark, self._processes.look(mark.pid)) for mark in marks):
            if self._clock.seconds() >= deadline:
                return False
            await deferLater(self._clock, _STEP_SECONDS)
        return True

    async def _noticed(self) -> None:
        await self.when_ended()


class FoundChild(Child):
    """A child of our former self. Nobody tells us of its end, so it is looked at once a second (EN-23)."""

    def watch(self) -> None:
        """Begin to look."""
        self._watch = LoopingCall(self._look)
        self._watch.clock = self._clock
        self._watch.start(_LOOK_SECONDS, now=False).addErrback(
            lambda failure: log.failure(
                "The watch over the engine {engine} broke.", failure, engine=self.record.engine
            )
        )

    def ended(self, reason: str) -> None:
        """See :class:`Child`."""
        if self._watch.running:
            self._watch.stop()
        super().ended(reason)

    def _look(self) -> None:
        if not same(self.record.mark, self._processes.look(self.record.mark.pid)):
            self.ended("it is gone")

    def _watch_broke(self, failure: Failure) -> None:
        log.failure("The watch over the engine {engine} broke.", failure, engine=self.record.engine)

    async def _noticed(self) -> None:
        self._look()


class Children:
    """Starts children, and finds those of our former self.

    Args:
        environment: ours.
        now: epoch milliseconds.
        home: the home folder, shown as ``~`` in what leaves a ring.
    """

    def __init__(
        self,
        spawner: IReactorProcess,
        clock: IReactorTime,
        processes: Processes,
        memory: EngineMemory,
        environment: Mapping[str, str],
        now: Callable[[], int],
        home: str,
    ) -> None:
        self._spawner = spawner
        self._clock = clock
        self._processes = processes
        self._memory = memory
        self._environment = environment
        self._now = now
        self._home = home

    async def start(self, engine: str, port: int, launch: Launch) -> Child:
        """A new child. It becomes what ``launch`` says once its record is stored.

        Raises:
            ChildLost: it ended before it could be looked at.
        """
        ring = OutputRing(self._now, self._home)
        output = _Output(ring, self._clock)
        transport = self._spawner.spawnProcess(
            output,
            sys.executable,
            [sys.executable, "-I", "-S", spawnling.__file__, *launch.argv],
            env=child_environment(self._environment, launch.env),
            childFDs={0: "w", 1: "r", 2: "r"},
        )
        mark = self._processes.look(transport.pid)
        if mark is None:
            raise ChildLost
        record = ChildRecord(engine, port, self._processes.boot, Mark(mark.pid, mark.born))
        child = Child(record, ring, self._processes, self._clock)
        output.end.addCallback(child.ended)

        def unkept(failure: Failure) -> None:
            log.failure("The record of the engine {engine} could not be stored.", failure, engine=engine)
            ring.note("not started: its record could not be stored")

        kept = self._memory.keep_child(record).addCallbacks(lambda _: transport.write(b"\n"), unkept)
        await kept.addBoth(lambda _: transport.closeStdin())  # without that byte the shim gives up
        return child

    def take_back(self, record: ChildRecord) -> Child | None:
        """The child of a stored record, if it is still that process (EN-23)."""
        if record.boot != self._processes.boot or not same(record.mark, self._processes.look(record.mark.pid)):
            return None
        child = FoundChild(record, OutputRing(self._now, self._home), self._processes, self._clock)
        child.watch()
        return child


class ChildLost(Exception):  # noqa: N818 - what became of it
    """The process ended at once."""


class _Output(ProcessProtocol):
    """What a child writes, and its end: ``end`` fires with the manner of it."""

    def __init__(self, ring: OutputRing, clock: IReactorTime) -> None:
        self.end: Deferred[str] = Deferred()
        self._ring = ring
        self._clock = clock
        self._patience: IDelayedCall | None = None

    def childDataReceived(self, childFD: int, data: bytes) -> None:  # noqa: N803
        self._ring.feed("stdout" if childFD == 1 else "stderr", data)

    def processExited(self, reason: Failure) -> None:
        assert self.transport is not None
        self._patience = self._clock.callLater(_OUTPUT_SECONDS, self.transport.loseConnection)

    def processEnded(self, reason: Failure) -> None:
        if self._patience is not None and self._patience.active():
            self._patience.cancel()
        self._ring.ended()
        self.end.callback(_manner(reason.value))


def _manner(error: BaseException | None) -> str:
    if isinstance(error, ProcessTerminated) and error.signal is not None:
        return f"signal {error.signal}"
    if isinstance(error, ProcessTerminated | ProcessDone):
        return f"exit code {error.exitCode}"
    return "it is gone"
