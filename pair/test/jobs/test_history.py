"""Tests of the history of jobs: what is written, when, and what is lost when the disk does not work."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from pair.errors.registry import Registry
from pair.interfaces import IErrorBook
from pair.jobs.conditions import CONDITIONS
from pair.jobs.history import BATCH, FLUSH_EVERY, LAST_FLUSH, PRUNE_EVERY, WAITING, HistoryService, Place
from pair.store import StoreClosed
from pair.test.jobs.ended import DAY_MS, NODE, NOW, OTHER, NotedErrors, StoredTestCase, ended
from pair.test.turns import PATIENCE

if TYPE_CHECKING:
    from pair.store import Store


class WritingTests(StoredTestCase):
    """JB-63, JB-65, JB-66."""

    def test_written_within_a_second(self) -> None:
        """An ended job is on the disk, whole, a second later."""
        self.start()
        job = ended(1, state="failed")
        self.history.keep(job)
        self.assertEqual(self.stored(), [])
        self.tick()
        self.assertEqual(self.stored(), [job])

    def test_only_what_has_ended(self) -> None:
        """A job under way is never written."""
        self.start()
        self.keep([ended(1, state="running"), ended(2, state="queued"), ended(3), ended(4, state="cancelled")])
        self.assertEqual(self.numbers(), [3, 4])

    def test_batches(self) -> None:
        """What waits is written in transactions of at most 500, all within the second."""
        self.start()
        sizes: list[int] = []
        write = self.store.write

        def counted(work: Any) -> Deferred[Any]:
            if "batch" in getattr(work, "keywords", {}):
                sizes.append(len(work.keywords["batch"]))
            return write(work)

        self.patch(self.store, "write", counted)
        self.keep(ended(n) for n in range(2 * BATCH + 1))
        self.assertEqual((sizes, len(self.stored())), ([BATCH, BATCH, 1], 2 * BATCH + 1))

    def test_early(self) -> None:
        """A whole batch is not kept waiting for the second: many that come at once are none too many (JB-65)."""
        self.start()
        for n in range(BATCH):
            self.history.keep(ended(n))
        self.settle()
        self.assertEqual(len(self.stored()), BATCH)

    def test_cleared(self) -> None:
        """What is kept, what waits and what is being written goes; what ends after that is kept (UI-46)."""
        self.start()
        self.keep([ended(1)])
        self.history.keep(ended(2))
        self.turns.advance(FLUSH_EVERY)
        self.history.keep(ended(3))
        self.turns.wait(self.history.clear())
        self.assertEqual(self.numbers(), [])
        self.history.keep(ended(4))
        self.tick()
        self.assertEqual(self.numbers(), [4])
        self.assertEqual(self.history.keys(), {(NODE, ended(4).id)})

    def test_what_comes_meanwhile(self) -> None:
        """A job that ends while others are written waits for the next second, and not for the writer alone."""
        self.start()
        sizes: list[int] = []
        write = self.store.write

        def counted(work: Any) -> Deferred[Any]:
            if "batch" in getattr(work, "keywords", {}):
                sizes.append(len(work.keywords["batch"]))
                self.history.keep(ended(10 + len(sizes)))
            return write(work)

        self.patch(self.store, "write", counted)
        self.keep([ended(1), ended(2)])
        self.assertEqual(sizes, [2])
        self.tick()
        self.assertEqual(sizes, [2, 1])

    def test_same_job_again(self) -> None:
        """A job that is kept twice is there once; only a higher ``seq`` replaces what is there (JB-66)."""
        self.start()
        self.keep([ended(1, seq=4)])
        self.keep([ended(1, seq=4, status=201), ended(1, seq=3, status=202)])
        self.assertEqual([job.status for job in self.stored()], [None])
        self.keep([ended(1, NOW + 5, seq=5, status=203)])
        self.assertEqual([(job.status, job.completed_at) for job in self.stored()], [(203, NOW + 5)])

    def test_origins_with_equal_ids(self) -> None:
        """A job is known by its origin and its id (JB-31)."""
        self.start()
        self.keep([ended(1), ended(1, origin=OTHER)])
        self.assertEqual([job.origin for job in self.stored()], [NODE, OTHER])
        self.assertEqual(self.history.find(OTHER, ended(1).id), ended(1, origin=OTHER))
        self.assertIsNone(self.history.find(OTHER, ended(2).id))

    def test_at_the_stop(self) -> None:
        """What waits at the stop is written before it ends (JB-68)."""
        self.history.startService()
        jobs = [ended(n) for n in range(BATCH + 1)]
        for job in jobs:
            self.history.keep(job)
        self.turns.wait(self.history.stopService())
        self.assertCountEqual(self.stored(), jobs)

    def test_stop_while_writing(self) -> None:
        """A batch that is under way at the stop is on the disk after it, once."""
        self.history.startService()
        self.history.keep(ended(1))
        self.turns.advance(1)
        self.history.keep(ended(2))
        self.turns.wait(self.history.stopService())
        self.assertEqual(self.numbers(), [1, 2])

    def test_started_again(self) -> None:
        """A history that was stopped can be started, as its supervisor does."""
        self.start()
        self.turns.wait(self.history.stopService())
        self.start()
        self.keep([ended(1)])
        self.assertEqual(self.numbers(), [1])


class ReadingTests(StoredTestCase):
    """JB-58, JB-67."""

    def setUp(self) -> None:
        super().setUp()
        self.start()

    def test_newest_first(self) -> None:
        """The order is by the end, the newest first, then by origin and id."""
        self.keep([ended(1, NOW), ended(3, NOW + 1), ended(2, NOW + 1), ended(4, NOW + 1, origin=OTHER), ended(5)])
        self.assertEqual(self.numbers(), [2, 3, 4, 1, 5])

    def test_behind_a_place(self) -> None:
        """What comes behind a job is read without it, from any place on."""
        jobs = [ended(n, NOW - n // 3, origin=(NODE, OTHER)[n % 2]) for n in range(10)]
        self.keep(jobs)
        order = self.stored()
        for n, job in enumerate(order):
            place = Place(job.completed_at or 0, job.origin, job.id)
            self.assertEqual(self.history.before(place, lambda job: True, 4), order[n + 1 : n + 5])

    def test_of_an_origin(self) -> None:
        """The last jobs of one origin are found, from an instant on and up to a number."""
        self.keep(ended(n, NOW - n, origin=(NODE, OTHER)[n % 2]) for n in range(10))
        found = self.history.since(NODE, NOW - 6, 3)
        self.assertEqual([job.completed_at for job in found], [NOW, NOW - 2, NOW - 4])
        self.assertEqual(len(self.history.since(NODE, NOW - 6, 9)), 4)

    def test_only_the_wanted(self) -> None:
        """Jobs that are not wanted do not count."""
        self.keep(ended(n, NOW - n, model=("a", "b")[n % 2]) for n in range(10))
        found = self.history.before(None, lambda job: job.model == "b", 3)
        self.assertEqual([job.completed_at for job in found], [NOW - 1, NOW - 3, NOW - 5])


class PruningTests(StoredTestCase):
    """JB-64, JB-69."""

    def test_most_rows(self) -> None:
        """Beyond the cap, the oldest go at the next pruning."""
        self.history = self.make(rows=10_000)
        self.start()
        for start in range(0, 10_001, 5000):
            self.keep(ended(n, NOW + n) for n in range(start, min(start + 5000, 10_001)))
        self.assertEqual(len(self.numbers()), 10_001)
        self.tick(PRUNE_EVERY)
        self.assertEqual(self.numbers(), list(range(10_000, 0, -1)))

    def test_eighth_day(self) -> None:
        """A job is kept for seven days from its receipt, whatever its origin's clock says."""
        self.start()
        self.keep([ended(1, NOW - 100 * DAY_MS)])
        self.time += 7 * DAY_MS
        self.keep([ended(2, NOW - 100 * DAY_MS)])
        self.tick(PRUNE_EVERY)
        self.assertEqual(self.numbers(), [1, 2])
        self.time += 1
        self.tick(PRUNE_EVERY)
        self.assertEqual(self.numbers(), [2])

    def test_pruned_at_the_start(self) -> None:
        """What is too much or too old goes at the start already."""
        self.start()
        self.keep(ended(n, NOW + n) for n in range(5))
        self.start(self.make(rows=3))
        self.assertEqual(self.numbers(), [4, 3, 2])
        self.time += 8 * DAY_MS
        self.start(self.make(days=7))
        self.assertEqual(self.numbers(), [])

    def test_clock_set_back(self) -> None:
        """With the clock a year back new jobs are kept, and old ones go a week later."""
        self.history = self.make(rows=3)
        self.start()
        self.keep(ended(n, NOW + n) for n in range(3))
        self.time -= 365 * DAY_MS
        self.tick(PRUNE_EVERY)
        self.assertEqual(self.numbers(), [2, 1, 0])
        self.keep([ended(3, self.time), ended(4, self.time + 1)])
        self.tick(PRUNE_EVERY)
        self.assertEqual(self.numbers(), [2, 4, 3])
        self.time += 7 * DAY_MS + 1
        self.keep([ended(5, self.time)])
        self.tick(PRUNE_EVERY)
        self.assertEqual(self.numbers(), [5])

    def test_no_history(self) -> None:
        """With 0 rows nothing is kept, and what was there is deleted (JB-69)."""
        self.start()
        self.keep([ended(1)])
        self.history = self.make(rows=0)
        self.start()
        self.assertEqual(self.numbers(), [])
        self.keep([ended(2)])
        self.assertEqual(self.numbers(), [])


