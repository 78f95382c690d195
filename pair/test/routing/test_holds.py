"""Tests of what holds and stale marks do to plans, alone, over time, and whatever happens."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, Any, Literal

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.routing.breaker import MEMORY, Breaker, Sent
from pair.routing.candidates import Candidate
from pair.routing.planning import plan
from pair.routing.policies.pressure import PressurePolicy
from pair.routing.reservations import ReservationBook
from pair.routing.scheduler import Rank, Snapshot
from pair.test.routing.facts import catalogue, engine, node, request
from pair.test.routing.holding import BreakerCase, M

if TYPE_CHECKING:
    from collections.abc import Callable

    from pair.routing.candidates import Catalogue, Request
    from pair.routing.planning import Plan


class PlanTests(BreakerCase):
    """RT-24 (2), RT-53, RT-15 and what a plan makes of it all."""

    def setUp(self) -> None:
        super().setUp()
        self.book = ReservationBook()
        self.book.apply(Snapshot(1, tuple(Rank(each, 0, 0) for each in "abcd"), {}))
        self.known = catalogue(*(node(each, engine("ollama", "m", name="e")) for each in "abcd"))

    def plan(self, asked: Request | None = None, known: Catalogue | None = None) -> Plan:
        return plan(asked or request("m"), known or self.known, self.book, self.breaker, PressurePolicy(), self.now)

    def order(self) -> str:
        return "".join(each.candidate.node for each in self.plan().ranked)

    def candidate(self, at: str) -> Candidate:
        return Candidate(at, "e", "ollama", "m")

    def test_held_ones_last(self) -> None:
        """Behind the free ones, the one whose hold ends first before the rest; none is left out."""
        self.busy(self.candidate("a"), 20)
        self.fault(self.candidate("b"), 3)
        self.busy(self.candidate("c"), 5)
        self.assertEqual(self.order(), "dcab")
        self.now = 10.0
        self.assertEqual(self.order(), "cdab")

    def test_selection(self) -> None:
        """RT-24 (3), RT-27: the selected node stands in front, held or not; one that may not serve is passed over."""

        def selected(node: str, *tried: str) -> tuple[str, str | None]:
            asked = request("m", tried=frozenset((each, "e") for each in tried))
            args = (self.book, self.breaker, PressurePolicy(), self.now)
            made = plan(asked, self.known, *args, selected=node)
            return "".join(each.candidate.node for each in made.ranked), made.head

        self.assertEqual(selected("c"), ("cabd", "selection"))
        self.busy(self.candidate("c"), 20)
        self.busy(self.candidate("a"), 30)
        self.assertEqual(selected("c"), ("cbda", "selection"))
        self.assertEqual(selected("c", "c"), ("bda", "selection_ineligible"))
        self.assertEqual(selected("z"), ("bdca", "selection_ineligible"))
        self.assertEqual(selected("c", *"abcd"), ("", "selection_ineligible"))
        self.assertIsNone(self.plan().head)

    def test_equal_ends(self) -> None:
        """Fall by the policy's order."""
        for each in "cab":
            self.busy(self.candidate(each))
        self.assertEqual(self.order(), "dabc")

    def test_all_held(self) -> None:
        """F13: the one nearest to its end is tried first."""
        for seconds, each in zip((30, 20, 10, 15), "abcd", strict=True):
            self.busy(self.candidate(each), seconds)
        self.assertEqual(self.order(), "cdba")

    def test_sole_owner(self) -> None:
        """F14: after five faults the sixth request is tried at once."""
        known = catalogue(node("a", engine("ollama", "m", name="e")))
        self.fault(M, 5)
        self.breaker.stall(self.send(), self.now)
        self.assertIsNotNone(self.held())
        (only,) = self.plan(known=known).ranked
        self.assertEqual((only.candidate.node, only.candidate.engine), ("a", "e"))

    def test_model_stale(self) -> None:
        """It is excluded, in its place among the checks; the name is compared as it is looked up."""
        self.breaker.stale("a", "e", "m:latest", 0, self.now)
        self.assertEqual(self.order(), "bcd")
        self.assertEqual(self.plan().rejected[0].excluded_by, "model_stale")
        self.assertEqual(self.plan(request("m", tried=frozenset({("a", "e")}))).rejected[0].excluded_by, "model_stale")
        stopped = catalogue(node("a", engine("ollama", "m", name="e", routable=False)))
        self.assertEqual(self.plan(known=stopped).rejected[0].excluded_by, "engine_stopped")
        self.now = 5.0
        self.assertEqual(self.order(), "abcd")

    def test_stale_copy(self) -> None:
        """A loaded copy that is gone says nothing of the model under its own name (RT-14)."""
        known = catalogue(node("a", engine("lmstudio", loaded=("m=m:2",), name="e")))
        self.breaker.stale("a", "e", "m:2", 0, self.now)
        for name, wanted in (("m:2", 0), ("m", 1)):
            self.assertEqual(len(self.plan(request(name, facade="lmstudio"), known).ranked), wanted)

    def test_stale_everywhere(self) -> None:
        """M16: listed and denied by all: nobody has it. What was asked in this round answers for itself."""
        for each in "abcd":
            self.breaker.stale(each, "e", "m:latest", 0, self.now)
        self.assertEqual(self.plan().answer, "model_unknown")
        self.assertIsNone(self.plan(request("m", tried=frozenset({("a", "e")}))).answer)
        self.assertEqual(self.plan(request("m", "/v1/rerank", facade="lmstudio")).answer, "model_unknown")

    def test_stale_and_something_else(self) -> None:
        """Who denied the model is no owner; the answer is that of the others."""
        self.breaker.stale("a", "e", "m:latest", 0, self.now)
        denied = node("a", engine("ollama", "m", name="e"), drained=True)
        self.assertEqual(self.plan(known=catalogue(denied)).answer, "model_unknown")
        offline = node("b", engine("ollama", "m", name="e"), online=False)
        self.assertEqual(self.plan(known=catalogue(denied, offline)).answer, "owners_offline")

    def test_changes_nothing(self) -> None:
        """RT-4: a plan takes no trial."""
        self.busy(self.candidate("a"))
        self.now = 1.0
        self.assertEqual([self.order(), self.order()], ["abcd", "abcd"])
        self.send(self.candidate("a"))
        self.assertEqual(self.order(), "bcda")


