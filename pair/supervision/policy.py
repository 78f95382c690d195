"""When a failed part is tried again: back-off and budget (OP-45). Pure.

It knows neither what failed nor a clock: instants are arguments, in seconds,
of whichever clock the caller uses throughout.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct


class RestartPolicy(Struct, frozen=True):
    """How long to wait before each new try, in seconds.

    One delay for each failure of an unhealthy streak, in turn; their number is
    the streak's budget. With the budget spent it is ``slow_delay`` each time.
    ``healthy_after`` is how long a part has to be up for the streak to end.
    """

    delays: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0)
    slow_delay: float = 300.0
    healthy_after: float = 60.0


RESTARTS = RestartPolicy()
"""The policy of OP-45, which every supervised part follows."""


class Streak(Struct, frozen=True):
    """The failures of one part since it was last healthy.

    ``up_since`` is the instant from which it runs; None while it does not.
    """

    failures: int = 0
    up_since: float | None = None

    def up(self, now: float) -> Streak:
        """The part runs from ``now`` on. Its failures are kept until it has been up for long enough."""
        return Streak(self.failures, up_since=now)

    def failed(self, now: float, policy: RestartPolicy = RESTARTS) -> Retry:
        """The part failed at ``now``, while it ran or in its start, which counts alike."""
        healthy = self.up_since is not None and now - self.up_since >= policy.healthy_after
        failures = 1 if healthy else self.failures + 1
        exhausted = failures > len(policy.delays)
        delay = policy.slow_delay if exhausted else policy.delays[failures - 1]
        return Retry(Streak(failures), delay, exhausted)


class Retry(NamedTuple):
    """What a failure leads to: a new try ``delay`` seconds from now; ``exhausted`` when the budget is spent."""

    streak: Streak
    delay: float
    exhausted: bool
