"""What a routing policy is given and gives back, and the guard around one (RT-56, RT-58)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from pair.privacy import normalize_error
from pair.routing.candidates import Candidate, Request
from pair.routing.scheduler import Snapshot

if TYPE_CHECKING:
    from pair.interfaces import IRoutingPolicy


class Load(Struct, frozen=True):
    """What a node has to do, as this process knows it (RT-43).

    ``pending``: jobs placed there by the snapshot, less those that this process
    knows to be elsewhere or ended. ``reservations``: jobs that it has sent there
    and the snapshot does not count yet. ``listed``: the node is in the snapshot.

    Raises:
        ValueError: a negative number.
    """

    pending: int
    pressure: int
    reservations: int
    listed: bool = True

    def __post_init__(self) -> None:
        if self.pending < 0 or self.pressure < 0 or self.reservations < 0:
            raise ValueError(f"a load below nothing: {self}")

    @property
    def total(self) -> int:
        """The three together: the load by which nodes are compared."""
        return self.pending + self.pressure + self.reservations


SpeedOf = Callable[[str, str, str], float | None]
"""The learned decode rate of a model at an engine of a node, in tokens a second; None: not known yet (RT-61)."""


def unlearnt(node: str, engine: str, model: str) -> float | None:
    """No rate is known."""
    return None


class View(Struct, frozen=True):
    """What a policy may look at.

    ``now`` is in monotonic seconds. ``speed(node, engine, model)`` is the learned
    decode rate in tokens a second, or None before there are 5 samples of it.
    """

    now: float
    snapshot: Snapshot
    load: Callable[[str], Load]
    speed: SpeedOf = unlearnt


class Ranked(Struct, frozen=True):
    """A candidate in its place, with the score that put it there (lower is better) and the terms of the score.

    Raises:
        ValueError: the score is no number.
    """

    candidate: Candidate
    score: float
    terms: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if math.isnan(self.score):
            raise ValueError("a score that is no number")


class Ranking(Struct, frozen=True):
    """The order of the candidates and the name of the policy that made it.

    ``flaw`` says in a few words why the policy asked for was replaced; None: it was not.
    """

    ranked: tuple[Ranked, ...]
    policy: str
    flaw: str | None = None


def ranked_or_default(
    policy: IRoutingPolicy,
    default: IRoutingPolicy,
    request: Request,
    candidates: Sequence[Candidate],
    view: View,
) -> Ranking:
    """The order by ``policy``, or by ``default`` where that one raises or gives no permutation (RT-58).

    A permutation has the very objects of ``candidates``, each once.
    """
    if type(policy) is type(default):
        return Ranking(tuple(policy.rank(request, candidates, view)), policy.name)
    try:
        ranked = tuple(policy.rank(request, candidates, view))
        flaw = None if _same([each.candidate for each in ranked], candidates) else "no permutation of the candidates"
    except Exception as error:  # noqa: BLE001 - a plugin's error must not cost the request
        flaw = normalize_error(error)
    if flaw is None:
        return Ranking(ranked, policy.name)
    return Ranking(tuple(default.rank(request, candidates, view)), default.name, flaw)


def _same(given: Sequence[Candidate], wanted: Sequence[Candidate]) -> bool:
    if len(given) == len(wanted) == 1:
        return given[0] is wanted[0]
    return len(given) == len(wanted) and set(map(id, given)) == set(map(id, wanted))
