"""Tests of :mod:`pair.protocols.reactor`, on real sockets: what Twisted's own reactor would do."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import skipUnless

from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.main import CONNECTION_DONE
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

import pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.python.failure import Failure


CHECKOUT = Path(pair.__file__).parents[1]


@implementer(IReadDescriptor)
class Reader:
    """One socket of the reactor; ``act`` is what it does when there is something to read."""

    def __init__(self, skt: socket.socket, act: Callable[[], Exception | None]) -> None:
        self.lost: list[object] = []
        self._socket = skt
        self._act = act

    def doRead(self) -> Any:
        return self._act()

    def fileno(self) -> int:
        return self._socket.fileno()

    def logPrefix(self) -> str:
        return "reader"

    def connectionLost(self, reason: Failure) -> None:
        self.lost.append(type(reason.value))


@skipUnless(sys.platform == "linux", "there is epoll on Linux only")
class LeanEPollReactorTests(SynchronousTestCase):
    """AR-8: names of Twisted's that are not public are relied on here."""

    def setUp(self) -> None:
        from pair.protocols.reactor import LeanEPollReactor

        self.reactor = LeanEPollReactor()
        self.addCleanup(self.reactor._poller.close)
        self.addCleanup(self.reactor.waker.connectionLost, None)

    def reader(self, act: Callable[[], Exception | None]) -> Reader:
        """A socket that has something to read."""
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)
        theirs.send(b"x")
        reader = Reader(ours, act)
        self.reactor.addReader(reader)
        self.addCleanup(self.reactor.removeReader, reader)
        return reader

    def test_readable(self) -> None:
        """What is readable is read, until it is."""
        calls: list[int] = []
        self.reader(lambda: calls.append(1))
        self.reactor.doPoll(0)
        self.reactor.doPoll(0)
        self.assertEqual(calls, [1, 1])

    def test_end(self) -> None:
        """One that says that it has ended is told so, and is asked no more."""
        reader = self.reader(lambda: CONNECTION_DONE)
        self.reactor.doPoll(0)
        self.assertEqual((reader.lost, reader in self.reactor.getReaders()), ([type(CONNECTION_DONE)], False))

    def test_mistake(self) -> None:
        """One that raises is logged and lost; the others are read all the same."""
        calls: list[int] = []

        def fail() -> None:
            raise ZeroDivisionError

        failing = self.reader(fail)
        self.reader(lambda: calls.append(1))
        self.reactor.doPoll(0)
        self.assertEqual((failing.lost, calls), ([ZeroDivisionError], [1]))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_closed_by_another(self) -> None:
        """One that an event of the same turn has removed is not read."""
        readers: list[Reader] = []
        calls: list[int] = []

        def close_all() -> None:
            calls.append(1)
            for each in readers:
                self.reactor.removeReader(each)

        readers += [self.reader(close_all), self.reader(close_all)]
        self.reactor.doPoll(0)
        self.assertEqual(calls, [1])

    def test_clock(self) -> None:
        """Timers go by a clock that nobody sets, which began as the time of day (AR-8)."""
        began = time.clock_gettime(time.CLOCK_BOOTTIME)
        told = self.reactor.seconds()
        self.assertLess(abs(told - time.time()), 60)
        self.patch(time, "time", lambda: 0.0)
        fired: list[float] = []
        self.reactor.callLater(0, lambda: fired.append(self.reactor.seconds()))
        self.reactor.runUntilCurrent()
        (at,) = fired
        self.assertTrue(0 <= at - told <= time.clock_gettime(time.CLOCK_BOOTTIME) - began)

    def test_twistd(self) -> None:
        """``twistd pair`` runs on it, unless another reactor is named."""
        program = (
            "import sys; from twisted.scripts.twistd import ServerOptions; ServerOptions().parseOptions(sys.argv[1:]);"
            "from twisted.internet import reactor; print(type(reactor).__name__)"
        )
        for options, name in (("pair", "LeanEPollReactor"), ("--reactor=poll pair", "PollReactor")):
            command = [sys.executable, "-c", program, *options.split()]
            done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
            self.assertEqual((done.stdout.strip(), done.stderr), (name, ""))
