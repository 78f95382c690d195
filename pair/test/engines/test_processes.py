"""Who a process is (EN-23, EN-24)."""

from __future__ import annotations

import os
import signal

from twisted.trial.unittest import SynchronousTestCase

from pair.engines.processes import HostProcesses, Mark, same


class SameTests(SynchronousTestCase):
    def test_same(self) -> None:
        """Pid and birth always, the executable where it is known."""
        shown = Mark(1, 2.0, "/bin/a")
        self.assertTrue(same(Mark(1, 2.0), shown))
        self.assertTrue(same(Mark(1, 2.0, "/bin/a"), shown))
        for other in (Mark(1, 2.0, "/bin/b"), Mark(1, 2.01, "/bin/a"), Mark(2, 2.0, "/bin/a")):
            self.assertFalse(same(other, shown))
        self.assertFalse(same(shown, None))


class HostProcessesTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.processes = HostProcesses()

    def test_ourselves(self) -> None:
        """We are who we are each time that we look."""
        mark = self.processes.look(os.getpid())
        assert mark is not None
        self.assertEqual(mark, self.processes.look(os.getpid()))
        self.assertEqual((mark.pid, mark.executable), (os.getpid(), os.path.realpath(f"/proc/{os.getpid()}/exe")))
        self.assertTrue(self.processes.boot)

    def test_nobody(self) -> None:
        """A pid that nobody has: no mark, no descendants, no signal."""
        pid = 2**22 + 1
        self.assertIsNone(self.processes.look(pid))
        self.assertEqual(self.processes.descendants(pid), ())
        self.assertFalse(self.processes.send(Mark(pid, 1.0), signal.SIGKILL))

    def test_no_signal_to_another(self) -> None:
        """A process of another birth gets no signal, though it has the pid (EN-24)."""
        mark = self.processes.look(os.getpid())
        assert mark is not None
        self.assertFalse(self.processes.send(Mark(mark.pid, mark.born - 1), signal.SIGKILL))
        self.assertFalse(self.processes.send(Mark(mark.pid, mark.born, "/bin/other"), signal.SIGKILL))
        self.assertTrue(self.processes.send(mark, 0))
