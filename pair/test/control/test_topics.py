"""Tests of the event stream as it is asked for, of a made-up node (UI-61 to UI-66)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from pair.admin.sse import EventParser
from pair.control.events import SUBSCRIBERS_MAX
from pair.control.route import BASE
from pair.control.topics import ACTIVE_MAX, ENDED_MAX, UNREAD_MAX
from pair.records.jobs import Job, JobChanged, ShownJob, Usage
from pair.records.telemetry import CompactTelemetry
from pair.routing.candidates import Candidate
from pair.test.control.samples import INVENTORY, INVITED, MAC, NODE, NOW, RACK, ROSTER, TOKEN, Node
from pair.test.surfaces.wire import Conversation, request, unchunked

if TYPE_CHECKING:
    from pair.jobs.ledger import OpenJob

TOPICS = {"service", "nodes", "telemetry", "engines", "jobs", "errors", "cluster", "invitations", "routing"}


class Following:
    """A client of the stream; the events that it got are taken one after the other."""

    def __init__(self, node: Node, query: str = "", last_event_id: str | None = None) -> None:
        self.conversation = Conversation(node.site())
        fields = {"authorization": f"Bearer {TOKEN.decode()}", "last_event_id": last_event_id}
        self.conversation.send(request("GET", f"{BASE}/events{query}", None, **fields))
        self.taken = 0

    @property
    def head(self) -> str:
        return str(self.conversation.transport.value().partition(b"\r\n\r\n")[0], "latin-1")

    @property
    def ids(self) -> list[str]:
        _, _, body = self.conversation.transport.value().partition(b"\r\n\r\n")
        return [each.id for each in EventParser().feed(unchunked(body))]

    def take(self) -> list[tuple[str, Any]]:
        _, _, body = self.conversation.transport.value().partition(b"\r\n\r\n")
        events = [(each.event, msgspec.json.decode(each.data)) for each in EventParser().feed(unchunked(body))]
        new, self.taken = events[self.taken :], len(events)
        return new

    def snapshot(self) -> dict[str, dict[str, Any]]:
        ((event, found),) = self.take()
        assert event == "snapshot", event
        return {topic: {row["key"]: row["value"] for row in rows} for topic, rows in found["topics"].items()}

    def changes(self) -> list[tuple[str, str, Any]]:
        changes = [found for event, found in self.take() if event != "heartbeat"]
        return [(found["topic"], found["key"], found.get("value")) for found in changes]


class StreamTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.node = Node()

    def follow(self, query: str = "", last_event_id: str | None = None) -> Following:
        return Following(self.node, query, last_event_id)

    def admit(self, model: str = "m") -> OpenJob:
        return self.node.ledger.admit("lmstudio", "openai", "chat", "/v1/chat/completions", False, model, 10)

    def end(self, job: OpenJob) -> None:
        job.attempt_began(NODE, "embedded", "pressure", "rank=1/1")
        job.committed(200)
        job.completed(200, 20, Usage(1, 2))


class AnswerTests(StreamTestCase):
    def test_head(self) -> None:
        """It is an event stream that no proxy may hold back or keep (UI-10, UI-61)."""
        head = self.follow().head
        for field in ("200 OK", "Content-Type: text/event-stream", "X-Accel-Buffering: no", "Cache-Control: no-store"):
            self.assertIn(field, head)

    def test_head_only(self) -> None:
        """Who wants the head only gets that, and takes nobody's place."""
        answer = self.node.ask("HEAD", f"{BASE}/events")
        self.assertEqual((answer.status, answer.body, answer.field("content-type")), (200, b"", "text/event-stream"))

    def test_topics(self) -> None:
        """All but the measurements, unless some are named (UI-61)."""
        self.assertEqual(set(self.follow().snapshot()), TOPICS - {"telemetry"})
        self.assertEqual(set(self.follow("?topics=telemetry,jobs").snapshot()), {"telemetry", "jobs"})

    def test_unknown_topic(self) -> None:
        """One that is not there is 400, and what there is is named (UI-61)."""
        for topics in ("weather", "jobs,weather", "", "jobs,"):
            answer = self.node.ask("GET", f"{BASE}/events?topics={topics}")
            self.assertEqual((answer.status, answer.code), (400, "bad_request"), topics)
            self.assertIn("telemetry", answer.json["error"]["message"])

    def test_resumed(self) -> None:
        """From an id in the field, or in the query, only the difference comes; the field is the newer one (UI-63)."""
        first = self.follow("?topics=jobs")
        (id,) = first.ids
        job = self.admit()
        key = f"{NODE}/{job.id}"
        for resumed in (
            self.follow("?topics=jobs", last_event_id=id),
            self.follow(f"?topics=jobs&since={id}"),
            self.follow("?topics=jobs&since=x:1", last_event_id=id),
        ):
            self.assertEqual([change[:2] for change in resumed.changes()], [("jobs", key)])
        self.follow("?topics=jobs", last_event_id="x:1").snapshot()

    def test_from_a_list(self) -> None:
        """The revision of a list is one to go on from (UI-25)."""
        self.follow("?topics=jobs")
        listed = self.node.ask("GET", f"{BASE}/jobs").json
        self.admit()
        resumed = self.follow(f"?topics=jobs&since={listed['generation']}:{listed['revision']}")
        self.assertEqual(len(resumed.changes()), 1)

    def test_full(self) -> None:
        """The 65th is refused; one who leaves makes place (UI-66)."""
        followers = [self.follow("?topics=jobs") for _ in range(SUBSCRIBERS_MAX)]
        answer = self.node.ask("GET", f"{BASE}/events")
        self.assertEqual((answer.status, answer.code, answer.field("retry-after")), (503, "too_many", "5"))
        followers[0].conversation.transport.loseConnection()
        self.follow().snapshot()

    def test_stopped(self) -> None:
        """At a stop the stream ends as a body does."""
        following = self.follow()
        self.node.hub.stopService()
        self.assertTrue(following.conversation.transport.value().endswith(b"0\r\n\r\n"))
        self.assertEqual(self.node.ask("GET", f"{BASE}/events").code, "too_many")

    def test_rotated(self) -> None:
        """It ends when the token is another (UI-15)."""
        following = self.follow()
        self.node.key = 2
        self.node.clock.pump([1.0] * 5)
        self.assertTrue(following.conversation.transport.value().endswith(b"0\r\n\r\n"))


