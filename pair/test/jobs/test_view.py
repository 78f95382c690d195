"""Tests of the list of jobs: its order, its filters, its pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from pair.jobs.ledger import JobLedger, OpenJob
from pair.jobs.view import BadCursor, JobFilter, JobView
from pair.records.jobs import ShownJob, Usage
from pair.test.jobs.ended import NODE, NOW, OTHER, StoredTestCase, ended

if TYPE_CHECKING:
    from collections.abc import Callable

    from pair.records.jobs import Job

RUN = "a1b2c3d4e5f60718"
ALL = JobFilter()


class ViewTestCase(StoredTestCase):
    """A ledger whose ended jobs go to a history, and the view of both."""

    def setUp(self) -> None:
        super().setUp()
        self.begin_process(RUN)
        self.start()

    def begin_process(self, run: str) -> None:
        """Begin with an empty ledger, as a new process does."""
        self.ledger = JobLedger(NODE, run, lambda: self.time)
        self.ledger.stirred.subscribe(lambda _: self.ledger.tell())
        self.ledger.changed.subscribe(self.history.keep)
        self.view = JobView(self.ledger, self.history, NODE)

    def queued(self, model: str | None = "smollm2") -> OpenJob:
        self.time += 1
        return self.ledger.admit("ollama", "ollama", "chat", "/api/chat", True, model, 10)

    def running(self, model: str | None = "smollm2", node: str = NODE, engine: str = "ollama") -> OpenJob:
        job = self.queued(model)
        job.attempt_began(node, engine, "pressure", "rank=1/1")
        job.committed(200)
        return job

    def completed(self, model: str | None = "smollm2", node: str = NODE, engine: str = "ollama") -> OpenJob:
        job = self.running(model, node, engine)
        job.completed(200, 5, Usage())
        return job

    def walk(
        self, wanted: JobFilter, limit: int, between: Callable[[], object] = lambda: None
    ) -> list[tuple[ShownJob, ...]]:
        """All pages, one after the other."""
        page = self.view.page(wanted, limit)
        pages = [page.jobs]
        while page.next_cursor is not None:
            between()
            page = self.view.page(wanted, limit, page.next_cursor)
            pages.append(page.jobs)
        return pages

    def ids(self, wanted: JobFilter = ALL, limit: int = 500) -> list[str]:
        return [job.id for job in self.view.page(wanted, limit).jobs]


class OrderTests(ViewTestCase):
    """JB-58."""

    def test_running_queued_ended(self) -> None:
        """Running jobs come first, then queued ones, then those that ended, the newest first."""
        old = ended(1, NOW - 5)
        self.keep([old])
        first, waiting, second = self.completed(), self.queued(), self.completed()
        active, later = self.running(), self.queued()
        self.assertEqual(self.ids(), [active.id, waiting.id, later.id, second.id, first.id, old.id])

    def test_once_though_in_both(self) -> None:
        """A job that is in the ledger and on the disk is listed once; one that is only on the disk is listed too."""
        jobs = [self.completed() for _ in range(5)]
        self.tick()
        self.assertEqual(len(self.stored()), 5)
        self.assertEqual(self.ids(), [job.id for job in reversed(jobs)])
        self.begin_process("b" * 16)
        self.assertEqual(self.ids(), [job.id for job in reversed(jobs)])

    def test_live_record_beats_history(self) -> None:
        """Of a job that is in both, the ledger's record is shown (JB-50)."""
        job = self.completed()
        self.keep([ended(1)])
        altered = self.history.find(NODE, job.id)
        self.assertEqual(altered, job.record)
        self.assertEqual(self.view.page(ALL, 1).jobs[0], ShownJob.of(job.record))

    def test_clock_set_back(self) -> None:
        """Jobs that end after the clock was set back are listed, once each, where their end puts them."""
        before = [self.completed() for _ in range(3)]
        self.time -= 1_000_000
        after = [self.completed() for _ in range(3)]
        self.tick()
        self.assertEqual(
            [job.id for page in self.walk(ALL, 2) for job in page],
            [job.id for job in (*reversed(before), *reversed(after))],
        )

    def test_one_job(self) -> None:
        """A job is found by origin and id, in the ledger or on the disk; others are not."""
        active, stored, foreign = self.running(), ended(1), ended(1, origin=OTHER)
        self.keep([stored, foreign])
        self.assertEqual(self.view.get(NODE, active.id), ShownJob.of(active.record))
        self.assertEqual(self.view.get(NODE, stored.id), ShownJob.of(stored))
        self.assertEqual(self.view.get(OTHER, foreign.id), ShownJob.of(foreign))
        self.assertIsNone(self.view.get(OTHER, active.id))
        self.assertIsNone(self.view.get(NODE, f"{RUN}.99"))