class ScenarioTests(BreakerCase):
    """Two owners on a virtual clock, planned, reserved and told as the proxy does it."""

    def setUp(self) -> None:
        super().setUp()
        self.book = ReservationBook()
        self.book.apply(Snapshot(1, (Rank("a", 0, 0), Rank("b", 0, 0)), {}))
        self.known = catalogue(*(node(each, engine("ollama", "m", name="e")) for each in "ab"))
        self.queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.sent: list[str] = []
        self.served: list[str] = []
        self.trouble = ""

    trouble: Literal["busy", "fault", ""]
    """What ``a`` answers, 50 ms after it was asked; what is served takes 2 s."""

    def at(self, time: float, call: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self.queue, (time, next(self.jobs), call, args))

    def run_until(self, end: float) -> None:
        while self.queue and self.queue[0][0] <= end:
            self.now, _, call, args = heapq.heappop(self.queue)
            call(*args)
        self.now = end

    def ask(self, job: str, tried: frozenset[tuple[str, str]] = frozenset()) -> None:
        made = plan(request("m", tried=tried), self.known, self.book, self.breaker, PressurePolicy(), self.now)
        candidate = made.ranked[0].candidate
        self.book.take(job, candidate.node, 1, self.now)
        sent = self.breaker.dispatched(job, candidate, self.now)
        self.sent.append(sent.node)
        if sent.node == "a" and self.trouble:
            self.at(self.now + 0.05, self.failed, sent)
        else:
            self.at(self.now + 2.0, self.succeeded, sent)

    def failed(self, sent: Sent) -> None:
        if self.trouble == "busy":
            self.breaker.busy(sent, None, self.now)
        else:
            self.breaker.fault(sent, False, self.now)
        self.ask(sent.job, frozenset({(sent.node, sent.engine)}))

    def succeeded(self, sent: Sent) -> None:
        self.breaker.first_byte(sent, self.now)
        self.breaker.finished(sent.job)
        self.book.release(sent.job, self.now)
        self.served.append(sent.node)

    def flow(self, requests: int) -> None:
        """Ten requests a second, and then time for the last one."""
        self.sent.clear()
        self.served.clear()
        for number in range(requests):
            self.at(self.now + number / 10, self.ask, f"r{next(self.jobs)}")
        self.run_until(self.now + requests / 10 + 2.1)

    def test_fast_503(self) -> None:
        """A node that says 503 in 50 ms looks idle; of 100 requests 95 are not sent to it, until it serves again."""
        self.trouble = "busy"
        self.flow(100)
        self.assertEqual(self.served, ["b"] * 100)
        self.assertLessEqual(self.sent.count("a"), 5)
        self.trouble = ""
        self.flow(100)
        self.assertIn("a", self.served)
        self.flow(100)
        self.assertGreaterEqual(self.sent.count("a"), 45)

    def test_faulty_for_ten_minutes(self) -> None:
        """Three requests arm the hold, and then one for each of 30, 60, 120, 240 s finds out for all."""
        self.trouble = "fault"
        self.flow(6000)
        self.assertEqual(self.served, ["b"] * 6000)
        self.assertEqual(self.sent.count("a"), 3 + 4)