class BrokenDiskTests(StoredTestCase):
    """A store that cannot be written does not lose what has been promised."""

    def test_locked(self) -> None:
        """A database that another program holds is written once it lets go."""
        self.start()
        self.turns.wait(self.store.write(lambda connection: connection.execute("PRAGMA busy_timeout = 0")))
        with closing(sqlite3.connect(self.store.path)) as other:
            other.execute("BEGIN IMMEDIATE")
            self.keep([ended(1)])
            self.assertEqual(self.numbers(), [])
        self.tick()
        self.assertEqual(self.numbers(), [1])

    def test_read_only(self) -> None:
        """A read-only database still shows what it has."""
        self.start()
        self.keep([ended(1)])
        self.turns.wait(self.store.write(lambda connection: connection.execute("PRAGMA query_only = ON")))
        self.keep([ended(2)])
        self.assertEqual(self.numbers(), [1])
        self.turns.wait(self.history.stopService())
        self.assertEqual(self.numbers(), [1])

    def test_cleared_in_vain(self) -> None:
        """What cannot be deleted is said to be there still."""
        self.start()
        self.keep([ended(1)])
        self.turns.wait(self.store.write(lambda connection: connection.execute("PRAGMA query_only = ON")))
        cleared = self.history.clear()
        self.turns.wait(cleared)
        self.failureResultOf(cleared, sqlite3.Error)
        self.assertEqual(self.numbers(), [1])

    def refuse(self, deed: str) -> None:
        """From now on the table takes none of it, as if the disk were full."""
        trigger = f"CREATE TEMP TRIGGER full BEFORE {deed} ON job_history BEGIN SELECT RAISE(ABORT, 'full'); END"
        self.turns.wait(self.store.write(lambda connection: connection.execute(trigger)))

    def test_cleared_while_nothing_is_written(self) -> None:
        """What waits for a disk that takes no more is gone with the rest, and does not come when there is room."""
        self.start()
        self.keep([ended(1)])
        self.refuse("INSERT")
        self.keep([ended(2)])
        self.history.keep(ended(3))
        self.turns.wait(self.history.clear())
        self.turns.wait(self.store.write(lambda connection: connection.execute("DROP TRIGGER full")))
        self.tick(60)
        self.assertEqual(self.numbers(), [])

    def test_cleared_in_vain_while_some_wait(self) -> None:
        """Where nothing can be deleted, what waits goes on waiting."""
        self.start()
        self.keep([ended(1)])
        self.history.keep(ended(2))
        self.refuse("DELETE")
        cleared = self.history.clear()
        self.turns.wait(cleared)
        self.failureResultOf(cleared, sqlite3.Error)
        self.tick()
        self.assertEqual(set(self.numbers()), {1, 2})

    def test_stop_does_not_wait_for_ever(self) -> None:
        """A disk that hangs gets five seconds at the stop (JB-68)."""
        self.start()
        let_go = threading.Event()
        self.addCleanup(let_go.set)
        self.store.write(lambda connection: let_go.wait(PATIENCE))
        self.history.keep(ended(1))
        stopped = self.history.stopService()
        self.turns.advance(LAST_FLUSH - 0.1)
        self.assertNoResult(stopped)
        self.turns.advance(0.1)
        self.successResultOf(stopped)

    def test_oldest_are_lost(self) -> None:
        """Beyond 5,000 that wait the oldest are lost, and an entry says how many, once a second (JB-65)."""
        self.start()
        for n in range(BATCH + WAITING + 2):
            self.history.keep(ended(n, NOW + n))
        self.assertEqual(self.errors.raised, [])
        self.tick()
        self.assertEqual(self.errors.raised, [("jobs:history_dropped", {"count": 2})])
        lost = {BATCH, BATCH + 1}  # Those before were on their way.
        self.assertEqual(self.numbers(), [n for n in reversed(range(BATCH + WAITING + 2)) if n not in lost])

    def test_declared(self) -> None:
        """The entry is declared, and its text tells the number."""
        verifyObject(IErrorBook, self.errors)
        condition = Registry(CONDITIONS).find("jobs:history_dropped")
        assert condition is not None
        self.assertIn("42", condition.text.format(count=42))


