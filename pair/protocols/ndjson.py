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


class Lines:
    """Cuts a stream into lines, wherever its reads were cut.

    Args:
        limit: The most octets of a line, without its LF.

    Attributes:
        overrun: A line is longer. It, and all behind it, is given to nobody.
    """

    def __init__(self, limit: int) -> None:
        self.overrun = False
        self._limit = limit
        self._begun: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that end in ``data``, without their LF."""
        lines: list[bytes] = []
        pieces = data.split(b"\n")
        for number, piece in enumerate(pieces, 1):
            self._size += len(piece)
            self.overrun = self.overrun or self._size > self._limit
            if self.overrun:
                self._begun.clear()
                break
            self._begun.append(piece)
            if number < len(pieces):
                lines.append(b"".join(self._begun))
                self._begun.clear()
                self._size = 0
        return lines
