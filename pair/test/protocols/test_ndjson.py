"""Tests of :mod:`pair.protocols.ndjson`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.protocols.ndjson import ends_frame, last_lines


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
