"""Tests of smoothing and bands."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.routing.pressure import Gauge


class GaugeTests(SynchronousTestCase):
    def follow(self, samples: list[float], levels: list[float], pressures: list[int]) -> None:
        gauge = Gauge.first(samples[0])
        seen = [gauge]
        for sample in samples[1:]:
            gauge = gauge.after(sample)
            seen.append(gauge)
        self.assertEqual([round(each.level, 4) for each in seen], levels)
        self.assertEqual([each.pressure for each in seen], pressures)

    def test_rising_and_falling(self) -> None:
        """First table of RT-39."""
        self.follow(
            [0, 100, 100, 100, 100, 100, 0, 0, 0],
            [0, 35, 57.75, 72.5375, 82.1494, 88.3971, 57.4581, 37.3478, 24.2761],
            [0, 0, 1, 2, 2, 3, 1, 1, 0],
        )

    def test_lingering(self) -> None:
        """Second table of RT-39."""
        self.follow(
            [90, 75, 75, 75, 75, 75, 60, 60, 60],
            [90, 84.75, 81.3375, 79.1194, 77.6776, 76.7404, 70.8813, 67.0728, 64.5973],
            [3, 3, 3, 2, 2, 2, 2, 2, 1],
        )

    def test_edges_on_the_way_up(self) -> None:
        """A pressure begins at its edge exactly."""
        for level, pressure in [(0, 0), (39.99, 0), (40, 1), (69.99, 1), (70, 2), (84.99, 2), (85, 3), (100, 3)]:
            self.assertEqual(Gauge.first(level).pressure, pressure, str(level))

    def test_edges_on_the_way_down(self) -> None:
        """A pressure is left below its edge, not at it."""
        for before, level, pressure in [
            (3, 80, 3),
            (3, 79.99, 2),
            (2, 65, 2),
            (2, 64.99, 1),
            (1, 35, 1),
            (1, 34.99, 0),
            (3, 34, 0),
        ]:
            # A sample equal to the level leaves the level where it is.
            self.assertEqual(Gauge(level, before).after(level).pressure, pressure, f"{before} at {level}")

    @given(st.lists(st.floats(0, 100), min_size=1, max_size=40))
    def test_stays_within_bounds(self, samples: list[float]) -> None:
        """Level and pressure never leave 0–100 and 0–3."""
        gauge = Gauge.first(samples[0])
        for sample in samples:
            gauge = gauge.after(sample)
            self.assertTrue(-1e-9 <= gauge.level <= 100 + 1e-9)
            self.assertIn(gauge.pressure, range(4))
