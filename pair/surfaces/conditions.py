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
    Condition(
        id="ports:unreachable:<surface>",
        severity="error",
        action="none",
        cleared="auto",
        text="Port {port}, by which other nodes reach this one, does not answer at this machine's own address in the "
        "network. It was opened anew; if that does not help, a firewall or a setting of the system keeps others out.",
    ),
)
