"""Tests of ``pair-admin job``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from pair.records.jobs import Attempt, Job, JobChanged, ShownJob, Usage
from pair.test.admin.desk import Desk, Terminal
from pair.test.control.samples import NODE, NOW, RACK

if TYPE_CHECKING:
    from pair.jobs.ledger import OpenJob

THEIRS = Job("b2.7", RACK, 3, "running", "ollama", "ollama", "chat", "/api/chat", True, "phi", NOW, RACK, "ollama")


class DeskTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.desk = Desk(self)

    def admit(self) -> OpenJob:
        ledger = self.desk.node.ledger
        job = ledger.admit("lmstudio", "openai", "chat", "/v1/chat/completions", True, "smollm2", 100)
        job.attempt_began(NODE, "embedded", "pressure", "rank=1/1")
        self.desk.node.job_commands.open[job.id] = job
        return job

    def end(self, job: OpenJob) -> None:
        job.committed(200)
        job.completed(200, 2000, Usage(5, 7))

    def show_theirs(self, job: Job) -> None:
        """A job of another node is in the list."""
        view, page, get = self.desk.node.jobs, self.desk.node.jobs.page, self.desk.node.jobs.get
        self.patch(view, "page", lambda *a: replace(page(*a), jobs=(*page(*a).jobs, ShownJob.of(job))))
        self.patch(view, "get", lambda *key: ShownJob.of(job) if key == (RACK, job.id) else get(*key))

    @property
    def records(self) -> list[Any]:
        """The output, a JSON value on each line."""
        return [msgspec.json.decode(line) for line in self.desk.lines]


class JobTests(DeskTestCase):
    def test_filters(self) -> None:
        """Filters are the API's; a node is named as everywhere."""
        self.desk.run("job", "list", "--state", "running", "--state", "queued", "--model", "a b", "--limit", "5")
        self.assertEqual(self.desk.asked[:1], [("GET", "/api/v1/jobs?state=running%2Cqueued&model=a+b&limit=5")])
        for text, node in (("rack", RACK), ("b7d0", RACK), (RACK, RACK), ("self", "self")):
            self.desk.run("job", "list", "--node", text)
            self.assertIn(("GET", f"/api/v1/jobs?node={node}"), self.desk.asked)
            self.desk.asked.clear()
        self.assertEqual(self.desk.run("job", "list", "--node", "b7d"), 1)

    def test_pages(self) -> None:
        """A list that goes on says how to go on."""
        self.end(self.admit())
        self.end(self.admit())
        self.desk.run("job", "list", "--limit", "1")
        cursor = self.desk.err.getvalue().split()[-1]
        self.assertEqual(self.desk.run("job", "list", "--limit", "1", "--cursor", cursor), 0)
        self.assertEqual(self.desk.err.getvalue(), "")

    def test_of_all_nodes(self) -> None:
        """The list says where a job came in and where it is, and what of it is not sure (JB-53, JB-54)."""
        self.show_theirs(ShownJob.of(THEIRS, stale=True))
        self.desk.run("job", "list")
        self.assertEqual(
            self.desk.lines[1].split()[:7], ["b2.7", "running", "(stale)", "phi", "ollama", "rack", "rack"]
        )

    def test_show(self) -> None:
        """One job is shown with why it is where it is, its tokens and its attempts."""
        job = self.admit()
        self.end(job)
        self.assertEqual(self.desk.run("job", "show", job.id), 0)
        text = self.desk.out.getvalue()
        for shown in (job.id, "completed", "smollm2", NODE, "rank=1/1", "5 in, 7 out", "won"):
            self.assertIn(shown, text)

    def test_rate(self) -> None:
        """How fast tokens came is told of a stream; an answer in one piece has no first token and no last."""
        took = {"started_at": NOW, "completed_at": NOW + 2000, "state": "completed", "usage": Usage(5, 7)}
        for stream, rate in ((True, "3.5"), (False, "–")):
            self.desk = Desk(self)
            self.show_theirs(replace(THEIRS, stream=stream, **took))
            self.desk.run("job", "list")
            self.assertEqual(self.desk.lines[1].split()[-2], rate)
            self.desk.run("job", "show", "b2.7")
            told = "5 in, 7 out, 3.5 a second" if stream else "5 in, 7 out"
            self.assertIn(["tokens", told], [line.split(maxsplit=1) for line in self.desk.lines])

    def test_lost_origin(self) -> None:
        """Of a job whose origin is lost it is not said that it is still tried, nor for how long (JB-53)."""
        attempt = Attempt(1, RACK, "ollama", NOW - 60_000)
        lost = replace(THEIRS, state="failed", completed_at=NOW - 30_000, attempts=(attempt,), attempt_count=1)
        self.show_theirs(replace(ShownJob.of(lost), inferred=True))
        self.desk.run("job", "show", "b2.7")
        self.assertIn("failed (inferred)", self.desk.out.getvalue())
        self.assertEqual(self.desk.lines[-1].split(), ["1", "rack", "ollama", "not", "known", "–", "–", "–", "–"])

    def test_nowhere(self) -> None:
        """What is not known is one dash, however much could be said of it."""
        job = self.desk.node.ledger.admit("lmstudio", "openai", "chat", "/v1", False, "smollm2", 1)
        job.failed("model_unknown")
        self.desk.run("job", "show", job.id)
        lines = [line.split(maxsplit=1) for line in self.desk.lines if line]
        self.assertIn(["on", "–"], lines)
        self.assertIn(["tokens", "–"], lines)

    def test_origin(self) -> None:
        """Where a job came in is found, or can be said."""
        self.show_theirs(THEIRS)
        for words in ((), ("--origin", "rack"), ("--origin", RACK)):
            self.assertEqual(self.desk.run("job", "show", "b2.7", *words, "--json"), 0, words)
            self.assertEqual(self.desk.json["origin"], RACK)
        self.assertEqual(self.desk.run("job", "show", "b2.7", "--origin", "self", "--json"), 1)
        self.assertEqual(self.desk.json["error"]["code"], "no_such_job")

    def test_cancelled(self) -> None:
        """A job of this node is ended, once; of another node's one is told where to do it (JB-47)."""
        own = self.admit().id
        self.assertEqual(self.desk.run("job", "cancel", own), 0)
        self.assertIn("cancelled", self.desk.lines[1])
        self.show_theirs(THEIRS)
        for id, code in ((own, "finished"), ("x.1", "no_such_job"), ("b2.7", "not_origin")):
            self.assertEqual(self.desk.run("job", "cancel", id, "--json"), 1)
            self.assertEqual(self.desk.json["error"]["code"], code)
        self.desk.run("job", "cancel", "b2.7")
        self.assertIn(f"node {RACK}", self.desk.err.getvalue())

    def test_cancelled_too_late(self) -> None:
        """One of another node that has ended has ended; what is only taken for ended has to be cancelled there."""
        for inferred, code in ((False, "finished"), (True, "not_origin")):
            self.desk = Desk(self)
            self.show_theirs(replace(ShownJob.of(THEIRS), state="failed", completed_at=NOW, inferred=inferred))
            self.assertEqual(self.desk.run("job", "cancel", "b2.7", "--json"), 1)
            self.assertEqual(self.desk.json["error"]["code"], code)

    def test_cleared(self) -> None:
        """The history is deleted when that was confirmed (UI-104)."""
        self.assertEqual(self.desk.run("job", "clear"), 2)
        self.desk.stdin = Terminal("n\n")
        self.assertEqual(self.desk.run("job", "clear"), 1)
        self.assertEqual(self.desk.node.job_commands.cleared, 0)
        self.assertEqual(self.desk.run("job", "clear", "--yes", "--json"), 0)
        self.assertEqual((self.desk.json, self.desk.node.job_commands.cleared), ({"cleared": True}, 1))

    def test_hostile_names(self) -> None:
        """A name from elsewhere plays no tricks with the terminal (UI-92)."""
        job = self.desk.node.ledger.admit("lmstudio", "openai", "chat", "/v1", False, "[red]a\x1b[2Jb\u202ec\nd", 1)
        job.cancelled("client_gone")
        for words in (("job", "list"), ("job", "watch", job.id)):
            self.desk.run(*words)
            self.assertIn("[red]a[2Jbcd", self.desk.out.getvalue())
            self.assertNotIn("\x1b", self.desk.out.getvalue())


