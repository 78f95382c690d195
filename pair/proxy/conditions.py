"""Conditions of the data path."""

from pair.records.errors import Condition

CONDITIONS = (
    Condition(
        id="proxy:port_bypassed:<facade>",
        severity="warning",
        action="none",
        cleared="auto",
        text="{detail}",
    ),
    Condition(
        id="proxy:port_taken:<facade>",
        severity="error",
        action="none",
        cleared="auto",
        text="The {facade} facade has no port. {detail}",
    ),
    Condition(
        id="proxy:alias_blocked:<facade>",
        severity="warning",
        action="none",
        cleared="auto",
        text="The {facade} facade does not answer where OLLAMA_HOST or facade.ollama.alias says. {detail}",
    ),
    Condition(
        id="proxy:loop:<node>",
        severity="warning",
        action="none",
        cleared="age",
        text="The engine {engine} of this node leads back to PAIR itself: check the address under which it was added.",
    ),
    Condition(
        id="routing:node_failing:<uuid>",
        severity="warning",
        action="none",
        cleared="auto",
        text="The engine {engine} of this node failed {count} times in a row; while it does, others are asked first.",
    ),
    Condition(
        id="routing:policy:<name>",
        severity="warning",
        action="dismiss",
        cleared="dismiss",
        text="The routing policy {name} failed; the default policy stands in for it.",
    ),
)
