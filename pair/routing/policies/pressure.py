"""The default policy: the least loaded node first (RT-59)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from zope.interface import implementer

from pair.interfaces import IRoutingPolicy
from pair.routing.policies import Load, Ranked, SpeedOf, View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.routing.candidates import Candidate, Request


@implementer(IRoutingPolicy)
class PressurePolicy:
    """Orders by pending jobs, GPU pressure and this process's reservations together.

    Ties fall by pressure, then doubtful last, then by learned speed, then by
    node id. A node whose speed is not known yet counts as the fastest, so that
    it is learnt. Nodes that the snapshot does not list come last, by id.
    """

    name = "pressure"

    def rank(self, request: Request, candidates: Sequence[Candidate], view: View) -> tuple[Ranked, ...]:
        """Best first."""
        placed = [(candidate, view.load(candidate.node)) for candidate in candidates]
        if len(placed) > 1:
            placed.sort(key=lambda each: _order(each[0], each[1], view.speed))
        return tuple([_ranked(candidate, load) for candidate, load in placed])


def _ranked(candidate: Candidate, load: Load) -> Ranked:
    terms = (("pending", load.pending), ("pressure", load.pressure), ("reservations", load.reservations))
    return Ranked(candidate, load.total, terms)


def _order(candidate: Candidate, load: Load, learned: SpeedOf) -> tuple[bool, int, int, bool, float, str]:
    if not load.listed:
        return (True, 0, 0, False, 0.0, candidate.node)
    speed = learned(candidate.node, candidate.engine, candidate.model)
    fastest_first = -math.inf if speed is None else -speed
    return (False, load.total, load.pressure, candidate.doubtful, fastest_first, candidate.node)
