"""Tests of learned speeds: where an answer ends, and over a restart (RT-61)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from pair.proxy.keptspeeds import WRITE_SECONDS, KeptSpeeds
from pair.routing.policies.speeds import SAMPLES, Speed, Speeds
from pair.test.proxy.bench import CHAT, NODE, BenchCase
from pair.test.proxy.network import LAST_CHUNK, chunk, response, stream
from pair.test.routing.facts import engine, node
from pair.test.turns import open_store

if TYPE_CHECKING:
    import sqlite3

PEER = "b0b0"


def done(tokens: int, seconds: float) -> bytes:
    """The last line of an answer with these figures."""
    return json.dumps({"done": True, "eval_count": tokens, "eval_duration": round(seconds * 1e9)}).encode() + b"\n"


class LearningTests(BenchCase):
    def test_good_answers(self) -> None:
        """The figures of the engine count, under the name by which it lists the model; too short ones do not."""
        bench = self.bench(engine("ollama", "m:latest", name="a"))
        for _ in range(SAMPLES):
            bench.client.asks("POST", "/api/chat", CHAT)
            bench.a.answers(response(200, done(100, 2.0)))
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.a.answers(response(200, done(15, 0.1)))
        self.assertEqual(bench.scheduling.speeds.snapshot(), (Speed(NODE, "a", "m:latest", 50.0, SAMPLES),))

    def test_answers_that_do_not_end_well(self) -> None:
        """Whoever leaves, and an engine that breaks off or reports an error, teach nothing."""
        bench = self.bench()
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.a.answers(stream() + chunk(b'{"error":"x"}\n'), chunk(done(100, 2.0)) + LAST_CHUNK)
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.a.answers(response(500, done(100, 2.0)))
        bench.client.leaves()
        self.assertEqual(bench.scheduling.speeds.snapshot(), ())

    def test_client_that_left_after_the_last_frame(self) -> None:
        """It has its answer, and so it counts (PX-62)."""
        bench = self.bench()
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.a.answers(stream(), chunk(done(100, 2.0)))
        bench.client.leaves()
        self.assertEqual([each.rate for each in bench.scheduling.speeds.snapshot()], [50.0])

    def test_member(self) -> None:
        """An answer of a member counts there."""
        bench = self.bench(engine("ollama", "other", name="a"), peers=(node(PEER, engine("ollama", "m", name="c")),))
        bench.client.asks("POST", "/api/chat", CHAT)
        bench.members.machines[PEER].answers(response(200, done(100, 2.0)))
        self.assertEqual(bench.scheduling.speeds.snapshot(), (Speed(PEER, "c", "m", 50.0, 1),))


class KeptTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.store, self.turns = open_store(self)
        self.speeds = Speeds()

    def begin(self) -> KeptSpeeds:
        kept = KeptSpeeds(self.turns, self.store, self.speeds)
        kept.startService()
        return kept

    def end(self, kept: KeptSpeeds) -> None:
        stopped = kept.stopService()
        self.turns.wait(stopped)
        self.successResultOf(stopped)

    def restart(self) -> tuple[Speed, ...]:
        """What the next start knows."""
        self.speeds = Speeds()
        kept = self.begin()
        self.addCleanup(self.end, kept)
        return self.speeds.snapshot()

    def test_at_the_stop(self) -> None:
        """What was learned is known at the next start, in its order."""
        kept = self.begin()
        for model in ("a", "", "c", "a"):
            self.speeds.learn("n", "e", model, 100, 2.0)
        self.end(kept)
        before = self.speeds.snapshot()
        self.assertEqual([each.model for each in before], ["", "c", "a"])
        self.assertEqual(self.restart(), before)

    def test_each_minute(self) -> None:
        """It is written after a minute too, and only if there is news."""
        kept = self.begin()
        self.speeds.learn("n", "e", "m", 100, 2.0)
        self.turns.advance(WRITE_SECONDS)
        self.turns.wait(self.store.flush())
        other = Speeds()
        KeptSpeeds(self.turns, self.store, other).startService()
        self.assertEqual(other.snapshot(), self.speeds.snapshot())
        self.turns.advance(WRITE_SECONDS)
        self.assertEqual(self.store.depth, 0)
        self.end(kept)

    def test_damaged(self) -> None:
        """Damaged rows are left out, and the others count."""
        kept = self.begin()
        for model in "abcdef":
            self.speeds.learn("n", "e", model, 100, 2.0)
        self.end(kept)
        damage = ("rate = -1", "rate = 'fast'", "samples = 0", "node = ''", "engine = x'ff'")

        def spoil(connection: sqlite3.Connection) -> None:
            for model, each in zip("abcde", damage, strict=True):
                connection.execute(f"UPDATE learned_speed SET {each} WHERE model = '{model}'")

        self.turns.wait(self.store.write(spoil))
        with capturedLogs() as seen:
            self.assertEqual([each.model for each in self.restart()], ["f"])
        self.assertEqual(len(seen), len(damage))

    def test_no_table(self) -> None:
        """What cannot be read or written is learned anew; the node runs all the same."""
        self.turns.wait(self.store.write(lambda connection: connection.execute("DROP TABLE learned_speed")))
        with capturedLogs() as seen:
            kept = self.begin()
        self.assertEqual(len(seen), 1)
        self.speeds.learn("n", "e", "m", 100, 2.0)
        self.end(kept)
