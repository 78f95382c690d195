"""The process around the node: signals, how a start that fails is told, and exit codes (OP-3, OP-52).

twistd ignores what becomes of a service's start, and would end by the signal
that stopped it; what it is given is therefore one :class:`NodeProcess`, which
sees to both.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from twisted.application.service import IService, Service
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorFromThreads

from pair.logs import Logger
from pair.supervision.ordered import StartFailed, StopFailed
from pair.supervision.stacks import all_stacks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from twisted.internet.interfaces import IReactorCore
    from twisted.python.failure import Failure

log = Logger()

DESCRIPTORS = 65536
"""Files and sockets that a node may have open, where the system lets it."""


class ExitCode(IntEnum):
    """How the process ends (OP-3). 1, for wrong usage, is twistd's own."""

    ORDERLY = 0
    FAILED = 70
    STATE = 73
    ANOTHER_RUNS = 75
    RESTART = 76
    SETTINGS = 78


class INode(IService):
    """A node, as its process sees it."""

    def reopen_logs() -> None:
        """Open the log files anew, since someone moved them away."""


class Surroundings(Protocol):
    """What of the operating system and of the interpreter the process uses."""

    def handle(self, signum: int, handler: Callable[[], None]) -> None:
        """Call ``handler`` in the main thread when the signal arrives."""

    def at_exit(self, last: Callable[[], None]) -> None:
        """Call ``last`` when the interpreter ends."""

    def exit(self, code: int) -> None:
        """End at once; nothing else is run."""

    def say(self, line: str) -> None:
        """Write ``line`` on standard error."""

    def widen(self) -> None:
        """Let the process have as many files and sockets open as the system allows, up to ``DESCRIPTORS``."""

    def settle(self) -> None:
        """The start is over: what there is now stays, and need not be looked at as garbage again."""


class OperatingSystem:
    """The true :class:`Surroundings`."""

    def handle(self, signum: int, handler: Callable[[], None]) -> None:
        """See :class:`Surroundings`."""
        signal.signal(signum, lambda *_: handler())

    def at_exit(self, last: Callable[[], None]) -> None:
        """See :class:`Surroundings`."""
        atexit.register(last)

    def exit(self, code: int) -> None:
        """See :class:`Surroundings`."""
        os._exit(code)

    def say(self, line: str) -> None:
        """See :class:`Surroundings`."""
        say(line)

    def widen(self) -> None:
        """See :class:`Surroundings`. Shells and desktops give a process 1,024; only systemd asks us for more."""
        if sys.platform != "win32":
            import resource

            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
            if soft != resource.RLIM_INFINITY and soft < most:
                with suppress(OSError, ValueError):  # the system may have a limit that it does not tell
                    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

    def settle(self) -> None:
        """See :class:`Surroundings`. A full collection would hold up all streams for a tenth of a second otherwise."""
        gc.collect()
        gc.freeze()


def say(line: str) -> None:
    """Write ``line`` on the true standard error, in whose place twistd has put its log."""
    if sys.__stderr__ is not None:
        print(f"pair: {line}", file=sys.__stderr__, flush=True)


def die(line: str) -> None:
    """Write ``line`` on standard error, and end the process at once with 70. From any thread."""
    say(line)
    os._exit(ExitCode.FAILED)


class NodeProcess(Service):
    """The service that twistd runs: starts ``node``, stops it, and sees to signals and the exit code.

    Args:
        node: its start may take its time; that it fails ends the process.
        known: errors of the start whose text is for people, with their codes.
            Any other error is told by its type and part only, with
            :attr:`ExitCode.FAILED`.
    """

    def __init__(
        self,
        node: INode,
        reactor: IReactorCore,
        known: Mapping[type[BaseException], ExitCode],
        surroundings: Surroundings | None = None,
    ) -> None:
        self.code = ExitCode.ORDERLY
        self._node = node
        self._reactor = reactor
        self._known = known
        self._surroundings = surroundings or OperatingSystem()
        self._last_line = ""
        self._ending = False
        self._asked = 0

    def startService(self) -> None:
        """Start the node when the reactor runs: after twistd's fork, and with our handlers in place of its own."""
        super().startService()
        self._reactor.callWhenRunning(self._run)

    def stopService(self) -> Deferred[None]:
        """Stop the node. The Deferred fires when that has ended, well or badly."""
        super().stopService()
        self._ending = True
        return maybeDeferred(self._node.stopService).addCallbacks(lambda _: None, self._stop_failed)

    def end(self, code: ExitCode, last_line: str = "") -> None:
        """Begin the ordered stop; the process exits with ``code``, or with 70 if the stop fails.

        Args:
            code: the first to come is the one that counts.
            last_line: what happened and what to do, for standard error.
        """
        if not self._ending:
            self._ending = True
            self.code, self._last_line = code, last_line
            self._reactor.stop()

    def _run(self) -> None:
        self._surroundings.widen()
        handle = self._surroundings.handle
        handle(signal.SIGTERM, self._asked_to_stop)
        handle(signal.SIGINT, self._asked_to_stop)
        handle(signal.SIGHUP, lambda: self._soon(self._node.reopen_logs))
        handle(signal.SIGUSR1, self._asked_for_stacks)
        self._surroundings.at_exit(self._leave)
        started = maybeDeferred(self._node.startService)
        started.addCallbacks(lambda _: self._surroundings.settle(), self._start_failed)

    def _start_failed(self, failure: Failure) -> None:
        if failure.check(CancelledError) and self._ending:
            return
        if not failure.check(StartFailed):
            log.failure("The start failed.", failure)
        cause = _cause(failure)
        for kind, code in self._known.items():
            if isinstance(cause, kind):
                self.end(code, str(cause))
                return
        told = str(failure.value) if failure.check(StartFailed) else "the start failed"
        self.end(ExitCode.FAILED, f"{told}; the log says more")

    def _stop_failed(self, failure: Failure) -> None:
        if not failure.check(StopFailed):
            log.failure("The stop failed.", failure)
        if self.code in (ExitCode.ORDERLY, ExitCode.RESTART):
            told = str(failure.value) if failure.check(StopFailed) else "the stop failed"
            self.code, self._last_line = ExitCode.FAILED, f"{told}; the log says more"

    def _leave(self) -> None:
        if self._last_line:
            self._surroundings.say(self._last_line)
        if self.code != ExitCode.ORDERLY:
            self._surroundings.exit(self.code)

    # Called by signal handlers, between any two instructions of the main thread.

    def _asked_to_stop(self) -> None:
        self._asked += 1
        if self._asked > 1:
            self._surroundings.say("asked twice to stop, it ends at once; engines it had started may still run")
            self._surroundings.exit(ExitCode.FAILED)
        else:
            self._soon(self.end, ExitCode.ORDERLY)

    def _soon(self, call: Callable[..., object], *args: object) -> None:
        IReactorFromThreads(self._reactor).callFromThread(call, *args)

    def _asked_for_stacks(self) -> None:
        # In a thread of its own: the main thread may hold the lock of a queue that the log needs.
        threading.Thread(target=log_stacks, name="pair-stacks").start()


def _cause(failure: Failure) -> BaseException | None:
    """What made a start fail, beneath the parts that only pass it on."""
    error = failure.value
    while isinstance(error, StartFailed) and error.reason is not None:
        error = error.reason.value
    return error


def log_stacks() -> None:
    """Write the stacks of all threads to the log."""
    for thread, text in all_stacks().items():
        log.info("Thread {thread} is here:\n{stack}", thread=thread, stack=text)
