"""AMD's GPUs through sysfs, Intel's by name (DS-87, DS-88). It blocks: it is for the sampler's thread."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from zope.interface import implementer

from pair.interfaces import ITelemetrySource
from pair.records.telemetry import Reading
from pair.telemetry.reduce import PCI_VENDORS, SYSFS_FILES, card, listing_due, pci_vendor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SMALL = 4096
"""Bytes of a file that are read: the kernel's own limit for sysfs."""


class _Card(Struct, frozen=True):
    """One card of the last list; ``files`` are where each of ``SYSFS_FILES`` is."""

    folder: str
    index: int
    vendor: int
    files: dict[str, Path]


@implementer(ITelemetrySource)
class SysfsSource:
    """The cards of Linux.

    Args:
        monotonic: seconds.
        root: the folder with a folder or link ``card<n>`` for each card.
    """

    name = "sysfs"
    period = 0.0

    def __init__(self, monotonic: Callable[[], float], root: Path = Path("/sys/class/drm")) -> None:
        self._monotonic = monotonic
        self._root = root
        self._cards: list[_Card] = []
        self._listed_at: float | None = None

    def read(self) -> Reading:
        """See :class:`pair.interfaces.ITelemetrySource`."""
        now = self._monotonic()
        if listing_due(self._listed_at, bool(self._cards), now):
            self._cards = list(self._found())
            self._listed_at = now
        return Reading(
            gpus=tuple(
                card(each.folder, each.index, each.vendor, {name: _read(path) for name, path in each.files.items()})
                for each in self._cards
            )
        )

    def close(self) -> None:
        """It holds nothing."""

    def _found(self) -> Iterator[_Card]:
        # Besides the cards there are their connectors, such as card0-DP-1.
        cards = [each for each in self._root.glob("card*") if re.fullmatch(r"card[0-9]+", each.name)]
        seen: Counter[int] = Counter()
        for path in sorted(cards, key=lambda each: int(each.name.removeprefix("card"))):
            device = path / "device"
            vendor = pci_vendor(_read(device / "vendor"))
            if vendor in PCI_VENDORS:
                sensors = next(iter(sorted(device.glob("hwmon/hwmon*"))), device)
                files = {
                    name: (sensors if name in ("temp1_input", "power1_average") else device) / name
                    for name in SYSFS_FILES
                }
                yield _Card(path.name, seen[vendor], vendor, files)
                seen[vendor] += 1


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(_SMALL).decode(errors="replace")
    except OSError:
        return None
