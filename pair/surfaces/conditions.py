"""Conditions of the ports for peers."""

from pair.records.errors import Condition

CONDITIONS = (
    Condition(
        id="ports:taken:<surface>",
        severity="error",
        action="none",
        cleared="auto",
        text="Port {port}, which other nodes need to reach this one, is taken by another program, or the system does "
        "not let PAIR have it. It is tried again and again.",
    ),
)
