"""What the event stream tells of: each topic as a table of the records that the API shows (UI-61).

It reads the sources, and decides nothing.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pair.control.changes import Reading
from pair.control.errors import shown
from pair.control.nodes import LATEST_MS, NodeView
from pair.control.routing import Routing, routing
from pair.control.views import EngineView, all_engines
from pair.jobs.view import JobFilter
from pair.records.jobs import TERMINAL, Job, ShownJob
from pair.records.nodes import NodeHardware
from pair.records.telemetry import Gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pair.control.sources import ControlSources, Jobs
    from pair.records.cluster import Roster
    from pair.records.jobs import JobChanged

PASSING = frozenset({"telemetry"})
"""Topics that are measurements, another at each reading, and told only to those who ask for them (UI-61, UI-64)."""

ACTIVE_MAX = 500
ENDED_MAX = 100
"""Jobs in the table, the longest under way and the last that ended; lists have the rest."""

UNREAD_MAX = 4096
"""Changed jobs that are kept for the next reading."""


class JobTopic:
    """The jobs under way, and the last that ended.

    It is told of each change, so that no end is missed that is out of sight
    again before the next reading. When nobody reads for long, it forgets all,
    and begins anew with the list.
    """

    def __init__(self, jobs: Jobs, stopping: Callable[[], bool]) -> None:
        self._jobs = jobs
        self._stopping = stopping
        self._active: dict[str, ShownJob] = {}
        self._ended: dict[str, ShownJob] = {}
        self._latest: dict[str, Job | None] | None = None
        self._ends: list[Job] = []

    def changed(self, change: JobChanged) -> None:
        """See :attr:`pair.control.sources.ControlSources.follow_jobs`."""
        # It is called for each request, and does no more than it must.
        if self._latest is None:
            return
        job = change.job
        if isinstance(job, ShownJob) and job.inferred and self._stopping():
            return  # it is this node that hears nothing any more
        about = job or change.previous
        assert about is not None, "a change is of a job"
        self._latest[_job_key(about)] = job
        if job is not None and job.terminal:
            self._ends.append(job)
        if len(self._latest) > UNREAD_MAX:
            self._latest = None

    def read(self) -> Reading:
        """The table, and all ends since the last reading."""
        ends: tuple[tuple[str, ShownJob], ...] = ()
        if self._latest is None:
            newest = self._jobs.page(JobFilter(state=TERMINAL), ENDED_MAX).jobs
            active = self._jobs.page(JobFilter(state=frozenset({"running", "queued"})), ACTIVE_MAX).jobs
            self._ended = {_job_key(each): ShownJob.of(each) for each in reversed(newest)}
            self._active = {_job_key(each): ShownJob.of(each) for each in active}
        else:
            ends = tuple((_job_key(each), ShownJob.of(each)) for each in self._ends)
            for key, job in self._latest.items():
                self._take(key, job)
        self._latest = {}
        self._ends = []
        return Reading({**self._ended, **dict(islice(self._active.items(), ACTIVE_MAX))}, ends)

    def _take(self, key: str, job: Job | None) -> None:
        self._ended.pop(key, None)
        if job is None:
            self._active.pop(key, None)
        elif job.terminal:
            self._active.pop(key, None)
            self._ended[key] = ShownJob.of(job)
            while len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]
        else:
            self._active[key] = ShownJob.of(job)


class TableTopic:
    """What the parts show now.

    Once the node stops it stays as it was: what changes from then on is no
    news of the things that are shown, but that nobody looks at them any more.
    """

    def __init__(self, read: Callable[[], Mapping[str, Any]], stopping: Callable[[], bool]) -> None:
        self._read = read
        self._stopping = stopping
        self._last: Mapping[str, Any] | None = None

    def read(self) -> Reading:
        """The table."""
        if self._last is None or not self._stopping():
            self._last = self._read()
        return Reading(self._last)


def still_hardware(found: NodeHardware | None) -> NodeHardware | None:
    """What a machine is, without how busy."""
    if found is None:
        return None
    return NodeHardware(
        found.os,
        found.cpu and replace(found.cpu, utilization_percent=None),
        found.memory and replace(found.memory, used_bytes=None, available_bytes=None),
        tuple(
            Gpu(each.id, each.index, each.vendor, each.name, each.driver, each.unified, each.vram_total_bytes)
            for each in found.gpus
        ),
    )


def still_node(view: NodeView) -> NodeView:
    """A node without figures, and without when and by what it was heard last."""
    return replace(
        view,
        last_heard_at=None,
        evidence=None,
        hardware=still_hardware(view.hardware),
        hardware_at=None,
        inventory_at=None,
        manual=tuple(replace(each, last_ok_at=None) for each in view.manual),
        revision=0,
    )


def still_engine(view: EngineView) -> EngineView:
    """An engine without when it was asked last."""
    return replace(view, health_at=None, models_at=None)


def still_roster(roster: Roster) -> Roster:
    """The cluster without when each member was seen last."""
    return replace(roster, members=tuple(replace(each, last_seen_at=None) for each in roster.members))


def still_routing(found: Routing) -> Routing:
    """Where requests go, without the ages of the samples behind it, nor the count of its changes."""
    facades = tuple(
        replace(order, candidates=tuple(replace(each, telemetry_age_ms=None) for each in order.candidates))
        for order in found.facades
    )
    return replace(found, generation=0, facades=facades)


STILL: Mapping[str, Callable[[Any], Any]] = {
    "nodes": still_node,
    "engines": still_engine,
    "cluster": still_roster,
    "routing": still_routing,
}
"""What of a record is told when it changes; the rest is told with it, and lists and ``telemetry`` have it (UI-64)."""


def topics(sources: ControlSources) -> tuple[dict[str, Callable[[], Reading]], Callable[[JobChanged], None]]:
    """How each topic is read, and what is to be told of each change of a job."""

    def stopping() -> bool:
        return "stopping" in sources.readiness()

    jobs = JobTopic(sources.jobs, stopping)
    tables: dict[str, Callable[[ControlSources], Mapping[str, Any]]] = {
        "service": lambda sources: {"service": sources.service()},
        "nodes": _nodes,
        "telemetry": _telemetry,
        "engines": _engines,
        "errors": lambda sources: {f"{each.node}/{each.id}": each for each in shown(sources.errors.entries())},
        "cluster": lambda sources: {} if sources.cluster is None else {"cluster": sources.cluster.cluster.roster()},
        "invitations": _invitations,
        "routing": lambda sources: {"routing": routing(sources)},
    }
    found = {topic: TableTopic(partial(read, sources), stopping).read for topic, read in tables.items()}
    return {**found, "jobs": jobs.read}, jobs.changed


def _job_key(job: Job) -> str:
    return f"{job.origin}/{job.id}"


def _nodes(sources: ControlSources) -> Mapping[str, Any]:
    return {} if sources.nodes is None else {each.key: each for each in sources.nodes.all()}


def _telemetry(sources: ControlSources) -> Mapping[str, Any]:
    """One record for all nodes (UI-64)."""
    if sources.nodes is None:
        return {}
    known = [each.uuid for each in sources.nodes.all() if each.uuid is not None]
    latest = {node: sources.nodes.telemetry(node, LATEST_MS)[-1:] for node in known}
    return {"nodes": {node: found[0] if found else None for node, found in latest.items()}}


def _engines(sources: ControlSources) -> Mapping[str, Any]:
    found = all_engines(sources.engines(), sources.engine_address, sources.peers())
    return {f"{each.node}/{each.id}": each for each in found}


def _invitations(sources: ControlSources) -> Mapping[str, Any]:
    return {} if sources.cluster is None else {each.id: each for each in sources.cluster.invitations.all()}
