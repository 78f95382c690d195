"""Tests of what is made of the jobs of other nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from pair.feeds.reader import Changed, Removed, Replaced
from pair.jobs.merging import LOST_SECONDS, STALE_SECONDS, ClusterJobs, is_guess
from pair.records.jobs import JobChanged, JobState, ShownJob
from pair.test.jobs.ended import NODE, NOW, OTHER, ended

if TYPE_CHECKING:
    from pair.feeds.reader import News
    from pair.records.jobs import Job

THIRD = "90bb0000-0000-4000-8000-000000000003"


def job(n: int, seq: int = 1, state: JobState = "running", *, origin: str = OTHER, **values: Any) -> Job:
    """Job ``n`` of another node; under way unless it says otherwise."""
    known = ended(n, origin=origin, state=state, seq=seq, **values)
    return known if known.terminal else replace(known, completed_at=None)


def put(record: Job, before: Job | None = None) -> Changed[Job]:
    return Changed(record.id, record, before)


class MergeTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.jobs = ClusterJobs()
        self.now = 1000.0
        self.jobs.live(OTHER)

    def tell(self, news: News[Job], origin: str = OTHER) -> list[JobChanged]:
        return self.jobs.news(origin, news, NOW, self.now)

    def put(self, *records: Job) -> list[JobChanged]:
        return [each for record in records for each in self.tell(put(record))]

    def shown(self) -> dict[str, str]:
        """By number: the state, or why it is taken for failed."""
        return {
            each.id.partition(".")[2]: each.error.code if is_guess(each) and each.error else each.state
            for each in self.jobs
        }


class RecordTests(MergeTestCase):
    """JB-50, JB-52."""

    def test_higher_seq(self) -> None:
        """Of two records of one job the later one counts, whichever came last."""
        first, second = job(1, 2), job(1, 3, placed_on=THIRD)
        self.assertEqual(self.put(second), [JobChanged(second, None)])
        self.assertEqual(self.put(first), [])
        self.assertEqual(list(self.jobs), [second])

    def test_end_is_final(self) -> None:
        """What has ended by the word of its origin is never another."""
        done = job(1, 4, "completed")
        self.put(done)
        self.assertEqual(self.put(job(1, 5), job(1, 6, "failed")), [])
        self.assertEqual(list(self.jobs), [done])

    def test_late_start(self) -> None:
        """F19: a start that comes after the removal brings no job back."""
        start, done = job(1, 1), job(1, 4, "completed")
        self.put(start, done)
        self.assertEqual(self.tell(Removed(done.id, done)), [])
        self.assertEqual(self.put(start), [])
        self.assertEqual(list(self.jobs), [done])
        self.assertEqual(self.jobs.pending(), {})

    def test_copies(self) -> None:
        """F20: however often a record comes, it is taken once, and no copy is an error."""
        done = job(1, 4, "completed")
        self.assertEqual([len(self.put(done)) for _ in range(3)], [1, 0, 0])
        running = job(2)
        self.assertEqual([len(self.put(running)) for _ in range(3)], [1, 0, 0])
        self.assertEqual((self.jobs.moves, self.jobs.pending()), (1, {OTHER: 1}))

    def test_in_order(self) -> None:
        """F19: 25 changes of one origin are told in their order."""
        changes = self.put(*(job(n % 5, n + 1) for n in range(25)))
        self.assertEqual([each.job.seq for each in changes if each.job], list(range(1, 26)))
        self.assertEqual([each.previous.seq if each.previous else None for each in changes[5:]], list(range(1, 21)))

    def test_removed_under_way(self) -> None:
        """A job that is removed before it has ended is taken for failed, until its origin has it again."""
        running = job(1)
        self.put(running)
        (change,) = self.tell(Removed(running.id, running))
        assert isinstance(change.job, ShownJob)
        self.assertEqual((change.previous, change.job.inferred), (running, True))
        self.assertEqual((change.job.state, change.job.completed_at, change.job.seq), ("failed", NOW, 1))
        self.assertEqual((self.shown(), self.jobs.pending()), ({"1": "origin_lost"}, {}))
        self.put(job(1, 2))
        self.assertEqual((self.shown(), self.jobs.pending()), ({"1": "running"}, {OTHER: 1}))

    def test_equal_ids(self) -> None:
        """A job is known by its origin and its id (JB-31)."""
        self.put(job(1))
        self.tell(put(job(1, origin=THIRD)), THIRD)
        self.assertEqual(len(list(self.jobs)), 2)
        self.tell(put(job(1, 2, "completed", origin=THIRD)), THIRD)
        self.assertEqual([each.state for each in self.jobs if each.origin == OTHER], ["running"])

    def test_history(self) -> None:
        """What the history has is shown, and no record takes its place (JB-67)."""
        self.jobs.remember([job(1, 4, "completed"), job(2, 4, "failed", origin=NODE)])
        self.assertEqual(self.put(job(1)), [])
        self.assertEqual(self.shown(), {"1": "completed", "2": "failed"})

    def test_cap(self) -> None:
        """When there are too many, those that ended first leave, and none that is under way (JB-57)."""
        self.put(*(job(n, 4, "completed") for n in range(5)), job(5), job(6))
        self.assertEqual(self.jobs.trim(7), [])
        self.assertEqual(
            [each.previous.id for each in self.jobs.trim(4) if each.previous], [job(n).id for n in range(3)]
        )
        self.assertEqual(len(self.jobs.trim(1)), 2)
        self.assertEqual(self.shown(), {"5": "running", "6": "running"})


class LossTests(MergeTestCase):
    """JB-53 to JB-55, JB-60."""

    def setUp(self) -> None:
        super().setUp()
        self.put(job(1), job(2, 1, "queued", placed_on=None), job(3, 4, "completed"))

    def break_off(self) -> list[JobChanged]:
        return self.jobs.broken(OTHER, NOW, self.now)

    def tick(self, seconds: float) -> list[JobChanged]:
        self.now += seconds
        return self.jobs.tick(NOW, self.now)

    def test_many_names(self) -> None:
        """Nothing is kept of a node where no job is any more, whatever names an origin has for it."""
        for n in range(100):
            self.put(job(1, n + 10, placed_on=f"nobody {n}"))
        self.assertEqual(list(self.jobs.pending()), ["nobody 99"])
        self.put(job(1, 200, "completed"))
        self.assertEqual(list(self.jobs.pending()), [])

    def test_stale(self) -> None:
        """After 15 s without a live feed what is under way is stale and counts nowhere; what has ended is neither."""
        self.break_off()
        self.assertEqual(self.tick(STALE_SECONDS - 0.1), [])
        self.assertEqual(self.jobs.pending(), {OTHER: 1})
        moves = self.jobs.moves
        changes = self.tick(0.1)
        self.assertEqual([each.job.stale for each in changes if isinstance(each.job, ShownJob)], [True, True])
        self.assertEqual((self.jobs.pending(), self.jobs.moves), ({}, moves + 1))
        self.assertEqual(self.shown(), {"1": "running", "2": "queued", "3": "completed"})
        changes = self.jobs.live(OTHER)
        self.assertEqual([type(each.job).__name__ for each in changes], ["Job", "Job"])
        self.assertEqual(self.jobs.pending(), {OTHER: 1})

    def test_lost(self) -> None:
        """After 120 s it is taken for failed; a live feed brings it back."""
        self.break_off()
        self.tick(STALE_SECONDS)
        self.assertEqual(self.tick(LOST_SECONDS - STALE_SECONDS - 0.1), [])
        self.assertEqual(len(self.tick(0.1)), 2)
        self.assertEqual(self.shown(), {"1": "origin_lost", "2": "origin_lost", "3": "completed"})
        self.assertEqual(self.tick(1000), [])
        self.assertEqual(len(self.jobs.live(OTHER)), 2)
        self.assertEqual(self.shown(), {"1": "running", "2": "queued", "3": "completed"})

    def test_record_of_a_lost_one(self) -> None:
        """A record brings its own job back, before the feed is live; if it is not live for long, it is lost again."""
        self.break_off()
        self.tick(LOST_SECONDS)
        self.put(job(1, 2))
        self.assertEqual(self.shown(), {"1": "running", "2": "origin_lost", "3": "completed"})
        self.tick(LOST_SECONDS - 1)
        self.assertEqual(self.shown()["1"], "running")
        self.tick(1)
        self.assertEqual(self.shown()["1"], "origin_lost")

    def test_offline(self) -> None:
        """Offline, it is lost at once; while its feed is live, only when that breaks."""
        self.assertEqual(self.jobs.presence(OTHER, True, NOW), [])
        self.assertEqual(len(self.break_off()), 2)
        self.jobs.live(OTHER)
        self.jobs.presence(OTHER, False, NOW)
        self.assertEqual(self.break_off(), [])
        self.assertEqual(len(self.jobs.presence(OTHER, True, NOW)), 2)
        self.assertEqual(self.jobs.presence(OTHER, False, NOW), [])
        self.assertEqual(self.jobs.presence(THIRD, True, NOW), [])

    def test_restarted(self) -> None:
        """What a new process of the origin lacks is lost with the old one; what it has is as it says."""
        gone = [Removed(each.id, each) for each in (job(1), job(2, 1, "queued", placed_on=None))]
        changes = self.tell(Replaced(True, (*gone, put(job(7)))))
        self.assertEqual(len(changes), 3)
        self.assertEqual(
            self.shown(), {"1": "origin_restarted", "2": "origin_restarted", "3": "completed", "7": "running"}
        )

    def test_forgotten(self) -> None:
        """Of one that is no member any more only what has ended stays; guesses go too."""
        self.tell(Removed(job(1).id, job(1)))
        changes = self.jobs.forget(OTHER)
        self.assertEqual([each.job for each in changes], [None, None])
        self.assertEqual((self.shown(), self.jobs.pending()), ({"3": "completed"}, {}))
        self.assertEqual(self.jobs.forget(OTHER), [])

    def test_cleared(self) -> None:
        """What has ended can be forgotten."""
        self.assertEqual([each.job for each in self.jobs.clear()], [None])
        self.assertEqual(self.shown(), {"1": "running", "2": "queued"})


class Origin:
    """A node that has jobs, and what a follower has read of it. What happens to it is drawn by a test."""

    def __init__(self) -> None:
        self.run = 1
        self.count = 0
        self.table: dict[str, Job] = {}
        self.read: dict[str, Job] = {}
        self.read_run = 1

    def act(self, what: str, which: int) -> None:
        if what == "restart":
            self.run += 1
            self.table = {}
        elif what == "admit":
            self.count += 1
            record = replace(job(self.count, 1, "queued", placed_on=None), id=f"{self.run:016x}.{self.count}")
            self.table[record.id] = record
        elif self.table:
            record = sorted(self.table.values(), key=lambda each: each.id)[which % len(self.table)]
            if what == "retire" and record.terminal:
                del self.table[record.id]
            elif what == "place" and not record.terminal:
                place = (NODE, OTHER, THIRD)[which % 3]
                self.table[record.id] = replace(record, seq=record.seq + 1, placed_on=place, state="running")
            elif what == "end" and not record.terminal:
                self.table[record.id] = replace(
                    record, seq=record.seq + 1, state="completed", completed_at=NOW + which
                )

    def catch_up(self) -> list[News[Job]]:
        """What the follower is told now."""
        before, after = self.read, dict(self.table)
        gone = [Removed(id, record) for id, record in before.items() if id not in after]
        new = [Changed(id, record, before.get(id)) for id, record in after.items() if before.get(id) != record]
        restarted = self.read_run != self.run
        self.read, self.read_run = after, self.run
        return [Replaced(True, (*gone, *new))] if restarted else [*gone, *new]


_STEPS = st.one_of(
    st.tuples(st.sampled_from(["admit", "place", "end", "retire", "restart"]), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.sampled_from([1, 14, 16, 121])),
    st.sampled_from([("connect", 0), ("break", 0), ("offline", 0), ("online", 0), ("clear", 0), ("forget", 0)]),
)


class AnyOrderTests(SynchronousTestCase):
    @given(st.lists(_STEPS, max_size=60))
    def test_any_order(self, steps: list[tuple[str, int]]) -> None:
        """Whatever happens: the changes tell all that is shown, the counts are those of the jobs, an end is for good,
        and with a live feed just what the origin says is shown.
        """
        jobs, origin, now, live = ClusterJobs(), Origin(), 0.0, False
        seen: dict[str, Job] = {}
        ends: dict[str, Job] = {}
        for what, number in steps:
            if what == "wait":
                now += number
                changes = jobs.tick(NOW, now)
            elif what == "connect":
                live = True
                changes = [each for news in origin.catch_up() for each in jobs.news(OTHER, news, NOW, now)]
                changes += jobs.live(OTHER)
            elif what == "break":
                changes = jobs.broken(OTHER, NOW, now) if live else []
                live = False
            elif what in ("offline", "online"):
                changes = jobs.presence(OTHER, what == "offline", NOW)
            elif what == "clear":
                changes = jobs.clear()
                ends.clear()
            elif what == "forget":
                live = False
                origin.read, origin.read_run = {}, origin.run
                changes = jobs.forget(OTHER)
            else:
                origin.act(what, number)
                news = origin.catch_up() if live else []
                changes = [each for one in news for each in jobs.news(OTHER, one, NOW, now)]
            for change in changes:
                known = change.job or change.previous
                assert known is not None
                self.assertNotEqual(change.job, change.previous)
                self.assertEqual(seen.pop(known.id, None), change.previous)
                if change.job is not None:
                    seen[known.id] = change.job
                    if known.terminal and not is_guess(known):
                        self.assertEqual(ends.setdefault(known.id, known), known)
            self.assertEqual({each.id: each for each in jobs}, seen)
            counts: dict[str, int] = {}
            for each in seen.values():
                stale = isinstance(each, ShownJob) and each.stale
                if not each.terminal and not stale and each.placed_on is not None:
                    counts[each.placed_on] = counts.get(each.placed_on, 0) + 1
            self.assertEqual(jobs.pending(), counts)
            if live:
                self.assertEqual(
                    {id: each for id, each in seen.items() if not each.terminal},
                    {id: each for id, each in origin.table.items() if not each.terminal},
                )
