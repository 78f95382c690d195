"""The conditions that telemetry raises (registry of the jobs page)."""

from __future__ import annotations

from pair.records.errors import Condition

STALLED = Condition(
    id="telemetry:stalled",
    severity="warning",
    action="none",
    cleared="auto",
    text="Load and memory of this machine are not up to date: {source} has not answered for more than {seconds} s.",
)

CONDITIONS = (STALLED,)
