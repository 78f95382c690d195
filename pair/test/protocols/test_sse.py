"""Tests of :mod:`pair.protocols.sse`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.protocols.sse import Frame, ends_frame, last_frames

LINE_ENDS = (b"\n", b"\r\n", b"\r")


class EndsFrameTests(SynchronousTestCase):
    def test_blank_line(self) -> None:
        """A frame may follow a blank line, in each spelling of line ends, and the very beginning."""
        for tail in (b"", b"data: x\n\n", b"data: x\r\n\r\n", b"data: x\r\r", b": ping\n\n", b"data: x\n\r\n"):
            self.assertTrue(ends_frame(tail), tail)

    def test_within_a_frame(self) -> None:
        """It may not follow anything else."""
        for tail in (b"data: x", b"data: x\n", b"data: x\r\n", b"data: x\r\n\r", b"\n\ndata: x\n"):
            self.assertFalse(ends_frame(tail), tail)


class LastFramesTests(SynchronousTestCase):
    def test_fields(self) -> None:
        """Event and data are told; one space behind the colon is not part of them, other fields are passed over."""
        tail = b"id: 7\nevent: delta\ndata: {\ndata:  1}\n\ndata:[DONE]\n\n"
        self.assertEqual(last_frames(tail, False, 8), [Frame(b"delta", b"{\n 1}"), Frame(b"", b"[DONE]")])

    def test_line_ends(self) -> None:
        """All three line ends are understood."""
        for end in LINE_ENDS:
            tail = b"data: a\n\nevent: b\ndata: c\n\n".replace(b"\n", end)
            self.assertEqual(last_frames(tail, False, 8), [Frame(b"", b"a"), Frame(b"b", b"c")])

    def test_comments(self) -> None:
        """Comments alone are no frame."""
        self.assertEqual(last_frames(b": ping\n\ndata: a\n: b\n\n: ping\n\n", False, 8), [Frame(b"", b"a")])

    def test_unfinished(self) -> None:
        """A frame without its blank line is none."""
        self.assertEqual(last_frames(b"data: a\n\ndata: [DONE]\n", False, 8), [Frame(b"", b"a")])

    def test_most(self) -> None:
        """No more frames are told than are wanted: the last."""
        self.assertEqual(
            last_frames(b"data: a\n\ndata: b\n\ndata: c\n\n", False, 2), [Frame(b"", b"b"), Frame(b"", b"c")]
        )

    def test_cut_everywhere(self) -> None:
        """Wherever the beginning is cut, also inside a character, the frames told are true ones of the end (S13)."""
        for end in LINE_ENDS:
            body = "data: é[DONE]\n\nevent: ü\ndata: 語\n\ndata: z\n\n".encode().replace(b"\n", end)
            whole = last_frames(body, False, 8)
            for offset in range(1, len(body)):
                frames = last_frames(body[offset:], True, 8)
                self.assertEqual(frames, whole[len(whole) - len(frames) :])

    @given(st.binary(max_size=60), st.booleans())
    def test_anything(self, tail: bytes, cut: bool) -> None:
        """No bytes make it fail."""
        last_frames(tail, cut, 8)
