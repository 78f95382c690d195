"""Tests of ``pair-admin job``, ``error`` and ``events``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from pair.records.errors import ShownError
from pair.records.jobs import Job, JobChanged, ShownJob, Usage
from pair.test.admin.desk import URL, Desk, Terminal
from pair.test.control.samples import NODE, NOW, RACK

if TYPE_CHECKING:
    from pair.jobs.ledger import OpenJob

THEIRS = Job("b2.7", RACK, 3, "running", "ollama", "ollama", "chat", "/api/chat", True, "phi", NOW, RACK, "ollama")
DRIP = ShownError("test:broken:tap", RACK, "warning", "It drips.", "none", "auto", NOW, NOW, 1, 1, stale=True)


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
        self.assertEqual(self.desk.asked, [("GET", "/api/v1/jobs?state=running%2Cqueued&model=a+b&limit=5")])
        for text, node in (("rack", RACK), ("b7d0", RACK), (RACK, RACK), ("self", "self")):
            self.desk.run("job", "list", "--node", text)
            self.assertEqual(self.desk.asked[-1], ("GET", f"/api/v1/jobs?node={node}"))
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
            self.desk.lines[1].split()[:7], ["b2.7", "running", "(stale)", "phi", "ollama", "b7d0f6f0", "b7d0f6f0"]
        )

    def test_show(self) -> None:
        """One job is shown with why it is where it is, its tokens and its attempts."""
        job = self.admit()
        self.end(job)
        self.assertEqual(self.desk.run("job", "show", job.id), 0)
        text = self.desk.out.getvalue()
        for shown in (job.id, "completed", "smollm2", NODE, "rank=1/1", "5 in, 7 out", "won"):
            self.assertIn(shown, text)

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


class ErrorTests(DeskTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.book = self.desk.node.errors
        self.desk.node.shown_errors.others = [DRIP]

    def test_list(self) -> None:
        """What is wrong, where, and whether that node still says so (JB-78)."""
        self.book.raise_entry("test:broken:lamp", thing="lamp")
        self.desk.run("errors")
        lamp, tap = (line.split() for line in self.desk.lines[1:])
        self.assertEqual(lamp[:3], ["error", "test:broken:lamp", "3f0c9a52"])
        self.assertEqual(tap[:4], ["warning", "test:broken:tap", "b7d0f6f0", "(stale)"])

    def test_dismissed(self) -> None:
        """An entry is dismissed by its id, whatever is in it, or by how that begins."""
        for id, text in (
            ("test:broken:a/b c?d[red]", "test:broken:a/b c?d[red]"),
            ("test:broken:lamp", "test:broken:l"),
        ):
            self.book.raise_entry(id, thing="x")
            self.assertEqual(self.desk.run("error", "dismiss", text), 0)
            self.assertEqual((self.desk.lines, self.book.entries()), ([f"Dismissed: {id}"], ()))
        self.assertEqual(self.desk.run("error", "dismiss", "test:broken:lamp", "--json"), 1)
        self.assertEqual(self.desk.json["error"]["code"], "no_such_error")

    def test_which(self) -> None:
        """Where several are meant they are listed; a whole id is no beginning, and this node's comes first."""
        for id in ("test:broken:a", "test:broken:ab"):
            self.book.raise_entry(id, thing="x")
        self.assertEqual(self.desk.run("error", "dismiss", "test:broken"), 1)
        self.assertIn("test:broken:a of 3f0c9a52, test:broken:ab of 3f0c9a52", self.desk.err.getvalue())
        self.assertEqual(self.desk.run("error", "dismiss", "test:broken:a"), 0)
        self.book.raise_entry("test:broken:tap", thing="x")
        self.assertEqual(self.desk.run("error", "dismiss", "test:broken:tap"), 0)
        self.assertEqual([each.id for each in self.book.entries()], ["test:broken:ab"])

    def test_of_others(self) -> None:
        """Another node's cannot be dismissed here, and that node is named; it can be hidden (JB-73)."""
        self.assertEqual(self.desk.run("error", "dismiss", "test:broken:tap"), 1)
        self.assertIn(f"node {RACK}", self.desk.err.getvalue())
        self.assertEqual(self.desk.run("error", "hide", "test:br"), 0)
        self.assertEqual(self.desk.lines, ["Hidden on this node: test:broken:tap"])
        self.assertEqual(self.desk.node.shown_errors.hidden, {(RACK, DRIP.id)})

    def test_hidden_of_a_node(self) -> None:
        """Whose is hidden can be said."""
        self.book.raise_entry("test:broken:tap", thing="x")
        self.assertEqual(self.desk.run("error", "hide", "test:broken:tap"), 1)
        self.assertEqual(self.desk.run("error", "hide", "test:broken:tap", "--node", "self", "--json"), 0)
        self.assertEqual(self.desk.json, {"node": NODE, "hidden": "test:broken:tap"})


