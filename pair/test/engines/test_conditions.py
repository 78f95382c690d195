"""Tests of the declared conditions."""

from __future__ import annotations

import string

from twisted.trial.unittest import SynchronousTestCase

from pair.engines.conditions import CONDITIONS


class ConditionsTests(SynchronousTestCase):
    def test_form(self) -> None:
        """Each is of this area, has a subject, is declared once, and its text has plain names only (JB-70)."""
        stems = [each.stem for each in CONDITIONS]
        self.assertEqual(len(stems), len(set(stems)))
        for each in CONDITIONS:
            self.assertRegex(each.id, "^engines:[a-z_]+:<(engine|kind)>$")
            self.assertEqual(each.cleared, "auto")
            for _, name, spec, conversion in string.Formatter().parse(each.text):
                self.assertTrue(name is None or (name.isidentifier() and not spec and not conversion))
