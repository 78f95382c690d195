"""What the answers of an engine show of it that its list does not tell, or tells later (RT-10, RT-20)."""

from __future__ import annotations

from msgspec import Struct

from pair.routing.dialects import Route

ROUTE_MISSING_SECONDS = 60.0
"""How long a route counts as missing. A 404 may be about something else that the client named."""

LOADED_SECONDS = 10.0
"""How long a model counts as loaded because it has answered. By then the list says whether it is."""


class Findings(Struct):
    """Of one engine, as long as it is of one version.

    ``answered`` are routes that it has served. ``missing`` has routes that it
    does not have, though its dialect declares them, by their key, and
    ``loaded`` has models; both with the time until which it counts (monotonic
    seconds).
    """

    version: str | None
    answered: set[Route]
    missing: dict[str, float]
    loaded: dict[str, float]

    def forget(self, now: float) -> bool:
        """Drop what does not count any more; whether there was any."""
        past = [(of, each) for of in (self.missing, self.loaded) for each, until in of.items() if until <= now]
        for of, each in past:
            del of[each]
        return bool(past)
