"""What clients see of an engine that fails, fifty at once and in three dialects (PX-44 to PX-46, PX-63, PX-65).

Each client gets a full answer, or an error in its own words; an answer that
breaks off never looks finished; and nothing is left in use. Silences of minutes
are tested on a virtual clock: :mod:`pair.test.proxy.test_attempt` and
:mod:`pair.test.proxy.test_relay_lost`.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from pair.test.integration.engines import MODEL, Engine
from pair.test.integration.node import Node, NodeTestCase, ask, wait_for
from pair.test.integration.streams import Crowd

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 50

INFERENCE = ("/api/chat", "/v1/")
"""Paths that a fault meets; that of a probe is not one."""


class FaultCase(NodeTestCase):
    def start_engine(self) -> Engine:
        """A good one, at 200 tokens a second."""
        engine = Engine("ollama", "--rate", "200")
        self.addCleanup(engine.kill)
        return engine

    def serve(self, **engines: Engine) -> Node:
        """A node that has found these engines."""
        settings = [each for id, engine in engines.items() for each in engine.settings(id)]
        # Not all five rounds: these are tested on a virtual clock.
        node = self.start_node("proxy.start_deadline=1", *settings, embedded=False)
        wait_for("the engines to be found", lambda: all(node.engine(each)["routable"] for each in engines))
        return node

    def crowd(self, node: Node, *, stream: bool = True, first: Callable[[], None] | None = None) -> Crowd:
        """All the clients, on their way."""
        return Crowd(node.facade("ollama"), MODEL, SIZE, stream=stream, first=first)

    def assert_ends(self, node: Node, ends: Counter[str], expected: set[str]) -> None:
        """All ended so, each has a job that says the same, and nothing is left in use."""
        self.assertEqual(ends.total(), SIZE)
        self.assertLessEqual(set(ends), expected, ends)
        good = ends["full"] + ends["empty"]
        # Who is refused by the busy gate has no job (RT-52).
        counted = {"completed": good, "failed": SIZE - good - ends["busy"]}
        wait_for("nothing to be in use", lambda: not in_use(node), seconds=3)
        self.assertEqual(jobs(node), {state: number for state, number in counted.items() if number})
        self.assertEqual(figures(node, "pair_unhandled_errors_total"), {"": 0})


def figures(node: Node, name: str) -> dict[str, float]:
    """A family of metrics, by its labels as written."""
    text = ask(node.control, "/metrics").body.decode()
    found = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE)
    return {labels: float(value) for labels, value in found}


def in_use(node: Node) -> dict[str, float]:
    """What is held for requests, by what is not at zero."""
    families = ("pair_reservations", "pair_jobs", "pair_pending", "pair_body_budget_bytes", "pair_streams_open")
    return {
        f"{family} {labels}": value for family in families for labels, value in figures(node, family).items() if value
    }


def jobs(node: Node) -> dict[str, float]:
    """How many jobs ended how."""
    ended: Counter[str] = Counter()
    for labels, value in figures(node, "pair_jobs_total").items():
        ended[labels.rpartition('outcome="')[2].rstrip('"')] += int(value)
    return dict(ended)


class OneEngineTests(FaultCase):
    """There is no second engine: what the client gets is the error, told in its dialect."""

    def check(self, fault: str, *expected: str, stream: bool = True, **fields: object) -> None:
        engine = self.start_engine()
        node = self.serve(only=engine)
        for path in INFERENCE:
            engine.fault(fault, path=path, **fields)
        self.assert_ends(node, self.crowd(node, stream=stream).ends(), set(expected))

    def test_hang(self) -> None:
        """3 s before the head are waited for."""
        self.check("slow", "full", seconds=3)

    def test_not_found(self) -> None:
        """404 for the model is passed on; who comes after the first ones meets the stale mark (RT-51)."""
        self.check("404", "404", "model_unknown")

    def test_too_many(self) -> None:
        """429 is passed on."""
        self.check("429", "429", "busy")

    def test_error(self) -> None:
        """500 is passed on."""
        self.check("500", "500")

    def test_busy(self) -> None:
        """503 at once, in all rounds, is passed on."""
        self.check("503", "503", "busy")

    def test_garbage(self) -> None:
        """What is no HTTP is 502 in the end."""
        self.check("garbage", "engine_unreachable")

    def test_end_after_the_head(self) -> None:
        """S16: 200, and then a reset before a byte of the body is 502 in the end."""
        self.check("cut", "engine_unreachable", after=0)

    def test_empty(self) -> None:
        """A body that is complete and empty is an answer (PX-44)."""
        self.check("empty", "empty")

    def test_reset_in_a_stream(self) -> None:
        """A reset after some frames is told where a frame fits, else seen (PX-63)."""
        self.check("cut", "told", "cut")

    def test_end_in_a_stream(self) -> None:
        """So is an end before the last chunk."""
        self.check("length", "told", "cut")

    def test_wrong_length(self) -> None:
        """A body shorter than its length is cut."""
        self.check("length", "cut", stream=False)

    def test_reset_in_a_body(self) -> None:
        """A reset in a body with a length cuts it."""
        self.check("cut", "cut", stream=False)

    def test_error_in_a_stream(self) -> None:
        """An error frame of the engine's under 200 is passed on, and the job has failed (PX-65)."""
        self.check("error", "told")

    def test_killed(self) -> None:
        """The engine stops in the middle of its streams, and is killed; who asks then is told that it is gone."""
        engine = self.start_engine()
        node = self.serve(only=engine)
        for path in INFERENCE:
            engine.fault("stall", path=path)
        crowd = self.crowd(node)
        wait_for("all streams to begin", lambda: crowd.begun == SIZE)
        engine.kill()
        first = crowd.ends()
        self.assert_ends(node, first, {"told"})
        second = self.crowd(node).ends()
        self.assertLessEqual(set(second), {"engine_unreachable", "engine_stopped"})
        self.assertEqual((second.total(), jobs(node)), (SIZE, {"failed": 2 * SIZE}))
        self.assertEqual(in_use(node), {})


class TwoEnginesTests(FaultCase):
    """Before the first byte, the other engine serves: nobody sees the fault."""

    def setUp(self) -> None:
        """One that will fail, which is the first choice, and a good one."""
        self.faulty, self.good = self.start_engine(), self.start_engine()
        for each in (self.faulty, self.good):
            # Loaded in both, so that the id decides.
            self.assertEqual(ask(each.url, "/api/chat", {"model": MODEL}).status, 200)

    def test_answers(self) -> None:
        """Each status that fails over, and what is no answer: all 50 are served by the other."""
        for fault in ("404", "route", "429", "500", "503", "garbage", "cut"):
            node = self.serve(faulty=self.faulty, good=self.good)
            asked = len(self.faulty.asked())
            for path in INFERENCE:
                self.faulty.fault(fault, path=path, after=0)
            self.assert_ends(node, self.crowd(node).ends(), {"full"})
            met = [path for _, path in self.faulty.asked()[asked:] if path.startswith(INFERENCE)]
            self.assertTrue(met, fault)
            self.faulty.mend()
            node.destroy()

    def test_killed(self) -> None:
        """An engine that was there a moment ago refuses connections."""
        node = self.serve(faulty=self.faulty, good=self.good)
        crowd = self.crowd(node, first=self.faulty.kill)
        self.assert_ends(node, crowd.ends(), {"full"})
        attempts = figures(node, "pair_attempts_total")
        self.assertTrue([each for each in attempts if 'outcome="connect"' in each], attempts)
