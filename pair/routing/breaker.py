"""What is held against an engine for a while: holds, models that it denied, and the busy gate (RT-48 to RT-54).

A hold moves a candidate to the end of a plan and never out of it: a sole owner
is always tried (RT-53). When its time is over the key is half-open: one request,
the trial, finds out for all others. A stale mark takes one model of one engine
out of plans. The breaker knows no clock and no engine by name; it is told what
came of what was sent. All times are in monotonic seconds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pair.routing.candidates import Candidate

HoldKind = Literal["busy", "fault", "stall", "quiet"]

BUSY_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""How long a busy engine is held, by its busy answers in a row, where it does not say itself."""

FAULTS = 3
FAULT_WINDOW = 60.0
"""So many faults in a row within so many seconds arm a hold."""

FAULT_SECONDS = 30.0
FAULT_SECONDS_MAX = 300.0
"""The first hold for faults; each trial that fails doubles it, up to the second figure."""

STALL_SECONDS = 60.0
"""How long an engine that fell silent, or whose node is quiet, is held without evidence that it is back."""

STALE_SECONDS = 5.0
STALE_SECONDS_MAX = 60.0
"""The first stale mark of a model; each further one is twice as long, up to the second figure (RT-51)."""

MEMORY = 3600.0
"""How long after its end a hold or a mark is remembered, for what a next one would be."""


class Hold(Struct, frozen=True):
    """A hold that is in force.

    ``until`` is its end; with a trial under way that is past. ``count``: how
    many busy answers, faults or stalls in a row there were when it was armed.

    Raises:
        ValueError: a count below 1, or an end that is no number.
    """

    kind: HoldKind
    until: float
    count: int

    def __post_init__(self) -> None:
        if self.count < 1 or math.isnan(self.until):
            raise ValueError(f"no hold: {self}")


class Sent(Struct, frozen=True):
    """One request on its way to one engine; what comes of it is told with it.

    ``model`` is the name as that engine lists it, empty where the request named none.

    Raises:
        ValueError: empty id, or a time that is no number.
    """

    job: str
    node: str
    engine: str
    model: str
    at: float

    def __post_init__(self) -> None:
        if not (self.job and self.node and self.engine) or math.isnan(self.at):
            raise ValueError(f"nothing that could be sent: {self}")


class _Mark(Struct, frozen=True):
    """A model that an engine denied while its inventory stood at ``revision``."""

    revision: int
    until: float
    seconds: float

    def stands(self, revision: int, now: float) -> bool:
        return revision <= self.revision and now < self.until


class _Streak:
    """What went wrong in a row at one key, and the hold that this armed.

    ``until``: the end of the hold; while none is armed, the last fault.
    """

    __slots__ = ("armed_at", "count", "faults", "hold", "kind", "model", "seconds", "trial", "until")

    def __init__(self, kind: HoldKind, model: str) -> None:
        self.kind = kind
        self.model = model
        self.count = 0
        self.faults: tuple[float, ...] = ()
        self.hold: Hold | None = None
        self.armed_at: float | None = None
        self.until = 0.0
        self.seconds = 0.0
        self.trial: Sent | None = None

    def arm(self, now: float, seconds: float) -> None:
        self.armed_at, self.seconds, self.trial = now, seconds, None
        self.end(now + seconds)

    def end(self, until: float) -> None:
        self.until = until
        self.hold = Hold(self.kind, until, self.count)

    def holds(self, now: float) -> bool:
        return self.trial is not None or now < self.until

    def half_open(self, now: float) -> bool:
        return self.armed_at is not None and not self.holds(now)

    def is_news(self, sent: Sent) -> bool:
        """Whether ``sent`` left after the hold was armed: what left before says nothing that is not known."""
        return self.armed_at is None or sent.at > self.armed_at

    def faulted(self, now: float) -> bool:
        """Count a fault while no hold is armed; whether it is one too many."""
        self.faults = (*self.faults[1 - FAULTS :], now)
        self.until = now
        return len(self.faults) == FAULTS and now - self.faults[0] <= FAULT_WINDOW


_Place = tuple[str, str]
_StreakKey = tuple[HoldKind, str]
_WHOLE_ENGINE: tuple[_StreakKey, ...] = (("busy", ""), ("fault", ""), ("stall", ""), ("quiet", ""))
_SILENT: tuple[_StreakKey, ...] = (("stall", ""), ("quiet", ""))


