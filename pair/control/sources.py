"""What the API shows, as it is handed in: the API reads, and never knows who holds it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from twisted.internet.defer import Deferred

    from pair.control.cluster import Left, NodeIdentity, Removed
    from pair.control.nodes import NodeView
    from pair.control.views import ServiceStatus
    from pair.events import Signal
    from pair.jobs.view import JobFilter, JobPage
    from pair.privacy import Secret
    from pair.proxy.scheduling import SchedulerService
    from pair.records.cluster import AuditRow, CodeKind, Invitation, Roster
    from pair.records.endpoints import Endpoint
    from pair.records.engines import Drain, EngineAddress, NodeInventory
    from pair.records.errors import ServiceError
    from pair.records.jobs import Job, JobChanged
    from pair.records.nodes import ManualNode
    from pair.records.telemetry import Sample


class Facades(Protocol):
    """The facades: :class:`pair.proxy.facades.Facades`, as far as the API needs it."""

    def endpoints(self) -> Sequence[Endpoint]:
        """All of them, as they are now."""

    def change(self, name: str, port: int | None, on: bool | None) -> Deferred[None]:
        """Move one, or switch it."""

    def default_port(self, name: str) -> Deferred[None]:
        """Let one seek its default port again."""


class Nodes(Protocol):
    """The nodes that are known, and what is known of each.

    What cannot be written is an error of the store, and then nothing has changed.
    """

    def all(self) -> Sequence[NodeView]:
        """All of them, this one first (:func:`pair.control.nodes.node_views` makes them of what the parts know)."""

    def get(self, node: str) -> NodeView | None:
        """The one of that UUID, or of that key."""

    def telemetry(self, node: str, window_ms: int) -> Sequence[Sample]:
        """How busy the node of that UUID was in the last ``window_ms``, the oldest sample first (DS-96)."""

    def manual(self) -> Sequence[ManualNode]:
        """The addresses that people, and the settings, gave."""

    def add(self, address: str) -> Awaitable[tuple[ManualNode, bool]]:
        """Take one more address, and whether it is new; else a :class:`pair.discovery.addresses.ManualError`."""

    def remove(self, id: str) -> Awaitable[bool]:
        """Take one back that a person gave; whether there was one."""

    def probe(self, key: str) -> Awaitable[object]:
        """Ask a node now whether it is there; done when its entry says what came of it."""


class Jobs(Protocol):
    """The jobs of the whole cluster: :class:`pair.jobs.view.JobView`, as far as the API needs it."""

    def page(self, wanted: JobFilter, limit: int, cursor: str | None = None) -> JobPage:
        """Some of them; :class:`pair.jobs.view.BadCursor` for a cursor that it did not give."""

    def get(self, origin: str, id: str) -> Job | None:
        """One of them."""


class JobCommands(Protocol):
    """What is done to jobs: :class:`pair.jobs.service.JobService`, as far as the API needs it."""

    def cancel(self, origin: str, id: str) -> None:
        """End one that is under way, else ``NoSuchJob``, ``NotOrigin`` or ``JobFinished`` of that module (JB-47)."""

    def clear(self) -> Awaitable[object]:
        """Delete the history of this node; an error of the store where that cannot be (UI-46)."""


class Errors(Protocol):
    """The error entries of all nodes (JB-79)."""

    @property
    def hidden(self) -> int:
        """How many more hold, and were dismissed, or hidden here."""

    def entries(self) -> Sequence[ServiceError]:
        """Those that are shown here, the worst first."""

    def dismiss(self, id: str) -> None:
        """Take one of this node from sight, else :class:`pair.errors.book.NotDismissable` (JB-74)."""


class Steering(Protocol):
    """What people decide of routing: :class:`pair.proxy.steering.Steering`, as far as the API needs it.

    What cannot be written is an error of the store, and then nothing has changed.
    """

    @property
    def policies(self) -> Sequence[str]:
        """The names of those that can be chosen."""

    @property
    def facades(self) -> Sequence[str]:
        """Those on which a node can be selected."""

    def choose_policy(self, name: str) -> Awaitable[None]:
        """Plan by that one; ``NoSuchPolicy`` of that module, or ``SettingLocked``, where that cannot be."""

    def select(self, facade: str, node: str) -> Awaitable[None]:
        """Prefer the node of that UUID on a facade."""

    def unselect(self, facade: str) -> Awaitable[None]:
        """Prefer none."""

    def drain(self, drain: Drain | None) -> Awaitable[None]:
        """Let this node take no new work; None: let it take it again."""


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
        errors: what is wrong.
        cluster: membership and pairing.
        nodes: who is there.
        steering: what people decide of routing.
        job_commands: what is done to jobs.
        hide_error: takes an entry of any node, by that and its id, from sight on this one until its ``first_at``
            changes (JB-73), else :class:`pair.errors.view.NoSuchEntry`.
        peers: what other nodes offer, as each told last.
        follow_jobs: has its argument called with each change of a job, from now on.
        changes: by topic of the event stream, what tells that something of it is another now.
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
    jobs: Jobs
    errors: Errors
    cluster: ClusterSources | None = None
    nodes: Nodes | None = None
    steering: Steering | None = None
    job_commands: JobCommands | None = None
    hide_error: Callable[[str, str], object] | None = None
    peers: Callable[[], Sequence[NodeInventory]] = tuple
    follow_jobs: Callable[[Callable[[JobChanged], None]], object] = lambda take: None
    changes: Mapping[str, Sequence[Signal[Any]]] = field(default_factory=dict)
