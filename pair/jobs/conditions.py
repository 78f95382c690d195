"""Conditions of the jobs area."""

from pair.records.errors import Condition

CONDITIONS = (
    Condition(
        id="jobs:history_dropped",
        severity="warning",
        action="none",
        cleared="age",
        text="{count} ended jobs are missing in the history: since PAIR started they could not be written in time.",
    ),
)
