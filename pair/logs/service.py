"""What joins the log: the observer that ``twistd`` is given, and the service behind it.

Before the service starts, and after it has stopped, lines go plainly to
standard error; those from before are kept, and written to the file when it
starts. No thread exists before that: ``twistd`` may fork until then.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from contextlib import suppress
from functools import partial
from time import time
from typing import TYPE_CHECKING, TextIO

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.logger import ILogObserver, LogEvent, LogLevel
from zope.interface import implementer

from pair.events import Signal
from pair.logs.backlog import Backlog
from pair.logs.levels import LEVELS, RANKS, Levels
from pair.logs.render import Line, line
from pair.logs.repeats import Repeats
from pair.logs.sinks import RotatingFile, Stream
from pair.logs.writer import LineWriter
from pair.statedir import StateError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pair.settings import Log

FLUSH_SECONDS = 0.5

_EARLY = 200
_WARN = RANKS[LogLevel.warn]


@implementer(ILogObserver)
class Observer:
    """The observer of the whole process. It hands events to the service that runs, if one does."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._early: deque[LogEvent] = deque(maxlen=_EARLY)
        self._service: LogService | None = None

    def __call__(self, event: LogEvent) -> None:
        """Pass ``event`` on, or say it plainly where no service runs."""
        if self._service is not None:
            self._service.write(event)
            return
        self._early.append(event)
        rank = RANKS[event.get("log_level") or LogLevel.info]
        ours = str(event.get("log_namespace")).startswith("pair")
        if self._descriptor is not None and (rank >= _WARN or (ours and rank >= RANKS[LogLevel.info])):
            with suppress(OSError):  # closed meanwhile: then nobody reads it
                os.write(self._descriptor, line(event).as_text())

    def attach(self, service: LogService) -> None:
        """Give ``service`` all events from now on; those from before go to its file."""
        early, self._early = self._early, deque(maxlen=_EARLY)
        for event in early:
            service.write(event, shown=True)
        self._service = service

    def detach(self) -> None:
        """Speak plainly again."""
        self._service = None


class LogService(Service):
    """Writes the log while it runs.

    Attributes:
        unhandled: How many events told of an error that nobody handled (OP-36).
        writable_changed: Emits each new value of ``writable``.
    """

    def __init__(
        self,
        settings: Log,
        directory: Path,
        observer: Observer,
        levels: Levels,
        stdout: int | None,
        from_thread: Callable[[Callable[[], None]], object],
    ) -> None:
        """Make the service; nothing is opened yet.

        Args:
            settings: What is written, and where.
            directory: Of the file.
            observer: Who hands over the events.
            levels: Those of the loggers; they are set when the service starts.
            stdout: The descriptor for people; None if there is none.
            from_thread: Has the reactor call something; from any thread.
        """
        self.setName("log")
        self.unhandled = 0
        self.writable_changed: Signal[bool] = Signal()
        self._settings = settings
        self._observer = observer
        self._levels = levels
        self._repeats = Repeats()
        self._sink = RotatingFile(directory, settings.max_bytes, settings.keep) if settings.file else None
        self._file: LineWriter | None = None
        self._stream: LineWriter | None = None
        self._as_json = settings.stdout == "json"
        if self._sink is not None:
            self._file = LineWriter(
                "pair-log-file",
                self._sink,
                lambda count: _dropped(count).as_json(),
                Backlog(),
                retry=True,
                changed=lambda working: from_thread(partial(self.writable_changed.emit, working)),
            )
        if settings.stdout != "off" and stdout is not None:
            self._stream = LineWriter(
                "pair-log-stdout", Stream(stdout), lambda count: self._shown(_dropped(count)), Backlog(), retry=False
            )

    @property
    def writable(self) -> bool:
        """Whether the file takes lines, as far as is known; True where none is to be written."""
        return self._file is None or self._file.working

    def startService(self) -> None:
        """Open the file, take the levels of the settings, start the threads, and take over from standard error.

        Raises:
            StateError: The file cannot be written.
        """
        if self._sink is not None:
            try:
                self._sink.open()
            except OSError as error:
                raise StateError.of(self._sink.path, error) from error
        super().startService()
        self._levels.set(self._settings.level, self._settings.levels)
        for writer in self._writers():
            writer.start()
        self._observer.attach(self)

    def stopService(self) -> Deferred[None]:
        """Write what is queued: it blocks for that, 0.5 s at most, as nothing else is left to do (OP-30)."""
        super().stopService()
        self.close()
        return succeed(None)

    def close(self) -> None:
        """Write what is queued and end, before the process does. From any thread; blocks for 0.5 s at most."""
        self._observer.detach()
        for writer in self._writers():
            writer.close(FLUSH_SECONDS / 2)

    def reopen(self) -> None:
        """Open the file anew before the next line, for whoever moves it away and sends SIGHUP."""
        if self._file is not None:
            self._file.reopen()

    def write(self, event: LogEvent, shown: bool = False) -> None:
        """Write ``event`` unless its level or a repeat forbids it; if ``shown`` already, to the file alone."""
        rank = RANKS[event.get("log_level") or LogLevel.info]
        if event.get("log_failure") is not None and event.get("log_level") is LogLevel.critical:
            self.unhandled += 1
        if rank < self._levels.gate(str(event.get("log_namespace") or "")).least:
            return
        left_out = self._repeats.admit(event) if rank == _WARN else 0
        if left_out is None:
            return
        rendered = line(event, f" (left out since the last: {left_out})" if left_out else "")
        if self._file is not None:
            self._file.put(rank, rendered.as_json())
        if self._stream is not None and not shown:
            self._stream.put(rank, self._shown(rendered))

    def _shown(self, rendered: Line) -> bytes:
        return rendered.as_json() if self._as_json else rendered.as_text()

    def _writers(self) -> list[LineWriter]:
        return [writer for writer in (self._file, self._stream) if writer is not None]


def observer() -> Observer:
    """The observer of this process, for ``twistd --logger`` (OP-2)."""
    return _OBSERVER


def configure(settings: Log, directory: Path, from_thread: Callable[[Callable[[], None]], object]) -> LogService:
    """The service that writes the log of this process, into ``directory`` and to standard output.

    ``from_thread`` has the reactor call something; from any thread.
    """
    return LogService(settings, directory, _OBSERVER, LEVELS, _descriptor(sys.__stdout__), from_thread)


def _descriptor(stream: TextIO | None) -> int | None:
    """The descriptor of a standard stream; None if the process began without: another file may have its number."""
    return None if stream is None or stream.closed else stream.fileno()


def _dropped(count: int) -> Line:
    event = "{count} lines of the log were dropped: they could not be written fast enough."
    text = event.format(count=count)
    return Line(_WARN, int(time() * 1000), "warn", "pair.logs", event, text, {"count": count})


_OBSERVER = Observer(_descriptor(sys.__stderr__))
