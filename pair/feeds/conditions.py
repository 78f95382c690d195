"""The conditions that feeds raise (registry of the jobs page)."""

from __future__ import annotations

from pair.records.errors import Condition

CONDITIONS = (
    Condition(
        id="feeds:bad_peer:<node>",
        severity="warning",
        action="none",
        cleared="auto",
        text="What {name} tells of itself is not what it should be, so that what is shown of it may be out of date. "
        "Most likely one of the two runs a faulty version of PAIR: update both.",
    ),
    Condition(
        id="feeds:clock_skew:<node>",
        severity="info",
        action="none",
        cleared="auto",
        text="The clock of {name} and that of this node are more than 5 minutes apart, and so are the times that they "
        "show. Nothing else depends on them. Set the clock of the one that is wrong.",
    ),
    Condition(
        id="feeds:record_too_large:<feed>",
        severity="error",
        action="none",
        cleared="auto",
        text="Something of this node's {feed} is too large, or too much, to be told to the other nodes. "
        "They do not see it; it goes on here as ever.",
    ),
)
