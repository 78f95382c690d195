"""Tests of pair.admin.main, against the real control API without a socket."""

from __future__ import annotations

import io
import os
import stat
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace
from twisted.internet.defer import fail
from twisted.trial.unittest import SynchronousTestCase

from pair import __version__
from pair.admin import main
from pair.admin.main import cli
from pair.choices import SettingLocked
from pair.control.routes import ROUTES
from pair.control.views import Listener
from pair.proxy.facades import PortOccupied
from pair.records.jobs import Usage
from pair.settings import Source
from pair.test.admin.desk import URL, Desk, Terminal
from pair.test.control.samples import ALONE, ENTRIES, INVENTORY, NODE, RACK
from pair.test.control.test_cluster import NodeWithout

READS = (
    ("status",),
    ("health",),
    ("health", "--ready"),
    ("endpoints",),
    ("endpoints", "list"),
    ("engine", "list"),
    ("model", "list"),
    ("node", "list"),
    ("node", "show"),
    ("job", "list"),
    ("error", "list"),
    ("version",),
)


STATES = (("embedded", "running"), ("ollama", "stopped"))


class DeskTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.desk = Desk(self)

    def admit(self, *, done: bool = False) -> str:
        job = self.desk.node.ledger.admit("lmstudio", "openai", "chat", "/v1/chat/completions", True, "smollm2", 100)
        job.attempt_began(NODE, "embedded", "pressure", "rank=1/1")
        if done:
            job.committed(200)
            job.completed(200, 2000, Usage(5, 7))
        return job.id


class TableTests(SynchronousTestCase):
    def test_every_operation(self) -> None:
        """Each operation's command is there (UI-30)."""
        context = click.Context(cli)
        for route in ROUTES:
            command: click.Command = cli
            for name in (route.cli or "").split():
                if name.startswith("--"):
                    self.assertIn(name, [option for parameter in command.params for option in parameter.opts])
                else:
                    assert isinstance(command, click.Group)
                    found = command.get_command(context, name)
                    assert found is not None, route.cli
                    command = found


class JSONTests(DeskTestCase):
    def test_every_read(self) -> None:
        """With --json, in front or behind, the output is one JSON value, the errors' stream empty (UI-101)."""
        self.admit()
        for words in READS:
            for arguments in ((*words, "--json"), ("--json", *words)):
                self.assertEqual(self.desk.run(*arguments), 0, arguments)
                self.assertIsInstance(self.desk.json, dict)
                self.assertEqual(self.desk.err.getvalue(), "")

    def test_body_as_it_came(self) -> None:
        """The value is the API's own."""
        self.desk.run("engine", "list", "--json")
        self.assertEqual(self.desk.json, self.desk.node.ask("GET", "/api/v1/engines").json)

    def test_refusal(self) -> None:
        """A refusal is the API's error object, exit 1 (UI-100, UI-101)."""
        self.assertEqual(self.desk.run("job", "show", "x.1", "--json"), 1)
        self.assertEqual(self.desk.json["error"]["code"], "no_such_job")

    def test_unreachable(self) -> None:
        """A service that is not there is an error object too, exit 3."""
        self.desk.fault = ConnectionRefusedError()
        for words in READS[:-1]:
            self.assertEqual(self.desk.run(*words, "--json"), 3, words)
            self.assertEqual(self.desk.json["error"]["code"], "unreachable")

    def test_usage(self) -> None:
        """Wrong usage is an error object too, exit 2, wherever the option stands (UI-100, UI-101)."""
        for words in (("fly",), ("job", "fly"), ("job", "list", "--limit", "0"), ("job", "show"), ("config",)):
            for arguments in ((*words, "--json"), ("--json", *words)):
                self.assertEqual(self.desk.run(*arguments), 2, arguments)
                error = self.desk.json["error"]
                self.assertEqual((error["code"], bool(error["message"])), ("usage", True))
                self.assertEqual((self.desk.err.getvalue(), self.desk.asked), ("", []))
        self.assertEqual(self.desk.run("endpoints", "set", "ollama", "--json"), 2)
        self.assertEqual(self.desk.json["error"]["message"], "Say what to set: --port, --default, --on or --off.")

    def test_on_a_terminal(self) -> None:
        """On a terminal it is laid out to be read."""
        self.desk.out = Terminal()
        self.desk.run("health", "--json")
        self.assertEqual(self.desk.lines, ["{", '  "uptimeMs": 5000,', '  "status": "ok"', "}"])


