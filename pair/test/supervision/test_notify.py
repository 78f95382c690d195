"""What systemd is told (OP-23)."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

from twisted.application.service import IService
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from pair.supervision.notify import SystemdNotifier

PID = 4711


class SystemdNotifierTests(SynchronousTestCase):
    """A socket of our own plays systemd."""

    def setUp(self) -> None:
        self.clock = Clock()
        # Not under mktemp(): the path of a socket has room for some hundred bytes only.
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = str(Path(folder.name) / "notify")
        self.manager = self.listen(self.path)

    def listen(self, address: str) -> socket.socket:
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        manager.bind(address)
        manager.setblocking(False)
        self.addCleanup(manager.close)
        return manager

    def heard(self) -> list[str]:
        """All that came since the last call."""
        messages = []
        while True:
            try:
                messages.append(self.manager.recv(4096).decode())
            except BlockingIOError:
                return messages

    def notifier(self, alive: bool = True, **environ: str) -> SystemdNotifier:
        self.alive = alive
        notifier = SystemdNotifier(self.clock, {"NOTIFY_SOCKET": self.path, **environ}, PID, lambda: self.alive)
        notifier.startService()
        return notifier

    def test_provides_interface(self) -> None:
        """It is a service."""
        verifyObject(IService, self.notifier())

    def test_messages(self) -> None:
        """Each message is one datagram of assignments."""
        notifier = self.notifier()
        notifier.extend(90)
        notifier.status("opening the store")
        notifier.ready("serves on http://127.0.0.1:11434")
        notifier.stopping()
        self.assertEqual(
            self.heard(),
            [
                "EXTEND_TIMEOUT_USEC=90000000",
                "STATUS=opening the store",
                "READY=1\nSTATUS=serves on http://127.0.0.1:11434",
                "STOPPING=1\nSTATUS=stopping",
            ],
        )

    def test_abstract_socket(self) -> None:
        """An address that begins with ``@`` is in the abstract name space."""
        name = f"pair-test-{id(self)}"
        self.manager = self.listen(f"\0{name}")
        self.notifier(NOTIFY_SOCKET=f"@{name}").ready("up")
        self.assertEqual(self.heard(), ["READY=1\nSTATUS=up"])

    def test_signs_of_life(self) -> None:
        """They come every third of what systemd allows."""
        self.notifier(WATCHDOG_USEC="30000000", WATCHDOG_PID=str(PID))
        self.clock.pump([10, 10, 9.9])
        self.assertEqual(self.heard(), ["WATCHDOG=1"] * 3)

    def test_signs_of_life_are_withheld(self) -> None:
        """None is sent while the store's writer hangs, so that systemd restarts us."""
        self.notifier(WATCHDOG_USEC="30000000")
        self.heard()
        self.alive = False
        self.clock.pump([10, 10])
        self.assertEqual(self.heard(), [])

    def test_no_signs_wanted(self) -> None:
        """None is sent when systemd awaits none, or awaits them from another process."""
        self.notifier()
        self.notifier(WATCHDOG_USEC="0")
        self.notifier(WATCHDOG_USEC="30000000", WATCHDOG_PID=str(PID + 1))
        self.assertEqual(self.heard(), [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop(self) -> None:
        """The signs end with the service."""
        notifier = self.notifier(WATCHDOG_USEC="30000000")
        self.successResultOf(notifier.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_without_systemd(self) -> None:
        """Where nobody asked for it, nothing is sent and nothing fails."""
        notifier = self.notifier(NOTIFY_SOCKET="", WATCHDOG_USEC="30000000")
        notifier.ready("up")
        notifier.stopping()
        self.assertEqual(self.heard(), [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_socket_gone(self) -> None:
        """A manager that is gone fails nothing."""
        notifier = self.notifier(WATCHDOG_USEC="30000000")
        self.manager.close()
        Path(self.path).unlink()
        notifier.ready("up")
        self.clock.pump([10, 10])