class WatchTests(DeskTestCase):
    def test_until_its_end(self) -> None:
        """A job is told when it changes, until it ends: exit 0 if it completed (UI-101)."""
        job = self.admit()
        self.desk.then = [lambda: job.committed(200), self.admit, lambda: job.completed(200, 9, Usage(1, 2))]
        self.assertEqual(self.desk.run("job", "watch", job.id, "--json"), 0)
        self.assertEqual([each["state"] for each in self.records], ["queued", "running", "completed"])
        self.assertEqual({each["id"] for each in self.records}, {job.id})

    def test_for_a_person(self) -> None:
        """Without --json it is a line for each change."""
        job = self.admit()
        self.desk.then = [lambda: job.failed("engine_unreachable")]
        self.assertEqual(self.desk.run("job", "watch", job.id), 1)
        self.assertEqual(self.desk.lines[0].split()[:3], [job.id, "queued", "smollm2,"])
        self.assertTrue(self.desk.lines[1].endswith(", engine_unreachable"), self.desk.lines)

    def test_ended_already(self) -> None:
        """One that has ended is told once; one that is unknown is refused."""
        job = self.admit()
        self.end(job)
        self.assertEqual(self.desk.run("job", "watch", job.id, "--json"), 0)
        self.assertEqual(len(self.records), 1)
        self.assertEqual(self.desk.run("job", "watch", "x.1", "--json"), 1)

    def test_ends_in_between(self) -> None:
        """One that ends between the question and the stream is not waited for."""
        job = self.admit()
        follow = self.desk.follow

        def late(*arguments: Any) -> Any:
            self.end(job)
            return follow(*arguments)

        self.desk.follow = late  # type: ignore[assignment,method-assign]
        self.assertEqual(self.desk.run("job", "watch", job.id, "--json"), 0)
        self.assertEqual([each["state"] for each in self.records], ["queued", "completed"])

    def test_gone(self) -> None:
        """A job whose origin is no member any more has no end to wait for (JB-29)."""
        self.show_theirs(THEIRS)
        emit = self.desk.node.job_changes.emit
        self.desk.then = [lambda: emit(JobChanged(THEIRS, None)), lambda: emit(JobChanged(None, THEIRS))]
        self.assertEqual(self.desk.run("job", "watch", "b2.7"), 1)
        self.assertIn("no member any more", self.desk.err.getvalue())

    def test_all(self) -> None:
        """Without an id all jobs are told, until Ctrl-C (UI-100)."""
        first = self.admit()
        self.desk.then = [self.admit, lambda: self.end(first)]
        self.assertEqual(self.desk.run("job", "watch", "--json"), 130)
        self.assertEqual([each["state"] for each in self.records], ["queued", "queued", "completed"])
