"""One client's request on its way through the candidates, as :mod:`pair.proxy.attempts` walks it.

The rounds, the judgements, the holds and the plan are the real ones; bytes are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from pair.proxy.attempt import FIRST_SIGN, NEXT_SIGN, QUIET_SECONDS, SILENCE
from pair.proxy.outcomes import QUIET, SILENT, Judgement, Rounds, judge_connection, judge_status
from pair.routing.candidates import Request
from pair.routing.dialects import classify, match
from pair.routing.planning import free_elsewhere
from pair.test.simulation.scenario import Ask

if TYPE_CHECKING:
    from pair.routing.candidates import Candidate
    from pair.test.simulation.events import Timer
    from pair.test.simulation.origin import Origin

HOP = 0.001
"""Seconds from one node to another, for a request and for its answer."""

INTERIM = 5.0
"""Seconds between two signs of life from a member that has no answer yet (PX-54)."""

LOOK = 1.0
"""Seconds between two looks at a member whose sign is overdue."""

STREAM_SILENCE = 30.0
"""Seconds without any after which a stream is ended (PX-64)."""

START_DEADLINE = 30.0
"""The default of ``proxy.start_deadline`` (PX-45)."""

End = Literal["served", "cut", "refused", "failed", "hung_up"]
"""How a request ended: answered; cut in its stream; kept out by the busy gate; by nobody; its client left."""

_CHAT = match("ollama", "POST", "/api/chat")


class Outcome(Struct, frozen=True):
    """What a client got. Times are of the scenario; ``first_byte`` is None where there was none."""

    ask: Ask
    end: End
    ended_at: float
    first_byte: float | None
    node: str | None
    attempts: int

    @property
    def wait(self) -> float | None:
        """Seconds from the question to the first byte of the answer; None: there was no whole answer."""
        return self.first_byte - self.ask.at if self.end == "served" and self.first_byte is not None else None


class Attempt:
    """One dispatch to one machine, as its caller.

    Attributes:
        open: whether it counts as active there.
    """

    def __init__(self, errand: Errand, candidate: Candidate) -> None:
        self.ask = errand.ask
        self.candidate = candidate
        self.open = True
        self.began_at: float | None = None
        self._errand = errand
        self._machine = errand.origin.machines[candidate.node]
        self._events = errand.origin.events
        self.sent = errand.origin.holds.dispatched(self.ask.job, candidate)
        self._heard = self._events.now
        self._due = FIRST_SIGN
        self._events.after(HOP, self._arrive)
        self._looking = self._events.after(FIRST_SIGN, self._look)

    def close(self) -> None:
        """Nothing of it counts any more; its machine is told, if it has it still."""
        self.open = False
        self._looking.cancel()
        self._events.after(HOP, self._machine.abort, self)

    def refused(self) -> None:
        """See :class:`pair.test.simulation.machine.Caller`."""
        if self.open:
            self._errand.attempt_failed(judge_connection("connect"))

    def answered(self, status: int, body: bytes) -> None:
        """See :class:`pair.test.simulation.machine.Caller`."""
        if self.open:
            verdict = classify(self._errand.origin.dialect, status, body)
            if verdict == "stale_model":
                self._errand.origin.note_stale(self.candidate, self.ask.model)
            self._errand.attempt_failed(judge_status(status, verdict))

    def began(self) -> None:
        """See :class:`pair.test.simulation.machine.Caller`."""
        if self.open:
            self._heard = self.began_at = self._events.now
            self._errand.attempt_won()

    def ended(self) -> None:
        """See :class:`pair.test.simulation.machine.Caller`."""
        if self.open:
            self._errand.answer_ended(whole=True)

    def cut(self) -> None:
        """See :class:`pair.test.simulation.machine.Caller`."""
        if self.open and self.began_at is None:
            self._errand.attempt_failed(judge_connection("broken"))
        elif self.open:
            self._errand.answer_ended(whole=False)

    def _arrive(self) -> None:
        if self.open:
            self._machine.offer(self)

    def _look(self) -> None:
        """A machine that moves gives a sign of life now; one that does not is given up after a while."""
        now = self._events.now
        if not self._machine.frozen:
            self._heard, self._due = now, NEXT_SIGN
        due, end = self._heard + self._due, self._heard + SILENCE
        if self.began_at is not None:
            due = end = self._heard + STREAM_SILENCE
        if now < end and not (now >= due and self._errand.has_another()):
            self._looking = self._events.at(min(now + INTERIM, due if now < due else min(now + LOOK, end)), self._look)
        elif self.began_at is None:
            self._errand.attempt_failed(SILENT if now >= end else QUIET)
        else:
            self._errand.answer_ended(whole=False)


class Errand:
    """Serves one client.

    Attributes:
        attempt: the one under way.
    """

    def __init__(self, origin: Origin, ask: Ask) -> None:
        self.origin = origin
        self.ask = ask
        self.attempt: Attempt | None = None
        assert _CHAT is not None, "the path is in the table"
        self.wanted = Request("ollama", _CHAT, ask.model)
        self._rounds = Rounds(ask.at + START_DEADLINE)
        self._attempts = 0
        self._first_byte: float | None = None
        self._pausing: Timer | None = None
        self._patience: Timer | None = None

    def begin(self) -> None:
        """Let it in, or not (RT-52)."""
        retry_after = self.origin.retry_after(self.wanted, self.ask)
        if retry_after is not None:
            self._end("refused", retry_after=retry_after)
            return
        if self.ask.patience:
            self._patience = self.origin.events.after(self.ask.patience, self._hang_up)
        self._next()

    def attempt_failed(self, judgement: Judgement) -> None:
        """The attempt ended without an answer."""
        attempt = self._close()
        self.origin.holds.failed(attempt.sent, judgement)
        outcome = judgement.outcome if judgement.status is None else f"status{judgement.status}"
        self._tell("failed", node=attempt.candidate.node, outcome=outcome)
        self._rounds.failed(attempt.candidate, judgement)
        if judgement.fails_over:
            self._next()
        else:
            self._end("failed")

    def has_another(self) -> bool:
        """Whether nothing is heard of the node of the attempt, and another one could serve at once."""
        assert self.attempt is not None, "it is asked of an attempt under way"
        origin, place = self.origin, self.attempt.candidate
        plan = origin.plan(replace(self.wanted, tried=self._rounds.excluded | {(place.node, place.engine)}), self.ask)
        now = origin.events.now
        quiet = origin.silence(place.node) >= QUIET_SECONDS
        return quiet and self._rounds.may_begin(now) and free_elsewhere(plan, place.node, origin.holds.breaker, now)

    def attempt_won(self) -> None:
        """The answer begins."""
        assert self.attempt is not None, "an answer comes of an attempt"
        self.origin.holds.committed(self.attempt.sent)
        self._first_byte = self.origin.events.now
        if self._patience is not None:
            self._patience.cancel()
        self._tell("first_byte", node=self.attempt.candidate.node)

    def answer_ended(self, *, whole: bool) -> None:
        """The answer is over: with its last byte, or before."""
        attempt = self._close()
        began_at = attempt.began_at
        assert began_at is not None, "what ends has begun"
        if whole:
            self.origin.learn(attempt.candidate, self.ask.output - 1, self.origin.events.now - began_at)
        self._end("served" if whole else "cut", node=attempt.candidate.node)

    def _next(self) -> None:
        origin, tried = self.origin, self._rounds.excluded
        wanted = replace(self.wanted, tried=tried) if tried else self.wanted
        plan = origin.plan(wanted, self.ask)
        if plan.answer is not None and not self._attempts:
            self._end("failed", answer=plan.answer)
            return
        candidate = self._rounds.next([each.candidate for each in plan.ranked], origin.events.now)
        if candidate is not None:
            self._attempts += 1
            origin.take(self.ask.job, wanted, candidate)
            self._tell("dispatched", node=candidate.node, load=plan.ranked[0].score, of=len(plan.ranked))
            self.attempt = Attempt(self, candidate)
            return
        wait = self._rounds.pause(origin.events.now, 2 * origin.random.random() - 1)
        if wait is None:
            self._end("failed")
        else:
            origin.release(self.ask.job)
            self._tell("pause", seconds=round(wait, 6))
            self._pausing = origin.events.after(wait, self._next)

    def _hang_up(self) -> None:
        if self._pausing is not None:
            self._pausing.cancel()
        if self.attempt is not None:
            self.origin.holds.given_up(self._close().sent)
        self._end("hung_up")

    def _close(self) -> Attempt:
        attempt, self.attempt = self.attempt, None
        assert attempt is not None, "only an attempt that is under way ends"
        attempt.close()
        self.origin.displaced(self.ask.job)
        return attempt

    def _end(self, how: End, node: str | None = None, **more: object) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._tell(how, node=node, **more)
        now = self.origin.events.now
        self.origin.ended(self, Outcome(self.ask, how, now, self._first_byte, node, self._attempts))

    def _tell(self, event: str, **more: object) -> None:
        self.origin.trace(event, job=self.ask.job, **more)
