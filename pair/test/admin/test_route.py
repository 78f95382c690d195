"""Tests of ``pair-admin route`` (UI-54, UI-56, RT-67)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from pair.proxy.outcomes import judge_status
from pair.routing.candidates import Candidate
from pair.test.admin.desk import Desk
from pair.test.control.samples import NODE


class RouteTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.desk = Desk(self)

    def test_explain(self) -> None:
        """Exit 0 with a candidate: each engine with its rank and load, or with what keeps it out."""
        self.assertEqual(self.desk.run("route", "explain", "smollm2:360m"), 0)
        title, first, second = [line.split(maxsplit=4) for line in self.desk.lines]
        self.assertEqual(title, ["RANK", "NODE", "ENGINE", "LOAD", "WHY"])
        self.assertEqual(first, ["1", "desk", "embedded", "1", "pending 0, pressure 1, reservations 0"])
        self.assertEqual(second, ["–", "desk", "ollama", "–", "it does not run (engine_stopped)"])

    def test_nobody(self) -> None:
        """Exit 1 with none, and why, in words; what was assumed is said."""
        self.assertEqual(self.desk.run("route", "explain", "nobody's"), 1)
        self.assertIn("it does not have the model (model_not_advertised)", self.desk.out.getvalue())
        self.assertEqual(
            self.desk.lines[-1], "It would be refused: no engine has a model of this name (model_unknown)."
        )
        assumed = "Assumed: {} Ask for others with --facade and --path.\n"
        self.assertEqual(self.desk.err.getvalue(), assumed.format("facade ollama and path /v1/chat/completions."))
        self.desk.run("route", "explain", "nobody's", "--facade", "lmstudio")
        self.assertEqual(self.desk.err.getvalue(), assumed.format("path /v1/chat/completions."))
        self.desk.run("route", "explain", "nobody's", "--facade", "lmstudio", "--path", "/v1/embeddings")
        self.assertEqual(self.desk.err.getvalue(), "")

    def test_what_is_asked(self) -> None:
        """Facade and path can be said; without a model it is a request that names none."""
        self.assertEqual(self.desk.run("route", "explain", "--facade", "lmstudio"), 0)
        self.assertEqual(self.desk.run("route", "explain", "smollm2", "--path", "/api/chat"), 1)
        self.assertEqual(self.desk.run("route", "explain", "smollm2", "--path", "/api/tags"), 1)
        self.assertIn("invalid_value", self.desk.err.getvalue())
        self.assertEqual(self.desk.run("route", "explain", "--facade", "openai"), 2)

    def test_json(self) -> None:
        """One JSON value, the API's own, with the same exit codes (UI-100, UI-101)."""
        for model, code in (("smollm2:360m", 0), ("nobody's", 1)):
            self.assertEqual(self.desk.run("route", "explain", model, "--json"), code)
            self.assertEqual(self.desk.json["wouldAnswer"], None if code == 0 else "model_unknown")
            self.assertEqual(self.desk.err.getvalue(), "")
        self.assertEqual(self.desk.run("route", "show", "--json"), 0)
        self.assertEqual(self.desk.json, self.desk.node.ask("GET", "/api/v1/routing").json)

    def test_unreachable(self) -> None:
        """Exit 3 when nobody answers."""
        self.desk.fault = ConnectionRefusedError()
        self.assertEqual(self.desk.run("route", "explain", "m"), 3)

    def test_show(self) -> None:
        """The order of each facade, and what is held."""
        self.assertEqual(self.desk.run("route", "show"), 0)
        self.assertEqual(self.desk.lines[0], "policy pressure")
        self.assertIn("Nothing is held.", self.desk.lines)
        self.assertEqual([line for line in self.desk.lines if line in ("ollama", "lmstudio")], ["lmstudio", "ollama"])

    def test_held(self) -> None:
        """A hold is told at the candidate and among what is held (RT-54)."""
        scheduling = self.desk.node.scheduling
        sent = scheduling.take("1", Candidate(NODE, "embedded", "embedded"))
        scheduling.holds.failed(sent, judge_status(503, "busy"), 8)
        scheduling.finished("1")
        self.assertEqual(self.desk.run("route", "show"), 0)
        self.assertTrue(any("held (busy) for 8.0 s" in line for line in self.desk.lines))
        self.assertEqual(self.desk.lines[-1].split(), ["desk", "embedded", "–", "busy", "1", "8.0", "s"])

    def test_alone(self) -> None:
        """The noun alone says which verbs there are."""
        self.assertEqual(self.desk.run("route"), 2)
        self.assertIn("auto, explain, policy, select, show", self.desk.err.getvalue())
