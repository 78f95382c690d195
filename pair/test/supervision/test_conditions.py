"""The entries of the supervision (JB-70, JB-80)."""

from __future__ import annotations

from string import Formatter

from twisted.trial.unittest import SynchronousTestCase

from pair.supervision.conditions import CONDITIONS, DOWN, REACTOR_STALL, RUNNING_AS_ROOT, WRITER_STALLED


class ConditionsTests(SynchronousTestCase):
    """What is declared."""

    def test_ids(self) -> None:
        """The ids are those of the jobs page's table."""
        self.assertEqual(
            [condition.id for condition in CONDITIONS],
            [
                "supervision:down:<component>",
                "supervision:reactor_stall",
                "supervision:writer_stalled:<thread>",
                "service:running_as_root",
                "storage:write_failed",
                "storage:log_failed",
            ],
        )

    def test_fields(self) -> None:
        """The texts have the fields that their raisers fill, and no other (OP-45, OP-48, OP-50, OP-6)."""

        def fields(text: str) -> set[str]:
            return {name for _, name, _, _ in Formatter().parse(text) if name is not None}

        self.assertEqual(fields(DOWN.text), {"component", "delay"})
        self.assertEqual(fields(REACTOR_STALL.text), {"seconds"})
        self.assertEqual(fields(WRITER_STALLED.text), {"thread", "seconds"})
        self.assertEqual(fields(RUNNING_AS_ROOT.text), set())