class ReachTests(DeskTestCase):
    def test_not_running(self) -> None:
        """Exit 3 says which file was looked for and how to start (UI-102)."""
        desk = Desk(self, running=False)
        for words in READS[:-1]:
            self.assertEqual(desk.run(*words), 3, words)
            self.assertIn(str(desk.state / "control.json"), desk.err.getvalue())
            self.assertIn("twistd -n pair", desk.err.getvalue())
            self.assertEqual(desk.out.getvalue(), "")

    def test_killed(self) -> None:
        """So it does when the file is there and the service is not."""
        self.desk.fault = ConnectionRefusedError()
        self.assertEqual(self.desk.run("status"), 3)
        self.assertIn(f"Nothing answers at {URL}", self.desk.err.getvalue())
        self.assertIn(str(self.desk.state / "control.json"), self.desk.err.getvalue())

    def test_frozen(self) -> None:
        """A service that does not answer in time is exit 3 as well; the time can be set (UI-102)."""
        self.desk.fault = TimeoutError()
        self.assertEqual(self.desk.run("status", "--timeout", "2.5"), 3)
        self.assertEqual(self.desk.timeouts, [2.5])
        self.assertIn("within 2.5 s", self.desk.err.getvalue())

    def test_unreadable_file(self) -> None:
        """A file that makes no sense is exit 3."""
        (self.desk.state / "control.json").write_text("{")
        self.assertEqual(self.desk.run("status"), 3)
        self.assertIn("cannot be read", self.desk.err.getvalue())

    def test_unreadable_by_this_user(self) -> None:
        """A file of another user is told as that, and who may read it."""

        def denied(*_: object, **__: object) -> None:
            raise PermissionError

        self.patch(Path, "read_bytes", denied)
        self.assertEqual(self.desk.run("status"), 3)
        self.assertIn("this user may not read", self.desk.err.getvalue())
        self.assertIn("Be the user that runs PAIR", self.desk.err.getvalue())

    def test_token_of_another_user(self) -> None:
        """So is the token of one."""
        known = Path.open

        def denied(path: Path, *arguments: Any, **named: Any) -> object:
            if path.name == "control.token":
                raise PermissionError
            return known(path, *arguments, **named)

        self.patch(Path, "open", denied)
        self.assertEqual(self.desk.run("status"), 1)
        self.assertIn(f"may not read {self.desk.state / 'control.token'}", self.desk.err.getvalue())

    def test_url(self) -> None:
        """Another address needs no file; the token's file can be named with it."""
        desk = Desk(self, running=False)
        elsewhere = desk.state / "other.token"
        (desk.state / "control.token").rename(elsewhere)
        arguments = ("--url", "http://localhost:9000/", "--token-file", str(elsewhere), "engine", "list")
        self.assertEqual(desk.run(*arguments), 0, desk.err.getvalue())
        arguments = ("--url", "localhost:9000", "--token-file", str(elsewhere), "engine", "list")
        self.assertEqual(desk.run(*arguments), 0, desk.err.getvalue())

    def test_state_directory(self) -> None:
        """The directory can be named; that beats the environment."""
        self.desk.environ = {"PAIR_STATE_DIR": "/nowhere"}
        self.assertEqual(self.desk.run("status", "--state-dir", str(self.desk.state)), 0)

    def test_told_again(self) -> None:
        """What is to be typed next names the same service (UI-102)."""
        state = self.desk.state.rename(self.desk.state.parent / "my state")
        self.desk.environ = {}
        self.desk.node.cluster.present = ALONE
        self.desk.run("cluster", "show", "--state-dir", str(state))
        self.assertIn(f"pair-admin invite ADDRESS --state-dir '{state}'", self.desk.err.getvalue())
        (state / "control.json").unlink()
        self.desk.run("status", "--state-dir", str(state))
        self.assertIn(f"twistd -n pair --state-dir '{state}'", self.desk.err.getvalue())

    def test_no_token(self) -> None:
        """Without a token exit 1 names its file; health needs none."""
        (self.desk.state / "control.token").unlink()
        self.assertEqual(self.desk.run("status"), 1)
        self.assertIn(f"there is no {self.desk.state / 'control.token'}", self.desk.err.getvalue())
        self.assertEqual(self.desk.run("health"), 0)

    def test_something_else_in_the_file(self) -> None:
        """A file that holds no token is told as that, and nothing of it is shown or sent (UI-106)."""
        other = self.desk.state / "other"
        for content in (b"", b"sekrit", b"pair_ct_a\nsekrit", "pair_ct_ä".encode(), b"pair_mt_abc", b"\0" * 10_000):
            other.write_bytes(content)
            self.assertEqual(self.desk.run("engine", "list", "--token-file", str(other)), 1)
            self.assertIn(f"There is no control token in {other}", self.desk.err.getvalue())
            self.assertNotIn("sekrit", self.desk.err.getvalue())
        self.assertEqual(self.desk.asked, [])

    def test_wrong_token(self) -> None:
        """A token that is not right is refused, and not shown (UI-106)."""
        (self.desk.state / "control.token").write_text("pair_ct_wrong")
        self.assertEqual(self.desk.run("status"), 1)
        self.assertIn("(unauthorized, e-", self.desk.err.getvalue())
        self.assertIn("--token-file", self.desk.err.getvalue())
        self.assertNotIn("wrong", self.desk.err.getvalue())

    def test_something_else(self) -> None:
        """What is no PAIR at the address is told apart."""

        def other(*_: object) -> tuple[int, bytes]:
            return 200, b"<html>"

        self.desk.fetch = other  # type: ignore[assignment,method-assign]
        self.assertEqual(self.desk.run("health"), 1)
        self.assertIn("not PAIR", self.desk.err.getvalue())


