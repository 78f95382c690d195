"""Figures for Prometheus (OP-40, OP-41).

Each part keeps plain counters, and hands them over once, by the names of the
table below. All work of formatting happens when somebody reads. Nothing here
knows the parts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""Bounds for what a person waits for."""

SHORT_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1)
"""Bounds for what happens inside this process."""

Labels = tuple[str, ...]
"""The values of a family's labels, in the order of the table. Closed sets, engine ids and UUIDs only (OP-41)."""


class Family(Struct, frozen=True):
    """One metric of the table."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    text: str


TABLE = (
    Family("pair_build_info", "gauge", ("version", "protocol"), "Always 1."),
    Family("pair_start_time_seconds", "gauge", (), "When the process began, in Unix time."),
    Family("pair_requests_total", "counter", ("facade", "dialect", "kind", "status"), "Requests answered."),
    Family("pair_attempts_total", "counter", ("node", "engine", "outcome"), "Attempts ended."),
    Family("pair_request_duration_seconds", "histogram", ("facade",), "From the head of a request to its end."),
    Family("pair_time_to_first_byte_seconds", "histogram", ("facade",), "From the head of a request to the answer's."),
    Family("pair_routing_seconds", "histogram", (), "From the full head of a request to its dispatch."),
    Family("pair_jobs", "gauge", ("state",), "Jobs that have not ended."),
    Family("pair_jobs_total", "counter", ("engine", "outcome"), "Jobs ended."),
    Family("pair_streams_open", "gauge", ("leg",), "Bodies under way."),
    Family("pair_bytes_total", "counter", ("leg", "direction"), "Bytes of bodies."),
    Family("pair_pending", "gauge", ("node",), "Jobs queued or running that are placed on a node."),
    Family("pair_pressure", "gauge", ("node",), "How busy the node's busiest GPU is, 0 to 3."),
    Family("pair_reservations", "gauge", ("node",), "Jobs just dispatched and not yet visible in pending."),
    Family("pair_no_owner_total", "counter", ("facade", "reason"), "Requests that no node could serve."),
    Family("pair_gpu_utilisation_percent", "gauge", ("gpu",), "How busy a GPU of this node is."),
    Family("pair_gpu_memory_bytes", "gauge", ("gpu", "kind"), "Memory of a GPU of this node."),
    Family("pair_engine_up", "gauge", ("engine",), "1 while the engine runs."),
    Family("pair_engine_restarts_total", "counter", ("engine",), "Starts of an engine after a failure."),
    Family("pair_component_up", "gauge", ("component",), "1 while the part of PAIR is up."),
    Family("pair_component_restarts_total", "counter", ("component",), "Starts of a part of PAIR after a failure."),
    Family("pair_errors", "gauge", ("severity",), "Error entries that hold."),
    Family("pair_reactor_stall_seconds_max", "gauge", (), "The longest time in which the reactor did not turn."),
    Family("pair_reactor_stalls_total", "counter", (), "How often the reactor did not turn for too long."),
    Family("pair_store_queue", "gauge", (), "Writes that wait for the store."),
    Family("pair_body_budget_bytes", "gauge", (), "Bytes of request bodies that are kept."),
    Family("pair_unhandled_errors_total", "counter", (), "Errors that nobody handled."),
    Family("pair_pairing_total", "counter", ("role", "outcome"), "Invitations that have ended."),
    Family("pair_pairing_bad_mac_total", "counter", (), "Pairing requests that were not the inviter's."),
    Family("pair_refused_total", "counter", ("reason",), "Requests of other nodes that were refused."),
    Family("pair_cluster_statements", "gauge", ("kind",), "Statements of this node's cluster."),
    Family("pair_cluster_sync_age_seconds", "gauge", ("node",), "Since a member was last heard of."),
    Family("pair_cluster_sync_total", "counter", ("outcome",), "Syncs with members."),
)

_FAMILIES = {family.name: family for family in TABLE}


class Counter:
    """Numbers that only rise, one for each combination of labels."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: dict[Labels, float] = {}

    def inc(self, labels: Labels = (), by: float = 1) -> None:
        """Add ``by``."""
        self.values[labels] = self.values.get(labels, 0) + by


class Histogram:
    """How often a value was in which range, for each combination of labels.

    Args:
        bounds: ascending; a value belongs to the first that is not below it.
    """

    __slots__ = ("bounds", "counts", "sums")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self.bounds = tuple(bounds)
        self.counts: dict[Labels, list[int]] = {}
        self.sums: dict[Labels, float] = {}

    def observe(self, value: float, labels: Labels = ()) -> None:
        """Count ``value``."""
        counts = self.counts.get(labels)
        if counts is None:
            counts = self.counts[labels] = [0] * (len(self.bounds) + 1)
            self.sums[labels] = 0.0
        counts[bisect_left(self.bounds, value)] += 1
        self.sums[labels] += value


Source = Counter | Histogram | Callable[[], float | Mapping[Labels, float]]
"""Where the figures of a family are read: a counter, a histogram, or a function that is asked at each reading."""


class PartCollector(Collector):
    """What one part has to tell.

    Args:
        sources: by the name of the family.

    Raises:
        KeyError: A name is not in the table.
    """

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = [(_FAMILIES[name], source) for name, source in sources.items()]

    def collect(self) -> Iterator[Metric]:
        """The families with what their sources say now."""
        for family, source in self._sources:
            if isinstance(source, Histogram):
                yield _histogram(family, source)
            else:
                yield _numbers(family, source.values if isinstance(source, Counter) else source())


class Metrics:
    """All figures of this process.

    Args:
        version: of the software.
        protocol: the highest version of the peer protocol.
        started_at: in seconds of Unix time.
    """

    def __init__(self, version: str, protocol: int, started_at: float) -> None:
        self._registry = CollectorRegistry()
        self.register(
            {
                "pair_build_info": lambda: {(version, str(protocol)): 1},
                "pair_start_time_seconds": lambda: started_at,
            }
        )

    def register(self, sources: Mapping[str, Source]) -> None:
        """Take the figures of one part; see :class:`PartCollector`."""
        self._registry.register(PartCollector(sources))

    def render(self) -> bytes:
        """All figures as they are now, in the text format 0.0.4."""
        return generate_latest(self._registry)


def _numbers(family: Family, values: float | Mapping[Labels, float]) -> Metric:
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.text, labels=family.labels)
    for labels, value in (values if isinstance(values, Mapping) else {(): values}).items():
        metric.add_metric(labels, value)
    return metric


def _histogram(family: Family, source: Histogram) -> Metric:
    metric = HistogramMetricFamily(family.name, family.text, labels=family.labels)
    names = [*map(str, source.bounds), "+Inf"]
    for labels, counts in source.counts.items():
        metric.add_metric(labels, list(zip(names, accumulate(counts), strict=True)), source.sums[labels])
    return metric
