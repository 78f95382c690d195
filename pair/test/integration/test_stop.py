"""How a real node stops, and what a start finds after one that did not stop in order (OP-52 to OP-54)."""

from __future__ import annotations

import json
import signal
import time
from http.client import HTTPResponse, IncompleteRead
from typing import Any

from pair.test.integration.node import MODEL, Node, NodeTestCase, Stream, ask

IDLE_STOP = 2.0
"""Seconds in which an idle node has stopped."""

PATH = "/v1/chat/completions"
CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Tell a long story."}]}


class StopTests(NodeTestCase):
    def begin(self, node: Node) -> HTTPResponse:
        """The answer of a long stream, whose first bytes have come."""
        stream = Stream(
            node.facade("lmstudio"), PATH, {**CHAT, "max_tokens": 1500, "ignore_eos": True, "stream": True}
        )
        self.addCleanup(stream.leave)
        answer = stream.answer()
        self.assertTrue(answer.read1())
        return answer

    def assert_serves(self, node: Node) -> None:
        self.assertEqual(ask(node.facade("lmstudio"), PATH, {**CHAT, "max_tokens": 4}).status, 200)

    def test_idle(self) -> None:
        """An idle node has stopped within 2 s, its engine too; it says so in its state and starts again."""
        node = self.start_node()
        before = time.monotonic()
        node.stop()
        self.assertLess(time.monotonic() - before, IDLE_STOP)
        self.assertFalse((node.state / "control.json").exists())
        node.start()
        self.assert_serves(node)
        node.stop()

    def test_open_stream(self) -> None:
        """A stream that is open is given the drain's time, then told and cut; the job is kept as cancelled (PX-68)."""
        node = self.start_node("service.drain=0.5")
        answer = self.begin(node)
        node.stop()
        with self.assertRaises(IncompleteRead) as cut:
            answer.read()
        *_, last, rest = cut.exception.partial.split(b"\n\n")
        self.assertEqual(rest, b"")
        self.assertEqual(json.loads(last.removeprefix(b"data: "))["error"]["code"], "stopping")
        node.start()
        job = node.ended_job()
        self.assertEqual((job["state"], job["error"]["code"]), ("cancelled", "stopping"))

    def test_asked_twice(self) -> None:
        """A second signal ends it at once with 70; the next start takes back the engine that it left (EN-23)."""
        node = self.start_node("service.drain=60", "service.stop_deadline=70")
        self.begin(node)
        engine = node.engine_process()
        before = time.monotonic()
        node.signal(signal.SIGTERM)
        time.sleep(0.2)  # two signals of a kind that come at once are one
        node.signal(signal.SIGTERM)
        self.assertEqual(node.end(), 70)
        self.assertLess(time.monotonic() - before, 1.0)
        self.assertIn("asked twice", node.last_line())
        node.start()
        self.assertEqual(node.engine_process(), engine)

    def test_killed(self) -> None:
        """After ``kill -9`` the next start takes back the engine, serves, and leaves nothing when it stops (OP-54)."""
        node = self.start_node()
        self.begin(node)
        engine = node.engine_process()
        node.signal(signal.SIGKILL)
        self.assertEqual(node.end(), -signal.SIGKILL)
        self.assertEqual(node.processes(), [engine])
        node.start()
        self.assertEqual(node.engine_process(), engine)
        self.assert_serves(node)
        node.stop()
