"""Child processes, and what they cost: CPU and memory as ``/proc`` tells them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_TICK = 1 / os.sysconf("SC_CLK_TCK")
_STOP_SECONDS = 15.0


class Process:
    """A child process with all its descendants, in a group of its own.

    Args:
        command: what to run.
        folder: where, and where its output goes: ``out`` and ``err``.
        variables: of its environment, besides ours.
    """

    def __init__(self, command: list[str], folder: Path, variables: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._out = folder / "out"
        self._err = folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._child = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of it, without its descendants."""
        return self._child.pid

    @property
    def output(self) -> str:
        """What it has written on standard output."""
        return self._out.read_text(errors="replace")

    @property
    def last_words(self) -> str:
        """The last line that it wrote anywhere: why it failed, mostly."""
        lines = (self.output + "\n" + self._err.read_text(errors="replace")).strip().splitlines()
        return lines[-1][:200] if lines else "it said nothing"

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._child.poll() is None

    def cpu_seconds(self) -> float:
        """User and system time so far of it and of its living descendants."""
        return sum(_ticks(pid) for pid in _family(self._child.pid)) * _TICK

    def run_seconds(self) -> float:
        """The time for which its own threads have run, as the scheduler has it: to the ns, where ticks are 10 ms.

        What ran in a thread that has ended is not in it.
        """
        spent = 0
        for each in Path(f"/proc/{self._child.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                spent += int((each / "schedstat").read_text().split()[0])
        return spent / 1e9

    def resident_bytes(self) -> int:
        """Resident memory of it and of its descendants."""
        return sum(_resident(pid) for pid in _family(self._child.pid))

    def stop(self) -> None:
        """End it and its descendants; returns when they are gone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(_STOP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()


def _family(root: int) -> list[int]:
    """``root`` and all that descend from it."""
    children: dict[int, list[int]] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            stat = _stat(int(each.name))
            if stat is not None:
                children.setdefault(int(stat[1]), []).append(int(each.name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def _stat(pid: int) -> list[str] | None:
    """The fields of ``/proc/PID/stat`` from the state on, or None where there is no such process any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _ticks(pid: int) -> int:
    stat = _stat(pid)
    return 0 if stat is None else int(stat[11]) + int(stat[12])


def _resident(pid: int) -> int:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