class FilterTests(ViewTestCase):
    """JB-58, UI-45: by state, node, engine, model, time."""

    def setUp(self) -> None:
        super().setUp()
        self.stored_job = ended(1, NOW - 1000, origin=OTHER, state="failed", model="qwen3")
        self.keep([self.stored_job])
        self.waiting = self.queued(model=None)
        self.active = self.running(model="qwen3", node=OTHER, engine="llamacpp")
        self.done = self.completed()
        self.gone = self.queued()
        self.gone.cancelled("client_gone")

    def assert_listed(self, wanted: JobFilter, *expected: OpenJob | Job) -> None:
        self.assertEqual(self.ids(wanted), [each.id for each in expected])

    def test_none(self) -> None:
        """Without a filter all are listed."""
        self.assert_listed(ALL, self.active, self.waiting, self.gone, self.done, self.stored_job)

    def test_state(self) -> None:
        """By one state, or by several."""
        self.assert_listed(JobFilter(state=frozenset({"running"})), self.active)
        self.assert_listed(JobFilter(state=frozenset({"queued", "failed"})), self.waiting, self.stored_job)
        self.assert_listed(JobFilter(state=frozenset({"cancelled"})), self.gone)

    def test_node(self) -> None:
        """A node is the origin of a job, or where it was placed."""
        self.assert_listed(JobFilter(node=OTHER), self.active, self.stored_job)
        self.assert_listed(JobFilter(node=NODE), self.active, self.waiting, self.gone, self.done)

    def test_engine_and_model(self) -> None:
        """By engine and by the exact name of the model."""
        self.assert_listed(JobFilter(engine="ollama"), self.done, self.stored_job)
        self.assert_listed(JobFilter(model="qwen3"), self.active, self.stored_job)
        self.assert_listed(JobFilter(engine="ollama", model="qwen3"), self.stored_job)
        self.assert_listed(JobFilter(model="qwen"))

    def test_since(self) -> None:
        """A job counts from its end on, one under way from its beginning."""
        at = self.active.record.created_at
        self.assert_listed(JobFilter(since=at), self.active, self.gone, self.done)
        self.assert_listed(JobFilter(since=NOW - 1000, node=OTHER), self.active, self.stored_job)
        self.assert_listed(JobFilter(since=NOW - 999, node=OTHER), self.active)


