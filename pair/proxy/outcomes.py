"""What the end of an attempt means for the request (PX-44 to PX-47). Pure.

An attempt that did not commit is judged here: may another candidate be tried,
may this one again in a later round, and what does the client get if it was
the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pair.records.jobs import Outcome
from pair.routing.breaker import HoldKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pair.protocols.calls import FailureKind
    from pair.routing.candidates import Candidate
    from pair.routing.dialects import Verdict

ROUNDS = 5
"""How often the owners of a model are gone through (PX-45)."""

_WAITS = (0.25, 0.5, 1.0, 2.0)
"""Seconds before the second, third … round, each ± a quarter."""


class Judgement(Struct, frozen=True):
    """The end of one attempt.

    ``outcome`` is the word of its record (JB-36), ``error`` its code, and
    ``status`` the engine's, where the outcome is one.
    ``fails_over``: another candidate may be tried; without it the answer goes
    to the client. ``returns``: this candidate may be tried again in a later
    round. ``arms``: the kind of hold that it counts for, if any.
    """

    outcome: Outcome
    error: str
    fails_over: bool = True
    returns: bool = True
    status: int | None = None
    arms: HoldKind | None = None

    @property
    def blames_engine(self) -> bool:
        """Whether it counts against the engine's health (EN-30): not what the caller did wrong."""
        return self.arms is not None if self.status is None else self.status >= 500


GONE = Judgement("connect", "engine_unreachable", returns=False)
"""The engine stopped between the plan and the dispatch: nothing was sent, and nobody is to blame."""

EMPTY = Judgement("empty", "engine_unreachable", arms="fault")
"""A 2xx whose body ended before its first byte."""

STALLED = Judgement("stalled", "engine_silent", returns=False, arms="stall")
"""The engine is not alive any more, or a limit on the wait for its first byte ran out."""

SILENT = Judgement("silent", "node_silent", returns=False, arms="stall")
"""Nothing came from a member for too long, not even that it still works at it (PX-55)."""

QUIET = Judgement("silent", "node_silent", arms="quiet")
"""A member gave no sign of life when one was due; that may be nothing, but another node can serve at once (PX-55)."""

LOOP = 508

_CONNECTION: dict[FailureKind, Outcome] = {
    "connect": "connect",
    "timeout": "timeout",
    "tls": "tls",
    "write": "broken",
    "broken": "broken",
    "framing": "broken",
}


def judge_connection(kind: FailureKind) -> Judgement:
    """The connection failed before an answer began."""
    return Judgement(_CONNECTION[kind], "engine_unreachable", arms="stall" if kind == "timeout" else "fault")


def judge_status(status: int, verdict: Verdict) -> Judgement:
    """The engine answered, and not with a 2xx.

    Args:
        status: its status, from 300 on.
        verdict: what the answer says of the engine (RT-10).
    """
    if status < 400:
        return Judgement("status", "engine_redirect", fails_over=False, status=status)
    if verdict in ("stale_model", "route_missing"):
        return Judgement("status", "engine_status", returns=False, status=status)
    if status < 500 and status not in (408, 429):
        return Judgement("status", "engine_status", fails_over=False, status=status)
    arms: HoldKind | None = "busy" if status in (429, 503) else None if status in (408, 501, LOOP) else "fault"
    return Judgement("status", "engine_status", returns=status in (502, 503, 504), status=status, arms=arms)


def judge_member(status: int, code: str, fault: str | None) -> Judgement:
    """A member refused the request by itself; its engine was not asked, or did not answer.

    Args:
        status: of the refusal.
        code: what it says is the reason (``X-Pair-Error``).
        fault: what it says of its engine (``X-Pair-Fault``).
    """
    if fault == "engine_stalled":
        return STALLED
    return Judgement("status", code, returns=False, status=status)


def seconds_to_wait(retry_after: bytes | None) -> float | None:
    """The value of a ``Retry-After`` field, where it is there and counts seconds; a date is not looked at."""
    if retry_after is None or not retry_after.strip().isdigit():
        return None
    return float(retry_after)


_NONE: frozenset[tuple[str, str]] = frozenset()


class Rounds:
    """Which candidate is next, and when (PX-42, PX-45).

    Args:
        deadline: monotonic seconds after which no attempt starts; the first one always does.
        limit: how many rounds at most.
    """

    __slots__ = ("_barred", "_begun", "_deadline", "_limit", "_round", "_tried")

    def __init__(self, deadline: float, limit: int = ROUNDS) -> None:
        self._deadline = deadline
        self._limit = limit
        self._round = 1
        self._tried = self._barred = _NONE
        self._begun = False

    @property
    def excluded(self) -> frozenset[tuple[str, str]]:
        """The nodes and engines that this round tries no more."""
        return self._tried

    def failed(self, candidate: Candidate, judgement: Judgement) -> None:
        """An attempt at ``candidate`` ended so."""
        one = frozenset({(candidate.node, candidate.engine)})
        self._tried |= one
        if not judgement.returns:
            self._barred |= one

    def next(self, candidates: Sequence[Candidate], now: float) -> Candidate | None:
        """The candidate to try now, or None: the round is over, or it is too late."""
        if not candidates or not self.may_begin(now):
            return None
        self._begun = True
        return candidates[0]

    def may_begin(self, now: float) -> bool:
        """Whether it is not too late for one more attempt (PX-45)."""
        return not self._begun or now <= self._deadline

    def pause(self, now: float, jitter: float) -> float | None:
        """Seconds until the next round, which begins with this call; None when there is no further one.

        Args:
            now: monotonic seconds.
            jitter: a random number from -1 to 1.
        """
        if self._round >= self._limit or not self._tried - self._barred:
            return None
        wait = _WAITS[self._round - 1] * (1 + jitter / 4)
        if now + wait > self._deadline:
            return None
        self._round += 1
        self._tried = self._barred
        return wait
