"""Signals and exit codes (OP-3, OP-52)."""

from __future__ import annotations

import resource
import signal
from typing import TYPE_CHECKING

from twisted.application.service import IService
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from pair.supervision.ordered import StartFailed, StopFailed
from pair.supervision.process import DESCRIPTORS, ExitCode, INode, NodeProcess, OperatingSystem
from pair.test.supervision.doubles import Part, PartError

if TYPE_CHECKING:
    from collections.abc import Callable


class Surroundings:
    """An operating system that writes down what is done to it."""

    def __init__(self) -> None:
        self.handlers: dict[int, Callable[[], None]] = {}
        self.last: list[Callable[[], None]] = []
        self.exits: list[int] = []
        self.said: list[str] = []
        self.settled = 0
        self.widened = False

    def handle(self, signum: int, handler: Callable[[], None]) -> None:
        self.handlers[signum] = handler

    def at_exit(self, last: Callable[[], None]) -> None:
        self.last.append(last)

    def exit(self, code: int) -> None:
        self.exits.append(code)

    def say(self, line: str) -> None:
        self.said.append(line)

    def widen(self) -> None:
        self.widened = True

    def settle(self) -> None:
        self.settled += 1


@implementer(IReactorFromThreads)
class Reactor(MemoryReactorClock):
    """Keeps whether it was stopped, and fires what is to run when it runs."""

    stops = 0

    def callFromThread(self, callable: Callable[..., object], *args: object, **kwargs: object) -> None:
        callable(*args, **kwargs)

    def stop(self) -> None:
        self.stops += 1

    def run_now(self) -> None:
        for call, args, kw in self.whenRunningHooks:
            call(*args, **kw)


class StateError(PartError):
    """An error of the start whose text is for people."""


@implementer(INode)
class Node(Part):
    """A node that writes down what is asked of it."""

    def reopen_logs(self) -> None:
        self.diary.append("reopen")


verifyObject(INode, Node("", []))


