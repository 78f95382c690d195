"""Tests of ``pair-admin node``."""

from __future__ import annotations

import os
import re

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from pair.discovery.addresses import ManualError, NoZoneError
from pair.records.nodes import NodeWarning
from pair.test.admin.desk import Desk, Terminal
from pair.test.control.samples import ENTRIES, FIXED, HOME, MAC, NODE, RACK, SHED


class NodeTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.desk = Desk(self)
        self.nodes = self.desk.node.nodes

    def refused(self, *words: str) -> str:
        """The code with which a command ends that is exit 1."""
        self.assertEqual(self.desk.run("node", *words, "--json"), 1)
        return str(self.desk.json["error"]["code"])


class ShowTests(NodeTestCase):
    def test_list(self) -> None:
        """A line for each node: what it is to this one, whether it is there, how busy, what is wrong."""
        self.assertEqual(self.desk.run("nodes"), 0)
        me, rack, mac, shed = (" ".join(line.split()) for line in self.desk.lines[1:])
        self.assertEqual(me, "3f0c9a52 desk this node online – 192.168.1.10 – 1 of 2 0")
        self.assertTrue(
            rack.startswith("b7d0f6f0 rack member online now 192.168.1.20 62 % 1 of 2 2 drained; It can dial")
        )
        self.assertEqual(mac, "b7d1aaaa mac stranger offline 1 min 0 s ago 192.168.1.30 – – 0")
        self.assertTrue(
            shed.startswith("– shed stranger offline – shed:14318 – – 0 shed:14318: it does not answer in time")
        )

    def test_show(self) -> None:
        """One node with its hardware, engines, addresses and warnings; this one if none is named."""
        self.assertEqual(self.desk.run("node", "show", "rack"), 0)
        text = self.desk.out.getvalue()
        for shown in (
            RACK,
            "fd00::20",
            "node_info 14318, cluster 14321",
            f"{HOME.id} (that of this node)",
            "linux 6.8.0 x86_64",
            "12 % busy",
            "16.0 GiB of 64.0 GiB",
        ):
            self.assertIn(shown, text)
        for shown in (
            "RTX",
            "62 %",
            "8.0 GiB",
            "embedded",
            "2 (1 loaded)",
            "rack.lan",
            "it is in the settings",
            "dial",
        ):
            self.assertIn(shown, text)
        self.assertEqual(self.desk.run("node", "show", "--json"), 0)
        self.assertEqual(self.desk.json["uuid"], NODE)
        self.assertEqual(self.desk.run("node", "show", "mac"), 0)
        self.assertIn("It does not tell.", self.desk.out.getvalue())
        told = dict(line.split("  ", 1) for line in self.desk.lines if "  " in line)
        for fact in ("ports", "cluster", "system", "processor", "memory", "figures from"):
            self.assertEqual(told[fact].strip(), "–", fact)

    def test_cluster(self) -> None:
        """In which cluster a member is is known before it has said so."""
        for relation, uuid, state, shown in (
            ("member", None, "unknown", "that of this node"),
            ("stranger", None, "none", "in none"),
            ("stranger", None, "unknown", "–"),
            ("member", HOME.id, "other", f"{HOME.id} (not that of this node)"),
        ):
            entry = replace(ENTRIES[1], relation=relation, cluster_uuid=uuid, cluster_state=state)
            self.nodes.entries = (ENTRIES[0], entry)
            self.desk.run("node", "show", "rack")
            self.assertIn(["cluster", shown], [line.split(maxsplit=1) for line in self.desk.lines if line])

    def test_gone(self) -> None:
        """What an offline member told last is marked, and how busy it was is not how busy it is."""
        self.nodes.entries = (ENTRIES[0], replace(ENTRIES[1], presence="offline"), *ENTRIES[2:])
        self.desk.run("node", "list")
        self.assertIn(" – 1 of 2 (stale) ", " ".join(self.desk.lines[2].split()))

    def test_whole(self) -> None:
        """Whole UUIDs are there for whoever wants them."""
        self.desk.run("node", "list", "--long")
        self.assertEqual([line.split()[0] for line in self.desk.lines[1:]], [NODE, RACK, MAC, "–"])

    def test_narrow(self) -> None:
        """On a narrow terminal figures give way, and no line is broken."""
        self.desk.out = Terminal()
        self.nodes.entries = (ENTRIES[0], replace(ENTRIES[1], warnings=()), ENTRIES[2])
        self.patch(os, "environ", {**os.environ, "COLUMNS": "80"})
        self.desk.run("node", "list")
        lines = re.sub(r"\x1b.*?m", "", self.desk.out.getvalue()).splitlines()
        self.assertEqual(len(lines), 4)
        self.assertTrue(all(len(line) <= 80 for line in lines), lines)
        self.assertNotIn("GPU", lines[0])
        self.assertIn("192.168.1.30", lines[3])

    def test_names(self) -> None:
        """A node is named by its UUID, how that begins, its name, self, or the key of its entry (UI-100)."""
        for text, key in (
            (RACK.upper(), RACK),
            ("b7d0", RACK),
            ("rack", RACK),
            ("self", NODE),
            ("manual:shed:14318", "manual:shed:14318"),
            ("shed", "manual:shed:14318"),
            ("shed:14318", "manual:shed:14318"),
            ("rack.lan", RACK),
        ):
            self.assertEqual(self.desk.run("node", "show", text, "--json"), 0, text)
            self.assertEqual(self.desk.json["key"], key)
        for text, code in (("lamp", "no_such_node"), ("b7d", "ambiguous"), (f"{RACK[:-1]}9", "no_such_node")):
            self.assertEqual(self.refused("show", text), code)
        self.desk.run("node", "show", "b7d")
        self.assertIn("b7d0f6f0 (rack), b7d1aaaa (mac)", self.desk.err.getvalue())

    def test_same_name(self) -> None:
        """Two of one name are told apart by their UUIDs."""
        self.nodes.entries = (*ENTRIES[:2], replace(ENTRIES[2], name="rack"))
        self.assertEqual(self.refused("show", "rack"), "ambiguous")
        self.assertEqual(self.desk.run("node", "show", "b7d1"), 0)

    def test_hostile_names(self) -> None:
        """What other nodes say plays no tricks with the terminal (UI-92)."""
        hostile = "[red]a\x1b[2Jb\u202ec\nd"
        warning = NodeWarning(hostile, hostile)
        self.nodes.entries = (ENTRIES[0], replace(ENTRIES[1], name=hostile, ip=hostile, warnings=(warning,)))
        for words in (("list",), ("show", "b7d0")):
            self.desk.run("node", *words)
            self.assertIn("[red]a[2Jbcd", self.desk.out.getvalue())
            self.assertNotIn("\x1b", self.desk.out.getvalue())


