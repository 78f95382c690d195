"""Many requests on one connection: each is served as on a connection of its own, whatever came before."""

from __future__ import annotations

import re
from itertools import permutations
from typing import TYPE_CHECKING, Any

from pair.test.proxy.bench import CHAT, Bench, BenchCase
from pair.test.proxy.network import response
from pair.test.routing.facts import engine

if TYPE_CHECKING:
    from collections.abc import Mapping

_NUMBER = re.compile(rb"X-Pair-Request: run\.\d+")


class RepeatTests(BenchCase):
    FIELDS: tuple[Mapping[str, Any], ...] = (
        {"Authorization": "Bearer mine", "X-Custom": "a"},
        {"Origin": "http://localhost:3000", "Connection": "x-hop", "X-Hop": "1"},
        {"X-Custom": "b"},
    )
    ANSWERS = (b'{"a":1}', b"{}", b"")

    def single(self) -> Bench:
        return self.bench(engine("ollama", "m", name="a"))

    def serve(self, bench: Bench, fields: Mapping[str, Any], body: Any, answer: bytes) -> tuple[bytes, bytes]:
        """What the engine and the client get of one request."""
        bench.client.socket.got = b""
        for socket in bench.a.connections:
            socket.got = b""
        bench.client.asks("POST", "/api/chat", body, **fields)
        asked = bench.a.asked if bench.contacted() else b""
        if asked:
            bench.a.answers(response(200, answer, (b"X-Engine", b"e")))
        bench.advance()
        return asked, _NUMBER.sub(b"", bench.client.received)

    def test_as_on_connections_of_their_own(self) -> None:
        """Fields, lengths and answers come in any order, three times each, and nothing of one is in another."""
        bodies = (CHAT, {**CHAT, "options": {"seed": 1}})
        alone = {
            (i, j, k): self.serve(self.single(), fields, body, answer)
            for i, fields in enumerate(self.FIELDS)
            for j, body in enumerate(bodies)
            for k, answer in enumerate(self.ANSWERS)
        }
        for order in permutations(range(len(self.FIELDS))):
            together = self.single()
            for i in order:
                for j, k in ((0, 0), (0, 0), (0, 0), (1, 1), (1, 1), (0, 1), (0, 2), (0, 2), (1, 0)):
                    served = self.serve(together, self.FIELDS[i], bodies[j], self.ANSWERS[k])
                    self.assertEqual(served, alone[i, j, k], (order, i, j, k))
            self.assertEqual((len(together.a.connections), together.client.socket.closed), (1, False))

    def test_refused_each_time(self) -> None:
        """A head that is refused is refused each time, and one that differs by its Host alone is not."""
        bench = self.single()
        for host, status in 3 * [("evil.example", 421)] + 3 * [("localhost", 200)] + [("evil.example", 421)]:
            bench.client.socket.got = b""
            bench.client.asks("GET", "/api/version", Host=host)
            self.assertEqual(bench.client.answer.status, status)
