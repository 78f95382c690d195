"""Tests of pair.control.events: who is told, when, and who is dropped (UI-61 to UI-66)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.admin.sse import Event, EventParser
from pair.control.changes import Reading
from pair.control.events import SUBSCRIBERS_MAX, UNSENT_MAX, EventHub, NoPlaceError
from pair.control.revision import Revision

if TYPE_CHECKING:
    from pair.control.events import Subscriber

NOW = 1_764_460_800_000


class Line:
    """The body of an answer, read as it comes."""

    def __init__(self) -> None:
        self.producer: Subscriber | None = None
        self.finished = self.aborted = False
        self.events: list[Event] = []
        self._parser = EventParser()

    def registerProducer(self, producer: Subscriber, streaming: bool) -> None:
        assert streaming
        self.producer = producer

    def unregisterProducer(self) -> None:
        self.producer = None

    def write(self, data: bytes) -> None:
        self.events += self._parser.feed(data)

    def finish(self) -> None:
        self.finished = True

    def abort(self) -> None:
        self.aborted = True

    def take(self) -> list[tuple[str, Any]]:
        """The events since the last time, without heartbeats."""
        events, self.events = self.events, []
        return [(each.event, msgspec.json.decode(each.data)) for each in events if each.event != "heartbeat"]

    def changes(self) -> list[tuple[str, str, Any]]:
        """The same, where they are changes: topic, key and value, None for a removal."""
        return [(found["topic"], found["key"], found.get("value")) for _, found in self.take()]


class HubTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.tables: dict[str, dict[str, Any]] = {"nodes": {}, "jobs": {}, "telemetry": {}}
        self.ends: list[tuple[str, Any]] = []
        self.reads: list[str] = []
        self.key = 1
        topics = {topic: lambda topic=topic: self.read(topic) for topic in self.tables}
        self.revision = Revision("5d0e8c11a2b34f66")
        self.hub = EventHub(self.clock, self.revision, topics, {"telemetry"}, {}, lambda: NOW, lambda: self.key)
        self.hub.startService()

    def read(self, topic: str) -> Reading:
        self.reads.append(topic)
        ends, self.ends = tuple(self.ends), []
        return Reading(dict(self.tables[topic]), ends if topic == "jobs" else ())

    def follow(self, *topics: str, since: str = "") -> Line:
        line = Line()
        self.hub.subscribe(line, frozenset(topics), since)
        return line

    def put(self, topic: str, key: str, value: Any) -> None:
        self.tables[topic][key] = value
        self.hub.touch(topic)


class SubscribeTests(HubTestCase):
    def test_snapshot_first(self) -> None:
        """The first event is a snapshot of what is wanted, in the call itself (UI-62)."""
        self.tables["jobs"]["a"] = 1
        ((event, data),) = self.follow("jobs").take()
        self.assertEqual(event, "snapshot")
        self.assertEqual(
            data, {"generation": "5d0e8c11a2b34f66", "revision": 1, "topics": {"jobs": [{"key": "a", "value": 1}]}}
        )

    def test_nothing_is_read_for_nobody(self) -> None:
        """Without a subscriber no topic is read, and no time is kept for changes."""
        self.put("jobs", "a", 1)
        self.clock.pump([1.0] * 20)
        self.assertEqual(self.reads, [])
        line = self.follow("jobs")
        assert line.producer is not None
        line.producer.stopProducing()
        self.put("jobs", "a", 2)
        self.reads.clear()
        self.clock.pump([1.0] * 20)
        self.assertEqual(self.reads, [])

    def test_back(self) -> None:
        """Who comes back is told the difference, with what happened while nobody was there (UI-63)."""
        self.tables["jobs"] |= {"a": 1, "b": 2}
        line = self.follow("jobs")
        last = line.events[-1].id
        assert line.producer is not None
        line.producer.stopProducing()
        self.tables["jobs"] = {"a": 5, "c": 3}
        self.assertEqual(
            self.follow("jobs", since=last).changes(), [("jobs", "b", None), ("jobs", "a", 5), ("jobs", "c", 3)]
        )

    def test_back_at_once(self) -> None:
        """Who missed nothing is told that, so that it need not wait for the next heartbeat."""
        last = self.follow("jobs").events[-1].id
        self.assertEqual([each.event for each in self.follow("jobs", since=last).events], ["heartbeat"])

    def test_back_for_measurements(self) -> None:
        """Measurements are told as they are now, whatever was missed."""
        self.tables["telemetry"]["nodes"] = 1
        last = self.follow("telemetry").events[-1].id
        self.tables["telemetry"]["nodes"] = 2
        self.assertEqual(self.follow("telemetry", since=last).changes(), [("telemetry", "nodes", 2)])

    def test_back_after_a_restart(self) -> None:
        """An id of another generation gives a snapshot (UI-63)."""
        self.assertEqual(self.follow("jobs", since="0000000000000000:1").take()[0][0], "snapshot")

    def test_most(self) -> None:
        """64 are served; one that leaves makes place (UI-66)."""
        lines = [self.follow("jobs") for _ in range(SUBSCRIBERS_MAX)]
        self.assertRaises(NoPlaceError, self.follow, "jobs")
        assert lines[5].producer is not None
        lines[5].producer.stopProducing()
        self.follow("jobs")

    def test_stopped(self) -> None:
        """At a stop all streams end in good order, and none begins; it can be started again."""
        line = self.follow("jobs")
        self.put("jobs", "a", 1)
        self.successResultOf(self.hub.stopService())
        self.assertTrue(line.finished)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertRaises(NoPlaceError, self.follow, "jobs")
        self.hub.startService()
        self.follow("jobs")


class TellTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.line = self.follow("nodes", "jobs")
        self.line.take()
        self.clock.advance(0.5)

    def test_joined(self) -> None:
        """Changes of a key within 100 ms are one (UI-64)."""
        for number in range(1000):
            self.put("jobs", "a", number)
        self.clock.advance(0.09)
        self.assertEqual(self.line.take(), [])
        self.clock.advance(0.01)
        self.assertEqual(self.line.changes(), [("jobs", "a", 999)])

    def test_ends(self) -> None:
        """An end is never joined away (UI-64)."""
        for number in range(1000):
            self.ends.append((f"job{number}", "completed"))
        self.tables["jobs"] = {"job999": "completed"}
        self.hub.touch("jobs")
        self.clock.advance(0.1)
        told = self.line.changes()
        self.assertEqual([key for _, key, value in told if value], [f"job{number}" for number in range(1000)])
        self.assertEqual([key for _, key, value in told if not value], [f"job{number}" for number in range(999)])

    def test_untouched(self) -> None:
        """What no signal tells is seen within about a second."""
        self.tables["nodes"]["n"] = 1
        self.clock.pump([0.1] * 11)
        self.assertEqual(self.line.changes(), [("nodes", "n", 1)])

    def test_revisions(self) -> None:
        """Changes come in the order of their revisions, which are their ids (UI-62, UI-63)."""
        self.put("jobs", "a", 1)
        self.put("nodes", "n", 1)
        self.put("jobs", "b", 1)
        self.clock.advance(0.1)
        numbers = [msgspec.json.decode(each.data)["revision"] for each in self.line.events]
        self.assertEqual(numbers, sorted(numbers))
        self.assertEqual([each.id for each in self.line.events], [f"5d0e8c11a2b34f66:{each}" for each in numbers])

    def test_topics(self) -> None:
        """Each is told of what it wants."""
        other = self.follow("nodes")
        other.take()
        self.put("jobs", "a", 1)
        self.clock.advance(0.1)
        self.assertEqual((self.line.changes(), other.take()), ([("jobs", "a", 1)], []))

    def test_measurements(self) -> None:
        """Measurements come every 2 s, whatever is touched, and to those alone who want them (UI-64)."""
        line = self.follow("telemetry")
        line.take()
        for number in range(60):
            self.put("telemetry", "nodes", number)
            self.clock.advance(0.1)
        self.assertEqual(len(line.changes()), 3)
        self.assertEqual(self.line.take(), [])

    def test_heartbeats(self) -> None:
        """A heartbeat comes every 5 s, also when nothing else does (UI-65)."""
        self.line.events.clear()
        self.clock.pump([0.5] * 20)
        self.assertEqual([each.event for each in self.line.events], ["heartbeat"] * 2)
        self.assertEqual(msgspec.json.decode(self.line.events[0].data), {"revision": self.revision.number, "at": NOW})

    def test_other_key(self) -> None:
        """When the token is another, the streams that the former opened end (UI-15)."""
        self.key = 2
        other = self.follow("jobs")
        self.put("jobs", "a", 1)
        self.clock.advance(0.1)
        self.assertEqual((self.line.finished, other.finished), (True, False))
        self.key = 3
        self.clock.pump([0.5] * 10)
        self.assertTrue(other.finished)

    def test_mistake(self) -> None:
        """A topic that cannot be read is logged, and the others are told."""
        jobs = self.tables.pop("jobs")
        self.hub.touch("jobs")
        self.put("nodes", "n", 1)
        self.clock.advance(0.1)
        self.assertEqual(self.line.changes(), [("nodes", "n", 1)])
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)
        self.tables["jobs"] = {**jobs, "a": 1}
        self.hub.touch("jobs")
        self.clock.advance(0.1)
        self.assertEqual(self.line.changes(), [("jobs", "a", 1)])


class SlowTests(HubTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.slow, self.fast = self.follow("jobs"), self.follow("jobs")
        for line in (self.slow, self.fast):
            line.take()
        assert self.slow.producer is not None
        self.producer = self.slow.producer
        self.producer.pauseProducing()

    def fill(self, times: int) -> None:
        for number in range(times):
            self.put("jobs", "a", f"{number}{'x' * 100_000}")
            self.clock.advance(0.1)

    def test_dropped(self) -> None:
        """One that lets more than 1 MiB wait is dropped; the other gets all (UI-66)."""
        self.fill(UNSENT_MAX // 100_000)
        self.assertFalse(self.slow.aborted)
        self.fill(1)
        self.assertTrue(self.slow.aborted)
        self.assertEqual((len(self.fast.take()), self.slow.take()), (UNSENT_MAX // 100_000 + 1, []))
        self.fill(3)
        self.producer.resumeProducing()
        self.assertEqual(self.slow.take(), [])

    def test_caught_up(self) -> None:
        """One that reads again is told all that waited."""
        self.fill(3)
        self.producer.resumeProducing()
        self.assertEqual(self.slow.take(), self.fast.take())
        self.fill(1)
        self.assertEqual(len(self.slow.take()), 1)

    def test_stop(self) -> None:
        """At a stop one that does not read is not waited for."""
        self.hub.stopService()
        self.assertEqual((self.slow.aborted, self.fast.finished), (True, True))