CANDIDATES = [Candidate(at, "e", "ollama", model) for at in "ab" for model in ("m", "n", "")]
ENDS = st.sampled_from(["busy", "busy 5", "fault", "fault of model", "stall", "quiet", "first byte", "undecided"])
STEPS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(CANDIDATES)),
    st.tuples(st.just("end"), st.integers(0, 20), ENDS),
    st.tuples(st.just("wait"), st.sampled_from([0.01, 0.5, 1.0, 29.0, 30.0, 61.0, 300.0])),
    st.tuples(st.just("evidence"), st.sampled_from("ab")),
)


class PropertyTests(SynchronousTestCase):
    """What holds whatever happens."""

    @given(st.lists(STEPS, max_size=60))
    def test_no_hold_outlives_its_reason(self, steps: list[tuple[Any, ...]]) -> None:
        """None is longer than 300 s, one trial at a time finds out, and in the end nothing is left."""
        breaker, now, under_way = Breaker(), 0.0, list[Sent]()
        was_held: set[Candidate] = set()
        quiet: set[str] = set()

        def end(sent: Sent, how: str) -> None:
            if how.startswith("busy"):
                breaker.busy(sent, 5.0 if how == "busy 5" else None, now)
            elif how.startswith("fault"):
                breaker.fault(sent, how == "fault of model", now)
            elif how == "stall":
                breaker.stall(sent, now)
            elif how == "quiet":
                breaker.quiet(sent, now)
                quiet.add(sent.node)
            elif how == "first byte":
                breaker.first_byte(sent, now)
                hold = breaker.held(Candidate(sent.node, sent.engine, "ollama", sent.model), now)
                self.assertTrue(hold is None or (hold.kind == "stall" and hold.until <= now))
                was_held.clear()
            else:
                breaker.undecided(sent)
            breaker.finished(sent.job)

        for number, (what, *values) in enumerate(steps):
            if what == "send":
                under_way.append(breaker.dispatched(f"j{number}", values[0], now))
                if values[0] in was_held:
                    self.assertIsNotNone(breaker.held(values[0], now))
            elif what == "end" and under_way:
                end(under_way.pop(values[0] % len(under_way)), values[1])
            elif what == "wait":
                now += values[0]
            elif what == "evidence":
                breaker.evidence(values[0], "e", now)
                if values[0] in quiet:  # It is over without a trial.
                    was_held = {each for each in was_held if each.node != values[0]}
            for each in CANDIDATES:
                hold = breaker.held(each, now)
                if hold is not None:
                    was_held.add(each)
                    self.assertLessEqual(hold.until - now, 300)
            self.assertFalse(breaker.any_refused)
        for sent in under_way:
            end(sent, "undecided")
        now += 300.0
        self.assertEqual([breaker.held(each, now) for each in CANDIDATES], [None] * len(CANDIDATES))
        now += MEMORY + 1
        breaker.forget(now)
        self.assertEqual(len(breaker), 0)

    @given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(1, 30)), max_size=12), st.floats(0, 31))
    def test_plans_leave_nobody_out(self, busy: list[tuple[str, int]], now: float) -> None:
        """A plan has every eligible candidate once: the free ones, then the held ones by the end of their hold."""
        breaker = Breaker()
        for number, (at, seconds) in enumerate(busy):
            sent = breaker.dispatched(f"j{number}", Candidate(at, "e", "ollama", "m"), number / 100)
            breaker.busy(sent, float(seconds), number / 100)
        known = catalogue(*(node(each, engine("ollama", "m", name="e")) for each in "abcde"))
        ranked = plan(request("m"), known, ReservationBook(), breaker, PressurePolicy(), now).ranked
        self.assertEqual(sorted(each.candidate.node for each in ranked), list("abcde"))
        holds = [breaker.held(each.candidate, now) for each in ranked]
        ends = [-math.inf if hold is None else hold.until for hold in holds]
        self.assertEqual(ends, sorted(ends))