class GrammarTests(DeskTestCase):
    def test_noun_alone(self) -> None:
        """A noun alone lists, and its plural is the same noun."""
        for noun in ("node", "engine", "model", "job", "error"):
            for words in ((noun,), (f"{noun}s",), (f"{noun}s", "list")):
                self.desk.asked.clear()
                self.assertEqual(self.desk.run(*words), 0, words)
                self.assertEqual(self.desk.asked[0], ("GET", f"/api/v1/{noun}s"))
        self.assertEqual(self.desk.run("engine", "--json"), 0)
        self.assertIn("engines", self.desk.json)

    def test_usage(self) -> None:
        """What is no command is exit 2 (UI-100)."""
        for words in (
            ("fly",),
            ("job", "fly"),
            ("job", "list", "--limit", "0"),
            ("status", "--timeout", "nan"),
            ("job", "show"),
            ("config",),
            ("statuss",),
        ):
            self.assertEqual(self.desk.run(*words), 2, words)
            self.assertEqual((self.desk.out.getvalue(), self.desk.asked), ("", []))
            self.assertIn("Error:", self.desk.err.getvalue())

    def test_summaries(self) -> None:
        """The help has the first sentence of each command whole."""
        for words in ((), ("job",), ("endpoints",)):
            with redirect_stdout(io.StringIO()) as out:
                self.assertEqual(self.desk.run(*words, "--help"), 0)
            self.assertNotIn("...", out.getvalue().partition("Commands:")[2])
        with redirect_stdout(io.StringIO()) as out:
            self.desk.run("--help")
        whole = "Take back an invitation that this node made; without ID the only one that is open."
        self.assertIn(whole, " ".join(out.getvalue().split()))

    def test_interrupted(self) -> None:
        """Ctrl-C is exit 130 (UI-100)."""

        def interrupted(*_: object) -> tuple[int, bytes]:
            raise KeyboardInterrupt

        self.desk.fetch = interrupted  # type: ignore[assignment,method-assign]
        self.assertEqual(self.desk.run("status"), 130)

    def test_output_closed(self) -> None:
        """A reader that leaves ends the command quietly (UI-107)."""
        reader, writer = os.pipe()
        os.close(reader)
        self.desk.out = io.TextIOWrapper(os.fdopen(writer, "wb"), write_through=True)  # type: ignore[assignment]
        self.addCleanup(self.desk.out.close)
        self.desk.out.seek = self.desk.out.truncate = lambda *_: 0  # type: ignore[method-assign,assignment]
        for words in (("job", "list"), ("job", "list", "--json"), ("config", "example")):
            self.assertEqual(self.desk.run(*words), 0)
            self.assertEqual(self.desk.err.getvalue(), "")


