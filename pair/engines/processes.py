"""Processes of this host: who they are, and the one place that sends them signals (EN-23, EN-24).

A pid alone names nothing, for it is given anew. A process is meant by its pid
and its time of birth together, and across restarts of ours also by the boot.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import psutil
from msgspec import Struct

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Mark(Struct, frozen=True):
    """One process. ``born`` is in seconds since the boot, which no step of the clock moves."""

    pid: int
    born: float
    executable: str | None = None


class ChildRecord(Struct, frozen=True):
    """A child of ours, as it is stored (EN-23). It leads a session of its own, so its group is its pid.

    ``executable`` is None until the child has become ready: before that it
    may still be the shim.
    """

    engine: str
    port: int
    boot: str
    mark: Mark


class Processes(Protocol):
    """What is asked of the process table."""

    @property
    def boot(self) -> str:
        """The id of this boot of the machine."""

    def look(self, pid: int) -> Mark | None:
        """Who has this pid now. None: nobody, or a dead process that was not reaped yet."""

    def descendants(self, pid: int) -> tuple[Mark, ...]:
        """The children of a process, and theirs."""

    def send(self, mark: Mark, number: int, group: bool = False) -> bool:
        """Send a signal to the process of ``mark``, or to the group that it leads.

        Returns:
            False, and nothing is sent, where the pid is another process by now or none.
        """


def same(expected: Mark, shown: Mark | None) -> bool:
    """Whether a process is the one that is meant."""
    return (
        shown is not None
        and shown.pid == expected.pid
        and shown.born == expected.born
        and (expected.executable is None or shown.executable == expected.executable)
    )


class HostProcesses:
    """The :class:`Processes` of this host."""

    def __init__(self) -> None:
        self.boot = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else f"{psutil.boot_time():.0f}"

    def look(self, pid: int) -> Mark | None:
        """See :class:`Processes`."""
        try:
            process = psutil.Process(pid)
            return None if process.status() == psutil.STATUS_ZOMBIE else _mark(process)
        except psutil.NoSuchProcess:
            return None

    def descendants(self, pid: int) -> tuple[Mark, ...]:
        """See :class:`Processes`."""
        try:
            children = psutil.Process(pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return ()
        return tuple(mark for each in children if (mark := self.look(each.pid)) is not None)

    def send(self, mark: Mark, number: int, group: bool = False) -> bool:
        """See :class:`Processes`."""
        if not same(mark, self.look(mark.pid)):
            return False
        try:
            if group and os.getpgid(mark.pid) == mark.pid:
                os.killpg(mark.pid, number)
            else:
                os.kill(mark.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def _mark(process: psutil.Process) -> Mark:
    try:
        executable = process.exe() or None
    except psutil.AccessDenied:
        executable = None
    return Mark(process.pid, round(process.create_time() - psutil.boot_time(), 2), executable)
