"""The system, its processors and its memory, through psutil (DS-90). It blocks: it is for the sampler's thread."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import psutil
from zope.interface import implementer

from pair.interfaces import ITelemetrySource
from pair.records.telemetry import Cpu, Reading, System
from pair.telemetry.reduce import cpu_name, memory, percent

_BRAND = ("/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string")
_PATIENCE = 3.0


@implementer(ITelemetrySource)
class HostSource:
    """What does not change is asked once; the first reading has no utilisation, which is that since the one before.

    Args:
        cpuinfo: where Linux says what the processors are called.
    """

    name = "host"
    period = 0.0

    def __init__(self, cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
        self._cpuinfo = cpuinfo
        self._known: tuple[System, Cpu] | None = None

    def read(self) -> Reading:
        """See :class:`pair.interfaces.ITelemetrySource`."""
        busy = psutil.cpu_percent(interval=None)
        if self._known is None:
            self._known = self._look()
            system, cpu = self._known
        else:
            system, cpu = self._known
            cpu = Cpu(cpu.name, cpu.cores, cpu.threads, percent(busy))
        now = psutil.virtual_memory()
        return Reading(system, cpu, memory(now.total, now.available))

    def close(self) -> None:
        """It holds nothing."""

    def _look(self) -> tuple[System, Cpu]:
        system = System(platform.system().lower() or None, platform.release() or None, platform.machine() or None)
        return system, Cpu(self._cpu_name(), psutil.cpu_count(logical=False), psutil.cpu_count())

    def _cpu_name(self) -> str | None:
        try:
            if sys.platform == "darwin":
                answer = subprocess.run(  # noqa: S603 - a fixed command
                    _BRAND, capture_output=True, text=True, timeout=_PATIENCE, check=True
                )
                return answer.stdout.strip() or None
            return cpu_name(self._cpuinfo.read_text(errors="replace"))
        except (OSError, subprocess.SubprocessError):
            return None