class NodeProcessTests(SynchronousTestCase):
    """A process with a node that does what the test says."""

    def setUp(self) -> None:
        self.reactor = Reactor()
        self.diary: list[str] = []
        self.surroundings = Surroundings()

    def process(
        self, start: Deferred[None] | Exception | None = None, stop: Deferred[None] | Exception | None = None
    ) -> NodeProcess:
        """Start one, up to a running reactor."""
        process = NodeProcess(
            Node("node", self.diary, start, stop),
            self.reactor,
            {StateError: ExitCode.STATE},
            self.surroundings,
        )
        verifyObject(IService, process)
        process.startService()
        self.reactor.run_now()
        return process

    def leave(self, process: NodeProcess) -> tuple[list[int], list[str]]:
        """Stop it as the reactor does, end the interpreter; the exit codes and what standard error has."""
        self.successResultOf(process.stopService())
        for last in self.surroundings.last:
            last()
        return self.surroundings.exits, self.surroundings.said

    def test_starts_with_the_reactor(self) -> None:
        """Nothing of the node is started before the reactor runs, and so after twistd's fork."""
        process = NodeProcess(Node("node", self.diary), self.reactor, {}, self.surroundings)
        process.startService()
        self.assertEqual((self.diary, self.surroundings.handlers), ([], {}))
        self.reactor.run_now()
        self.assertEqual(self.diary, ["start node"])
        self.assertTrue(self.surroundings.widened)

    def test_descriptors(self) -> None:
        """The soft limit of open files is raised to the hard one, and no other limit is touched (OP-12)."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
        most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
        for _ in range(2):
            OperatingSystem().widen()
            self.assertEqual(resource.getrlimit(resource.RLIMIT_NOFILE), (most, hard))

    def test_settles(self) -> None:
        """What a start has made is left to itself when the start is over, and only then."""
        start: Deferred[None] = Deferred()
        self.process(start)
        self.assertEqual(self.surroundings.settled, 0)
        start.callback(None)
        self.assertEqual(self.surroundings.settled, 1)

    def test_term(self) -> None:
        """SIGTERM begins the ordered stop, which ends with 0: the interpreter ends by itself (OP-52)."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            self.reactor = Reactor()
            process = self.process()
            self.surroundings.handlers[signum]()
            self.assertEqual(self.reactor.stops, 1)
            self.assertEqual(self.leave(process), ([], []))
        self.assertEqual(self.diary, ["start node", "stop node"] * 2)

    def test_second_term(self) -> None:
        """A second one ends the process at once with 70 (OP-52)."""
        self.process(stop=Deferred())
        self.surroundings.handlers[signal.SIGTERM]()
        self.assertEqual(self.surroundings.exits, [])
        self.surroundings.handlers[signal.SIGINT]()
        self.assertEqual(self.surroundings.exits, [70])

    def test_hup(self) -> None:
        """SIGHUP reopens the log files (OP-52)."""
        self.process()
        self.surroundings.handlers[signal.SIGHUP]()
        self.assertEqual(self.diary, ["start node", "reopen"])

    def test_restart(self) -> None:
        """A restart is an ordered stop with 76 (OP-3)."""
        process = self.process()
        process.end(ExitCode.RESTART)
        self.assertEqual(self.reactor.stops, 1)
        self.assertEqual(self.leave(process), ([76], []))

    def test_known_failure_of_the_start(self) -> None:
        """A known error ends the process with its code, and its own words are the last line (OP-3)."""
        error = StateError("/state: it is read-only; choose another place")
        process = self.process(start=StartFailed("store", Failure(error)))
        self.assertEqual(self.reactor.stops, 1)
        self.assertEqual(self.leave(process), ([73], ["/state: it is read-only; choose another place"]))

    def test_known_failure_beneath_others(self) -> None:
        """It is found in whatever nested part it arose."""
        inner = StartFailed("store", Failure(StateError("full")))
        self.assertEqual(self.leave(self.process(start=StartFailed("storage", Failure(inner))))[0], [73])

    def test_unknown_failure_of_the_start(self) -> None:
        """Any other failure ends it with 70, and names the part, but not the words of the error (OP-34)."""
        process = self.process(start=StartFailed("identity", Failure(PartError("words of others"))))
        codes, said = self.leave(process)
        self.assertEqual(codes, [70])
        self.assertEqual(said, ["the start of identity failed (PartError: it failed); the log says more"])

    def test_failure_outside_of_the_order(self) -> None:
        """A failure of no part in particular is logged with its stack (OP-3)."""
        codes, said = self.leave(self.process(start=PartError("words of others")))
        self.assertEqual((codes, said), ([70], ["the start failed; the log says more"]))
        self.assertEqual(len(self.flushLoggedErrors(PartError)), 1)

    def test_stop_during_start(self) -> None:
        """A start that a stop cancels has not failed: the process ends with 0."""
        starting: Deferred[None] = Deferred()
        process = self.process(start=starting)
        self.surroundings.handlers[signal.SIGTERM]()
        starting.errback(CancelledError())
        self.assertEqual(self.leave(process), ([], []))

    def test_failed_stop(self) -> None:
        """A stop that is not in order ends the process with 70, and the parts are named (OP-3)."""
        process = self.process(stop=StopFailed(("store", "engines")))
        process.end(ExitCode.ORDERLY)
        self.assertEqual(self.leave(process), ([70], ["the stop of store, engines failed; the log says more"]))

    def test_failed_stop_after_failed_start(self) -> None:
        """What went wrong first is what is told."""
        process = self.process(start=StartFailed("store", Failure(StateError("full"))), stop=StopFailed(("store",)))
        self.assertEqual(self.leave(process), ([73], ["full"]))

    def test_first_end_counts(self) -> None:
        """Once the process ends, another wish has no effect."""
        process = self.process()
        process.end(ExitCode.RESTART)
        process.end(ExitCode.ORDERLY)
        self.assertEqual(self.reactor.stops, 1)
        self.assertEqual(process.code, ExitCode.RESTART)
