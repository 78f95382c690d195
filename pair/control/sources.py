"""What the API shows, as it is handed in: the API reads, and never knows who holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twisted.internet.defer import Deferred

    from pair.control.views import ServiceStatus
    from pair.errors.book import ErrorBook
    from pair.jobs.view import JobView
    from pair.proxy.scheduling import SchedulerService
    from pair.records.endpoints import Endpoint
    from pair.records.engines import EngineAddress, NodeInventory


class Facades(Protocol):
    """The facades: :class:`pair.proxy.facades.Facades`, as far as the API needs it."""

    def endpoints(self) -> Sequence[Endpoint]:
        """All of them, as they are now."""

    def change(self, name: str, port: int | None, on: bool | None) -> Deferred[None]:
        """Move one, or switch it."""

    def default_port(self, name: str) -> Deferred[None]:
        """Let one seek its default port again."""


@dataclass(frozen=True)
class ControlSources:
    """Each is asked anew for every answer, in the reactor thread.

    Attributes:
        node: UUID of this node.
        now: epoch milliseconds.
        service: the process and its parts.
        readiness: reasons why the node is not ready, as codes; none when it is (OP-43).
        metrics: the Prometheus text; None where ``metrics.enabled`` is off.
        engines: this node's engines with their models.
        engine_address: where one of them answers now.
        facades: where applications find us, and how that is changed.
        scheduling: plans requests.
        jobs: jobs under way and ended.
        errors: the error entries of this node.
    """

    node: str
    now: Callable[[], int]
    service: Callable[[], ServiceStatus]
    readiness: Callable[[], Sequence[str]]
    metrics: Callable[[], bytes] | None
    engines: Callable[[], NodeInventory]
    engine_address: Callable[[str], EngineAddress | None]
    facades: Facades
    scheduling: SchedulerService
    jobs: JobView
    errors: ErrorBook
