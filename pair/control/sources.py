"""What the API shows, as it is handed in: the API reads, and never knows who holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from twisted.internet.defer import Deferred

    from pair.control.cluster import Left, NodeIdentity, Removed
    from pair.control.views import ServiceStatus
    from pair.errors.book import ErrorBook
    from pair.jobs.view import JobView
    from pair.privacy import Secret
    from pair.proxy.scheduling import SchedulerService
    from pair.records.cluster import AuditRow, CodeKind, Invitation, Roster
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


class Cluster(Protocol):
    """The cluster, this node in it, and what is done to both.

    What is refused is a :class:`pair.cluster.refusing.Refusal`, what cannot be
    written an error of the store; in both cases nothing has changed.
    """

    def roster(self) -> Roster:
        """Who is in the cluster now, when each was last seen, and who was in it."""

    def remove(self, node: str, with_admitted: bool) -> Awaitable[Removed]:
        """Put a member out; those that it let in too, if so wished (CL-86, CL-87)."""

    def leave(self) -> Awaitable[Left]:
        """Leave the cluster, and tell the others within 3 s (CL-88)."""

    def audit(self, limit: int) -> Awaitable[Sequence[AuditRow]]:
        """What was done to trust, the newest first, at most so many (CL-104)."""

    def identity(self) -> NodeIdentity:
        """Who this node is."""

    def renew(self) -> Awaitable[NodeIdentity]:
        """Make a new identity, and drop a membership without a word to anybody (CL-96)."""


class Invitations(Protocol):
    """Invitations under way and ended: :class:`pair.cluster.invitations.Invitations`, as far as the API needs it.

    What is refused is a :class:`pair.cluster.refusing.Refusal`.
    """

    def all(self) -> Sequence[Invitation]:
        """Those in both directions, the newest last; ended ones for an hour."""

    def invite(self, target: str, code_kind: CodeKind) -> Awaitable[tuple[Invitation, Secret]]:
        """Invite a node by UUID or address; the answer is there when it has replied (CL-43)."""

    def accept(self, id: str, typed: str) -> Awaitable[Invitation]:
        """Prove a code; the answer is there at the end, or after 30 s (CL-46)."""

    def decline(self, id: str) -> Invitation:
        """Turn down one that came to this node."""

    def cancel(self, id: str) -> Invitation:
        """Take back one of this node's."""


@dataclass(frozen=True)
class ClusterSources:
    """What there is to see of clusters, and to do.

    Attributes:
        cluster: the one this node is in, if any.
        invitations: those to it, and to join another.
    """

    cluster: Cluster
    invitations: Invitations


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
        cluster: membership and pairing.
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
    cluster: ClusterSources | None = None
