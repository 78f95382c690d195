"""Tests of ``pair-admin cluster`` and ``identity`` (cluster page, section 12)."""

from __future__ import annotations

import sqlite3

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.refusing import Refusal
from pair.test.admin.desk import Desk, Terminal
from pair.test.control.samples import ALONE, HOME, MAC, NODE, OLD, RACK, ROSTER


class ClusterTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.desk = Desk(self)
        self.cluster = self.desk.node.cluster

    def answer(self, text: str) -> None:
        """A terminal at which ``text`` is typed."""
        self.desk.stdin = Terminal(text)


class ShowTests(ClusterTestCase):
    def test_show(self) -> None:
        """Who is in, let in by whom, and who was; the noun alone shows it too."""
        for words in (("cluster", "show"), ("cluster",)):
            self.assertEqual(self.desk.run(*words), 0)
            self.assertEqual(self.desk.lines[0], f"home  {HOME.id}")
            me, rack, mac = (" ".join(line.split()) for line in self.desk.lines[2:5])
            self.assertEqual(me, "3f0c9a52 desk 0123 4567 89ab cdef 1 min 0 s ago – this node")
            self.assertEqual(rack, "b7d0f6f0 rack 0123 4567 89ab cdef 50.0 s ago desk 4.0 s ago one way")
            self.assertEqual(mac, "b7d1aaaa mac 0123 4567 89ab cdef 40.0 s ago rack –")
            self.assertEqual(self.desk.lines[-1].split()[:5], ["c0ffee00", "old", "removed", "rack", "30.0"])

    def test_in_none(self) -> None:
        """In no cluster the next step is told."""
        self.cluster.present = ALONE
        self.assertEqual(self.desk.run("cluster", "show"), 0)
        self.assertEqual(self.desk.lines, ["This node is in no cluster."])
        self.assertIn("pair-admin invite ADDRESS", self.desk.err.getvalue())

    def test_json(self) -> None:
        """With --json it is the API's own (UI-101)."""
        for words in (("cluster", "show"), ("cluster", "audit"), ("identity", "show")):
            self.assertEqual(self.desk.run(*words, "--json"), 0)
            self.assertIsInstance(self.desk.json, dict)
            self.assertEqual(self.desk.err.getvalue(), "")
        self.desk.run("cluster", "--json")
        self.assertEqual(self.desk.json, self.desk.node.ask("GET", "/api/v1/cluster").json)

    def test_audit(self) -> None:
        """What was done to trust, by whom to whom."""
        self.assertEqual(self.desk.run("cluster", "audit", "--limit", "5"), 0)
        self.assertEqual(
            " ".join(self.desk.lines[-1].split()), "1.0 s ago admit desk rack from self, signed 3.0 s ago"
        )
        self.assertEqual(self.cluster.asked, [("audit", 5)])

    def test_hostile_names(self) -> None:
        """A name of another node plays no tricks with the terminal (UI-92)."""
        rack = replace(ROSTER.members[1], name="[red]a\x1b[2Jb\u202ec\nd")
        self.cluster.present = replace(ROSTER, members=(ROSTER.members[0], rack))
        self.desk.run("cluster", "show")
        self.assertIn("[red]a[2Jbcd", self.desk.out.getvalue())
        self.assertNotIn("\x1b", self.desk.out.getvalue())