class PageTests(ViewTestCase):
    """UI-25: pages, and the cursors between them."""

    def test_sizes_at_the_borders(self) -> None:
        """A page that just holds all is the last; one more job makes a second page."""
        jobs = [self.running(), self.queued(), self.completed(), self.completed()]
        self.assertIsNone(self.view.page(ALL, 4).next_cursor)
        self.assertIsNone(self.view.page(ALL, 5).next_cursor)
        self.queued()
        self.assertEqual([len(page) for page in self.walk(ALL, 4)], [4, 1])
        self.assertEqual([len(page) for page in self.walk(ALL, 1)], [1] * (len(jobs) + 1))
        self.begin_process("b" * 16)
        self.assertEqual(self.view.page(JobFilter(model="none"), 1).jobs, ())

    def test_more_under_way_than_fit(self) -> None:
        """Jobs under way have pages too."""
        running, queued = [self.running() for _ in range(5)], [self.queued() for _ in range(5)]
        self.completed()
        pages = self.walk(ALL, 3)
        self.assertEqual([len(page) for page in pages], [3, 3, 3, 2])
        listed = [job.id for page in pages for job in page]
        self.assertEqual(listed[:10], [job.id for job in (*running, *queued)])

    def test_new_ones_disturb_nothing(self) -> None:
        """While jobs arrive and end between two pages, each of those that do neither is listed once, in order."""
        self.keep(ended(n, NOW - 100 - n) for n in range(10))
        for _ in range(5):
            self.completed()
        self.tick()
        order = self.ids()

        def arrive() -> None:
            self.completed()
            self.running()
            self.tick()

        listed = [job.id for page in self.walk(ALL, 2, arrive) for job in page]
        self.assertEqual([id for id in listed if id in order], order)
        self.assertEqual(len(listed), len(set(listed)))

    def test_job_that_leaves_the_ledger(self) -> None:
        """A job that moves from the ledger to the disk alone between two pages is still listed once."""
        jobs = [self.completed() for _ in range(6)]
        self.tick()
        listed = [job.id for page in self.walk(ALL, 2, lambda: self.begin_process("b" * 16)) for job in page]
        self.assertEqual(listed, [job.id for job in reversed(jobs)])

    def test_foreign_cursors(self) -> None:
        """What no page gave is refused."""
        good = f"2.{NOW}.{NODE}.{RUN}.1"
        self.view.page(ALL, 1, good)
        for bad in (
            "",
            "0.",
            "2",
            f"3.{NOW}.{NODE}.{RUN}.1",
            f"-1.{NOW}.{NODE}.{RUN}.1",
            f"2.-5.{NODE}.{RUN}.1",
            f"2.{'9' * 19}.{NODE}.{RUN}.1",
            f"2.².{NODE}.{RUN}.1",
            f"2.٣.{NODE}.{RUN}.1",
            f"2..{NODE}.{RUN}.1",
            f"2.{NOW}..{RUN}",
            f"2.{NOW}.{NODE}.",
            f"2.{NOW}.{NODE}",
        ):
            with self.subTest(cursor=bad):
                self.assertRaises(BadCursor, self.view.page, ALL, 1, bad)

    @given(
        jobs=st.lists(st.sampled_from(["queued", "running", "completed", "stored", "foreign"]), max_size=12),
        still=st.booleans(),
        wanted=st.sampled_from([ALL, JobFilter(node=OTHER), JobFilter(state=frozenset({"running", "completed"}))]),
        limit=st.integers(1, 6),
    )
    def test_any_walk(self, jobs: list[str], still: bool, wanted: JobFilter, limit: int) -> None:
        """Whatever there is, its pages hold each wanted job once, in the order of the whole list; none is short."""
        self.turns.wait(self.store.write(lambda connection: connection.execute("DELETE FROM job_history")))
        self.begin_process(RUN)
        for n, kind in enumerate(jobs):
            if kind in ("stored", "foreign"):
                self.history.keep(ended(n, NOW - n // 3, origin=OTHER if kind == "foreign" else NODE))
            else:
                getattr(self, kind)()
                self.time -= int(still)
        self.tick()
        pages = self.walk(wanted, limit)
        whole = self.view.page(wanted, 100)
        self.assertEqual([job for page in pages for job in page], list(whole.jobs))
        self.assertEqual({len(page) for page in pages[:-1]} - {limit}, set())
        everything = (*self.ledger.active(), *self.ledger.ended(), *self.stored())
        matching = {(job.origin, job.id) for job in everything if wanted.matches(job)}
        self.assertCountEqual([(job.origin, job.id) for job in whole.jobs], matching)
