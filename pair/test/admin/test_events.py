"""Tests of ``pair-admin events``."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from pair.control.topics import ENDED_MAX
from pair.test.admin.desk import URL
from pair.test.admin.test_jobs import DeskTestCase
from pair.test.control.samples import RACK


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
            "nodes rack (b7d0f6f0): gone",
            "nodes [red][2Jtable (3f0c9a52): name desk -> [red][2Jtable",
            "errors test:broken:lamp of desk: error, it says: The lamp is broken.",
            " for smollm2: completed, on desk, by embedded",
        ):
            self.assertIn(shown, told)
        self.assertNotIn("\x1b", told)
        self.assertNotIn("telemetry", "\n".join(lines))

    def test_what_changed(self) -> None:
        """A line says what is another, and from what to what; where a person is told of nothing there is none."""
        node, nodes = self.desk.node, self.desk.node.nodes
        job = self.admit()

        def change(**fields: Any) -> None:
            nodes.entries = (nodes.entries[0], replace(nodes.entries[1], **fields), *nodes.entries[2:])

        self.desk.then = [
            lambda: change(presence="suspect"),
            *[lambda: None] * 6,
            lambda: change(services={"ni": 1}, cluster_state="other"),
            *[lambda: None] * 6,
            lambda: change(presence="offline", ip="192.168.1.21", warnings=()),
            *[lambda: None] * 6,
            lambda: self.end(job),
            lambda: node.errors.raise_entry("test:broken:lamp", thing="lamp"),
            lambda: node.errors.raise_entry("test:broken:lamp", thing="lamp"),
        ]
        self.desk.run("events", "--topics", "nodes,jobs,errors")
        lines = [line[10:] for line in self.desk.lines[1:]]
        one_way = "It can dial this node, and not the other way round."
        self.assertEqual(
            lines,
            [
                "nodes rack (b7d0f6f0): online -> suspect",
                "nodes rack (b7d0f6f0): suspect -> offline, address 192.168.1.20 -> 192.168.1.21, "
                f"warning {one_way} -> –",
                f"jobs {job.id} for smollm2: queued -> completed",
                "errors test:broken:lamp of desk: error, it says: The lamp is broken.",
            ],
        )

    def test_room(self) -> None:
        """An ended job that leaves the stream for later ones is no news to a person."""
        first = self.admit()
        self.end(first)

        def many() -> None:
            for _ in range(ENDED_MAX):
                self.end(self.admit())

        self.desk.then = [many, lambda: None]
        self.desk.run("events", "--topics", "jobs")
        self.assertNotIn("gone", self.desk.out.getvalue())
        self.assertEqual(len(self.desk.lines), 1 + ENDED_MAX)

    def test_busy(self) -> None:
        """Measurements are told to who asks for them, as they change."""
        nodes = self.desk.node.nodes

        def busier() -> None:
            nodes.samples[RACK] = (replace(nodes.samples[RACK][-1], cpu_percent=55.0),)

        self.desk.then = [busier, *[lambda: None] * 12]
        self.desk.run("events", "--topics", "telemetry")
        self.assertEqual(
            [line[10:] for line in self.desk.lines[1:]], ["telemetry busy: rack CPU 30 % GPU – -> CPU 55 % GPU –"]
        )

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
