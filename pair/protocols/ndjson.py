"""JSON one document a line: where lines end, and the last of them. Pure; the end of a body is all it is given."""

from __future__ import annotations


def ends_frame(tail: bytes) -> bool:
    """Whether a body that ends with ``tail`` ends with a line, so that another may follow (PX-63)."""
    return not tail or tail.endswith(b"\n")


def last_lines(tail: bytes, cut: bool, most: int) -> list[bytes]:
    """The lines at the end of a body, in order, blank ones left out. The last needs no newline.

    Args:
        tail: The end of the body, or all of it.
        cut: Bytes before ``tail`` are missing. It may then begin anywhere, also
            inside a character, so its first line is left out.
        most: How many lines are wanted.
    """
    lines = tail.split(b"\n")[1 if cut else 0 :]
    return [line for line in lines if line.strip()][-most:]