class Refusing:
    """A store that refuses while ``error`` is set, and else only counts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.error: Exception | None = None
        self.asked: list[float] = []
        self.written: list[int] = []

    def write(self, work: Any) -> Deferred[None]:
        batch = work.keywords.get("batch")
        if batch is None:
            return succeed(None)
        self.asked.append(self._clock.seconds())
        if self.error is not None:
            return fail(self.error)
        self.written += [int(job.id.partition(".")[2]) for job, _ in batch]
        return succeed(None)


class RetryTests(SynchronousTestCase):
    """JB-65: a write error is retried after 1, 2, 4 … 60 s."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.refusing = Refusing(self.clock)
        self.errors = NotedErrors()
        store: Store = self.refusing  # type: ignore[assignment]
        self.history = HistoryService(self.clock, store, lambda: NOW, 10_000, 7, self.errors)
        self.history.startService()

    def pass_seconds(self, seconds: int) -> None:
        self.clock.pump([1] * seconds)

    def test_growing_waits(self) -> None:
        """The waits double up to a minute; after a good write they begin anew."""
        self.refusing.error = sqlite3.OperationalError("database is locked")
        self.history.keep(ended(1))
        self.pass_seconds(184)
        self.assertEqual(self.refusing.asked, [1, 2, 4, 8, 16, 32, 64, 124, 184])
        self.refusing.error = None
        self.pass_seconds(60)
        self.assertEqual(self.refusing.written, [1])
        self.refusing.error = sqlite3.OperationalError("disk I/O error")
        self.refusing.asked.clear()
        self.history.keep(ended(2))
        self.pass_seconds(8)
        self.assertEqual(self.refusing.asked, [245, 246, 248, 252])

    def test_nothing_is_lost(self) -> None:
        """What comes while writes fail is written in its order when they succeed again."""
        self.refusing.error = sqlite3.OperationalError("database is locked")
        for n in range(WAITING):
            self.history.keep(ended(n))
            if not n % 1000:
                self.pass_seconds(1)
        self.refusing.error = None
        self.pass_seconds(10)
        self.assertEqual((self.refusing.written, self.errors.raised), (list(range(WAITING)), []))

    def test_batch_that_comes_back(self) -> None:
        """A batch that failed waits again, and what is too many with it is lost from its front."""
        late: Deferred[None] = Deferred()
        self.patch(self.refusing, "write", lambda work: late)
        self.history.keep(ended(0))
        self.history.keep(ended(1))
        self.pass_seconds(1)
        for n in range(2, WAITING + 1):
            self.history.keep(ended(n))
        self.assertEqual(self.errors.raised, [])
        del self.refusing.write
        late.errback(sqlite3.OperationalError("database is locked"))
        self.pass_seconds(2)
        self.assertEqual(self.errors.raised, [("jobs:history_dropped", {"count": 1})])
        self.assertEqual(self.refusing.written, list(range(1, WAITING + 1)))

    def test_stop_tries_once_more(self) -> None:
        """The stop does not sit out a wait: it tries once, and ends when that fails."""
        self.refusing.error = sqlite3.OperationalError("database is locked")
        self.history.keep(ended(1))
        self.pass_seconds(9)
        self.refusing.asked.clear()
        self.successResultOf(self.history.stopService())
        self.assertEqual(self.refusing.asked, [9])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_stop_with_a_closed_store(self) -> None:
        """A store that closed first holds up nothing."""
        self.refusing.error = StoreClosed()
        self.history.keep(ended(1))
        self.successResultOf(self.history.stopService())
