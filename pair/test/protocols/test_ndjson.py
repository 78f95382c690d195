"""Tests of :mod:`pair.protocols.ndjson`."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.protocols.ndjson import Lines, ends_frame, last_lines


class NdjsonTests(SynchronousTestCase):
    def test_ends_frame(self) -> None:
        """A line may follow a newline and the very beginning, and nothing else."""
        self.assertTrue(ends_frame(b"") and ends_frame(b"{}\n") and ends_frame(b"{}\r\n"))
        self.assertFalse(ends_frame(b"{}") or ends_frame(b'{"a":"\\n'))

    def test_last_lines(self) -> None:
        """The last lines are told in order, without blank ones; the last of all needs no newline."""
        self.assertEqual(last_lines(b"1\n2\n\n3\n", False, 2), [b"2", b"3"])
        self.assertEqual(last_lines(b"1\n2", False, 8), [b"1", b"2"])
        self.assertEqual(last_lines(b"", False, 8), [])

    def test_cut_everywhere(self) -> None:
        """Wherever the beginning is cut, also inside a character, the lines told are true ones of the end (S13)."""
        body = '{"a":"é"}\n{"a":"語"}\n{"done":true}\n'.encode()
        whole = last_lines(body, False, 8)
        for offset in range(1, len(body)):
            lines = last_lines(body[offset:], True, 8)
            self.assertEqual(lines, whole[len(whole) - len(lines) :])

    @given(st.binary(max_size=60), st.booleans())
    def test_anything(self, tail: bytes, cut: bool) -> None:
        """No bytes make it fail."""
        last_lines(tail, cut, 8)


class LinesTests(SynchronousTestCase):
    @given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=6))
    def test_any_cuts(self, data: bytes, cuts: list[int]) -> None:
        """However the reads were cut, the lines are the same; what has no end yet is none."""
        lines = Lines(100)
        ends = [0, *sorted(cuts), len(data)]
        found = [line for a, b in pairwise(ends) for line in lines.feed(data[a:b])]
        self.assertEqual(found, data.split(b"\n")[:-1])
        self.assertFalse(lines.overrun)

    def test_overrun(self) -> None:
        """A line that is too long is found out before it ends; those before it are told, and none after it."""
        for cut in range(9):
            data = b"12345\n12\n"
            lines = Lines(5)
            self.assertEqual(lines.feed(data[:cut]) + lines.feed(data[cut:]), [b"12345", b"12"])
        lines = Lines(5)
        self.assertEqual(lines.feed(b"1\n12345"), [b"1"])
        self.assertFalse(lines.overrun)
        self.assertEqual(lines.feed(b"6"), [])
        self.assertTrue(lines.overrun)
        self.assertEqual(lines.feed(b"\n1\n"), [])
