"""From GPU samples to a pressure of 0 to 3: smoothing and bands (RT-38, RT-39). Values only."""

from __future__ import annotations

from msgspec import Struct

UNKNOWN = 1
"""The pressure of a node whose load is not known: neutral (RT-37)."""

_WEIGHT = 0.35
_UP = (40.0, 70.0, 85.0)
_DOWN = (35.0, 65.0, 80.0)


class Gauge(Struct, frozen=True):
    """The smoothed utilisation of one node, in percent, and the pressure it makes.

    The bands overlap, so that a level at an edge does not flap: a pressure is
    left only well below where it was entered.
    """

    level: float
    pressure: int

    @classmethod
    def first(cls, sample: float) -> Gauge:
        """The gauge after the first sample, or the first after a gap: taken as it is."""
        return cls(sample, _risen(sample))

    def after(self, sample: float) -> Gauge:
        """The gauge after one more sample."""
        level = _WEIGHT * sample + (1 - _WEIGHT) * self.level
        pressure = max(self.pressure, _risen(level))
        while pressure and level < _DOWN[pressure - 1]:
            pressure -= 1
        return Gauge(level, pressure)


def _risen(level: float) -> int:
    """The pressure that ``level`` enters on the way up."""
    return sum(level >= edge for edge in _UP)
