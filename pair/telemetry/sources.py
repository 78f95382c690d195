"""Which sources there are on this machine."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from pair.telemetry.amdgpu import SysfsSource
from pair.telemetry.apple import IoregSource, is_silicon
from pair.telemetry.host import HostSource
from pair.telemetry.nvml import NvmlSource

if TYPE_CHECKING:
    from pair.interfaces import ITelemetrySource


def machine_sources(gpu: bool, system: str = sys.platform) -> tuple[ITelemetrySource, ...]:
    """New sources for a machine of that system; nothing is opened or read yet.

    Args:
        gpu: whether GPUs are looked for (``telemetry.gpu``).
        system: as ``sys.platform`` has it.
    """
    host = HostSource()
    if not gpu:
        return (host,)
    if system == "darwin":
        return (host, IoregSource(is_silicon()))
    nvml = NvmlSource(time.monotonic)
    return (host, nvml, SysfsSource(time.monotonic)) if system == "linux" else (host, nvml)
