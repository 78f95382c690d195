"""Signals, exit codes and the watchdog of a real process (OP-3, OP-48, OP-52, OP-53)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import IO

from twisted.trial.unittest import SynchronousTestCase

LIMIT = 30
"""Seconds after which a process is killed, which then fails its test."""


class ProcessTests(SynchronousTestCase):
    """A node of a few lines in a process of its own."""

    def begin(self, fault: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "pair.test.integration.small_process", fault],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        limit = threading.Timer(LIMIT, process.kill)
        limit.start()
        for cleanup in (limit.cancel, process.communicate, process.kill):
            self.addCleanup(cleanup)
        return process

    def wait_for(self, process: subprocess.Popen[str], word: str) -> None:
        """Read its output up to a line with ``word``."""
        output: IO[str] | None = process.stdout
        assert output is not None
        for line in output:
            if word in line:
                return
        self.fail(f"it ended without saying {word!r}")

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        """Its exit code, what else it said, and its last line on standard error."""
        output, errors = process.communicate()
        return process.returncode, output, (errors.splitlines() or [""])[-1]

    def test_term(self) -> None:
        """SIGTERM ends it in order, with 0 and not by the signal (OP-3, OP-52)."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            process = self.begin("well")
            self.wait_for(process, "started")
            process.send_signal(signum)
            code, output, last = self.end(process)
            self.assertEqual((code, last), (0, ""))
            self.assertIn("stopping", output)

    def test_second_term(self) -> None:
        """A second one ends it at once with 70, and it says so (OP-52)."""
        process = self.begin("does not stop")
        self.wait_for(process, "started")
        process.send_signal(signal.SIGTERM)
        self.wait_for(process, "stopping")
        process.send_signal(signal.SIGTERM)
        code, _, last = self.end(process)
        self.assertEqual(code, 70)
        self.assertIn("asked twice", last)

    def test_start_that_fails(self) -> None:
        """The code tells why, and the last line on standard error what to do (OP-3)."""
        code, _, last = self.end(self.begin("no state"))
        self.assertEqual((code, last), (73, "pair: /state: it is read-only; choose another place"))

    def test_hangup(self) -> None:
        """SIGHUP reopens the log files (OP-52)."""
        process = self.begin("well")
        self.wait_for(process, "started")
        process.send_signal(signal.SIGHUP)
        self.wait_for(process, "reopened")

    def test_stacks(self) -> None:
        """SIGUSR1 writes the stacks of all threads to the log (OP-52)."""
        process = self.begin("well")
        self.wait_for(process, "started")
        process.send_signal(signal.SIGUSR1)
        self.wait_for(process, "Thread MainThread is here:")

    def test_blocked_reactor(self) -> None:
        """One that is blocked is told with the place, and then ends with 70 (OP-48)."""
        process = self.begin("blocks")
        code, output, last = self.end(process)
        self.assertEqual(code, 70)
        self.assertIn("block_the_reactor", output)
        self.assertIn("start it again", last)

    def test_stop_that_overruns(self) -> None:
        """A stop that does not end is ended by the watchdog with 70 (OP-53)."""
        process = self.begin("overruns")
        self.wait_for(process, "started")
        process.send_signal(signal.SIGTERM)
        code, _, last = self.end(process)
        self.assertEqual(code, 70)
        self.assertIn("did not end in time", last)
