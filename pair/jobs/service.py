"""The jobs of the whole cluster on this node: its own are published, those of others are taken in (JB-47 to JB-67).

It must not know how the feeds travel, nor how a request is broken off.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from twisted.application.service import Service
from twisted.internet.defer import Deferred

from pair.events import Signal
from pair.jobs.ledger import KEPT_MS, KEPT_TERMINALS
from pair.jobs.merging import ClusterJobs, is_guess
from pair.jobs.view import JobView
from pair.records.jobs import JobChanged
from pair.supervision.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.feeds.publisher import Feed
    from pair.feeds.reader import News
    from pair.feeds.watch import FeedState
    from pair.jobs.history import HistoryService
    from pair.jobs.ledger import JobLedger
    from pair.records.jobs import Job
    from pair.records.nodes import Presence

MOST = 50_000
"""Jobs that are held at once; the oldest that have ended leave first (JB-57)."""

LOADED = 500
"""Jobs of the history that are held from the start on; older ones are read when somebody asks (JB-67)."""

SOON = 0.02
"""Seconds in which changes of own jobs are joined, so that most requests are told of once, when they have ended."""

TICK = 1.0


class NoSuchJob(Exception):  # noqa: N818 - a fact, not a fault
    """There is no job of that id."""


class JobFinished(Exception):  # noqa: N818 - a fact, not a fault
    """It has ended already."""


class NotOrigin(Exception):  # noqa: N818 - a fact, not a fault
    """It is another node's job, and only that can cancel it.

    Attributes:
        node: UUID of that node.
    """

    def __init__(self, node: str) -> None:
        super().__init__("Only the node that took the request can cancel the job.")
        self.node = node


class JobService(Service):
    """Joins the ledger, the history and what other nodes tell.

    Attributes:
        view: All jobs, as a person asks for them.
        changed: Emits each change of what is shown of a job, in one order for
            all (JB-51). An own job that retires to the history changes nothing.
        pending_changed: Emits when :meth:`pending` has become another.
    """

    def __init__(
        self,
        clock: IReactorTime,
        me: str,
        ledger: JobLedger,
        history: HistoryService,
        feed: Feed[Job],
        cancel: Callable[[str], bool],
        now: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """It knows of no other node.

        Args:
            clock: For the looks at what time has changed.
            me: UUID of this node.
            ledger: Its own jobs.
            history: Those that have ended. It keeps the own ones by itself.
            feed: Where the own ones are published.
            cancel: Breaks off the request of an own job, and ends the job; False where there is none of that id.
            now: Epoch milliseconds.
            monotonic: Seconds, for all that is compared.
        """
        self.changed: Signal[JobChanged] = Signal()
        self.pending_changed: Signal[None] = Signal()
        self._clock = clock
        self._me = me
        self._ledger = ledger
        self._history = history
        self._feed = feed
        self._cancel = cancel
        self._now = now
        self._monotonic = monotonic
        self._others = ClusterJobs()
        self.view = JobView(ledger, history, me, self._others)
        self._under_way: dict[str, Job] = {}
        self._stored: set[tuple[str, str]] = set()
        self._moves = 0
        self._telling: IDelayedCall | None = None
        self._ticking = Repeating(clock, TICK, self._tick, "The look at the jobs of other nodes")
        self._ends: tuple[Callable[[], None], ...] = ()

    def startService(self) -> None:
        """Read the newest of the history, and publish; blocks on the disk."""
        super().startService()
        self._ledger.tell()  # What was left untold stirs nobody again.
        self._load()
        self._under_way = {job.id: job for job in self._ledger.active()}
        for job in (*self._ledger.ended(), *self._under_way.values()):
            self._feed.put(job.id, job)
        self._ends = (
            self._ledger.stirred.subscribe(self._stirred),
            self._ledger.changed.subscribe(self._own_changed),
            self._ledger.retired.subscribe(self._retired),
        )
        self._ticking.startService()

    def stopService(self) -> Deferred[None]:
        """Publish no more."""
        super().stopService()
        if self._telling is not None:
            self._telling.cancel()
            self._tell_own()
        for end in self._ends:
            end()
        return self._ticking.stopService()

    def pending(self) -> dict[str, int]:
        """How many jobs are queued or running at each node, those of lost origins left out (JB-59, JB-60)."""
        counts = dict(self._others.pending())
        for job in self._ledger.active():
            if job.placed_on is not None:
                counts[job.placed_on] = counts.get(job.placed_on, 0) + 1
        return counts

    def pending_elsewhere(self) -> Mapping[str, int]:
        """The same without the jobs of this node, which the scheduler counts by itself."""
        return self._others.pending()

    def news(self, origin: str, news: News[Job]) -> None:
        """The feed of another node has brought something."""
        self._tell(self._others.news(origin, news, self._now(), self._monotonic()))

    def feed_state(self, state: FeedState) -> None:
        """The jobs feed of another node is another than before."""
        if state.state == "live":
            self._tell(self._others.live(state.origin))
        elif state.state == "stale":
            self._tell(self._others.broken(state.origin, self._now(), self._monotonic()))

    def presence(self, uuid: str, old: Presence, new: Presence) -> None:
        """The directory declares a node to be there or not."""
        self._tell(self._others.presence(uuid, new == "offline", self._now()))

    def forget(self, origin: str) -> None:
        """It is no member any more: its open jobs leave (JB-29)."""
        self._tell(self._others.forget(origin))

    def cancel(self, origin: str, id: str) -> None:
        """Cancel a job of this node (JB-47).

        Raises:
            NoSuchJob: Nobody knows it.
            NotOrigin: It is another node's.
            JobFinished: It has ended.
        """
        job = self.view.get(origin, id)
        if job is None:
            raise NoSuchJob("There is no job of that id.")
        if origin != self._me:
            raise NotOrigin(origin)
        if job.terminal or not self._cancel(id):
            raise JobFinished("The job has ended already.")

    def clear(self) -> Deferred[None]:
        """Forget all jobs that have ended, on this node (UI-46). Other nodes keep what they have of them.

        Returns:
            Fires when it is done; fails as the store does, and then nothing has changed.
        """
        return Deferred.fromCoroutine(self._clear())

    async def _clear(self) -> None:
        self._ledger.tell()
        await self._history.clear()
        self._stored.clear()
        own = [JobChanged(None, job) for job in self._ledger.ended()]
        self._ledger.clear()
        self._tell([*own, *self._others.clear()])

    def _load(self) -> None:
        # Followers may have missed how these ended: the process that could have told them is gone.
        recent = self._history.since(self._me, self._now() - KEPT_MS, KEPT_TERMINALS)
        self._ledger.recall(reversed(recent))
        newest = self._history.before(None, lambda job: True, LOADED)
        self._others.remember(
            job for job in reversed(newest) if job.origin != self._me or self._ledger.get(job.id) is None
        )
        self._stored = self._history.keys()

    def _stirred(self, _: None) -> None:
        if self._telling is None:
            self._telling = self._clock.callLater(SOON, self._tell_own)

    def _tell_own(self) -> None:
        self._telling = None
        self._ledger.tell()

    def _own_changed(self, job: Job) -> None:
        # For each own request once at least: nothing is encoded, compared as a whole, or looked for here.
        self._feed.put(job.id, job)
        previous = self._under_way.get(job.id)
        if job.terminal:
            self._under_way.pop(job.id, None)
            node = None
        else:
            self._under_way[job.id] = job
            node = job.placed_on
        self.changed.emit(JobChanged(job, previous))
        if node != (None if previous is None else previous.placed_on):
            self.pending_changed.emit(None)

    def _retired(self, job: Job) -> None:
        self._feed.remove(job.id)

    def _tick(self) -> None:
        self._ledger.retire()
        self._tell(self._others.tick(self._now(), self._monotonic()))

    def _tell(self, changes: Sequence[JobChanged]) -> None:
        for change in (*changes, *self._others.trim(MOST - len(self._ledger))):
            job = change.job
            if job is not None and job.terminal and not is_guess(job) and (job.origin, job.id) not in self._stored:
                self._history.keep(job)
            self.changed.emit(change)
        if self._others.moves != self._moves:
            self._moves = self._others.moves
            self.pending_changed.emit(None)
