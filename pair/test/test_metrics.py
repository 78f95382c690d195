"""Figures for Prometheus (OP-40, OP-41)."""

from __future__ import annotations

import re
from pathlib import Path
from unittest import SkipTest

from prometheus_client.parser import text_string_to_metric_families
from twisted.trial.unittest import SynchronousTestCase

import pair
from pair.metrics import SECONDS, SHORT_SECONDS, TABLE, Counter, Histogram, Labels, Metrics

LATER = {
    # Families of the cluster, which come with it.
    "pair_node_penalised",
    "pair_nodes",
    "pair_members",
    "pair_feed_lag_seconds",
    "pair_feed_resyncs_total",
}


class MetricsTests(SynchronousTestCase):
    """What a scrape gives, read by the official parser."""

    def setUp(self) -> None:
        self.metrics = Metrics("1.2.3", 1, started_at=1764460000.5)

    def samples(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """All samples by name and labels."""
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(self.metrics.render().decode())
            for sample in family.samples
        }

    def test_process(self) -> None:
        """Version and start are always there."""
        self.assertEqual(
            self.samples(),
            {
                ("pair_build_info", (("protocol", "1"), ("version", "1.2.3"))): 1.0,
                ("pair_start_time_seconds", ()): 1764460000.5,
            },
        )

    def test_counter(self) -> None:
        """A counter has one sample for each combination of labels that occurred."""
        requests = Counter()
        self.metrics.register({"pair_requests_total": requests})
        requests.inc(("ollama", "openai", "inference", "2xx"))
        requests.inc(("ollama", "openai", "inference", "2xx"))
        requests.inc(("ollama", "ollama", "listing", "4xx"), by=3)
        values = [value for (name, _), value in self.samples().items() if name == "pair_requests_total"]
        self.assertEqual(values, [2.0, 3.0])

    def test_gauge_is_read_at_the_scrape(self) -> None:
        """A gauge's function is asked each time; it gives a number, or numbers by labels."""
        depth = 1.0
        up: dict[Labels, float] = {("embedded",): 1.0}
        self.metrics.register({"pair_store_queue": lambda: depth, "pair_engine_up": lambda: up})
        self.assertEqual(self.samples()["pair_store_queue", ()], 1.0)
        depth, up = 5.0, {("embedded",): 0.0, ("ollama",): 1.0}
        self.assertEqual(self.samples()["pair_store_queue", ()], 5.0)
        self.assertEqual(self.samples()["pair_engine_up", (("engine", "embedded"),)], 0.0)
        self.assertEqual(self.samples()["pair_engine_up", (("engine", "ollama"),)], 1.0)

    def test_counter_by_function(self) -> None:
        """What is counted elsewhere is read there."""
        self.metrics.register({"pair_reactor_stalls_total": lambda: 4})
        self.assertEqual(self.samples()["pair_reactor_stalls_total", ()], 4.0)

    def test_histogram(self) -> None:
        """Buckets are cumulative; a value on a bound belongs to it; all values have a bucket."""
        duration = Histogram((0.1, 1.0))
        self.metrics.register({"pair_request_duration_seconds": duration})
        for value in (0.05, 0.1, 0.5, 700.0):
            duration.observe(value, ("ollama",))
        facade = ("facade", "ollama")
        samples = self.samples()
        name = "pair_request_duration_seconds"
        self.assertEqual(samples[f"{name}_bucket", (facade, ("le", "0.1"))], 2.0)
        self.assertEqual(samples[f"{name}_bucket", (facade, ("le", "1.0"))], 3.0)
        self.assertEqual(samples[f"{name}_bucket", (facade, ("le", "+Inf"))], 4.0)
        self.assertEqual(samples[f"{name}_count", (facade,)], 4.0)
        self.assertAlmostEqual(samples[f"{name}_sum", (facade,)], 700.65)

    def test_bounds(self) -> None:
        """Bounds ascend; those of durations go from 0.005 to 600 s."""
        self.assertEqual((SECONDS[0], SECONDS[-1]), (0.005, 600))
        for bounds in (SECONDS, SHORT_SECONDS):
            self.assertEqual(sorted(set(bounds)), list(bounds))

    def test_unknown_name(self) -> None:
        """Nothing is exported that the table does not have."""
        with self.assertRaises(KeyError):
            self.metrics.register({"pair_chunks_total": Counter()})

    def test_every_family(self) -> None:
        """Every family of the table can be registered, and is exported as what the table says."""
        self.metrics = Metrics("1.2.3", 1, started_at=0)
        for family in TABLE[2:]:
            source = Histogram() if family.kind == "histogram" else Counter()
            labels = tuple("x" for _ in family.labels)
            if isinstance(source, Histogram):
                source.observe(1.0, labels)
            else:
                source.inc(labels)
            self.metrics.register({family.name: source})
        exported = {
            (family.name, family.type) for family in text_string_to_metric_families(self.metrics.render().decode())
        }
        self.assertEqual(exported, {(family.name.removesuffix("_total"), family.kind) for family in TABLE})

    def test_table_is_that_of_the_specification(self) -> None:
        """The names are those of the operations page, but for what comes with the cluster (OP-41)."""
        page = Path(pair.__file__).parent.parent / "docs" / "spec" / "operations.md"
        if not page.exists():
            raise SkipTest("the specification is not installed with the package")
        rows = [line for line in page.read_text().splitlines() if line.startswith("| `pair_")]
        names = {name for row in rows for name in re.findall(r"`(pair_\w+)`", row.split("|")[1])}
        self.assertEqual({family.name for family in TABLE}, names - LATER)
