"""What is counted of one node while it is watched (discovery page, sections 9 and 10).

Pure: instants are seconds on one monotonic clock. What follows from the counts
is decided in :mod:`~pair.discovery.liveness`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pair.records.nodes import EvidenceKind, Presence

MISSES = 3
"""So many scans in a row without a sign of a node put it in doubt (DS-56)."""

PROBE_SECONDS = (2.0, 4.0, 8.0, 16.0, 30.0)
"""How long a node that is offline waits for its next check, by the checks that failed (DS-62)."""

_WINDOWS: dict[EvidenceKind, float] = {"feed": 12.0, "inference": 60.0, "telemetry": 10.0, "inbound": 10.0}
"""How long evidence counts (section 9). What is not here counts when it comes, and no longer."""


class Watched:
    """One node.

    ``heard``: by multicast since the last scan. ``leaving``: its goodbye is
    being checked, and ``left_at`` is the instant of the last one. ``silent``
    counts checks in a row without an answer while it is in doubt, ``waits``
    those waits that it had while it is offline. ``asked_at``: when the check
    under way began, or the last one ended. ``due``: when the next is to begin,
    apart from scans.
    """

    def __init__(self, key: str, now: float) -> None:
        self.key = key
        self.announced = False
        self.lasting = False
        self.presence: Presence = "offline"
        self.heard = False
        self.heard_at = now
        self.misses = 0
        self.silent = 0
        self.waits = 0
        self.leaving = False
        self.left_at = -math.inf
        self.asked_at = -math.inf
        self.due: float | None = None
        self.evidence: dict[EvidenceKind, float] = {}
        self.kind: EvidenceKind | None = None
        self.last: float | None = None
        self.proven_at = now

    def lives(self, now: float) -> bool:
        """Whether evidence that came earlier still counts."""
        return any(now - at < _WINDOWS.get(kind, 0.0) for kind, at in self.evidence.items())

    def wait(self, now: float) -> None:
        """Check it later, the later the more checks have failed."""
        self.due = now + PROBE_SECONDS[min(self.waits, len(PROBE_SECONDS) - 1)]
        self.waits += 1

    def hurry(self, now: float) -> None:
        """Check it at once and begin the waits anew, but not sooner after a check than the shortest of them."""
        self.waits = 0
        self.due = max(now, self.asked_at + PROBE_SECONDS[0])

    def miss(self, charged: bool) -> bool:
        """A scan is over in which it may have been missed; whether that was once too often."""
        if self.heard:
            self.misses = 0
        elif charged:
            self.misses += 1
        self.heard = False
        return self.misses >= MISSES
