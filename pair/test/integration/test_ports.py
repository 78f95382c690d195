"""The usual ports with real processes: taken, stood in for, taken over, moved (EN-42 to EN-54, E02)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.trial.unittest import SynchronousTestCase

from pair.test.integration.node import ROOT, Stream, ask, wait_for
from pair.test.integration.usual_ports import UsualNode, enter_network

if TYPE_CHECKING:
    from http.client import HTTPResponse

TAKEOVER = 6.0
"""Seconds in which a port that frees is ours (Done-when 4 of the data plane; engines page, measures)."""

GEMMA = "gemma3:latest"
"""A model that only the engine has which pulled it."""

_LISTEN = """
import socket, sys
held = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("here", flush=True)
input()
"""


class UsualPortsTests(SynchronousTestCase):
    """A node in a network of its own."""

    def setUp(self) -> None:
        enter_network(self)

    def make_node(self, *settings: str, **environ: str) -> UsualNode:
        node = UsualNode(Path(self.mktemp()), *settings, environ=environ)
        self.addCleanup(node.destroy)
        return node

    def program(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        """A program that has said its first line."""
        process = subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for cleanup in (process.communicate, process.kill):
            self.addCleanup(cleanup)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def ollama(self, port: int) -> subprocess.Popen[str]:
        """A double of Ollama that takes its time."""
        serve = ("-m", "pair.test.doubles.ollama", "serve", "--rate", "25")
        return self.program(*serve, OLLAMA_HOST=f"127.0.0.1:{port}")

    def holder(self, port: int) -> subprocess.Popen[str]:
        """A program that listens, and is no engine."""
        return self.program("-c", _LISTEN, str(port))

    def end(self, process: subprocess.Popen[str]) -> float:
        """End it; when that was."""
        process.kill()
        process.wait()
        return time.monotonic()

    def endpoint(self, node: UsualNode) -> Any:
        """The Ollama facade, as ``pair-admin endpoints`` shows it."""
        return node.admin("endpoints")["endpoints"][0]

    def wait_until_bound(self, node: UsualNode, since: float) -> None:
        """Wait until it has the standard port; that must not be long after the port was free."""
        wait_for("the port", lambda: self.state(node) == "bound")
        self.assertLess(time.monotonic() - since, TAKEOVER)
        self.assertEqual(ask("http://127.0.0.1:11434", "/").body, b"Ollama is running")

    def state(self, node: UsualNode) -> str:
        """Of the Ollama facade."""
        return str(node.get("/endpoints")["endpoints"][0]["state"])

    def begin_story(self, url: str, model: str) -> tuple[Stream, HTTPResponse, bytes]:
        """A streamed answer of some seconds, of which the first line has come."""
        question = [{"role": "user", "content": "Say 150 words"}]
        stream = Stream(url, "/api/chat", {"model": model, "messages": question})
        answer = stream.answer()
        self.assertEqual(answer.status, 200)
        return stream, answer, answer.readline()

    def test_held_by_an_engine(self) -> None:
        """E02: an engine has 11434; it is shown with the way out; it stops, and the facade is there within 6 s.

        A request under way on the stand-in is not lost. Taken again by another
        program, it is shown again, by that program's name.
        """
        engine, other = self.ollama(11434), self.ollama(11500)
        ask("http://127.0.0.1:11500", "/api/pull", {"model": GEMMA, "stream": False})
        node = self.make_node("engines.other.kind=ollama", "engines.other.url=http://127.0.0.1:11500")
        node.start()
        wait_for("the engines", lambda: node.engine("ollama")["routable"] and node.engine("other")["routable"])

        endpoint = self.endpoint(node)
        self.assertEqual((endpoint["state"], endpoint["reason"], endpoint["port"]), ("bypassed", "engine", 11435))
        self.assertIn("once that stops or moves, PAIR takes it", endpoint["detail"])
        self.assertIn("PAIR listens on port 11435", endpoint["detail"])
        self.assertIn("proxy:port_bypassed:ollama", node.errors())
        self.assertIn(endpoint["detail"], node.output())

        stream, answer, first = self.begin_story(endpoint["url"], GEMMA)
        since = self.end(engine)
        self.wait_until_bound(node, since)
        self.assertNotIn("proxy:port_bypassed:ollama", node.errors())
        lines = [json.loads(each) for each in (first + answer.read()).splitlines()]
        stream.leave()
        self.assertEqual(([each["done"] for each in lines].count(True), lines[-1]["done"]), (1, True))
        self.assertGreaterEqual(len(lines), 150)
        self.assertIsNone(other.poll())

        wait_for("the engine's end", lambda: node.engine("ollama")["state"] != "running")
        node.admin("endpoints", "set", "ollama", "--off")
        program = self.holder(11434)
        endpoint = node.admin("endpoints", "set", "ollama", "--on")
        self.assertEqual((endpoint["state"], endpoint["reason"], endpoint["port"]), ("bypassed", "foreign", 11435))
        named = f"(pid {program.pid}, "
        wait_for("the name of the program", lambda: named in self.endpoint(node)["detail"])
        self.assertIn("proxy:port_bypassed:ollama", node.errors())
        self.wait_until_bound(node, self.end(program))
        node.stop()

    def test_moved(self) -> None:
        """PX-96, PX-97: a port that a person chose holds over a restart; a busy one is refused, its holder named."""
        self.ollama(11500)
        settings = ("engines.other.kind=ollama", "engines.other.url=http://127.0.0.1:11500")
        node = self.make_node(*settings)
        node.start()
        wait_for("the engine", lambda: node.engine("other")["routable"])
        stream, answer, first = self.begin_story("http://127.0.0.1:11434", "smollm2:135m")

        endpoint = node.admin("endpoints", "set", "ollama", "--port", "11700")
        self.assertEqual((endpoint["state"], endpoint["url"]), ("bound", "http://127.0.0.1:11700"))
        for port in (11434, 11700):
            for host in ("127.0.0.1", "[::1]"):
                self.assertEqual(ask(f"http://{host}:{port}", "/").body, b"Ollama is running")
        self.assertTrue(json.loads((first + answer.read()).splitlines()[-1])["done"])
        stream.leave()

        program = self.holder(11800)
        token = (node.state / "control.token").read_text().strip()
        fields = {"Authorization": f"Bearer {token}"}
        refused = ask(node.control, "/api/v1/endpoints/ollama", {"port": 11800}, fields, "PUT")
        self.assertEqual((refused.status, refused.value["error"]["code"]), (409, "port_occupied"))
        self.assertIn(f"pid {program.pid}", refused.value["error"]["details"]["holder"])

        node.stop()
        node.start()
        self.assertEqual(self.endpoint(node)["url"], "http://127.0.0.1:11700")
        self.assertEqual(node.admin("endpoints", "set", "ollama", "--default")["url"], "http://127.0.0.1:11434")
        node.stop()

    def test_alias(self) -> None:
        """EN-54: where OLLAMA_HOST says, and nobody answers, the facade does, on loopback; moves leave it there."""
        node = self.make_node(OLLAMA_HOST="localhost:11600")
        node.start()
        for host in ("127.0.0.1", "[::1]"):
            self.assertEqual(ask(f"http://{host}:11600", "/").body, b"Ollama is running")
        node.admin("endpoints", "set", "ollama", "--port", "11700")
        self.assertEqual(ask("http://127.0.0.1:11600", "/").body, b"Ollama is running")
        self.assertEqual(
            [each["state"] for each in node.get("/engines")["engines"] if each["id"] == "ollama"], ["absent"]
        )
        with socket.create_connection(("127.0.0.1", 11600)) as client:
            client.sendall(b"\x16\x03\x01\x00\x05hello")
            client.settimeout(5)
            while client.recv(100):
                pass
        node.stop()

    def test_alias_of_another(self) -> None:
        """Where another program answers, it is left alone and named; where an Ollama does, that is the engine."""
        program = self.holder(11600)
        node = self.make_node(OLLAMA_HOST="127.0.0.1:11600")
        node.start()
        wait_for("the entry", lambda: "proxy:alias_blocked:ollama" in node.errors())
        self.assertEqual(self.state(node), "bound")
        self.assertIsNone(program.poll())
        node.stop()
        self.end(program)

        self.ollama(11600)
        node.start()
        wait_for("the engine", lambda: node.engine("ollama")["routable"])
        self.assertEqual(node.engine("ollama")["address"], "127.0.0.1:11600")
        self.assertNotIn("proxy:alias_blocked:ollama", node.errors())
        node.stop()
