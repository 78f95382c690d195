"""Health of a running engine (EN-28 to EN-31)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from pair.engines.facts import Answer
from pair.engines.health import Pulse, finding


class PulseTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.pulse = Pulse()

    def fail_from(self, start: float, seconds: float) -> None:
        for n in range(int(seconds // 5) + 1):
            self.pulse.probed("failed", start + 5 * n)

    def test_one_success_is_ok(self) -> None:
        """One good probe gives ``ok``, also after ``unhealthy``."""
        self.fail_from(0, 60)
        self.pulse.probed("ok", 65)
        self.assertEqual(self.pulse.health, "ok")

    def test_six_failures_over_thirty_seconds(self) -> None:
        """Six failures in a row over at least 30 s give ``unhealthy``, and fewer or quicker ones do not (EN-29)."""
        self.pulse.probed("ok", 0)
        for n in range(20):
            self.pulse.probed("failed", 1 + n)
        self.assertEqual(self.pulse.health, "ok")
        self.pulse.probed("failed", 31)
        self.assertEqual(self.pulse.health, "unhealthy")

    def test_bytes_make_a_failed_probe_busy(self) -> None:
        """While bytes flow a failed probe is a busy engine's, and counts for nothing (EN-29)."""
        for n in range(30):
            self.pulse.moved(5.0 * n)
            self.pulse.probed("failed", 5.0 * n + 1)
        self.assertEqual(self.pulse.health, "busy")
        self.assertIsNone(self.pulse.wedged_since(1000))

    def test_loading(self) -> None:
        """A 503 of a server that loads a model gives ``busy`` (EN-29)."""
        self.pulse.probed(finding(Answer(503, {}, b"")), 0)
        self.assertEqual(self.pulse.health, "busy")

    def test_credential(self) -> None:
        """401 and 403 give ``needs_credential`` (EN-5)."""
        for status in (401, 403):
            self.pulse.probed(finding(Answer(status, {}, b"")), 0)
            self.assertEqual(self.pulse.health, "needs_credential")

    def test_degraded(self) -> None:
        """Three failed answers in a row give ``degraded`` though probes pass; one good one ends it (EN-30)."""
        self.pulse.probed("ok", 0)
        for good, health in ((False, "ok"), (False, "ok"), (False, "degraded"), (True, "ok"), (False, "ok")):
            self.pulse.outcome(good)
            self.assertEqual(self.pulse.health, health)

    def test_wedged(self) -> None:
        """Unhealthy for 60 s is wedged, since the first failure (EN-31)."""
        self.fail_from(10, 85)
        self.assertIsNone(self.pulse.wedged_since(99))
        self.assertEqual(self.pulse.wedged_since(100), 10)
