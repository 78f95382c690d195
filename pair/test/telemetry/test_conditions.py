"""The entries of telemetry (JB-70, JB-80)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from pair.telemetry.conditions import CONDITIONS


class ConditionsTests(SynchronousTestCase):
    def test_declared(self) -> None:
        """A source that hangs is a warning that clears by itself (DS-84)."""
        (stalled,) = CONDITIONS
        self.assertEqual((stalled.id, stalled.severity, stalled.cleared), ("telemetry:stalled", "warning", "auto"))
        self.assertIn("nvml", stalled.text.format(source="nvml", seconds="3"))
