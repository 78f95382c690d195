"""Conditions of the control API."""

from pair.records.errors import Condition

CONDITIONS = (
    Condition(
        id="ports:moved:console",
        severity="warning",
        action="none",
        cleared="auto",
        text="Port {wanted} cannot be had for the control API, so it is at {url} until the next start.",
    ),
)
