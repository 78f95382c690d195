"""A breaker that tests tell what came of what was sent."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from twisted.trial.unittest import SynchronousTestCase

from pair.routing.breaker import Breaker
from pair.routing.candidates import Candidate

if TYPE_CHECKING:
    from pair.routing.breaker import Hold, Sent

M = Candidate("a", "e", "ollama", "m")
N = Candidate("a", "e", "ollama", "n")
B = Candidate("b", "e", "ollama", "m")


class BreakerCase(SynchronousTestCase):
    """A breaker, and a time that a test sets."""

    def setUp(self) -> None:
        self.breaker = Breaker()
        self.now = 0.0
        self.jobs = count(1)

    def send(self, candidate: Candidate = M) -> Sent:
        """One more job goes there."""
        return self.breaker.dispatched(f"j{next(self.jobs)}", candidate, self.now)

    def busy(self, candidate: Candidate = M, retry_after: float | None = None) -> Sent:
        """A job goes there and is told that it is busy."""
        sent = self.send(candidate)
        self.breaker.busy(sent, retry_after, self.now)
        return sent

    def fault(self, candidate: Candidate = M, times: int = 1, *, of_model: bool = False) -> Hold | None:
        """As many jobs go there, one after the other, and fail."""
        hold = None
        for _ in range(times):
            hold = self.breaker.fault(self.send(candidate), of_model, self.now)
        return hold

    def held(self, candidate: Candidate = M) -> tuple[str, float, int] | None:
        """Kind, seconds left and count of the hold on a candidate."""
        hold = self.breaker.held(candidate, self.now)
        return None if hold is None else (hold.kind, hold.until - self.now, hold.count)