class TopicTests(StreamTestCase):
    def test_snapshot(self) -> None:
        """What the routes list is there, under keys of its own."""
        self.node.invitations.found = [INVITED]
        self.node.peers = (replace(INVENTORY, node=RACK),)
        self.node.errors.raise_entry("test:broken:lamp", thing="lamp")
        job = self.admit()
        found = self.follow().snapshot()
        self.assertEqual(set(found["nodes"]), {NODE, RACK, MAC, "manual:shed:14318"})
        self.assertEqual(found["service"]["service"]["pid"], 42)
        engines = {f"{node}/{id}" for node in (NODE, RACK) for id in ("embedded", "ollama")}
        self.assertEqual(set(found["engines"]), engines)
        self.assertEqual(found["jobs"][f"{NODE}/{job.id}"]["stale"], False)
        self.assertEqual(set(found["errors"]), {f"{NODE}/test:broken:lamp"})
        self.assertEqual(found["cluster"]["cluster"]["cluster"]["name"], "home")
        self.assertEqual(found["invitations"][INVITED.id]["state"], "waiting")
        for path, topic in (("nodes", "nodes"), ("jobs", "jobs"), ("errors", "errors"), ("engines", "engines")):
            listed = self.node.ask("GET", f"{BASE}/{path}").json[topic]
            self.assertEqual(sorted(map(str, found[topic].values())), sorted(map(str, listed)))

    def test_measurements(self) -> None:
        """One event has the newest sample of all nodes; null where there is none that is new (UI-64)."""
        following = self.follow("?topics=telemetry")
        nodes = following.snapshot()["telemetry"]["nodes"]
        self.assertEqual((nodes[NODE], nodes[RACK]["at"], nodes[MAC]), (None, NOW - 2000, None))
        newer = replace(self.node.nodes.samples[RACK][-1], at=NOW)
        self.node.nodes.samples[RACK] = (newer,)
        self.node.clock.advance(2)
        ((topic, key, value),) = following.changes()
        self.assertEqual((topic, key, value[RACK]["at"]), ("telemetry", "nodes", NOW))

    def test_signals(self) -> None:
        """What has a signal is told within 100 ms of it."""
        following = self.follow()
        following.snapshot()
        self.node.clock.advance(0.2)
        self.node.errors.raise_entry("test:broken:lamp", thing="lamp")
        self.node.clock.advance(0.1)
        ((topic, key, _),) = following.changes()
        self.assertEqual((topic, key), ("errors", f"{NODE}/test:broken:lamp"))

    def test_routing(self) -> None:
        """What is chosen is told at once, a load within 1.1 s, and the age of a sample not by itself (UI-64)."""
        self.node.scheduling.observe(CompactTelemetry(NODE, 90.0, True, 0, 0, "self"))
        self.node.clock.advance(1)
        following = self.follow("?topics=routing")
        shown = following.snapshot()["routing"]["routing"]
        self.assertEqual(shown, self.node.ask("GET", f"{BASE}/routing").json)
        self.node.clock.pump([0.1] * 12)
        self.assertEqual(following.changes(), [])
        self.node.ask("PUT", f"{BASE}/routing/selection", b'{"facade":"ollama","node":"self"}')
        self.node.clock.advance(0.1)
        ((topic, key, value),) = following.changes()
        self.assertEqual((topic, key, value["facades"][1]["selection"]), ("routing", "routing", NODE))
        self.node.scheduling.take("job", Candidate(NODE, "embedded", "llamacpp"))
        self.node.clock.pump([0.1] * 12)
        ((_, _, value),) = following.changes()
        self.assertEqual(value["facades"][1]["candidates"][0]["pending"], 1)

    def test_what_changes_all_the_time(self) -> None:
        """Figures and times alone are no news; who comes anew gets the newest all the same (UI-64)."""
        following = self.follow()
        following.snapshot()
        me, rack, *others = self.node.nodes.entries
        hardware = rack.hardware
        assert hardware is not None
        (gpu,) = hardware.gpus
        busy = replace(hardware, gpus=(replace(gpu, utilization_percent=99, sampled_at=NOW),))
        rack = replace(rack, last_heard_at=NOW, evidence="mdns", hardware=busy, hardware_at=NOW)
        self.node.nodes.entries = (me, rack, *others)
        self.node.nodes.given = [replace(each, last_ok_at=NOW) for each in self.node.nodes.given]
        embedded = INVENTORY.engines[0]
        checked = replace(embedded, status=replace(embedded.status, health_at=NOW, models_at=NOW))
        self.node.inventory = replace(INVENTORY, engines=(checked, *INVENTORY.engines[1:]))
        seen = replace(ROSTER.members[1], last_seen_at=NOW)
        self.node.cluster.present = replace(ROSTER, members=(ROSTER.members[0], seen, *ROSTER.members[2:]))
        self.node.clock.pump([0.1] * 12)
        self.assertEqual(following.changes(), [])
        self.assertEqual(self.follow().snapshot()["nodes"][RACK]["lastHeardAt"], NOW)
        self.node.nodes.entries = (me, replace(rack, presence="suspect"), *others)
        self.node.clock.pump([0.1] * 12)
        ((_, key, value),) = following.changes()
        self.assertEqual((key, value["hardware"]["gpus"][0]["utilizationPercent"]), (RACK, 99))

    def test_what_has_none(self) -> None:
        """What has none is seen at the next look."""
        following = self.follow()
        following.snapshot()
        self.node.nodes.entries = self.node.nodes.entries[:1]
        self.node.cluster.present = replace(ROSTER, members=ROSTER.members[:1])
        self.node.clock.pump([0.1] * 12)
        told = following.changes()
        self.assertEqual(
            {change[:2] for change in told if change[2] is None},
            {("nodes", key) for key in (RACK, MAC, "manual:shed:14318")},
        )
        self.assertEqual([change[0] for change in told if change[2] is not None], ["cluster"])

    def test_stop(self) -> None:
        """A node that stops tells of jobs that end, and not of what it does not look at any more."""
        following = self.follow("?topics=nodes,engines,errors,service,jobs,telemetry")
        job = self.admit()
        self.node.clock.advance(2.5)
        following.take()
        self.node.reasons = ("stopping",)
        self.node.nodes.entries = self.node.nodes.entries[:1]
        self.node.nodes.samples = {}
        self.node.inventory = replace(INVENTORY, engines=())
        self.node.errors.raise_entry("test:broken:lamp", thing="lamp")
        theirs = Job("b2.7", RACK, 3, "failed", "ollama", "ollama", "chat", "/api/chat", True, "m", NOW)
        self.node.job_changes.emit(JobChanged(replace(ShownJob.of(theirs), inferred=True), theirs))
        self.end(job)
        self.node.clock.pump([0.1] * 25)
        self.assertEqual([change[:2] for change in following.changes()], [("jobs", f"{NODE}/{job.id}")])


