"""A client that hangs up frees the engine's slot within a second, at whatever point it leaves (PX-48, PX-61).

What llama.cpp does decides how this can be seen. It reads a prompt that it has
begun to its end before it looks whether anybody still waits: so prompts are
short here. While nothing is streamed it looks once a second, counted anew from
each result of any request, the list of its slots among them: so the slots are
looked at once, and not again and again.
"""

from __future__ import annotations

import time
from typing import Any

import psutil

from pair.test.integration.node import MODEL, NodeTestCase, Stream, wait_for

PATH = "/v1/completions"
ENDLESS: dict[str, Any] = {
    "model": MODEL,
    "prompt": "Once upon a time",
    "max_tokens": 1500,
    "ignore_eos": True,
    "stream": True,
}
"""A request that keeps its slot for many seconds."""

PROMPTLY = 1.0
"""Seconds in which a slot must be free."""


class HangUpTests(NodeTestCase):
    def setUp(self) -> None:
        self.node = self.start_node()
        self.facade = self.node.facade("lmstudio")

    def send(self, **fields: object) -> Stream:
        stream = Stream(self.facade, PATH, {**ENDLESS, **fields})
        self.addCleanup(stream.leave)
        return stream

    def begin(self) -> Stream:
        """A stream of which the first bytes have come."""
        stream = self.send()
        self.assertTrue(stream.answer().read1())
        return stream

    def leave(self, *streams: Stream) -> None:
        """Hang up; then the slots are free in time."""
        for stream in streams:
            stream.leave()
        time.sleep(PROMPTLY)
        self.assertEqual(self.node.busy_slots(), 0)

    def assert_client_gone(self) -> None:
        job = self.node.ended_job()
        self.assertEqual((job["state"], job["error"]["code"]), ("cancelled", "client_gone"))

    def test_streaming(self) -> None:
        """In the middle of a stream."""
        stream = self.begin()
        self.assertEqual(self.node.busy_slots(), 1)
        self.leave(stream)
        self.assert_client_gone()

    def test_not_streaming(self) -> None:
        """While an answer that is not streamed is made."""
        stream = self.send(stream=False)
        wait_for("the engine to begin", self.node.busy_slots)
        time.sleep(PROMPTLY / 2)  # our looks have put off its own
        self.leave(stream)
        self.assert_client_gone()

    def test_waiting(self) -> None:
        """Before the first token: its connection ends while it waits for a slot, and it keeps none afterwards."""
        busy = [self.begin(), self.begin()]
        before = self.connections()
        third = self.send()
        wait_for(
            "its attempt", lambda: any(each["state"] == "queued" and each["attempts"] for each in self.node.jobs())
        )
        wait_for("its connection", lambda: self.connections() - before)
        third.leave()
        wait_for("its connection to end", lambda: self.connections() <= before, PROMPTLY)
        self.assert_client_gone()
        self.assertEqual(self.node.busy_slots(), 2)
        self.leave(*busy)

    def connections(self) -> set[int]:
        """Our ends of the connections that the service has with the engine."""
        address = self.node.engine()["address"]
        return {
            each.laddr.port
            for each in psutil.Process(self.node.pid).net_connections("tcp")
            if each.status == psutil.CONN_ESTABLISHED and f"{each.raddr.ip}:{each.raddr.port}" == address
        }