class StatusTests(DeskTestCase):
    def test_at_a_glance(self) -> None:
        """Node, state, facades, engines, jobs under way and errors, on one screen."""
        id = self.admit()
        self.desk.node.errors.raise_entry("test:broken:thing", thing="lamp")
        self.assertEqual(self.desk.run("status"), 0)
        text = self.desk.out.getvalue()
        for shown in (
            f"desk  {NODE}  ready",
            "PAIR 0.1.0, up 5.0 s, pid 42",
            "http://127.0.0.1:1234",
            "Port 11434 is held.",
            "127.0.0.1:1235",
            "2 (1 loaded)",
            id,
            "The lamp is broken.",
        ):
            self.assertIn(shown, text)
        self.assertIn("Try it: curl http://127.0.0.1:1234/v1/chat/completions", self.desk.err.getvalue())

    def test_nothing_there(self) -> None:
        """Where there is nothing it says so."""
        self.desk.run("status")
        self.assertIn("Nothing is wrong.", self.desk.out.getvalue())
        self.assertIn("None.", self.desk.out.getvalue())

    def test_among_others(self) -> None:
        """It says in which cluster the node is, and where others reach it."""
        self.desk.node.listeners = (Listener("cluster", "0.0.0.0:14400", "bound"),)
        self.desk.run("status")
        self.assertEqual(self.desk.lines[2], "In the cluster home of 3; open for other nodes at 0.0.0.0:14400")
        self.desk.node.listeners = ()
        self.desk.node.cluster.present = ALONE
        self.desk.run("status")
        self.assertEqual(self.desk.lines[2], "In no cluster; no port open for other nodes")

    def test_no_membership(self) -> None:
        """While membership is not up all the rest is shown."""
        desk = Desk(self)
        desk.node = NodeWithout()
        self.assertEqual(desk.run("status", "--json"), 0)
        self.assertEqual(desk.json["cluster"], None)
        self.assertEqual(desk.run("status"), 0)

    def test_not_ready(self) -> None:
        """A node that does not serve says why."""
        self.desk.node.reasons = ["store_read_only"]
        self.assertEqual(self.desk.run("status"), 0)
        self.assertIn("not ready: store_read_only", self.desk.out.getvalue())

    def test_ended_jobs(self) -> None:
        """Ended jobs are not under way."""
        id = self.admit(done=True)
        self.desk.run("status")
        self.assertNotIn(id, self.desk.out.getvalue())

    def test_quiet(self) -> None:
        """Hints can be left out."""
        self.desk.run("status", "--quiet")
        self.assertEqual(self.desk.err.getvalue(), "")

    def test_plain(self) -> None:
        """When it is no terminal there are no colours and no cut lines."""
        self.desk.node.errors.raise_entry("test:broken:thing", thing="lamp " * 40)
        self.desk.run("status")
        self.assertNotIn("\x1b", self.desk.out.getvalue())
        self.assertIn(("lamp " * 40).strip(), self.desk.out.getvalue())

    def test_narrow(self) -> None:
        """On a narrow terminal no id is cut: whoever needs it can take it from there."""
        self.desk.out = Terminal()
        self.patch(os, "environ", {**os.environ, "COLUMNS": "40", "TERM": "dumb"})
        for words in (("status",), ("job", "list")):
            id = self.admit()
            self.desk.run(*words)
            self.assertIn(id, self.desk.out.getvalue())

    def test_colours(self) -> None:
        """On a terminal there are, unless it is not wanted."""
        self.desk.out = Terminal()
        self.desk.environ |= {"TERM": "xterm-256color"}
        self.patch(os, "environ", {**os.environ, "TERM": "xterm-256color"})
        self.desk.run("status")
        self.assertIn("\x1b[32m", self.desk.out.getvalue())
        self.desk.run("status", "--no-color")
        self.assertNotIn("\x1b[32m", self.desk.out.getvalue())
        self.desk.environ |= {"NO_COLOR": "1"}
        self.desk.run("status")
        self.assertNotIn("\x1b[32m", self.desk.out.getvalue())


