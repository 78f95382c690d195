"""The figures of the data path (OP-40): counted at the ends of requests and attempts, never per chunk (OP-41)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from pair.metrics import SHORT_SECONDS, Counter, Histogram, Labels, Source
from pair.proxy.request import dialect_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pair.proxy.request import ClientRequest
    from pair.records.jobs import Outcome
    from pair.routing.dialects import Route
    from pair.routing.planning import Answer

_LOCAL = frozenset({"identity", "mutate", "tunnel"})
_STATUSES = frozenset({404, 429, 503})


class Meters:
    """Counts what happens to requests.

    Args:
        seconds: the clock of ``ClientRequest.began_at``.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self.requests = Counter()
        self.attempts = Counter()
        self.no_owners = Counter()
        self._in = self._out = 0
        self.durations = Histogram()
        self.first_bytes = Histogram()
        self.routing = Histogram(SHORT_SECONDS)

    def sources(self) -> Mapping[str, Source]:
        """The families that are counted here, for :meth:`pair.metrics.Metrics.register`."""
        return {
            "pair_requests_total": self.requests,
            "pair_attempts_total": self.attempts,
            "pair_no_owner_total": self.no_owners,
            "pair_bytes_total": self.body_bytes,
            "pair_request_duration_seconds": self.durations,
            "pair_time_to_first_byte_seconds": self.first_bytes,
            "pair_routing_seconds": self.routing,
        }

    def dispatched(self, request: ClientRequest) -> None:
        """The first attempt of a request begins."""
        self.routing.observe(self._seconds() - request.began_at)

    def first_byte(self, request: ClientRequest) -> None:
        """The first byte of an engine's answer is there."""
        self.first_bytes.observe(self._seconds() - request.began_at, (request.facade,))

    def attempt_ended(self, node: str, engine: str, outcome: Outcome, status: int | None) -> None:
        """An attempt won or failed."""
        word: str = outcome
        if outcome == "status":
            word = f"status_{status}" if status in _STATUSES else "status_other"
        self.attempts.inc((node, engine, word))

    def no_owner(self, request: ClientRequest, reason: Answer) -> None:
        """The gate let a request no further."""
        self.no_owners.inc((request.facade, reason))

    def body_came(self, size: int) -> None:
        """The body of a request was kept whole."""
        self._in += size

    def body_passed(self, size: int) -> None:
        """The body of an engine's answer went to the client, as far as it came."""
        self._out += size

    def body_bytes(self) -> Mapping[Labels, float]:
        """Octets of bodies, by leg and direction: what came from an engine went to a client."""
        return {("client", "in"): self._in, ("engine", "in"): self._out, ("client", "out"): self._out}

    def request_ended(self, request: ClientRequest) -> None:
        """A request has its answer, or its client left."""
        self.requests.inc(_labels(request.facade, request.route, request.status))
        self.durations.observe(self._seconds() - request.began_at, (request.facade,))


@lru_cache(maxsize=512)
def _labels(facade: str, route: Route | None, status: int | None) -> Labels:
    """By what a request is counted: facade, dialect, kind and status."""
    role = None if route is None else route.role
    kind = "local" if role in _LOCAL else "other"
    if role == "inference" or role == "listing":
        kind = role
    return facade, dialect_of(route), kind, "aborted" if status is None else f"{status // 100}xx"