class RemoveTests(ClusterTestCase):
    def test_node(self) -> None:
        """A node is named by its UUID, how that begins, or its name; members come before those that were (CL-4)."""
        for text in (RACK, RACK.upper(), f"urn:uuid:{RACK}", "b7d0", "B7D0F6F0-0000", "b7d0f6f00000", "rack"):
            self.assertEqual(self.desk.run("cluster", "remove", text, "--yes"), 0, self.desk.err.getvalue())
            self.assertEqual(self.cluster.asked.pop(), ("remove", RACK, False), text)
        self.desk.run("cluster", "remove", "old", "--yes")
        self.assertEqual(self.cluster.asked.pop(), ("remove", OLD, False))

    def test_no_node(self) -> None:
        """What names none, or several, is exit 1, and nothing is done (UI-100)."""
        for text, words in (
            ("lamp", "no_such_node"),
            ("b7d", "ambiguous"),
            ("", "no_such_node"),
            ("-", "no_such_node"),
        ):
            self.assertEqual(self.desk.run("cluster", "remove", "--yes", "--json", "--", text), 1)
            self.assertEqual(self.desk.json["error"]["code"], words, text)
        self.desk.run("cluster", "remove", "b7d", "--yes")
        self.assertIn("b7d0f6f0 (rack), b7d1aaaa (mac)", self.desk.err.getvalue())
        self.assertEqual(self.cluster.asked, [])

    def test_told(self) -> None:
        """It says who is out, who knows of it and who does not yet (CL-86)."""
        self.desk.run("cluster", "remove", "rack", "--yes")
        self.assertEqual(self.desk.lines, ["Removed: rack (b7d0f6f0). Told: mac (b7d1aaaa)."])
        self.desk.run("cluster", "remove", "rack", "--with-admitted", "--yes", "--json")
        self.assertEqual(self.desk.json, {"removed": True, "nodes": [RACK, MAC], "told": [], "untold": []})

    def test_asked(self) -> None:
        """On a terminal it asks, and names those that the node has let in (CL-87, UI-104)."""
        self.answer("y\n")
        self.assertEqual(self.desk.run("cluster", "remove", "rack"), 0)
        question = "Remove rack (b7d0f6f0) from home? It let in mac (b7d1aaaa): they stay. [y/N] "
        self.assertEqual(self.desk.err.getvalue(), question)
        self.answer("\n")
        self.assertEqual(self.desk.run("cluster", "remove", "rack", "--with-admitted"), 1)
        self.assertIn("they go too. [y/N] ", self.desk.err.getvalue())
        self.assertIn("Nothing was done.", self.desk.err.getvalue())
        self.assertEqual(self.cluster.asked, [("remove", RACK, False)])

    def test_no_terminal(self) -> None:
        """Without a terminal it needs --yes, else exit 2 (UI-104)."""
        for words in (("cluster", "remove", "rack"), ("cluster", "leave"), ("identity", "new")):
            self.assertEqual(self.desk.run(*words), 2)
            self.assertIn("--yes", self.desk.err.getvalue())
        self.assertEqual(self.cluster.asked, [])

    def test_refused(self) -> None:
        """A refusal is exit 1 with its code."""
        self.cluster.fault = Refusal("is_self")
        self.assertEqual(self.desk.run("cluster", "remove", NODE, "--yes", "--json"), 1)
        self.assertEqual(self.desk.json["error"]["code"], "is_self")
        self.cluster.present = ALONE
        self.assertEqual(self.desk.run("cluster", "remove", "rack", "--yes", "--json"), 1)
        self.assertEqual(self.desk.json["error"]["code"], "not_clustered")


class LeaveTests(ClusterTestCase):
    def test_left(self) -> None:
        """It says who was told, and who will hear it later (CL-88)."""
        self.answer("yes\n")
        self.assertEqual(self.desk.run("cluster", "leave"), 0)
        self.assertIn("Leave home?", self.desk.err.getvalue())
        self.assertEqual(
            self.desk.lines,
            [
                "This node has left home. Told: rack (b7d0f6f0). "
                "Not reached, and told at the next contact: mac (b7d1aaaa)."
            ],
        )
        self.assertEqual(self.desk.timeouts, [15, 18])

    def test_in_none(self) -> None:
        """In no cluster there is nothing to ask and nothing to leave, exit 0."""
        self.cluster.present = ALONE
        self.assertEqual(self.desk.run("cluster", "leave", "--json"), 0)
        self.assertEqual(self.desk.json, {"left": False, "told": [], "untold": []})
        self.desk.run("cluster", "leave")
        self.assertIn("nothing to do", self.desk.out.getvalue())

    def test_store(self) -> None:
        """What could not be written has not happened: exit 1."""
        self.cluster.fault = sqlite3.OperationalError()
        self.assertEqual(self.desk.run("cluster", "leave", "--yes"), 1)
        self.assertIn("(store, e-", self.desk.err.getvalue())


class IdentityTests(ClusterTestCase):
    def test_show(self) -> None:
        """UUID and certificate; the noun alone shows them too."""
        for words in (("identity",), ("identity", "show")):
            self.assertEqual(self.desk.run(*words), 0)
            self.assertEqual([line.split()[0] for line in self.desk.lines], ["node", "certificate"])
            self.assertIn(NODE, self.desk.out.getvalue())

    def test_new(self) -> None:
        """In a cluster it is refused unless that is abandoned (CL-96)."""
        self.assertEqual(self.desk.run("identity", "new", "--yes"), 1)
        self.assertIn("(still_member, e-", self.desk.err.getvalue())
        self.answer("y\n")
        self.assertEqual(self.desk.run("identity", "new", "--abandon"), 0)
        self.assertIn(OLD, self.desk.out.getvalue())
        self.assertIn("next start", self.desk.out.getvalue())
        self.cluster.present = ALONE
        self.assertEqual(self.desk.run("identity", "new", "--yes", "--json"), 0)
        self.assertEqual(self.desk.json["node"], OLD)
