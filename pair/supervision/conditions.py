"""The conditions of the process, its parts and its storage."""

from __future__ import annotations

from pair.records.errors import Condition

DOWN = Condition(
    id="supervision:down:<component>",
    severity="error",
    action="none",
    cleared="auto",
    text="The component {component} is down; next try in {delay}.",
)
REACTOR_STALL = Condition(
    id="supervision:reactor_stall",
    severity="warning",
    action="none",
    cleared="age",
    text="The service stood still for more than {seconds} s. The log has the place in the code.",
)
WRITER_STALLED = Condition(
    id="supervision:writer_stalled:<thread>",
    severity="error",
    action="none",
    cleared="auto",
    text="The {thread} writer has been at one item for more than {seconds} s. Is the disk full, or does it hang?",
)
RUNNING_AS_ROOT = Condition(
    id="service:running_as_root",
    severity="warning",
    action="none",
    cleared="auto",
    text="The service runs as root and needs not to. Run it as a user of its own.",
)
WRITE_FAILED = Condition(
    id="storage:write_failed",
    severity="error",
    action="none",
    cleared="auto",
    text="{file} in the state directory cannot be written. Is the disk full? Requests are served all the same.",
)
LOG_FAILED = Condition(
    id="storage:log_failed",
    severity="error",
    action="none",
    cleared="auto",
    text="{file} in the state directory cannot be written. Is the disk full? What happens now is not logged there.",
)

CONDITIONS = (DOWN, REACTOR_STALL, WRITER_STALLED, RUNNING_AS_ROOT, WRITE_FAILED, LOG_FAILED)
