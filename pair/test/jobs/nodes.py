"""Nodes in one process that tell each other of their jobs, over connections in memory and by a clock of the test.

Each process of a node has a clock of its own: one that is killed does nothing
any more, and what it had written is what the next one finds.
"""

from __future__ import annotations

import sqlite3
from itertools import count
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import parse_qs

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from pair.feeds.codec import StructCodec
from pair.feeds.follower import FeedFollower
from pair.feeds.following import NotReachedError
from pair.feeds.publisher import Feed
from pair.feeds.wire import read_position
from pair.jobs.bounds import within_bounds
from pair.jobs.history import HistoryService
from pair.jobs.ledger import JobLedger
from pair.jobs.merging import is_guess
from pair.jobs.service import JobService
from pair.jobs.view import JobFilter
from pair.records.jobs import Job
from pair.store import MIGRATIONS
from pair.test.feeds.links import STEP, Link
from pair.test.jobs.ended import NOW, NotedErrors

if TYPE_CHECKING:
    from collections.abc import Callable

    from pair.feeds.following import Stream
    from pair.feeds.reader import News
    from pair.feeds.watch import FeedState
    from pair.jobs.ledger import OpenJob
    from pair.records.jobs import JobChanged, ShownJob
    from pair.store import Store

T = TypeVar("T")

CODEC = StructCodec(Job, "id", "origin", within_bounds)
Key = tuple[str, str]


class Disk:
    """What is written of a node: a store that has done everything at once."""

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:")
        for statement in MIGRATIONS[0]:
            self.connection.execute(statement)

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return work(self.connection)

    def write(self, work: Callable[[sqlite3.Connection], T]) -> Deferred[T]:
        return succeed(work(self.connection))


class Process:
    """A node from its start to its end.

    Attributes:
        open: The requests under way.
        cancelled: What was to be broken off.
        changes: What was told of changes.
        ends: How each job ended, as far as it was shown here, by the word of its origin.
        moves: How often a count of pending jobs was told to have moved.
    """

    def __init__(self, cluster: Cluster, node: str, disk: Disk) -> None:
        clock = self.clock = Clock()
        clock.advance(cluster.clock.seconds())
        run = f"{next(cluster.runs):016x}"
        self.node = node
        self.open: list[OpenJob] = []
        self.cancelled: list[str] = []
        self.changes: list[JobChanged] = []
        self.ends: dict[Key, set[str]] = {}
        self.moves = 0
        self.shown: dict[Key, Job] = {}
        self.ledger = JobLedger(node, run, self.now)
        self.history = HistoryService(clock, cast("Store", disk), self.now, 10_000, 7, NotedErrors())
        self.feed = Feed(clock, "jobs", node, "0.0.0", CODEC, 25_000, run, self.now)
        self.jobs = JobService(
            clock, node, self.ledger, self.history, self.feed, self._cancel, self.now, clock.seconds
        )
        self.ledger.changed.subscribe(self.history.keep)
        self.jobs.changed.subscribe(self._changed)
        self.jobs.pending_changed.subscribe(self._moved)
        self.followers = {peer: self._follower(cluster, peer) for peer in cluster.names if peer != node}
        for service in (self.history, self.feed, self.jobs, *self.followers.values()):
            service.startService()

    def now(self) -> int:
        return NOW + int(self.clock.seconds() * 1000)

    def admit(self, model: str = "smollm2") -> OpenJob:
        job = self.ledger.admit("ollama", "ollama", "chat", "/api/chat", True, model, 10)
        self.open.append(job)
        return job

    def place(self, executor: str) -> OpenJob:
        """A job that is at a node."""
        job = self.admit()
        job.attempt_began(executor, "ollama", "pressure", "rank=1/1")
        return job

    def listed(self) -> list[ShownJob]:
        """All pages."""
        page = self.jobs.view.page(JobFilter(), 500)
        jobs = list(page.jobs)
        while page.next_cursor is not None:
            page = self.jobs.view.page(JobFilter(), 500, page.next_cursor)
            jobs += page.jobs
        return jobs

    def states(self) -> dict[str, str]:
        """The states of all jobs, or why they are thought to have failed, by their numbers."""
        return {
            job.id.partition(".")[2]: job.error.code if job.inferred and job.error else job.state
            for job in self.listed()
        }

    def _follower(self, cluster: Cluster, peer: str) -> FeedFollower[Job]:
        follower = FeedFollower(
            self.clock, cluster.connector(self), peer, "jobs", "/", CODEC, self.now, lambda least, most: 1.0
        )

        def news(news: News[Job]) -> None:
            self.jobs.news(peer, news)

        def state(state: FeedState) -> None:
            self.jobs.feed_state(state)
            if state.state == "live":
                self.jobs.presence(peer, "offline", "online")

        follower.news.subscribe(news)
        follower.state_changed.subscribe(state)
        return follower

    def _cancel(self, id: str) -> bool:
        self.cancelled.append(id)
        return any(job.id == id for job in self.open)

    def _moved(self, _: None) -> None:
        self.moves += 1

    def _changed(self, change: JobChanged) -> None:
        self.changes.append(change)
        job = change.job or change.previous
        assert job is not None
        key = (job.origin, job.id)
        known = self.shown.get(key)
        assert known is None or known == change.previous, "each change begins where the last one ended (JB-51)"
        self.shown.pop(key, None)
        if change.job is not None:
            self.shown[key] = change.job
            if job.terminal and not is_guess(job):
                self.ends.setdefault(key, set()).add(job.state)