class EventTests(DeskTestCase):
    def test_json(self) -> None:
        """Each event is an object on a line, without heartbeats (UI-101)."""
        self.desk.then = [self.admit]
        self.assertEqual(self.desk.run("events", "--topics", "jobs,nodes", "--json"), 130)
        first, second = self.records
        self.assertEqual((first["event"], sorted(first["topics"])), ("snapshot", ["jobs", "nodes"]))
        self.assertEqual((second["event"], second["topic"], second["value"]["state"]), ("upsert", "jobs", "queued"))
        self.assertRegex(second["id"], r"^5d0e8c11a2b34f66:\d+$")

    def test_resumed(self) -> None:
        """It goes on after an event that is given."""
        self.desk.run("events", "--json")
        id = self.records[0]["id"]
        self.admit()
        self.desk.run("events", "--since", id, "--json")
        self.assertEqual([each["event"] for each in self.records], ["upsert"])

    def test_for_a_person(self) -> None:
        """Without --json it is a line for each, in words."""
        node = self.desk.node

        def happens() -> None:
            self.end(self.admit())
            node.errors.raise_entry("test:broken:lamp", thing="lamp")
            node.nodes.entries = (replace(node.nodes.entries[0], name="[red]\x1b[2Jtable"), *node.nodes.entries[2:])

        self.desk.then = [happens, *[lambda: None] * 6]
        self.assertEqual(self.desk.run("events"), 130)
        lines = [re.sub(r"^\d\d:\d\d:\d\d  ", "", line) for line in self.desk.lines]
        self.assertIn("jobs 0", lines[0])
        told = "\n".join(lines[1:])
        for shown in (
            f"nodes {RACK}: gone",
            "nodes [red][2Jtable (3f0c9a52): online",
            "errors test:broken:lamp of 3f0c9a52: error, The lamp is broken.",
            "completed on 3f0c9a52, smollm2",
        ):
            self.assertIn(shown, told)
        self.assertNotIn("\x1b", told)

    def test_all_topics_have_words(self) -> None:
        """Each topic is told in words."""
        self.desk.node.invitations.found = []
        for topic in ("service", "nodes", "telemetry", "engines", "jobs", "errors", "cluster", "invitations"):
            self.assertEqual(self.desk.run("events", "--topics", topic), 130)
            self.assertIn(topic, self.desk.lines[0])

    def test_refused(self) -> None:
        """An unknown topic is exit 1 with what there is."""
        self.assertEqual(self.desk.run("events", "--topics", "weather"), 1)
        self.assertIn("telemetry", self.desk.err.getvalue())
        self.assertEqual(self.desk.run("events", "--topics", "weather", "--json"), 1)
        self.assertEqual(self.desk.json["error"]["code"], "bad_request")

    def test_ended(self) -> None:
        """A service that stops ends the command with exit 3 (UI-100)."""
        self.desk.then = [self.desk.node.hub.stopService]
        self.assertEqual(self.desk.run("events"), 3)
        self.assertIn(f"PAIR at {URL} has ended the stream", self.desk.err.getvalue())

    def test_silent(self) -> None:
        """One that says nothing for three heartbeats is not there, however short the time limit is (UI-65)."""
        self.desk.fault = TimeoutError()
        self.assertEqual(self.desk.run("events", "--timeout", "2"), 3)
        self.assertEqual(self.desk.timeouts, [15])
        self.assertIn("has said nothing for 15 s", self.desk.err.getvalue())
        self.desk.fault = ConnectionResetError()
        self.assertEqual(self.desk.run("job", "watch"), 3)
