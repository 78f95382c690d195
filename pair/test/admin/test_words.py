"""Tests of pair.admin.words."""

from __future__ import annotations

from typing import get_args

from twisted.trial.unittest import SynchronousTestCase

from pair.admin.words import EXCLUDED, REFUSED, RESULTS, ago, note, reason, share, short, size, span, word
from pair.records.nodes import ProbeResult
from pair.routing.candidates import ExcludedBy
from pair.routing.planning import Answer


class WordTests(SynchronousTestCase):
    def test_unknown(self) -> None:
        """What is not known is a dash, never 0."""
        self.assertEqual(
            [word(None), word(""), short(None), size(None), span(None), ago(None, 5), share(None)], ["–"] * 7
        )
        self.assertEqual((word(0), size(0), span(0)), ("0", "0 B", "0 ms"))

    def test_reasons(self) -> None:
        """Every code of the router, and of a probe, has words; one of a newer service is shown as it is."""
        self.assertEqual((set(EXCLUDED), set(REFUSED)), (set(get_args(ExcludedBy)), set(get_args(Answer))))
        self.assertEqual(set(RESULTS), set(get_args(ProbeResult)))
        self.assertEqual(reason(EXCLUDED, "tried"), "it was tried (tried)")
        self.assertEqual([reason(EXCLUDED, code) for code in ("new\x1b", None)], ["new", "–"])

    def test_notes(self) -> None:
        """A note is blank where there is none, and is not cut as a name is."""
        self.assertEqual((note(None), len(note("x" * 500))), ("", 500))

    def test_ages(self) -> None:
        """What was just now is so."""
        self.assertEqual((ago(5, 10), ago(0, 2000)), ("now", "2.0 s ago"))

    def test_spans(self) -> None:
        """A duration has one unit or two, whatever suits it."""
        for milliseconds, text in (
            (-3, "0 ms"),
            (999, "999 ms"),
            (1500, "1.5 s"),
            (61_000, "1 min 1 s"),
            (3_660_000, "1 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ):
            self.assertEqual(span(milliseconds), text)

    def test_sizes(self) -> None:
        """A size is in binary units."""
        for octets, text in ((1023, "1023 B"), (2048, "2 KiB"), (5 * 1024**2, "5.0 MiB"), (1024**4, "1.0 TiB")):
            self.assertEqual(size(octets), text)
