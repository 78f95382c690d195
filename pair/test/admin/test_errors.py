"""Tests of ``pair-admin error``."""

from __future__ import annotations

from pair.control.service import MOVED
from pair.records.errors import ShownError
from pair.test.admin.desk import URL
from pair.test.admin.test_jobs import DeskTestCase
from pair.test.control.samples import NODE, NOW, RACK

DRIP = ShownError("test:broken:tap", RACK, "warning", "It drips.", "none", "auto", NOW, NOW, 1, 1, stale=True)


class ErrorTests(DeskTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.book = self.desk.node.errors
        self.desk.node.shown_errors.others = [DRIP]

    def test_list(self) -> None:
        """What is wrong, where, and whether that node still says so (JB-78)."""
        self.book.raise_entry("test:broken:lamp", thing="lamp")
        self.desk.run("errors")
        lamp, tap = (line.split() for line in self.desk.lines[1:])
        self.assertEqual(lamp[:3], ["error", "test:broken:lamp", "desk"])
        self.assertEqual(tap[:4], ["warning", "test:broken:tap", "rack", "(stale)"])

    def test_dismissed(self) -> None:
        """An entry is dismissed by its id, whatever is in it, or by how that begins."""
        for id, text in (
            ("test:broken:a/b c?d[red]", "test:broken:a/b c?d[red]"),
            ("test:broken:lamp", "test:broken:l"),
        ):
            self.book.raise_entry(id, thing="x")
            self.assertEqual(self.desk.run("error", "dismiss", text), 0)
            self.assertEqual((self.desk.lines, self.book.entries()), ([f"Dismissed: {id}."], ()))
        self.assertEqual(self.desk.run("error", "dismiss", "test:broken:lamp", "--json"), 1)
        self.assertEqual(self.desk.json["error"]["code"], "no_such_error")

    def test_out_of_sight(self) -> None:
        """An entry that still holds when it is dismissed says so, and lists count it (JB-74)."""
        self.book.raise_entry(MOVED, wanted=14300, url=URL)
        self.assertEqual(self.desk.run("error", "dismiss", MOVED), 0)
        self.assertIn(f"Dismissed: {MOVED}. It holds, and is shown again", self.desk.lines[0])
        self.desk.run("errors")
        self.assertEqual(self.desk.lines[-1], "One more holds, and was dismissed or hidden here.")
        self.desk.run("error", "hide", DRIP.id)
        for words in (("errors",), ("status",)):
            self.desk.run(*words)
            self.assertEqual(
                self.desk.lines[-2:],
                ["Nothing else is wrong.", "2 more hold, and were dismissed or hidden here."],
            )
        self.book.clear(MOVED)
        self.book.raise_entry(MOVED, wanted=14300, url=URL)
        self.desk.run("errors", "--json")
        self.assertEqual(([each["id"] for each in self.desk.json["errors"]], self.desk.json["hidden"]), ([MOVED], 1))

    def test_which(self) -> None:
        """Where several are meant they are listed; a whole id is no beginning, and this node's comes first."""
        for id in ("test:broken:a", "test:broken:ab"):
            self.book.raise_entry(id, thing="x")
        self.assertEqual(self.desk.run("error", "dismiss", "test:broken"), 1)
        self.assertIn(
            "test:broken:a of desk, test:broken:ab of desk. Give more of the id.\n", self.desk.err.getvalue()
        )
        self.assertEqual(self.desk.run("error", "dismiss", "test:broken:a"), 0)
        self.book.raise_entry("test:broken:tap", thing="x")
        self.assertEqual(self.desk.run("error", "dismiss", "test:broken:tap"), 0)
        self.assertEqual([each.id for each in self.book.entries()], ["test:broken:ab"])

    def test_of_others(self) -> None:
        """Another node's cannot be dismissed here, and that node is named; it can be hidden (JB-73)."""
        self.assertEqual(self.desk.run("error", "dismiss", "test:broken:tap"), 1)
        self.assertIn("pair-admin error hide test:broken:tap --node rack", self.desk.err.getvalue())
        self.assertEqual(self.desk.run("error", "dismiss", "test:broken:tap", "--json"), 1)
        self.assertEqual(self.desk.json["error"]["details"], {"node": RACK})
        self.assertEqual(self.desk.run("error", "hide", "test:br"), 0)
        self.assertEqual(self.desk.lines, ["Hidden on this node: test:broken:tap"])
        self.assertEqual(self.desk.node.shown_errors.hidden_here, {(RACK, DRIP.id)})

    def test_hidden_of_a_node(self) -> None:
        """Whose is hidden can be said."""
        self.book.raise_entry("test:broken:tap", thing="x")
        self.assertEqual(self.desk.run("error", "hide", "test:broken:tap"), 1)
        self.assertIn("or --node.", self.desk.err.getvalue())
        self.assertEqual(self.desk.run("error", "hide", "test:broken:tap", "--node", "self", "--json"), 0)
        self.assertEqual(self.desk.json, {"node": NODE, "hidden": "test:broken:tap"})
