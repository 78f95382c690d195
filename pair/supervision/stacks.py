"""Where the threads of this process are in the code: names, files and lines, never values."""

from __future__ import annotations

import sys
import threading
import traceback


def stack(thread: int) -> str:
    """The stack of the thread with the identifier ``thread``, innermost call last; empty when it is gone."""
    frame = sys._current_frames().get(thread)
    return "" if frame is None else "".join(traceback.format_stack(frame))


def all_stacks() -> dict[str, str]:
    """The stack of every thread that Python knows, by the thread's name."""
    frames = sys._current_frames()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return {
        names.get(thread, f"thread {thread}"): "".join(traceback.format_stack(frame))
        for thread, frame in frames.items()
    }
