"""The error book's own conditions."""

from pair.records.errors import Condition

CONDITIONS = (
    Condition(
        id="errors:overflow",
        severity="warning",
        action="dismiss",
        cleared="dismiss",
        text="More than {limit} errors hold at once; further ones are not shown.",
    ),
    Condition(
        id="internal:unregistered_error",
        severity="warning",
        action="dismiss",
        cleared="dismiss",
        text="A part of PAIR reported a condition that nobody declared. This is a fault of PAIR: please report it.",
    ),
)
