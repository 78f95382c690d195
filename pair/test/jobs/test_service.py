"""Tests of the jobs of several nodes, as each of them shows them: real feeds, real followers, no network."""

from __future__ import annotations

import os
import random

from twisted.trial.unittest import SynchronousTestCase

from pair.feeds.reader import Changed
from pair.jobs.ledger import KEPT_MS, OpenJob
from pair.jobs.merging import LOST_SECONDS, STALE_SECONDS, is_guess
from pair.jobs.service import SOON, JobFinished, NoSuchJob, NotOrigin
from pair.jobs.view import JobFilter
from pair.records.jobs import Usage
from pair.test.feeds.links import STEP
from pair.test.jobs.ended import ended
from pair.test.jobs.nodes import Cluster, Process

A = "aaaaaaaa-0000-4000-8000-000000000001"
B = "bbbbbbbb-0000-4000-8000-000000000002"
C = "cccccccc-0000-4000-8000-000000000003"

SECONDS, SEEDS = (10, 500) if os.environ.get("PAIR_FAULTS") else (2, 4)
"""How long the many jobs go on, and how often there are random kills."""


def complete(job: OpenJob) -> None:
    job.committed(200)
    job.completed(200, 5, Usage())


class ClusterTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.cluster = Cluster(A, B, C)

    @property
    def a(self) -> Process:
        return self.cluster.up[A]

    @property
    def b(self) -> Process:
        return self.cluster.up[B]

    @property
    def c(self) -> Process:
        return self.cluster.up[C]

    def run_for(self, seconds: float) -> None:
        self.cluster.run(seconds)


class SharingTests(ClusterTestCase):
    def test_seen_everywhere(self) -> None:
        """A job is shown on every node as its origin has it, from its admission to its end (JB-50, JB-51)."""
        job = self.a.place(B)
        self.run_for(0.1)
        self.assertEqual(self.b.listed(), self.a.listed())
        self.assertEqual(self.c.states(), {"1": "queued"})
        complete(job)
        self.run_for(0.1)
        for process in (self.a, self.b, self.c):
            self.assertEqual([each.state for each in process.listed()], ["completed"])
            self.assertFalse(any(each.inferred or each.stale for each in process.listed()))
        states = [each.job.state for each in self.b.changes if each.job]
        self.assertEqual(states, ["queued", "completed"])

    def test_joined(self) -> None:
        """What happens to a job within 20 ms is one change, on its own node too; the first of them is not late for the
        others (JB-51).
        """
        job = self.a.place(B)
        self.a.clock.advance(SOON / 2)
        complete(job)
        self.assertEqual((self.a.states(), self.a.changes), ({"1": "completed"}, []))
        self.a.clock.advance(SOON / 2)
        (change,) = self.a.changes
        self.assertEqual((change.job, change.previous), (job.record, None))
        self.assertEqual(job.record.seq, 4)

    def test_stopped(self) -> None:
        """A stop tells what was not told yet: it is history (JB-68)."""
        complete(self.a.place(B))
        self.a.jobs.stopService()
        self.assertEqual([each.job and each.job.state for each in self.a.changes], ["completed"])
        self.a.clock.advance(1)
        self.assertEqual(len(self.a.history.keys()), 1)

    def test_started_again(self) -> None:
        """What happened while nobody told of it does not keep what follows from being told."""
        self.a.jobs.stopService()
        self.a.admit()
        self.a.jobs.startService()
        job = self.a.admit()
        self.run_for(0.1)
        self.assertIn(job.id, [each.job.id for each in self.a.changes if each.job])

    def test_equal_ids(self) -> None:
        """Jobs of two origins with one id are two (JB-31)."""
        first, second = self.a.admit("x"), self.b.admit("y")
        self.assertEqual(first.id.partition(".")[2], second.id.partition(".")[2])
        self.b.jobs.news(C, Changed(second.id, ended(1, origin=C), None))
        self.run_for(0.1)
        self.assertEqual(len(self.b.listed()), 3)

    def test_own_before_and_after_restart(self) -> None:
        """The jobs before and after a restart are distinct, and nothing of the earlier process is lost (JB-31)."""
        complete(self.a.place(A))
        self.run_for(2)
        self.cluster.kill(A)
        self.run_for(1)
        self.cluster.start(A)
        complete(self.a.place(A))
        self.run_for(1)
        for process in (self.a, self.b):
            self.assertEqual([each.id.partition(".")[2] for each in process.listed()], ["1", "1"])

    def test_history(self) -> None:
        """What others tell is history too, once it has ended for good (JB-63)."""
        complete(self.a.place(A))
        self.a.place(A)
        self.run_for(2)
        self.assertEqual(self.b.history.keys(), self.a.history.keys())
        self.assertEqual(len(self.b.history.keys()), 1)

    def test_retired(self) -> None:
        """After 10 min an ended job leaves the feed, and stays as history everywhere (JB-48, JB-52)."""
        complete(self.a.place(A))
        self.run_for(1)
        self.cluster.run(KEPT_MS / 1000 + 2, 0.5)
        self.assertEqual(dict(self.b.followers[A].records), {})
        for process in (self.a, self.b):
            self.assertEqual([each.state for each in process.listed()], ["completed"])

    def test_loaded_at_start(self) -> None:
        """The newest of the history are there from the start on, and no change tells of them (JB-67)."""
        for _ in range(3):
            complete(self.a.place(A))
        self.run_for(2)
        self.cluster.kill(A)
        self.cluster.kill(B)
        b = self.cluster.start(B)
        self.assertEqual((len(b.listed()), b.changes), (3, []))

    def test_end_missed(self) -> None:
        """How a job ended is told by the next process too, to those that the last one could not tell (JB-48)."""
        job = self.a.place(A)
        self.run_for(1)
        self.cluster.part(A, B)
        complete(job)
        self.run_for(2)
        self.cluster.kill(A)
        self.cluster.join(A, B)
        self.cluster.start(A)
        self.run_for(20)
        self.assertEqual(self.b.states(), {"1": "completed"})

    def test_removed_member(self) -> None:
        """Of one that is no member any more, only what has ended stays (JB-29)."""
        complete(self.a.place(A))
        self.a.place(A)
        self.run_for(2)
        self.b.jobs.forget(A)
        self.assertEqual(self.b.states(), {"1": "completed"})
        self.assertEqual(self.b.jobs.pending(), {})

    def test_cleared(self) -> None:
        """Clearing takes what has ended from this node, whoever's it was, and from no other (UI-46)."""
        complete(self.a.place(A))
        complete(self.b.place(B))
        self.a.place(A)
        self.run_for(2)
        self.successResultOf(self.b.jobs.clear())
        self.run_for(2)
        self.assertEqual([each.state for each in self.b.listed()], ["queued"])
        self.assertEqual(set(self.b.shown), {(A, self.a.listed()[0].id)})
        self.assertEqual(self.b.history.keys(), set())
        self.assertEqual(len(self.a.listed()), 3)


