"""A web page of another origin gets nothing, in a real browser (PX-17 to PX-21, PX-75, UI-4, UI-5)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pair.test.doubles.lmstudio_shapes import OSS
from pair.test.integration.engines import MODEL, Engine
from pair.test.integration.hostile import Attempts, Browser, Rebinder, Site, attempts_at, page
from pair.test.integration.node import NodeTestCase, wait_for

if TYPE_CHECKING:
    from pair.test.integration.node import Node

LIMIT = 60.0
"""Seconds in which the browser has started and all pages have reported."""

MODELS = {"ollama": MODEL, "lmstudio": OSS.name, "control": ""}

POSTS = {
    "ollama": ("/api/chat", "/api/pull", "/hostile"),
    "lmstudio": ("/v1/chat/completions", "/api/v1/models/unload", "/hostile"),
    "control": ("/api/v1/login", "/api/v1/login/tickets"),
}
GETS = {
    "ollama": ("/api/tags", "/api/version", "/hostile"),
    "lmstudio": ("/v1/models", "/hostile"),
    "control": ("/metrics", "/healthz", "/api/v1/jobs"),
}
"""What is tried where. ``/hostile`` is no path of anybody's: a facade passes it on to its engine (PX-25)."""

TRIED = {(method, path) for paths in POSTS.values() for path in paths for method in ("POST", "DELETE")} | {
    ("GET", "/hostile"),
    ("GET", "/llm"),
}
"""As an engine would see it; nothing that PAIR asks of its own."""


class HostilePageTests(NodeTestCase):
    def setUp(self) -> None:
        """A node with an engine behind each facade, and a web with a page on it."""
        self.site = Site()
        self.addCleanup(self.site.close)
        self.engines = [Engine("ollama"), Engine("lmstudio")]
        for each in self.engines:
            self.addCleanup(each.kill)
        ollama, lmstudio = self.engines
        self.node = self.start_node(
            *ollama.settings("first"),
            *lmstudio.settings("second"),
            f'proxy.origins=["{self.site.url("friend.example")}"]',
            embedded=False,
        )
        wait_for("the engines", lambda: all(self.node.engine(each)["routable"] for each in ("first", "second")))
        self.servers = places(self.node)

    def attempts(self, *hosts: str) -> Attempts:
        """All that can be tried on each server, under each name of this machine."""
        made: Attempts = {}
        for name, url in self.servers.items():
            for host in hosts:
                made |= attempts_on(name, url, host)
        return made

    def open(self, host: str, attempts: Attempts, frames: tuple[str, ...] = ()) -> None:
        """Open the page that makes these attempts, at a host of the web; wait until all have reported."""
        self.site.pages["/"] = page("main", attempts, self.site.url("evil.example"), frames)
        browser = Browser(Path(self.mktemp()), self.site.url(host))
        self.addCleanup(browser.close)
        wait_for("the reports", lambda: len(self.site.reports) == 1 + len(frames), LIMIT)

    def reached(self) -> set[tuple[str, str]]:
        """What of all that was tried came to an engine."""
        return TRIED & {asked for each in self.engines for asked in each.asked()}

    def test_hostile(self) -> None:
        """Another origin, and one whose name comes to mean this machine: they read nothing, and no engine is asked."""
        rebinders = []
        for name, url in self.servers.items():
            document = page(name, attempts_on(name, url, "rebind.example"), self.site.url("evil.example"))
            rebinders.append(Rebinder(url, document))
            self.addCleanup(rebinders[-1].close)
        frames = tuple(f"{each.url}/page" for each in rebinders)
        self.open("evil.example", self.attempts("127.0.0.1", "localhost", "rebind.example"), frames)
        main = self.site.reports.pop("main")
        self.assertEqual({name: end for name, end in main.items() if end not in ("blocked", "opaque")}, {})
        for ends in self.site.reports.values():
            # Of its own origin a page sees all. What it sees is each server's refusal of a foreign Host.
            for name, end in ends.items():
                if end != "blocked":
                    self.assertIn("Host of this request is not this machine", end, name)
        self.assertEqual(self.reached(), set())

    def test_allowed(self) -> None:
        """The same page at an origin that the settings allow reads answers, and reaches the engines."""
        del self.servers["control"]
        self.open("friend.example", self.attempts("127.0.0.1"))
        ends = self.site.reports["main"]
        for name, url in self.servers.items():
            for path in (POSTS[name][0], GETS[name][0]):
                seen = [end[:4] for each, end in ends.items() if each.endswith(url + path)]
                self.assertIn("200 ", seen, (name, path))
        self.assertLess({("POST", "/api/chat"), ("POST", "/v1/chat/completions"), ("GET", "/hostile")}, self.reached())


def places(node: Node) -> dict[str, str]:
    """What can be attacked."""
    return {"ollama": node.facade("ollama"), "lmstudio": node.facade("lmstudio"), "control": node.control}


def attempts_on(name: str, url: str, host: str) -> Attempts:
    """All that can be tried on one server under one name."""
    chat = {
        "model": MODELS[name],
        "messages": [{"role": "user", "content": "hi"}],
        "stream": False,
        "max_tokens": 4,
    }
    return attempts_at(url.replace("127.0.0.1", host), POSTS[name], GETS[name], chat)
