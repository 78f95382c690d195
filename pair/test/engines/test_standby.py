"""When the embedded engine is to run (EN-108)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from pair.engines.standby import Standby


class StandbyTests(SynchronousTestCase):
    def test_on_and_off(self) -> None:
        """``on`` and ``off`` hold whatever else runs."""
        for others in (True, False):
            self.assertEqual(Standby("on").desired(others, 0), "on")
            self.assertEqual(Standby("off").desired(others, 0), "off")

    def test_alone(self) -> None:
        """``auto``: it runs where nothing else does."""
        standby = Standby("auto")
        self.assertEqual([standby.desired(False, now) for now in (0, 60, 6000)], ["on"] * 3)

    def test_another_runs_already(self) -> None:
        """``auto``: it does not start where another engine ran when we first looked."""
        standby = Standby("auto")
        self.assertEqual([standby.desired(others, 0) for others in (True, False)], ["off", "off"])

    def test_makes_way(self) -> None:
        """``auto``: it goes when another engine has run for 60 s on end, not before."""
        standby = Standby("auto")
        seen = [(False, 0), (True, 10), (True, 69), (False, 70), (True, 80), (True, 139), (True, 140), (False, 150)]
        self.assertEqual(
            [standby.desired(others, now) for others, now in seen],
            ["on", "on", "on", "on", "on", "on", "off", "off"],
        )