class LossTests(ClusterTestCase):
    """JB-53 to JB-56, JB-60."""

    def setUp(self) -> None:
        super().setUp()
        self.running = self.a.place(C)
        self.running.committed(200)
        self.run_for(1)

    def assert_not_stored(self) -> None:
        """Nothing of a guess is on any disk, nor published (JB-55)."""
        for process in self.cluster.up.values():
            self.assertEqual(process.history.keys(), set())
            self.assertEqual({job.origin for job in process.ledger.active()} - {process.node}, set())

    def test_declared_offline(self) -> None:
        """An origin that is declared offline has lost its jobs, and is not asked about it."""
        self.cluster.kill(A)
        self.run_for(14)
        self.assertEqual(self.b.states(), {"1": "running"})
        self.cluster.offline(A)
        self.assertEqual(self.b.states(), {"1": "origin_lost"})
        self.run_for(200)
        self.assertEqual(self.b.states(), {"1": "origin_lost"})
        self.assert_not_stored()

    def test_silent_though_present(self) -> None:
        """Without a live feed for 120 s the jobs are lost, though the node is there."""
        self.cluster.part(A, B)
        self.run_for(LOST_SECONDS - 2)
        self.assertEqual(self.b.states(), {"1": "running"})
        self.run_for(4)
        self.assertEqual((self.b.states(), self.c.states()), ({"1": "origin_lost"}, {"1": "running"}))
        self.assert_not_stored()

    def test_back(self) -> None:
        """One that is back with the same process is believed: its job runs, or has ended as it says."""
        self.cluster.part(A, B)
        self.run_for(LOST_SECONDS + 2)
        self.cluster.join(A, B)
        self.run_for(20)
        self.assertEqual(self.b.states(), {"1": "running"})
        self.cluster.part(A, B)
        self.run_for(LOST_SECONDS + 2)
        self.running.completed(200, 5, Usage())
        self.cluster.join(A, B)
        self.run_for(20)
        self.assertEqual(self.b.states(), {"1": "completed"})
        codes = [each.job.error.code if each.job and each.job.error else None for each in self.b.changes]
        self.assertEqual(codes.count("origin_lost"), 2)

    def test_restarted(self) -> None:
        """A new process of the origin that lacks a job has lost it, at once."""
        self.cluster.kill(A)
        self.cluster.start(A)
        self.run_for(1)
        self.assertEqual(self.b.states(), {"1": "origin_restarted"})
        self.assertEqual(self.a.states(), {})
        self.assert_not_stored()

    def test_restarted_after_loss(self) -> None:
        """What was thought before is put right, and the instant stays."""
        self.cluster.kill(A)
        self.run_for(1)
        self.cluster.offline(A)
        (lost,) = self.b.listed()
        self.run_for(9)
        self.cluster.start(A)
        self.run_for(1)
        (restarted,) = self.b.listed()
        self.assertEqual(self.b.states(), {"1": "origin_restarted"})
        self.assertEqual(restarted.completed_at, lost.completed_at)

    def test_executor_lost(self) -> None:
        """Of the loss of an executor nothing follows while the origin lives (JB-56)."""
        self.cluster.kill(C)
        self.run_for(1)
        self.cluster.offline(C)
        self.run_for(LOST_SECONDS + 10)
        self.assertEqual(self.b.states(), {"1": "running"})

    def test_stale(self) -> None:
        """From 15 s on its jobs are stale and count nowhere; with a live feed they count again (JB-54, JB-60)."""
        self.a.place(B)
        self.run_for(1)
        self.assertEqual(self.b.jobs.pending(), {C: 1, B: 1})
        self.cluster.part(A, B)
        self.run_for(STALE_SECONDS - 1)
        self.assertEqual(self.b.jobs.pending(), {C: 1, B: 1})
        self.assertFalse(any(job.stale for job in self.b.listed()))
        moves = self.b.moves
        self.run_for(2)
        self.assertEqual((self.b.jobs.pending(), self.b.moves), ({}, moves + 1))
        self.assertEqual([(job.state, job.stale) for job in self.b.listed()], [("running", True), ("queued", True)])
        self.cluster.join(A, B)
        self.run_for(20)
        self.assertEqual((self.b.jobs.pending(), self.b.moves), ({C: 1, B: 1}, moves + 2))
        self.assertFalse(any(job.stale for job in self.b.listed()))