class VerbTests(DeskTestCase):
    def test_health(self) -> None:
        """Alive is 0, not ready is 1 (OP-44)."""
        self.desk.node.reasons = ["stopping"]
        self.assertEqual((self.desk.run("health"), self.desk.lines), (0, ["ok"]))
        self.assertEqual((self.desk.run("health", "--ready"), self.desk.lines), (1, ["not ready: stopping"]))
        self.assertEqual(self.desk.run("health", "--ready", "--json"), 1)
        self.assertEqual(self.desk.json, {"ready": False, "reasons": ["stopping"]})
        self.desk.node.reasons = []
        self.assertEqual((self.desk.run("health", "--ready"), self.desk.lines), (0, ["ready"]))

    def test_endpoints_for_a_client(self) -> None:
        """The commands for a client can be had bare, to be run as they are (UI-75)."""
        self.assertEqual(self.desk.run("endpoints", "--client", "curl"), 0)
        (line,) = self.desk.lines
        self.assertTrue(line.startswith("curl http://127.0.0.1:1234/"))
        self.assertEqual(self.desk.run("endpoints", "--client", "fax"), 1)

    def test_endpoint_is_set(self) -> None:
        """A port is set or given back, a facade switched, and what came of it is shown (UI-59)."""
        set_port, reset = ("PUT", "/api/v1/endpoints/ollama"), ("DELETE", "/api/v1/endpoints/ollama/port")
        for options, requests, changes in (
            (("--port", "11500"), [set_port], [("ollama", 11500, None)]),
            (("--off",), [set_port], [("ollama", None, False)]),
            (("--port", "11500", "--on"), [set_port], [("ollama", 11500, True)]),
            (("--default",), [reset], [("ollama", "default")]),
            (("--default", "--on"), [reset, set_port], [("ollama", "default"), ("ollama", None, True)]),
        ):
            self.assertEqual(self.desk.run("endpoints", "set", "ollama", *options), 0, self.desk.err.getvalue())
            self.assertEqual((self.desk.asked, self.desk.node.facades.asked), (requests, changes))
            self.assertEqual([line.split()[0] for line in self.desk.lines], ["FACADE", "ollama"])
            self.desk.asked.clear()
            self.desk.node.facades.asked.clear()
        self.desk.run("endpoints", "set", "ollama", "--on", "--json")
        self.assertEqual(self.desk.json["facade"], "ollama")

    def test_endpoint_usage(self) -> None:
        """What makes no sense is wrong usage, exit 2, and asks nobody."""
        for arguments in (
            ("ollama",),
            ("ollama", "--port", "11500", "--default"),
            ("ollama", "--port", "0"),
            ("vllm", "--on"),
        ):
            self.assertEqual(self.desk.run("endpoints", "set", *arguments), 2, arguments)
        self.assertEqual(self.desk.asked, [])

    def test_endpoint_refused(self) -> None:
        """A refusal says who is in the way (OP-7)."""
        locked = SettingLocked("proxy.ports.ollama", Source("environment", "PAIR_SET__PROXY__PORTS__OLLAMA"))
        for reason, words in (
            (locked, "source PAIR_SET__PROXY__PORTS__OLLAMA"),
            (PortOccupied(11500, "nc (pid 9)"), "holder nc (pid 9)"),
        ):
            self.desk.node.facades.outcome = lambda reason=reason: fail(reason)  # type: ignore[misc]
            self.assertEqual(self.desk.run("endpoints", "set", "ollama", "--port", "11500"), 1)
            self.assertIn(words, self.desk.err.getvalue())

    def test_models(self) -> None:
        """Each copy has a line."""
        self.desk.run("model", "list")
        rows = [line.split()[:2] for line in self.desk.lines if line.startswith("smollm2:360m")]
        self.assertEqual(rows, [["smollm2:360m", each] for each in ("embedded", "ollama")])

    def test_of_which_node(self) -> None:
        """Where other nodes' are listed too, each has its node by name; what is of one that is gone is marked."""
        node = self.desk.node
        self.desk.run("engines")
        self.assertNotIn("NODE", self.desk.lines[0])
        node.peers = (replace(INVENTORY, node=RACK),)
        self.desk.run("engines")
        self.assertEqual(
            [line.split()[:3] for line in self.desk.lines[1:]],
            [[id, name, state] for name in ("desk", "rack") for id, state in STATES],
        )
        gone = replace(ENTRIES[1], presence="offline")
        node.nodes.entries = (ENTRIES[0], gone, *ENTRIES[2:])
        self.desk.run("engines")
        self.assertEqual(self.desk.lines[3].split()[:4], ["embedded", "rack", "running", "(stale)"])
        self.desk.run("models")
        self.assertIn(
            "smollm2:360m rack embedded loaded (stale)", [" ".join(line.split()[:5]) for line in self.desk.lines]
        )
        node.nodes.entries = (ENTRIES[0], gone, replace(ENTRIES[2], name="rack"))
        self.desk.run("engines")
        self.assertEqual(self.desk.lines[3].split()[1], "b7d0f6f0")

    def test_of_one_node(self) -> None:
        """Those of one node can be had alone, as tables and as JSON; the glance has this node's."""
        self.desk.node.peers = (replace(INVENTORY, node=RACK),)
        for noun in ("engine", "model"):
            for text, name in (("rack", "rack"), ("self", None)):
                self.assertEqual(self.desk.run(noun, "list", "--node", text), 0)
                self.assertEqual([line.split()[1] for line in self.desk.lines].count("desk"), 0)
                self.assertEqual("NODE" in self.desk.lines[0], name is not None)
        self.desk.run("model", "list", "--node", "rack", "--json")
        self.assertEqual({copy["node"] for row in self.desk.json["models"] for copy in row["copies"]}, {RACK})
        self.desk.run("engine", "list", "--node", "b7d0", "--json")
        self.assertEqual({each["node"] for each in self.desk.json["engines"]}, {RACK})
        self.assertEqual(self.desk.run("engine", "list", "--node", "lamp"), 1)
        self.desk.run("status")
        self.assertNotIn("rack", self.desk.out.getvalue())

    def test_version(self) -> None:
        """The version is told with or without a service."""
        self.desk.run("version")
        self.assertEqual(self.desk.lines, [f"pair-admin {__version__}, service 0.1.0"])
        desk = Desk(self, running=False)
        self.assertEqual((desk.run("version", "--json"), desk.json), (0, {"version": __version__, "service": None}))


