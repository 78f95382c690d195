"""What is known of the jobs of other nodes, and what is to be thought of those whose origin is lost (JB-50 to JB-61).

Pure: it is told what came and what time it is, and says what has changed. It
must not know how news travels, nor who looks at it. Jobs of this node are the
ledger's; here they are history only.

An origin speaks for its jobs alone. When it is gone, its jobs under way are
taken for failed, until it says otherwise: that is a guess of this node, kept
beside the record and never in its place.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from pair.feeds.reader import Changed, Removed, Replaced
from pair.jobs.codes import job_error
from pair.records.jobs import Job, JobChanged, ShownJob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pair.feeds.reader import News

STALE_SECONDS = 15.0
"""Without a live feed for so long, the jobs of an origin are stale, and count nowhere (JB-54, JB-60)."""

LOST_SECONDS = 120.0
"""Without one for so long, those under way are taken for failed (JB-53)."""

MOST = 50_000
"""Jobs of other nodes and ended ones that are held at once; the oldest that have ended go first (JB-57)."""

Reason = Literal["origin_lost", "origin_restarted"]


class _Origin(Struct):
    """What is known of the jobs of one node.

    Attributes:
        name: Its UUID.
        active: Those under way, by its last word.
        guesses: What is thought of some of these.
        live: Whether its feed is.
        stale: Whether that has not been so for too long.
        offline: Whether the directory says that the node is.
        stale_at: When ``stale`` begins, in monotonic seconds; None where nothing is to be waited for.
        lost_at: When its jobs under way are taken for failed, likewise.
    """

    name: str
    active: dict[str, Job] = {}
    guesses: dict[str, ShownJob] = {}
    live: bool = False
    stale: bool = False
    offline: bool = False
    stale_at: float | None = None
    lost_at: float | None = None

    def shown(self, id: str) -> Job | None:
        """The job under way as it is shown."""
        guess = self.guesses.get(id)
        if guess is not None:
            return guess
        job = self.active.get(id)
        return ShownJob.of(job, stale=True) if job is not None and self.stale else job

    def node(self, id: str) -> str | None:
        """The node where the job counts as pending (JB-59, JB-60)."""
        if self.stale or id in self.guesses:
            return None
        job = self.active.get(id)
        return None if job is None else job.placed_on


class ClusterJobs:
    """The jobs of other nodes, and those that have ended as far as they are held in memory.

    Every change is returned, in its order (JB-51).

    Attributes:
        moves: Rises with each change that moves a count of pending jobs (JB-61).
    """

    def __init__(self) -> None:
        self.moves = 0
        self._origins: dict[str, _Origin] = {}
        # The longest ended first. Guesses are among them where the origin has the job no more.
        self._ended: dict[tuple[str, str], Job] = {}
        self._pending: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Job]:
        """All of them, as they are shown, in no order."""
        for known in self._origins.values():
            for id in known.active:
                shown = known.shown(id)
                assert shown is not None, "it is under way"
                yield shown
        yield from self._ended.values()

    def get(self, origin: str, id: str) -> Job | None:
        """One of them, as it is shown."""
        known = self._origins.get(origin)
        under_way = None if known is None else known.shown(id)
        return under_way or self._ended.get((origin, id))

    def pending(self) -> Mapping[str, int]:
        """How many jobs of other nodes are at each node now (JB-59)."""
        return dict(self._pending)

    def remember(self, jobs: Iterable[Job]) -> None:
        """Jobs of the history, the oldest first (JB-67)."""
        for job in jobs:
            self._ended.setdefault((job.origin, job.id), job)

    def clear(self) -> list[JobChanged]:
        """Hold nothing any more that has ended (UI-46)."""
        return self._drop(tuple(self._ended))

    def trim(self, most: int) -> list[JobChanged]:
        """Hold ``most`` at the most, as far as jobs that have ended can give way (JB-57)."""
        excess = len(self._ended) + sum(len(each.active) for each in self._origins.values()) - most
        return self._drop(tuple(islice(self._ended, excess))) if excess > 0 else []

    def news(self, origin: str, news: News[Job], at: int, now: float) -> list[JobChanged]:
        """The feed of ``origin`` has brought ``news``.

        Args:
            origin: Its UUID.
            news: What its table has already.
            at: Epoch milliseconds.
            now: Monotonic seconds.
        """
        known = self._origins.get(origin)
        if known is None:
            known = self._origins[origin] = _Origin(origin)
        if not known.live:
            known.lost_at = now + LOST_SECONDS  # What it says holds for a while, even if it breaks off again.
        if not isinstance(news, Replaced):
            return self._apply(known, news, "origin_lost", at)
        reason: Reason = "origin_restarted" if news.restarted else "origin_lost"
        return [each for change in news.changes for each in self._apply(known, change, reason, at)]

    def live(self, origin: str) -> list[JobChanged]:
        """Its feed is live: what its table has is true now."""
        known = self._origins.setdefault(origin, _Origin(origin))
        known.live = True
        known.stale_at = known.lost_at = None

        def believe() -> None:
            known.stale = False
            known.guesses.clear()

        return self._revise(known, known.active if known.stale else known.guesses, believe)

    def broken(self, origin: str, at: int, now: float) -> list[JobChanged]:
        """Its feed is live no more."""
        known = self._origins.setdefault(origin, _Origin(origin))
        known.live = False
        known.stale_at = now + STALE_SECONDS
        known.lost_at = now + LOST_SECONDS
        return self._lose(known, at) if known.offline else []

    def presence(self, node: str, offline: bool, at: int) -> list[JobChanged]:
        """The directory says that ``node`` is offline, or that it is not; a live feed is believed all the same."""
        known = self._origins.get(node)
        if known is None:
            return []
        known.offline = offline
        return self._lose(known, at) if offline and not known.live else []

    def tick(self, at: int, now: float) -> list[JobChanged]:
        """Time has passed."""
        changes: list[JobChanged] = []
        for known in self._origins.values():
            if known.stale_at is not None and now >= known.stale_at:
                known.stale_at = None
                changes += self._revise(known, known.active, partial(setattr, known, "stale", True))
            if known.lost_at is not None and now >= known.lost_at:
                changes += self._lose(known, at)
        return changes

    def forget(self, origin: str) -> list[JobChanged]:
        """It is no member any more: its jobs leave, but for those that have ended (JB-29, JB-53)."""
        known = self._origins.get(origin)
        if known is None:
            return []

        def leave() -> None:
            known.active.clear()
            known.guesses.clear()

        changes = self._revise(known, known.active, leave)
        del self._origins[origin]
        return changes + self._drop([key for key, job in self._ended.items() if key[0] == origin and is_guess(job)])

    def _apply(self, known: _Origin, change: Changed[Job] | Removed[Job], reason: Reason, at: int) -> list[JobChanged]:
        if isinstance(change, Changed):
            revise = partial(self._take, known, change)
        else:
            revise = partial(self._retire, known, change, reason, at)
        return self._revise(known, (change.key,), revise)

    def _take(self, known: _Origin, change: Changed[Job]) -> None:
        id, key = change.key, (known.name, change.key)
        ended = self._ended.get(key)
        if ended is not None and not is_guess(ended):
            return
        self._ended.pop(key, None)
        known.guesses.pop(id, None)
        job = known.active.pop(id, None)
        if job is None or change.record.seq > job.seq:
            job = change.record
        if job.terminal:
            self._ended[key] = job
        else:
            known.active[id] = job

    def _retire(self, known: _Origin, change: Removed[Job], reason: Reason, at: int) -> None:
        """The origin has it no more. If it has ended, it stays as history (JB-52)."""
        job = known.active.pop(change.key, None)
        if job is not None:
            guess = known.guesses.pop(change.key, None)
            self._ended[known.name, change.key] = _guess(job, reason, guess.completed_at if guess else at)

    def _lose(self, known: _Origin, at: int) -> list[JobChanged]:
        """Take for failed all that is under way there."""
        known.lost_at = None
        fresh = {id: _guess(job, "origin_lost", at) for id, job in known.active.items() if id not in known.guesses}
        return self._revise(known, fresh, partial(known.guesses.update, fresh))

    def _drop(self, keys: Iterable[tuple[str, str]]) -> list[JobChanged]:
        return [JobChanged(None, self._ended.pop(key)) for key in keys]

    def _revise(self, known: _Origin, ids: Iterable[str], revise: Callable[[], object]) -> list[JobChanged]:
        """Do ``revise``, which concerns the jobs ``ids`` of an origin, and tell what is other than before."""
        before = [(id, self.get(known.name, id), known.node(id)) for id in ids]
        revise()
        changes = []
        for id, previous, node in before:
            self._move(node, known.node(id))
            shown = self.get(known.name, id)
            if shown != previous:
                changes.append(JobChanged(shown, previous))
        return changes

    def _move(self, old: str | None, new: str | None) -> None:
        if old == new:
            return
        self.moves += 1
        if old is not None:
            self._pending[old] -= 1
            if not self._pending[old]:
                del self._pending[old]  # There is no end of names that an origin may give.
        if new is not None:
            self._pending[new] += 1


def is_guess(job: Job) -> bool:
    """Whether ``job`` is only taken for failed (JB-53)."""
    return isinstance(job, ShownJob) and job.inferred


def _guess(job: Job, reason: Reason, at: int | None) -> ShownJob:
    """``job``, which was under way, as failed at ``at``."""
    shown = replace(job, state="failed", error=job_error(reason), completed_at=at)
    return replace(ShownJob.of(shown), inferred=True)
