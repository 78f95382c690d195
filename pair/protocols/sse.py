"""Server-sent events: where frames end, and the last of them. Pure; the end of a body is all it is given."""

from __future__ import annotations

from typing import NamedTuple


class Frame(NamedTuple):
    """One event. What a frame does not have is empty; several ``data`` lines are joined by newlines."""

    event: bytes
    data: bytes


def ends_frame(tail: bytes) -> bool:
    """Whether a body that ends with ``tail`` ends with a blank line, so that a frame may follow (PX-63)."""
    return not tail or tail.endswith((b"\n\n", b"\n\r\n", b"\r\r"))


def last_frames(tail: bytes, cut: bool, most: int) -> list[Frame]:
    """The complete frames at the end of a body, in order; comments alone are none.

    Args:
        tail: The end of the body, or all of it.
        cut: Bytes before ``tail`` are missing. It may then begin anywhere, also
            inside a character, so what stands before its first blank line is left out.
        most: How many frames are wanted.
    """
    blocks = tail.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n")
    complete = blocks[1 if cut else 0 : -1]
    frames = [_frame(block) for block in complete[-most:]]
    return [frame for frame in frames if frame.event or frame.data]


def _frame(block: bytes) -> Frame:
    event = b""
    data = []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            event = value
        elif name == b"data":
            data.append(value)
    return Frame(event, b"\n".join(data))
