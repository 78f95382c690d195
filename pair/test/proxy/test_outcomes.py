"""Tests of :mod:`pair.proxy.outcomes`."""

from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.protocols.calls import FailureKind
from pair.proxy.outcomes import (
    EMPTY,
    ROUNDS,
    STALLED,
    Judgement,
    Rounds,
    judge_connection,
    judge_status,
    seconds_to_wait,
)
from pair.routing.candidates import Candidate

A = Candidate("n", "a", "ollama")
B = Candidate("n", "b", "ollama")
RETURNS = Judgement("connect", "engine_unreachable")
BARRED = Judgement("status", "engine_status", returns=False)


class JudgementTests(SynchronousTestCase):
    """The table of PX-44, row by row."""

    def test_connection_failures_fail_over_and_return(self) -> None:
        """Whatever ends a connection before an answer is a fault, or a stall if it was the time.

        The next is tried, and this one again in a later round.
        """
        for kind, outcome, arms in [
            ("connect", "connect", "fault"),
            ("timeout", "timeout", "stall"),
            ("tls", "tls", "fault"),
            ("write", "broken", "fault"),
            ("broken", "broken", "fault"),
            ("framing", "broken", "fault"),
        ]:
            self.assertIn(kind, get_args(FailureKind))
            judged = judge_connection(kind)  # type: ignore[arg-type]
            self.assertEqual(judged, Judgement(outcome, "engine_unreachable", arms=arms))  # type: ignore[arg-type]
            self.assertTrue(judged.blames_engine)

    def test_empty_and_stalled(self) -> None:
        """An empty 2xx returns in a later round, a silent engine does not."""
        self.assertTrue(EMPTY.fails_over and EMPTY.returns)
        self.assertTrue(STALLED.fails_over and not STALLED.returns)
        self.assertEqual((EMPTY.arms, STALLED.arms), ("fault", "stall"))

    def test_statuses(self) -> None:
        """By status: who is tried next, whether the same engine is tried again, and what it counts for."""
        for status, fails_over, returns, arms in [
            (300, False, False, None),
            (302, False, False, None),
            (400, False, False, None),
            (401, False, False, None),
            (404, False, False, None),
            (408, True, False, None),
            (413, False, False, None),
            (422, False, False, None),
            (429, True, False, "busy"),
            (500, True, False, "fault"),
            (501, True, False, None),
            (502, True, True, "fault"),
            (503, True, True, "busy"),
            (504, True, True, "fault"),
            (508, True, False, None),
            (520, True, False, "fault"),
        ]:
            judged = judge_status(status, "ok")
            self.assertEqual((judged.outcome, judged.status, judged.arms), ("status", status, arms))
            self.assertEqual(judged.fails_over, fails_over, str(status))
            self.assertEqual(judged.fails_over and judged.returns, returns, str(status))
            self.assertEqual(judged.blames_engine, status >= 500)

    def test_verdicts(self) -> None:
        """An engine without the model or the route is left for good, whatever its status."""
        for verdict in ("stale_model", "route_missing"):
            for status in (400, 404, 500):
                judged = judge_status(status, verdict)
                self.assertTrue(judged.fails_over and not judged.returns)
                self.assertIsNone(judged.arms)

    def test_retry_after(self) -> None:
        """Seconds are taken; a date, a sign, a fraction or nothing at all is not."""
        for value, seconds in [(b"7", 7.0), (b" 120 ", 120.0), (b"0", 0.0), (None, None)]:
            self.assertEqual(seconds_to_wait(value), seconds)
        for value in (b"", b"-1", b"1.5", b"Fri, 31 Dec 1999 23:59:59 GMT"):
            self.assertIsNone(seconds_to_wait(value))

    def test_redirects_have_their_own_code(self) -> None:
        """H13: a redirect is an error of its own and never followed."""
        self.assertEqual(judge_status(307, "ok").error, "engine_redirect")


class RoundsTests(SynchronousTestCase):
    """PX-42 and PX-45."""

    def setUp(self) -> None:
        """30 s to begin an attempt in."""
        self.rounds = Rounds(deadline=30.0)

    def fail(self, *candidates: Candidate, judgement: Judgement = RETURNS) -> None:  # type: ignore[override]
        """Try each and see it fail."""
        for each in candidates:
            self.assertIs(self.rounds.next([each], 0), each)
            self.rounds.failed(each, judgement)

    def test_each_once_a_round(self) -> None:
        """What failed is excluded until the round is over."""
        self.fail(A)
        self.assertEqual(self.rounds.excluded, {("n", "a")})
        self.fail(B)
        self.assertIsNone(self.rounds.next([], 0))
        self.assertEqual(self.rounds.pause(0, 0), 0.25)
        self.assertEqual(self.rounds.excluded, frozenset())

    def test_waits_grow(self) -> None:
        """0.25, 0.5, 1 and 2 s stand before the second to the fifth round, which is the last."""
        waits = []
        for _ in range(ROUNDS):
            self.fail(A)
            waits.append(self.rounds.pause(0, 0))
        self.assertEqual(waits, [0.25, 0.5, 1.0, 2.0, None])

    def test_jitter_is_a_quarter(self) -> None:
        """Each wait is longer or shorter by at most a quarter."""
        for jitter, wait in [(-1, 0.1875), (1, 0.3125)]:
            self.setUp()
            self.fail(A)
            self.assertEqual(self.rounds.pause(0, jitter), wait)

    def test_barred_ones_stay_out(self) -> None:
        """Who may not return is excluded in later rounds too."""
        self.fail(A, judgement=BARRED)
        self.fail(B)
        self.assertEqual(self.rounds.pause(0, 0), 0.25)
        self.assertEqual(self.rounds.excluded, {("n", "a")})

    def test_no_round_without_anybody_to_return(self) -> None:
        """If all are barred there is nothing to wait for."""
        self.fail(A, B, judgement=BARRED)
        self.assertIsNone(self.rounds.pause(0, 0))

    def test_no_attempt_after_the_deadline(self) -> None:
        """At the deadline one may begin, after it none; and none is waited for that would."""
        self.fail(A)
        self.assertIs(self.rounds.next([B], 30.0), B)
        self.assertIsNone(self.rounds.next([B], 30.1))
        self.assertIsNone(self.rounds.pause(29.8, 0))

    def test_the_first_attempt_always_begins(self) -> None:
        """A request that was long in coming is tried once all the same."""
        self.assertIs(self.rounds.next([A], 99.0), A)

    def test_one_round(self) -> None:
        """A class of requests may have a single round (PX-27, PX-35)."""
        self.rounds = Rounds(30.0, 1)
        self.fail(A)
        self.assertIsNone(self.rounds.pause(0, 0))

    @given(st.lists(st.tuples(st.sampled_from([A, B]), st.booleans()), max_size=30), st.floats(-1, 1))
    def test_never_more_than_the_rounds_allow(self, failures: list[tuple[Candidate, bool]], jitter: float) -> None:
        """Whatever happens, no candidate is tried more often than there are rounds, nor once it is barred."""
        rounds = Rounds(deadline=30.0)
        tried: list[Candidate] = []
        barred: set[str] = set()
        for wanted, returns in failures:
            key = (wanted.node, wanted.engine)
            if key in rounds.excluded and rounds.pause(0, jitter) is None:
                break
            if key in rounds.excluded:
                continue
            self.assertNotIn(wanted.engine, barred)
            tried.append(wanted)
            rounds.failed(wanted, RETURNS if returns else BARRED)
            if not returns:
                barred.add(wanted.engine)
        self.assertLessEqual(max((tried.count(each) for each in (A, B)), default=0), ROUNDS)
