"""Real child processes: the shim, the signals, the taking back (EN-22 to EN-24, EN-35)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from pair.engines.children import Child, Children
from pair.engines.facts import Launch
from pair.engines.processes import HostProcesses
from pair.test.engines.toy import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

TELLS = """
import os, sys
print(os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid())
print(repr(sys.stdin.read()))
print(sorted(int(each) for each in os.listdir("/proc/self/fd"))[:-1])
print(os.environ.get("PAIR_X"), os.environ.get("TOY_KEY"))
print("oops", file=sys.stderr)
sys.exit(7)
"""
DEAF = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
stray = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(stray.pid, flush=True)
signal.pause()
"""
WAITS = "import signal; print('up', flush=True); signal.pause()"


class ChildProcessTests(TestCase):
    timeout = 60

    def setUp(self) -> None:
        self.processes = HostProcesses()
        self.memory = Memory()
        self.children = self.made()

    def made(self) -> Children:
        environment = {"PATH": os.environ["PATH"], "PAIR_X": "1"}
        return Children(reactor, reactor, self.processes, self.memory, environment, lambda: 0, "")

    async def start(self, *argv: str) -> Child:
        child = await self.children.start("toy", 7100, Launch(argv, {"TOY_KEY": "sesame"}))
        self.addCleanup(lambda: Deferred.fromCoroutine(child.stop(0.0)))
        return child

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await deferLater(reactor, 0.01)

    async def test_what_it_is_given(self) -> None:
        """A session and a group of its own, no input, no stray descriptors, the environment of EN-72."""
        child = await self.start(sys.executable, "-c", TELLS)
        self.assertEqual(await child.when_ended(), "exit code 7")
        lines = [(each.stream, each.text) for each in child.ring.lines()]
        self.assertEqual(
            [text for stream, text in lines if stream == "stdout"], ["True True", "''", "[0, 1, 2]", "None sesame"]
        )
        self.assertIn(("stderr", "oops"), lines)

    async def test_no_such_program(self) -> None:
        """A program that is not there is told in the output."""
        child = await self.start("/no/such/program")
        self.assertEqual(await child.when_ended(), "exit code 127")
        self.assertEqual(child.ring.end(), "/no/such/program: No such file or directory")

    async def test_no_record(self) -> None:
        """Without its record stored the program is never run."""
        mark = Path(self.mktemp()).absolute()
        self.memory.broken = True
        child = await self.start(sys.executable, "-c", f"open({str(mark)!r}, 'w')")
        self.assertEqual(await child.when_ended(), "exit code 0")
        self.assertFalse(mark.exists())
        self.flushLoggedErrors(OSError)

    async def test_deaf_with_a_stray(self) -> None:
        """One that ignores TERM, and its child that left the group, are gone after the grace; nothing is left."""
        child = await self.start(sys.executable, "-c", DEAF)
        await self.until(lambda: bool(child.ring.lines()))
        stray = int(child.ring.lines()[0].text)
        self.assertTrue(await child.stop(0.3))
        self.assertEqual(await child.when_ended(), "signal 9")
        self.assertIsNone(self.processes.look(child.record.mark.pid))
        self.assertIsNone(self.processes.look(stray))

    async def test_taken_back(self) -> None:
        """Another life of ours takes the process back by its record, sees it end, and ends it."""
        child = await self.start(sys.executable, "-c", WAITS)
        await self.until(lambda: bool(child.ring.lines()))
        record = child.identify()
        self.assertEqual(record.mark.executable, os.path.realpath(sys.executable))
        again = self.made().take_back(record)
        assert again is not None
        self.assertTrue(await again.stop(5.0))
        self.assertEqual((again.running, await child.when_ended()), (False, "signal 15"))
        self.assertIsNone(self.made().take_back(record))
