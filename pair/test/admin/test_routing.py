"""Tests of what a person decides of routing at the command line (UI-36, UI-54, UI-55)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.trial.unittest import SynchronousTestCase

from pair.records.telemetry import CompactTelemetry
from pair.test.admin.desk import Desk
from pair.test.control.samples import NODE, RACK
from pair.test.routing.facts import engine, node

if TYPE_CHECKING:
    from collections.abc import Mapping


class DeskCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.desk = Desk(self)
        self.desk.node.scheduling.set_peer(node(RACK, engine("llamacpp", loaded=("m",))))

    def refused(self, *words: str) -> str:
        """The code with which a command ends that is exit 1."""
        self.assertEqual(self.desk.run(*words, "--json"), 1)
        return str(self.desk.json["error"]["code"])

    def selected(self) -> Mapping[str, str | None]:
        scheduling = self.desk.node.scheduling
        return {each: scheduling.selected(each) for each in ("ollama", "lmstudio")}


class SelectTests(DeskCase):
    def test_selected(self) -> None:
        """A node is named as everywhere; on all facades unless one is given; how to undo it is told."""
        for text in (RACK, RACK[:5], "rack", "self"):
            chosen = NODE if text == "self" else RACK
            self.assertEqual(self.desk.run("route", "select", text), 0, text)
            self.assertEqual(self.selected(), {"ollama": chosen, "lmstudio": chosen})
        self.assertIn("pair-admin route auto", self.desk.err.getvalue())
        self.assertEqual(self.desk.run("route", "auto", "--facade", "lmstudio"), 0)
        self.assertEqual(self.selected(), {"ollama": NODE, "lmstudio": None})
        self.assertEqual(self.desk.run("route", "select", "rack", "--facade", "lmstudio", "--json"), 0)
        self.assertEqual([each["selection"] for each in self.desk.json["facades"]], [RACK, NODE])
        self.assertEqual(self.desk.run("route", "auto"), 0)
        self.assertEqual(self.selected(), {"ollama": None, "lmstudio": None})

    def test_shown(self) -> None:
        """The order says which node is selected, and explain what that did to the request."""
        self.desk.run("route", "select", "rack")
        self.assertEqual(self.desk.run("route", "show"), 0)
        self.assertIn("ollama: rack is selected", self.desk.lines)
        self.desk.run("route", "explain", "m")
        self.assertIn("comes first", self.desk.lines[-1])
        self.desk.run("route", "explain", "smollm2:360m")
        self.assertIn("cannot serve this request", self.desk.lines[-1])
        self.desk.node.scheduling.drop_peer(RACK)
        self.desk.run("route", "show")
        self.assertIn("ollama: rack is selected, but cannot serve", self.desk.lines)

    def test_refused(self) -> None:
        """One that nobody knows, and one that is no member."""
        self.assertEqual(self.refused("route", "select", "lamp"), "no_such_node")
        for text in ("mac", "shed"):
            self.assertEqual(self.refused("route", "select", text), "invalid_value")
        self.assertEqual(self.desk.run("route", "select", "rack", "--facade", "vllm"), 2)

    def test_age(self) -> None:
        """The order says how old the sample behind the pressure is."""
        self.desk.node.scheduling.observe(CompactTelemetry(NODE, 90.0, True, 500, 0, "self"))
        self.desk.run("route", "show")
        self.assertIn("GPU seen 500 ms ago", self.desk.out.getvalue())


class PolicyTests(DeskCase):
    def test_chosen(self) -> None:
        """Without a name they are listed; with one it is chosen."""
        self.assertEqual(self.desk.run("route", "policy"), 0)
        self.assertEqual([line.split() for line in self.desk.lines[1:]], [["pressure", "in", "force"], ["backwards"]])
        self.assertEqual(self.desk.run("route", "policy", "backwards"), 0)
        self.assertEqual((self.desk.lines[0], self.desk.node.scheduling.policy), ("policy backwards", "backwards"))
        self.assertEqual(self.desk.run("route", "policy", "--json"), 0)
        self.assertEqual(self.desk.json["policy"], "backwards")

    def test_refused(self) -> None:
        """One that is not there, and one that a setting fixes."""
        self.assertEqual(self.refused("route", "policy", "lottery"), "invalid_value")
        self.desk.run("route", "policy", "lottery")
        self.assertIn("pressure, backwards", self.desk.err.getvalue())
        self.desk.node.steer("routing.policy=pressure")
        self.assertEqual(self.refused("route", "policy", "backwards"), "setting_locked")


class DrainTests(DeskCase):
    def test_drained(self) -> None:
        """This node, without being named; the reason is shown where the node is."""
        self.assertEqual(self.desk.run("node", "drain", "--reason", "new GPU"), 0)
        self.assertIn("drained: new GPU", self.desk.out.getvalue())
        self.assertIn("pair-admin node undrain", self.desk.err.getvalue())
        self.desk.run("node", "show")
        self.assertIn("yes: new GPU", self.desk.out.getvalue())
        self.assertEqual(self.desk.run("node", "undrain", "self", "--json"), 0)
        self.assertEqual((self.desk.json["drained"], self.desk.json["drainReason"]), (False, None))

    def test_others(self) -> None:
        """A member has to be drained there, which is said; a stranger not at all (UI-28)."""
        for verb in ("drain", "undrain"):
            self.assertEqual(self.refused("node", verb, "rack"), "not_origin")
            self.assertEqual(self.refused("node", verb, "mac"), "forbidden")
        self.desk.run("node", "drain", "rack")
        self.assertIn("Do it there", self.desk.err.getvalue())