class PendingTests(ClusterTestCase):
    def test_moves(self) -> None:
        """Own and others' jobs count where they are; what moves no count is not told (JB-59, JB-61)."""
        own, foreign = self.b.place(C), self.a.place(C)
        self.a.admit()
        self.run_for(0.1)
        self.assertEqual((self.b.jobs.pending(), self.b.moves), ({C: 2}, 2))
        own.committed(200)
        foreign.committed(200)
        self.run_for(0.1)
        self.assertEqual((self.b.jobs.pending(), self.b.moves), ({C: 2}, 2))
        foreign.completed(200, 5, Usage())
        own.completed(200, 5, Usage())
        self.run_for(0.1)
        self.assertEqual((self.b.jobs.pending(), self.b.moves), ({}, 4))


class CancelTests(ClusterTestCase):
    """JB-47."""

    def test_own(self) -> None:
        """The request of an own job is broken off."""
        job = self.a.place(B)
        self.a.jobs.cancel(A, job.id)
        self.assertEqual(self.a.cancelled, [job.id])

    def test_refused(self) -> None:
        """Not one that nobody knows, that has ended, or that is another's."""
        job = self.a.place(B)
        self.run_for(0.1)
        refused = self.assertRaises(NotOrigin, self.b.jobs.cancel, A, job.id)
        self.assertEqual(refused.node, A)
        complete(job)
        self.assertRaises(JobFinished, self.a.jobs.cancel, A, job.id)
        self.assertRaises(NoSuchJob, self.a.jobs.cancel, A, "x.1")
        self.assertRaises(NoSuchJob, self.a.jobs.cancel, C, job.id)
        self.assertEqual(self.a.cancelled, [])
        other = self.a.admit()
        self.a.open.clear()
        self.assertRaises(JobFinished, self.a.jobs.cancel, A, other.id)


class LoadTests(ClusterTestCase):
    def test_many(self) -> None:
        """JB-48, JB-49: 4,000 jobs a second, and jobs that stay: each end arrives, what stays is kept."""
        staying = [self.a.place(B) for _ in range(50)]
        for _ in range(round(SECONDS / STEP)):
            for _ in range(round(4000 * STEP)):
                complete(self.a.place(A))
            self.a.open.clear()
            self.run_for(STEP)
        self.run_for(2)
        for process in (self.b, self.c):
            self.assertEqual(sum(len(states) for states in process.ends.values()), 4000 * SECONDS)
            active = [job.id for job in process.jobs.view.page(JobFilter(state=frozenset({"queued"})), 500).jobs]
            self.assertCountEqual(active, [job.id for job in staying])


