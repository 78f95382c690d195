"""What the API shows, as it is handed in: the API reads, and never knows who holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pair.control.views import ServiceStatus
    from pair.errors.book import ErrorBook
    from pair.jobs.view import JobView
    from pair.records.endpoints import Endpoint
    from pair.records.engines import EngineAddress, NodeInventory


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
        endpoints: the facades.
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
    endpoints: Callable[[], Sequence[Endpoint]]
    jobs: JobView
    errors: ErrorBook
