"""Tests of pair.control.changes: whoever applies what is told has what there is (UI-62 to UI-64)."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.admin.sse import EventParser
from pair.control.changes import RING, Board, Reading, coalesce
from pair.control.revision import Revision

GENERATION = "5d0e8c11a2b34f66"
TOPIC = "jobs"

tables = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3))
readings = st.builds(Reading, tables, st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 9))).map(tuple))


class Client:
    """A follower: what it holds, and what it saw last."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Any]] = {}
        self.id = ""
        self.upserts: list[tuple[str, Any]] = []

    def read(self, data: bytes) -> None:
        for event in EventParser().feed(data):
            self.id = event.id
            found = msgspec.json.decode(event.data)
            if event.event == "snapshot":
                self.tables = {
                    topic: {row["key"]: row["value"] for row in rows} for topic, rows in found["topics"].items()
                }
            elif event.event == "upsert":
                self.tables[found["topic"]][found["key"]] = found["value"]
                self.upserts.append((found["key"], found["value"]))
            elif event.event == "remove":
                del self.tables[found["topic"]][found["key"]]


class CoalesceTests(SynchronousTestCase):
    @given(tables, readings)
    def test_ends_equal(self, before: dict[str, int], reading: Reading) -> None:
        """Applied one after the other the changes lead to the new table, and each end is among them (UI-64)."""
        table, told = dict(before), []
        for key, value in coalesce(before, reading):
            told.append((key, value))
            if value is None:
                del table[key]
            else:
                self.assertNotEqual(table.get(key), value)
                table[key] = value
        self.assertEqual(table, reading.table)
        last = dict(before)
        for key, value in reading.ends:
            if last.get(key) != value:
                self.assertIn((key, value), told)
            last[key] = value

    def test_joined(self) -> None:
        """What was many changes of a key is one."""
        self.assertEqual(
            list(coalesce({"a": 1, "b": 2}, Reading({"a": 3, "c": 4}))), [("b", None), ("a", 3), ("c", 4)]
        )

    def test_still(self) -> None:
        """A record that is another only in what changes all the time is not told; it is told with the rest."""
        before = {"a": (1, 100), "b": (1, 100), "c": (1, 100)}
        reading = Reading({"a": (1, 200), "b": (2, 200), "c": (1, 100), "d": (1, 200)})
        told = list(coalesce(before, reading, lambda value: value[0]))
        self.assertEqual(told, [("b", (2, 200)), ("d", (1, 200))])

    def test_end_that_left(self) -> None:
        """An end is told though it is out of the table by now, once if it is not (UI-64)."""
        told = list(coalesce({"a": 1}, Reading({"b": 8}, (("a", 9), ("b", 8), ("c", 7)))))
        self.assertEqual(told, [("a", 9), ("b", 8), ("c", 7), ("a", None), ("c", None)])


class BoardTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.revision = Revision(GENERATION)
        self.board = Board(self.revision, {"telemetry"})

    def update(self, table: dict[str, Any], topic: str = TOPIC) -> bytes:
        return b"".join(each.frame for each in self.board.update(topic, Reading(table)))

    def test_frames(self) -> None:
        """Each event has its id, its name and one line of JSON (UI-62, UI-63)."""
        self.update({})
        self.assertEqual(
            self.update({"a": {"text": "x\ny"}}),
            b"event: upsert\nid: 5d0e8c11a2b34f66:2\n"
            b'data: {"topic":"jobs","key":"a","value":{"text":"x\\ny"},"revision":2}\n\n',
        )
        self.assertEqual(
            self.update({}),
            b'event: remove\nid: 5d0e8c11a2b34f66:3\ndata: {"topic":"jobs","key":"a","revision":3}\n\n',
        )
        self.assertEqual(
            self.board.heartbeat(5),
            b'event: heartbeat\nid: 5d0e8c11a2b34f66:3\ndata: {"revision":3,"at":5}\n\n',
        )
        self.update({"b": 1})
        self.assertIn(b'"topics":{"jobs":[{"key":"b","value":1}]}', self.board.snapshot((TOPIC,)))

    def test_difference(self) -> None:
        """What came after an id is told, of the topics that are wanted (UI-63)."""
        for topic in (TOPIC, "nodes"):
            self.update({}, topic)
        ids = [self.board.id]
        for topic, table in ((TOPIC, {"a": 1}), ("nodes", {"n": 1}), (TOPIC, {"a": 2})):
            self.update(table, topic)
            ids.append(self.board.id)
        counts = [len(self.board.since(id, {TOPIC}) or ()) for id in ids]
        self.assertEqual(counts, [2, 1, 1, 0])
        self.assertEqual(self.board.since(ids[-1], {TOPIC}), [])

    def test_no_difference(self) -> None:
        """Of another generation, of before the first reading, of the future, or no id: there is none (UI-63)."""
        before = self.board.id
        self.update({})
        for id in (before, "", "5d0e8c11a2b34f66", "ffff:1", f"{GENERATION}:2", f"{GENERATION}:-1", f"{GENERATION}:١"):
            self.assertEqual(self.board.since(id, {TOPIC}), None, id)
        self.assertEqual(self.board.since(f"{GENERATION}:{'9' * 5000}", {TOPIC}), None)
        self.assertEqual(self.board.since(f"{GENERATION}:1", {TOPIC}), [])

    def test_ring(self) -> None:
        """4096 changes are kept, and one that is out of them is told of no difference (UI-63)."""
        self.update({})
        first = self.board.id
        for number in range(RING):
            self.update({"a": number})
        self.assertEqual(len(self.board.since(first, {TOPIC}) or ()), RING)
        second = f"{GENERATION}:{int(first.partition(':')[2]) + 1}"
        self.update({"a": "b"})
        self.assertEqual(self.board.since(first, {TOPIC}), None)
        self.assertEqual(len(self.board.since(second, {TOPIC}) or ()), RING)

    def test_passing(self) -> None:
        """Measurements take no place in the ring; who comes back is told the newest."""
        self.update({}, "telemetry")
        first = self.board.id
        self.assertNotEqual(self.update({"nodes": 1}, "telemetry"), b"")
        self.assertEqual(self.board.since(first, {"telemetry"}), [])
        (frame,) = self.board.present({"telemetry"})
        self.assertIn(b'"value":1', frame)

    def test_list_and_stream(self) -> None:
        """Who has read a list goes on from its revision: what it lacks comes after that (UI-25, UI-63)."""
        self.update({"a": 1})
        self.revision.bump()
        listed = f"{GENERATION}:{self.revision.number}"
        self.update({"a": 2})
        self.assertEqual(len(self.board.since(listed, {TOPIC}) or ()), 1)

    @given(st.lists(st.tuples(readings, st.sampled_from(("stay", "leave", "back", "new")))))
    def test_always_equal(self, steps: list[tuple[Reading, str]]) -> None:
        """Through any changes, absences and returns a follower ends with what there is."""
        board = Board(Revision(GENERATION))
        board.update(TOPIC, Reading({}))
        client, here = Client(), True
        client.read(board.snapshot((TOPIC,)))
        for reading, move in steps:
            told = board.update(TOPIC, reading)
            if here:
                client.read(b"".join(each.frame for each in told))
            if move == "leave":
                here = False
            elif move == "new":
                client, here = Client(), True
                client.read(board.snapshot((TOPIC,)))
            elif move == "back" and not here:
                here = True
                missed = board.since(client.id, {TOPIC})
                assert missed is not None
                client.read(b"".join(missed))
            if here:
                self.assertEqual(client.tables, {TOPIC: reading.table})
