"""What a run came to, in figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.test.simulator import Result

SOON = 5.0
"""Seconds within which a person sees an answer begin as soon."""


class Figures(Struct, frozen=True):
    """Of one scenario, over some seeds.

    ``p50`` and ``p95`` are of the wait, in seconds from the question to the
    first byte of the answer, of all that was asked: what was not answered whole
    waits for ever. ``soon``: the share that waited for 5 s at most. ``makespan``:
    when the last answer ended, in seconds, and ``loads``, how often a model was
    loaded, both the mean of a run. ``lost``: answers that did not come or were cut.
    """

    p50: float
    p95: float
    makespan: float
    loads: float
    soon: float
    mean: float
    lost: int
    asked: int


def figures(results: Sequence[Result]) -> Figures:
    """The figures of runs of one scenario, all waits together."""
    outcomes = [outcome for result in results for outcome in result.outcomes]
    waits = sorted(math.inf if each.wait is None else each.wait for each in outcomes)
    known = [each for each in waits if each < math.inf]
    return Figures(
        p50=quantile(waits, 0.5),
        p95=quantile(waits, 0.95),
        makespan=sum(max(each.ended_at for each in result.outcomes) for result in results) / len(results),
        loads=sum(each.loads for each in results) / len(results),
        soon=sum(each <= SOON for each in waits) / len(waits),
        mean=sum(known) / len(known),
        lost=len(waits) - len(known),
        asked=len(waits),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The least of the values that so many are not above."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