class _Engine:
    """What is held against one engine. ``refused``: unfinished jobs that have had a busy answer from it."""

    __slots__ = ("marks", "refused", "streaks")

    def __init__(self) -> None:
        self.streaks: dict[_StreakKey, _Streak] = {}
        self.marks: dict[str, _Mark] = {}
        self.refused: set[str] = set()

    def streak(self, kind: HoldKind, model: str = "") -> _Streak:
        return self.streaks.setdefault((kind, model), _Streak(kind, model))

    def concerning(self, model: str) -> list[_Streak]:
        """The streaks that a request for ``model`` meets here."""
        streaks = self.streaks
        keys = (*_WHOLE_ENGINE, ("fault", model)) if model else _WHOLE_ENGINE
        return [streaks[key] for key in keys if key in streaks]

    def forget(self, now: float) -> bool:
        """Drop what is long over; whether nothing is left."""
        self.streaks = {
            key: each for key, each in self.streaks.items() if each.trial is not None or now - each.until <= MEMORY
        }
        self.marks = {key: each for key, each in self.marks.items() if now - each.until <= MEMORY}
        return not (self.streaks or self.marks or self.refused)


class Breaker:
    """The holds and stale marks of this process.

    One for all facades, used on the reactor thread only. Each dispatch is told
    by :meth:`dispatched`, and its end by exactly one of :meth:`busy`,
    :meth:`fault`, :meth:`stall`, :meth:`quiet`, :meth:`first_byte` and
    :meth:`undecided`.

    Failures of requests that left before a hold was armed do not lengthen it:
    fifty of them at once are one event. A trial fails by what armed its hold;
    short of the first byte, anything else leaves the key half-open.
    """

    def __init__(self) -> None:
        self._engines: dict[_Place, _Engine] = {}

    def __len__(self) -> int:
        """How many engines something is remembered of."""
        return len(self._engines)

    # What a plan asks

    def held(self, candidate: Candidate, now: float) -> Hold | None:
        """The hold on ``candidate``, of several the one that ends last; None: it is free."""
        engine = self._engines.get((candidate.node, candidate.engine))
        return None if engine is None else _last(engine.concerning(candidate.model), now)

    def is_stale(self, node: str, engine: str, key: str, revision: int, now: float) -> bool:
        """Whether the engine denied having the model ``key``, and nothing newer is known (RT-51).

        Args:
            node: of the engine.
            engine: its id.
            key: of the model (RT-11).
            revision: of the engine's inventory now.
            now: monotonic seconds.
        """
        known = self._engines.get((node, engine))
        mark = None if known is None else known.marks.get(key)
        return mark is not None and mark.stands(revision, now)

    # What is told of a request

    def dispatched(self, job: str, candidate: Candidate, now: float) -> Sent:
        """``job`` goes to ``candidate`` now; where a key is half-open, it is the trial (RT-49)."""
        sent = Sent(job, candidate.node, candidate.engine, candidate.model, now)
        engine = self._engines.get((sent.node, sent.engine))
        if engine is not None:
            for streak in engine.concerning(sent.model):
                if streak.half_open(now):
                    streak.trial = sent
        return sent

    def busy(self, sent: Sent, retry_after: float | None, now: float) -> None:
        """It was answered 429 or 503; ``retry_after``: in so many seconds again, if the engine said so."""
        engine = self._known(sent)
        engine.refused.add(sent.job)
        streak = engine.streak("busy")
        if streak.is_news(sent):
            streak.count += 1
            by_count = BUSY_SECONDS[min(streak.count, len(BUSY_SECONDS)) - 1]
            streak.arm(now, by_count if retry_after is None else min(max(retry_after, 1.0), BUSY_SECONDS[-1]))
        self.undecided(sent)

    def fault(self, sent: Sent, of_model: bool, now: float) -> Hold | None:
        """It met a fault of PX-44; ``of_model``: an HTTP status, which says nothing of the engine's other models.

        Returns:
            The hold that this armed, if any.
        """
        streak = self._known(sent).streak("fault", sent.model if of_model else "")
        streak.count += 1
        arms = streak.faulted(now) if streak.armed_at is None else streak.trial == sent
        if arms:
            streak.arm(now, min(2 * streak.seconds, FAULT_SECONDS_MAX) if streak.seconds else FAULT_SECONDS)
        self.undecided(sent)
        return streak.hold if arms else None

    def stall(self, sent: Sent, now: float) -> None:
        """It met silence: the engine did not accept in time, was not alive, or a limit on the wait ran out."""
        self._silent("stall", sent, now)

    def quiet(self, sent: Sent, now: float) -> None:
        """Its node gave no sign of life when one was due, and it went elsewhere."""
        self._silent("quiet", sent, now)

    def first_byte(self, sent: Sent, now: float) -> None:
        """Its answer began: what was held against the key is over; a stall of others becomes half-open (RT-50)."""
        engine = self._engines.get((sent.node, sent.engine))
        if engine is None:
            return
        for streak in engine.concerning(sent.model):
            if streak.kind == "stall" and streak.trial != sent:
                streak.end(min(streak.until, now))
            else:
                del engine.streaks[streak.kind, streak.model]

    def undecided(self, sent: Sent) -> None:
        """It ended in a way that says nothing of the engine; if it was a trial, the next one to go there is."""
        engine = self._engines.get((sent.node, sent.engine))
        if engine is not None:
            for streak in engine.concerning(sent.model):
                if streak.trial == sent:
                    streak.trial = None

    def finished(self, job: str) -> None:
        """``job`` has ended; the busy answers that it had keep nobody out any more (RT-52)."""
        for engine in self._engines.values():
            engine.refused.discard(job)

    # What is told of an engine

    def stale(self, node: str, engine: str, key: str, revision: int, now: float) -> None:
        """The engine said that it lacks the model ``key``, which it lists at ``revision`` of its inventory (RT-51)."""
        marks = self._engines.setdefault((node, engine), _Engine()).marks
        mark = marks.get(key)
        if mark is None or not mark.stands(revision, now):
            seconds = STALE_SECONDS if mark is None else min(2 * mark.seconds, STALE_SECONDS_MAX)
            marks[key] = _Mark(revision, now + seconds, seconds)

    def evidence(self, node: str, engine: str, at: float) -> None:
        """The engine was seen to answer at ``at``: an earlier stall of it becomes half-open, quiet is over (RT-50)."""
        known = self._engines.get((node, engine))
        if known is None:
            return
        for key in _SILENT:
            streak = known.streaks.get(key)
            if streak is None or streak.armed_at is None or at <= streak.armed_at:
                continue
            if streak.kind == "stall":
                streak.end(min(streak.until, at))
            else:
                del known.streaks[key]

    def retain(self, node: str, engines: Collection[str]) -> None:
        """``node`` has just these engines now: what was held against others of it is dropped (RT-54)."""
        for place in [each for each in self._engines if each[0] == node and each[1] not in engines]:
            del self._engines[place]

    def forget(self, now: float) -> None:
        """Drop what is long over; for the tick of RT-33."""
        for place in [place for place, each in self._engines.items() if each.forget(now)]:
            del self._engines[place]

    # What else is asked

    @property
    def any_refused(self) -> bool:
        """Whether some unfinished job has had a busy answer: only then can the gate be shut."""
        return bool(self._engines) and any(each.refused for each in self._engines.values())

    def retry_after(self, candidates: Sequence[Candidate], now: float) -> int | None:
        """The busy gate (RT-52): in how many seconds, 1 to 30, a new request may come again; None: it is let in."""
        ends = [self._busy_until(each, now) for each in candidates]
        known = [each for each in ends if each is not None]
        if not known or len(known) < len(ends):
            return None
        return max(1, min(math.ceil(min(known) - now), 30))

    def failing(self, node: str) -> bool:
        """Whether a hold for faults stands against the node that no success has ended (RT-48)."""
        return any(
            streak.kind == "fault" and streak.hold is not None
            for place, engine in self._engines.items()
            if place[0] == node
            for streak in engine.streaks.values()
        )

    def holds(self, now: float) -> Mapping[tuple[str, str, str], Hold]:
        """All that are in force, by node, engine and model; the model is empty where all of the engine are held."""
        found: dict[tuple[str, str, str], Hold] = {}
        for node, engine in sorted(self._engines):
            streaks = self._engines[node, engine].streaks.values()
            for model in sorted({each.model for each in streaks}):
                hold = _last([each for each in streaks if each.model == model], now)
                if hold is not None:
                    found[node, engine, model] = hold
        return found

    def _silent(self, kind: HoldKind, sent: Sent, now: float) -> None:
        streak = self._known(sent).streak(kind)
        if streak.is_news(sent):
            streak.count += 1
            streak.arm(now, STALL_SECONDS)
        self.undecided(sent)

    def _known(self, sent: Sent) -> _Engine:
        return self._engines.setdefault((sent.node, sent.engine), _Engine())

    def _busy_until(self, candidate: Candidate, now: float) -> float | None:
        """The end of its busy hold, if an unfinished job knows of it at first hand."""
        engine = self._engines.get((candidate.node, candidate.engine))
        if engine is None or not engine.refused:
            return None
        streak = engine.streaks.get(("busy", ""))
        return streak.until if streak is not None and streak.holds(now) else None


def _last(streaks: Sequence[_Streak], now: float) -> Hold | None:
    """The hold in force that ends last."""
    last: _Streak | None = None
    for each in streaks:
        if each.holds(now) and (last is None or each.until > last.until):
            last = each
    return None if last is None else last.hold
