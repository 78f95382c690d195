"""A process with a node that does one thing wrong, for the tests: ``python -m pair.test.integration.small_process``.

It says ``started`` when its node was started. The argument says what goes
wrong: see :class:`Node`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from twisted.application.service import Service
from twisted.internet import reactor
from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorFromThreads
from twisted.logger import globalLogBeginner, textFileLogObserver
from zope.interface import implementer

from pair.statedir import StateError
from pair.supervision.process import ExitCode, INode, NodeProcess, die
from pair.supervision.stalls import Limits
from pair.supervision.watchdog import StallWatchdog
from pair.test.supervision.doubles import Entries


@implementer(INode)
class Node(Service):
    """A node that is well, or is as ``fault`` says."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.watchdog = StallWatchdog(
            reactor,
            IReactorFromThreads(reactor).callFromThread,
            Entries(),
            Limits(stall=0.5, entry=1.0, end=1.5),
            die,
        )

    def startService(self) -> Deferred[None] | None:
        self.watchdog.startService()
        if self.fault == "no state":
            return fail(StateError(Path("/state"), "it is read-only", "choose another place"))
        if self.fault == "blocks":
            reactor.callLater(0, self.block_the_reactor)
        print("started", file=sys.__stdout__, flush=True)
        return None

    def stopService(self) -> Deferred[None] | None:
        print("stopping", file=sys.__stdout__, flush=True)
        if self.fault == "overruns":
            self.watchdog.end_within(0.5)
        self.watchdog.stopService()
        return Deferred() if self.fault in ("overruns", "does not stop") else None

    def reopen_logs(self) -> None:
        print("reopened", file=sys.__stdout__, flush=True)

    def block_the_reactor(self) -> None:
        time.sleep(60)


def main(fault: str) -> None:
    """Run until it is over."""
    assert sys.__stdout__ is not None
    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.__stdout__)])
    process = NodeProcess(Node(fault), reactor, {StateError: ExitCode.STATE})
    process.startService()
    reactor.addSystemEventTrigger("before", "shutdown", process.stopService)
    reactor.run()


if __name__ == "__main__":
    main(sys.argv[1])
