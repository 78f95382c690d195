"""Is the engine well: one cached value from probes, bytes and outcomes (EN-28 to EN-31). Pure.

Instants are arguments, in seconds of whichever clock the caller uses throughout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pair.engines.facts import Answer
    from pair.records.engines import Health

FAILURES = 6
FAILING_SECONDS = 30.0
BYTES_SECONDS = 30.0
"""Bytes so recent say that the engine works, whatever the probe says (EN-29)."""
BAD_OUTCOMES = 3
WEDGED_SECONDS = 60.0

Finding = Literal["ok", "busy", "locked", "failed"]
"""What a probe of ``health`` came to: well, loading a model, a token is missing, no good answer."""


_HEALTH: dict[Finding, Health] = {"ok": "ok", "busy": "busy", "locked": "needs_credential", "failed": "busy"}
"""Of the last probe. One that failed while bytes flowed is a busy engine's."""


def finding(answer: Answer | None) -> Finding:
    """What the answer to ``health``, or that there was none, comes to."""
    if answer is None:
        return "failed"
    if 200 <= answer.status < 300:
        return "ok"
    if answer.status == 503:
        return "busy"
    return "locked" if answer.status in (401, 403) else "failed"


class Pulse:
    """The health of one engine, from the moment it runs."""

    def __init__(self) -> None:
        self._health: Health = "unknown"
        self._failures = 0
        self._failing_since = 0.0
        self._unhealthy_since: float | None = None
        self._bytes_at: float | None = None
        self._bad_outcomes = 0

    @property
    def health(self) -> Health:
        """The value that is shown."""
        return "degraded" if self._health == "ok" and self._bad_outcomes >= BAD_OUTCOMES else self._health

    @property
    def bad_outcomes(self) -> int:
        """How many inference answers in a row failed."""
        return self._bad_outcomes

    def probed(self, finding: Finding, now: float) -> None:
        """A probe ended."""
        if finding == "failed" and not self._flows(now):
            self._fail(now)
            return
        self._failures = 0
        self._unhealthy_since = None
        self._health = _HEALTH[finding]

    def moved(self, now: float) -> None:
        """Bytes of an answer came from it."""
        self._bytes_at = now

    def outcome(self, good: bool) -> None:
        """An inference answer ended well or badly (EN-30)."""
        self._bad_outcomes = 0 if good else self._bad_outcomes + 1

    def wedged_since(self, now: float) -> float | None:
        """The instant since which it has not answered, once it has been unhealthy for 60 s (EN-31); else None."""
        if self._unhealthy_since is None or now - self._unhealthy_since < WEDGED_SECONDS:
            return None
        return self._failing_since

    def _flows(self, now: float) -> bool:
        return self._bytes_at is not None and now - self._bytes_at < BYTES_SECONDS

    def _fail(self, now: float) -> None:
        if not self._failures:
            self._failing_since = now
        self._failures += 1
        if self._failures >= FAILURES and now - self._failing_since >= FAILING_SECONDS:
            self._health = "unhealthy"
            if self._unhealthy_since is None:
                self._unhealthy_since = now