class ConfigTests(DeskTestCase):
    def file(self, text: str) -> str:
        path = Path(self.mktemp())
        path.write_text(text)
        path.chmod(0o600)
        return str(path)

    def test_valid(self) -> None:
        """A good file is valid, and no service is needed (OP-8)."""
        path = self.file("[proxy.ports]\nollama = 11500\n")
        self.assertEqual(self.desk.run("config", "check", path), 0)
        self.assertEqual((self.desk.lines, self.desk.asked), ([f"{path}: valid"], []))

    def test_not_valid(self) -> None:
        """All problems are told at once, exit 1 (OP-9)."""
        path = self.file('[proxy]\nprots = 1\nmax_active = "many"\n')
        self.assertEqual(self.desk.run("config", "check", path), 1)
        self.assertEqual(len(self.desk.lines), 3)
        self.desk.run("config", "check", path, "--json")
        verdict = self.desk.json
        self.assertEqual((verdict["valid"], verdict["file"], len(verdict["problems"])), (False, path, 2))

    def test_environment(self) -> None:
        """The environment counts: it names the file, and has settings of its own."""
        self.desk.environ |= {"PAIR_CONFIG": self.file(""), "PAIR_SET__PROXY__MAX_ACTIVE": "1"}
        self.assertEqual(self.desk.run("config", "check"), 1)
        self.assertIn("PAIR_SET__PROXY__MAX_ACTIVE", self.desk.out.getvalue())

    def test_sources(self) -> None:
        """What was read is said, whether there is a file or not."""
        self.patch(main, "config_file", lambda named, environ: None)
        self.assertEqual((self.desk.run("config", "check"), self.desk.lines), (0, ["no settings file: valid"]))
        self.desk.environ |= {"PAIR_LOG_LEVEL": "debug", "PAIR_SET__PROXY__MAX_ACTIVE": "50"}
        read = "PAIR_LOG_LEVEL, PAIR_SET__PROXY__MAX_ACTIVE of the environment"
        self.assertEqual(self.desk.run("config", "check"), 0)
        self.assertEqual(self.desk.lines, [f"no settings file, and {read}: valid"])
        path = self.file("")
        self.assertEqual(self.desk.run("config", "check", path), 0)
        self.assertEqual(self.desk.lines, [f"{path}, and {read}: valid"])
        self.desk.run("config", "check", "--json")
        self.assertEqual(self.desk.json["environment"], ["PAIR_LOG_LEVEL", "PAIR_SET__PROXY__MAX_ACTIVE"])

    def test_missing(self) -> None:
        """A file that is not there is not valid (OP-4)."""
        self.assertEqual(self.desk.run("config", "check", "/nowhere/pair.toml"), 1)

    def test_example(self) -> None:
        """The example is a valid settings file (OP-8)."""
        self.assertEqual(self.desk.run("config", "example"), 0)
        self.assertEqual(self.desk.run("config", "check", self.file(self.desk.out.getvalue())), 0)


class TokenTests(DeskTestCase):
    def test_rotated(self) -> None:
        """The token is another one, for the owner alone, and is not shown (UI-15, UI-106)."""
        path = self.desk.state / "control.token"
        before = path.read_text()
        self.assertEqual(self.desk.run("token", "rotate"), 0)
        after = path.read_text()
        self.assertRegex(after, r"^pair_ct_[A-Za-z0-9_-]{43}\n$")
        self.assertNotEqual(after, before)
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        self.assertNotIn(after.strip(), self.desk.out.getvalue())
        self.assertEqual(sorted(each.name for each in self.desk.state.iterdir()), ["control.json", "control.token"])

    def test_no_directory(self) -> None:
        """Without a state directory there is nothing to rotate."""
        self.assertEqual(self.desk.run("token", "rotate", "--state-dir", "/nowhere"), 1)