class FieldCaseTests(ClusterTestCase):
    def test_failed_delivery(self) -> None:
        """F20: a change whose delivery broke off anywhere is told once, when it is delivered again."""
        for cut in range(1, 1000, 13):
            job = self.a.place(B)
            link = self.cluster.serving[A, B]
            link.cut_after = link.carried + cut
            complete(job)
            self.run_for(0.25)
            self.b.followers[A].nudge()
            self.run_for(1.5)  # two tries are a second apart at least
            told = [each.job.state for each in self.b.changes if each.job and each.job.id == job.id]
            self.assertEqual(told.count("completed"), 1)
            self.assertEqual(len(told), len(set(told)))
        self.assertEqual(self.b.listed(), self.a.listed())

    def test_in_order(self) -> None:
        """F19: 25 changes of a job arrive in their order, and nothing of it comes after its removal."""
        job = self.a.admit()
        for _ in range(12):
            job.attempt_began(B, "ollama", "pressure", "")
            self.run_for(0.125)
            job.attempt_ended("connect")
            self.run_for(0.125)
        job.cancelled("client_gone")
        self.run_for(0.125)
        self.assertEqual([each.job.seq for each in self.b.changes if each.job], list(range(1, 27))[1:])
        self.cluster.run(KEPT_MS / 1000 + 2, 0.5)
        self.assertEqual(dict(self.b.followers[A].records), {})
        self.assertEqual(self.b.states(), {"1": "cancelled"})


class KillTests(SynchronousTestCase):
    def test_random_kills(self) -> None:
        """1,000 jobs on three nodes that are killed and cut off again and again: all end with the same list, each job
        ended once, and nobody shows one that nobody has.
        """
        for seed in range(SEEDS):
            with self.subTest(seed=seed):
                self.live_through(seed)

    def live_through(self, seed: int) -> None:
        chance = random.Random(seed)
        cluster = Cluster(A, B, C)
        processes = list(cluster.up.values())
        down: dict[str, float] = {}
        left = 1000
        while left:
            for process in tuple(cluster.up.values()):
                for _ in range(min(left, chance.randrange(4))):
                    process.admit()
                    left -= 1
                for job in tuple(process.open):
                    self.drive(chance, job, process)
            self.trouble(chance, cluster, down, processes)
            cluster.run(STEP)
        cluster.cut.clear()
        processes += [cluster.start(name) for name in down]
        for process in cluster.up.values():
            for job in process.open:
                job.cancelled("stopping")
        cluster.run(30)
        self.check(cluster, processes)

    def drive(self, chance: random.Random, job: OpenJob, process: Process) -> None:
        """Let something happen to a job."""
        state = job.record.state
        what = chance.random()
        if what < 0.5:
            return
        if state == "queued" and job.record.placed_on is None:
            job.attempt_began(chance.choice((A, B, C)), "ollama", "pressure", "rank=1/1")
        elif state == "queued" and what < 0.6:
            job.attempt_ended("connect")
        elif state == "queued":
            job.committed(200)
        elif what < 0.6:
            job.failed("stream_lost")
        else:
            job.completed(200, 5, Usage())
        if job.record.terminal:
            process.open.remove(job)

    def trouble(
        self, chance: random.Random, cluster: Cluster, down: dict[str, float], processes: list[Process]
    ) -> None:
        """Perhaps kill one, start one, cut two off from each other."""
        now = cluster.clock.seconds()
        for name, until in tuple(down.items()):
            if now >= until:
                del down[name]
                processes.append(cluster.start(name))
        if chance.random() < 0.03 and cluster.up:
            name = chance.choice(sorted(cluster.up))
            cluster.kill(name)
            down[name] = now + chance.choice((0.1, 1.0, 5.0))
            if chance.random() < 0.5:
                cluster.offline(name)
        if chance.random() < 0.03:
            cluster.part(*chance.sample((A, B, C), 2))
        if chance.random() < 0.1:
            cluster.cut.clear()

    def check(self, cluster: Cluster, processes: list[Process]) -> None:
        lists = [
            {(job.origin, job.id): job for job in process.listed() if not job.inferred}
            for process in cluster.up.values()
        ]
        kept = [{key: job for key, job in each.items() if key not in cluster.lost} for each in lists]
        self.assertTrue(kept[0])
        for each in kept[1:]:
            self.assertEqual(each, kept[0])
        for process in cluster.up.values():
            jobs = process.listed()
            self.assertEqual(len({(job.origin, job.id) for job in jobs}), len(jobs))
            self.assertTrue(all(job.terminal for job in jobs))
            guesses = {(job.origin, job.id) for job in process.jobs.view.page(JobFilter(), 500).jobs if is_guess(job)}
            self.assertFalse(guesses & kept[0].keys())
        ends: dict[tuple[str, str], set[str]] = {}
        for process in processes:
            for key, states in process.ends.items():
                ends.setdefault(key, set()).update(states)
        self.assertEqual({key for key, states in ends.items() if len(states) > 1}, set())
