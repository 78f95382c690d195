"""How fast each engine makes tokens of each model, learned from its own words at the end of answers (RT-61).

A rate decides ties only, so it is kept simple: one moving average for each
node, engine and model. What nobody has learned of for the longest time goes
first when there are too many.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

TOKENS = 16
"""Shorter answers say more of the engine's start than of its rate."""

SAMPLES = 5
"""So many answers must have been seen before a rate is told."""

KEYS = 2000
"""Rates that are kept, at most."""

_WEIGHT = 0.2


class Speed(Struct, frozen=True):
    """The decode rate of one model at one engine, in tokens a second, from so many samples.

    ``model`` is the name as that engine lists it, empty where requests named none.

    Raises:
        ValueError: empty id, a rate that is no positive number, or no sample.
    """

    node: str
    engine: str
    model: str
    rate: float
    samples: int

    def __post_init__(self) -> None:
        if not (self.node and self.engine) or not 0 < self.rate < math.inf or self.samples < 1:
            raise ValueError(f"no speed: {self}")


class Speeds:
    """The rates that this process has learned.

    One for all facades, used on the reactor thread only.
    """

    def __init__(self) -> None:
        # The one that was learned last stands last.
        self._known: dict[tuple[str, str, str], Speed] = {}

    def learn(self, node: str, engine: str, model: str, tokens: int | None, seconds: float | None) -> None:
        """An answer has ended.

        Args:
            node: that served it.
            engine: of that node.
            model: the name as that engine lists it.
            tokens: of the answer, as the engine counted them; None: it does not tell.
            seconds: in which it made them, by its own clock; None: it does not tell.
        """
        if tokens is None or seconds is None or tokens < TOKENS or not seconds > 0:
            return
        rate = tokens / seconds
        if not 0 < rate < math.inf:
            return
        known = self._known.pop((node, engine, model), None)
        if known is None:
            self._keep(Speed(node, engine, model, rate, 1))
        else:
            rate = _WEIGHT * rate + (1 - _WEIGHT) * known.rate
            self._keep(Speed(node, engine, model, rate, known.samples + 1))

    def speed(self, node: str, engine: str, model: str) -> float | None:
        """Tokens a second; None before there are enough samples. To ask does not count as use."""
        known = self._known.get((node, engine, model))
        return None if known is None or known.samples < SAMPLES else known.rate

    def snapshot(self) -> tuple[Speed, ...]:
        """All that is known, for the store; what was learned last stands last."""
        return tuple(self._known.values())

    def restore(self, speeds: Iterable[Speed]) -> None:
        """Go on from an earlier :meth:`snapshot`, in its order."""
        for each in speeds:
            self._known.pop((each.node, each.engine, each.model), None)
            self._keep(each)

    def _keep(self, speed: Speed) -> None:
        if len(self._known) >= KEYS:
            del self._known[next(iter(self._known))]
        self._known[speed.node, speed.engine, speed.model] = speed