class JobTopicTests(StreamTestCase):
    def jobs(self, following: Following) -> list[tuple[str, str | None]]:
        """What was told of jobs: their numbers and states."""
        return [(key.rpartition(".")[2], value and value["state"]) for _, key, value in following.changes()]

    def test_life(self) -> None:
        """A job is told of from its admission to its end, joined over 100 ms (UI-64)."""
        following = self.follow("?topics=jobs")
        following.snapshot()
        job = self.admit()
        self.node.clock.advance(0.1)
        self.assertEqual(self.jobs(following), [("1", "queued")])
        self.end(job)
        self.node.clock.advance(0.1)
        self.assertEqual(self.jobs(following), [("1", "completed")])

    def test_all_ends(self) -> None:
        """All ends are told, however many there are at once; only the last stay in the table."""
        following = self.follow("?topics=jobs")
        following.snapshot()
        for _ in range(ENDED_MAX + 50):
            self.end(self.admit())
        self.node.clock.advance(0.1)
        told = self.jobs(following)
        numbers = [str(number + 1) for number in range(ENDED_MAX + 50)]
        self.assertEqual(told[: len(numbers)], [(number, "completed") for number in numbers])
        self.assertEqual(told[len(numbers) :], [(number, None) for number in numbers[:50]])
        self.assertEqual(len(self.follow("?topics=jobs").snapshot()["jobs"]), ENDED_MAX)

    def test_most_under_way(self) -> None:
        """Of very many that are under way, the oldest are told; others move up as these end."""
        jobs = [self.admit() for _ in range(ACTIVE_MAX + 5)]
        following = self.follow("?topics=jobs")
        self.assertEqual(len(following.snapshot()["jobs"]), ACTIVE_MAX)
        more = self.admit()
        for job in jobs[:6]:
            self.end(job)
        self.node.clock.advance(0.1)
        told = self.jobs(following)
        self.assertEqual([state for _, state in told], ["completed"] * 6 + ["queued"])
        self.assertEqual(told[-1][0], more.id.rpartition(".")[2])

    def test_of_others(self) -> None:
        """A guess is told, taken back, and a job that is nobody's any more leaves (JB-29, JB-53, JB-55)."""
        theirs = Job("b2.7", RACK, 3, "running", "ollama", "ollama", "chat", "/api/chat", True, "m", NOW)
        lost = replace(theirs, state="failed", completed_at=NOW)
        following = self.follow("?topics=jobs")
        following.snapshot()
        for job, previous in ((theirs, None), (lost, theirs), (theirs, lost), (None, theirs)):
            self.node.job_changes.emit(JobChanged(job, previous))
            self.node.clock.advance(0.1)
        self.assertEqual(self.jobs(following), [("7", "running"), ("7", "failed"), ("7", "running"), ("7", None)])

    def test_guess_within_a_batch(self) -> None:
        """An end that is taken back within 100 ms is told too."""
        theirs = Job("b2.7", RACK, 3, "running", "ollama", "ollama", "chat", "/api/chat", True, "m", NOW)
        lost = replace(theirs, state="failed", completed_at=NOW)
        following = self.follow("?topics=jobs")
        following.snapshot()
        for job, previous in ((theirs, None), (lost, theirs), (theirs, lost)):
            self.node.job_changes.emit(JobChanged(job, previous))
        self.node.clock.advance(0.1)
        self.assertEqual(self.jobs(following), [("7", "failed"), ("7", "running")])

    def test_long_unread(self) -> None:
        """When nobody follows for long, changes are not kept: the list is read anew."""
        following = self.follow("?topics=jobs")
        (id,) = following.ids
        following.conversation.transport.loseConnection()
        for _ in range(UNREAD_MAX + 2):
            self.end(self.admit())
        told = self.jobs(self.follow("?topics=jobs", last_event_id=id))
        self.assertEqual(len(told), ENDED_MAX)
