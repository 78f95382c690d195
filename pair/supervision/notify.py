"""What systemd is told: ready, stopping, still alive (OP-23; sd_notify(3))."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed

from pair.logs import Logger
from pair.supervision.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from twisted.internet.interfaces import IReactorTime

log = Logger()


def send(address: str, *assignments: str) -> None:
    """Send ``assignments``, as ``READY=1``, in one datagram to the socket ``address`` (``@…`` is an abstract one).

    Raises:
        OSError: It cannot be sent, or not at once: this never waits.
    """
    target = f"\0{address[1:]}" if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto("\n".join(assignments).encode(), target)


class SystemdNotifier(Service):
    """Tells the service manager, where there is one; else every call does nothing.

    Args:
        environ: holds ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID`` if systemd started us.
        pid: of this process.
        alive: asked before each sign of life; False withholds it, and systemd restarts us in time.
    """

    def __init__(
        self, clock: IReactorTime, environ: Mapping[str, str], pid: int, alive: Callable[[], bool] = lambda: True
    ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._alive = alive
        self._broken = False
        self._signs: Repeating | None = None
        period = _watchdog_seconds(environ, pid)
        if self._address and period is not None:
            self._signs = Repeating(clock, period / 3, self._sign_of_life, "the sign of life to systemd")

    def startService(self) -> None:
        """Begin with the signs of life, if they are asked for."""
        super().startService()
        if self._signs is not None:
            self._signs.startService()

    def stopService(self) -> Deferred[None]:
        """End them."""
        super().stopService()
        return succeed(None) if self._signs is None else self._signs.stopService()

    def ready(self, status: str) -> None:
        """The start is done; ``status`` is one line for people."""
        self._tell("READY=1", f"STATUS={status}")

    def status(self, status: str) -> None:
        """Show ``status``, one line for people."""
        self._tell(f"STATUS={status}")

    def stopping(self) -> None:
        """The stop has begun."""
        self._tell("STOPPING=1", "STATUS=stopping")

    def extend(self, seconds: float) -> None:
        """The present step, as a migration, needs up to ``seconds`` more from now on."""
        self._tell(f"EXTEND_TIMEOUT_USEC={round(seconds * 1_000_000)}")

    def _sign_of_life(self) -> None:
        if self._alive():
            self._tell("WATCHDOG=1")

    def _tell(self, *assignments: str) -> None:
        if not self._address:
            return
        try:
            send(self._address, *assignments)
            self._broken = False
        except OSError as error:
            if not self._broken:
                log.warn("The service manager cannot be told anything (error {errno}).", errno=error.errno)
            self._broken = True


def _watchdog_seconds(environ: Mapping[str, str], pid: int) -> float | None:
    """The time within which a sign of life must come; None where none is awaited from this process."""
    microseconds = environ.get("WATCHDOG_USEC", "")
    meant = environ.get("WATCHDOG_PID", str(pid)) == str(pid)
    return int(microseconds) / 1_000_000 if meant and microseconds.isdecimal() and int(microseconds) else None