class AddressTests(NodeTestCase):
    def test_added(self) -> None:
        """An address is added, and what to do next is told; adding pairs with nobody (UI-35)."""
        self.assertEqual(self.desk.run("node", "add", "attic"), 0)
        self.assertEqual(self.nodes.asked, [("add", "attic")])
        self.assertEqual(self.desk.lines[1].split(), ["address", "attic"])
        self.assertIn("To pair: pair-admin invite ADDRESS", self.desk.err.getvalue())

    def test_not_added(self) -> None:
        """Why not is told (DS-71)."""
        self.nodes.fault = ManualError("bad_port")
        self.assertEqual(self.refused("add", "attic:0"), "invalid_value")
        self.desk.run("node", "add", "attic:0")
        self.assertIn("from 1 to 65535", self.desk.err.getvalue())

    def test_removed(self) -> None:
        """It is named by its address, with or without port, its id, or the node that was found there."""
        for text in ("shed", "shed:14318", SHED.id, "manual:shed:14318"):
            self.nodes.given = [SHED, FIXED]
            self.assertEqual(self.desk.run("node", "remove", text), 0, text)
            self.assertEqual((self.desk.lines, self.nodes.asked.pop()), (["Removed: shed:14318"], ("remove", SHED.id)))
        found = replace(SHED, id="d4", address="fd00::9", uuid=MAC)
        self.nodes.given = [found]
        self.assertEqual(self.desk.run("node", "remove", "mac"), 0)
        self.assertEqual(self.desk.lines, ["Removed: [fd00::9]:14318"])

    def test_not_removed(self) -> None:
        """Not what was never added, what the settings have, or what may be one of several."""
        self.assertEqual(self.refused("remove", "mac"), "no_such_address")
        self.assertEqual(self.refused("remove", "lamp"), "no_such_node")
        self.assertEqual(self.refused("remove", "rack"), "setting_locked")
        self.nodes.given = [replace(SHED, id=id, port=port, uuid=MAC) for id, port in (("d4", 1), ("d5", 2))]
        for text in ("shed", "mac"):
            self.assertEqual(self.refused("remove", text), "ambiguous")

    def test_no_zone(self) -> None:
        """A link-local address needs its interface, and it is said so (DS-70)."""
        self.nodes.fault = NoZoneError()
        self.assertEqual(self.refused("add", "fe80::1"), "invalid_value")
        self.desk.run("node", "add", "fe80::1")
        self.assertIn("say by which interface, as in fe80::20%eth0", self.desk.err.getvalue())
        self.assertIn("reason bad_address", self.desk.err.getvalue())

    def test_probed(self) -> None:
        """A node is asked now; exit 1 if it does not answer, though it may be heard (UI-35)."""
        self.assertEqual(self.desk.run("node", "probe", "rack"), 0)
        self.assertEqual(self.nodes.asked, [("probe", RACK)])
        self.assertNotIn("Nobody", self.desk.out.getvalue())
        self.nodes.answering, self.nodes.entries = set(), ENTRIES
        self.assertEqual(self.desk.run("node", "probe", "rack"), 1)
        self.assertEqual(
            self.desk.lines[-1], "Nobody answered for it at 192.168.1.20, fd00::20. It was heard last: now."
        )
        self.nodes.entries = (*ENTRIES[:2], replace(ENTRIES[2], presence="online", ip=None, evidence="mdns"))
        self.assertEqual(self.desk.run("node", "probe", "mac"), 1)
        self.assertEqual(self.desk.lines[-1], "It was not asked: no address of it is known here.")
        self.nodes.entries = ENTRIES
        self.assertEqual(self.desk.run("node", "probe", "mac"), 1)
        self.assertEqual(self.desk.run("node", "probe", "mac", "--json"), 1)
        self.assertEqual(self.desk.json["presence"], "offline")
        self.assertEqual(self.desk.timeouts[-1], 25)
