"""What can be seen of the parts that are started, stopped and restarted here (UI-31)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from zope.interface import Interface

from pair.privacy import normalize_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twisted.python.failure import Failure

ComponentState = Literal["stopped", "starting", "up", "backoff", "failed", "stopping"]
"""``backoff``: it will be tried again soon. ``failed``: for good, or its budget is spent (OP-45)."""


class Component(Struct, frozen=True, rename="camel"):
    """One part at one instant.

    ``failures`` counts those of the present unhealthy streak, ``restarts`` all
    since the process began. ``next_retry_at`` is in epoch milliseconds.
    """

    name: str
    state: ComponentState
    failures: int = 0
    restarts: int = 0
    next_retry_at: int | None = None
    last_error: str | None = None


class IComponents(Interface):
    """A service that can say how its parts are."""

    def tree() -> Sequence[Component]:
        """Its parts, in the order of their start."""


def shown(failure: Failure | None) -> str | None:
    """What may be shown of ``failure``, for :attr:`Component.last_error` (OP-34)."""
    return None if failure is None or failure.value is None else normalize_error(failure.value)