class Cluster:
    """Some nodes.

    Attributes:
        lost: Jobs that had ended when their node was killed, and were not on its disk.
        cut: Pairs of nodes that do not reach each other.
        serving: The newest connection on which the first of two nodes tells the second.
    """

    def __init__(self, *names: str) -> None:
        self.names = names
        self.clock = Clock()
        self.runs = count(1)
        self.lost: set[Key] = set()
        self.cut: set[frozenset[str]] = set()
        self.disks = {name: Disk() for name in names}
        self.up: dict[str, Process] = {}
        self.links: list[tuple[frozenset[str], Link]] = []
        self.serving: dict[tuple[str, str], Link] = {}
        for name in names:
            self.start(name)

    def start(self, name: str) -> Process:
        process = self.up[name] = Process(self, name, self.disks[name])
        for other in self.up.values():
            if other is not process:
                other.followers[name].nudge()
        self.pump()
        return process

    def kill(self, name: str) -> Process:
        process = self.up.pop(name)
        before = set(process.history.keys())
        self.lost |= {(name, job.id) for job in process.ledger.ended()} - before
        self._break(lambda pair: name in pair)
        return process

    def part(self, one: str, other: str) -> None:
        """They do not reach each other any more."""
        self.cut.add(frozenset((one, other)))
        self._break(lambda pair: pair in self.cut)

    def join(self, one: str, other: str) -> None:
        self.cut.discard(frozenset((one, other)))

    def offline(self, name: str) -> None:
        """The directories of the others declare it."""
        for process in self.up.values():
            if process.node != name:
                process.jobs.presence(name, "suspect", "offline")

    def run(self, seconds: float, step: float = STEP) -> None:
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            for process in tuple(self.up.values()):
                process.clock.advance(step)
            self.pump()

    def pump(self) -> None:
        for _, link in tuple(self.links):
            link.pump()
        self.links = [(pair, link) for pair, link in self.links if not link.gone]

    def connector(self, process: Process) -> Callable[[str, str], Deferred[Stream]]:
        def connect(node: str, path: str) -> Deferred[Stream]:
            pair = frozenset((process.node, node))
            other = self.up.get(node)
            if other is None or pair in self.cut:
                return fail(NotReachedError("refused"))
            link = Link()
            other.feed.serve(process.node, link, read_position(parse_qs(path.partition("?")[2].encode())))
            self.links.append((pair, link))
            self.serving[node, process.node] = link
            return succeed(link)

        return connect

    def _break(self, which: Callable[[frozenset[str]], bool]) -> None:
        for pair, link in tuple(self.links):
            if which(pair):
                link.cut()
        self.pump()
