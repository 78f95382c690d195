"""The GPUs of a Mac, as ``ioreg`` tells of them (DS-88). It blocks: it is for the sampler's thread."""

from __future__ import annotations

import platform
import subprocess
from typing import TYPE_CHECKING

from zope.interface import implementer

from pair.interfaces import ITelemetrySource
from pair.records.telemetry import Reading
from pair.telemetry.reduce import accelerators

if TYPE_CHECKING:
    from collections.abc import Callable

COMMAND = ("/usr/sbin/ioreg", "-a", "-r", "-d", "1", "-c", "IOAccelerator")
_PATIENCE = 3.0


def _ioreg() -> bytes:
    """What it writes; killed, and waited for, after 3 s."""
    answer = subprocess.run(COMMAND, capture_output=True, timeout=_PATIENCE, check=True)  # noqa: S603 - a fixed command
    return answer.stdout


def is_silicon() -> bool:
    """Whether this Mac has Apple's own processor."""
    return platform.machine() == "arm64"


@implementer(ITelemetrySource)
class IoregSource:
    """A process for each reading, so there is one every other second at most.

    Args:
        silicon: whether the machine has Apple's own processor.
        ask: gives what ``ioreg`` writes.
    """

    name = "ioreg"
    period = 2.0

    def __init__(self, silicon: bool, ask: Callable[[], bytes] = _ioreg) -> None:
        self._silicon = silicon
        self._ask = ask

    def read(self) -> Reading:
        """See :class:`pair.interfaces.ITelemetrySource`.

        Raises:
            OSError, subprocess.SubprocessError, ValueError: it gave no answer, or none that can be read.
        """
        return Reading(gpus=accelerators(self._ask(), self._silicon))

    def close(self) -> None:
        """It holds nothing."""
