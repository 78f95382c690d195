"""Nothing that people say to one node comes to another by what the two tell each other (JB-38, OP-34).

What is searched are the octets of each feed, as a member reads them while
requests come and go, and all that the member shows, logs and stores of them.
"""

from __future__ import annotations

from contextlib import closing
from http.client import HTTPException
from threading import Thread
from typing import TYPE_CHECKING

from pair.surfaces.feeds import ERRORS, MODELS, STREAM, WORKLOADS
from pair.test.integration.cluster import ClusterTestCase, connection_as, start
from pair.test.integration.node import Answer, wait_for
from pair.test.integration.scripted import ScriptedEngine
from pair.test.integration.test_canary import CanaryTestCase, found, told

if TYPE_CHECKING:
    from pair.test.integration.cluster import ClusterNode

FEEDS = {"workloads": WORKLOADS, "errors": ERRORS, "inventory": MODELS}
"""By the surfaces where they are."""


class Listener(Thread):
    """Follows a feed with the key of a member, and keeps all of it.

    Attributes:
        heard: its octets.
    """

    def __init__(self, member: ClusterNode, port: int, path: str) -> None:
        super().__init__(daemon=True)
        self.heard = b""
        self._connection = connection_as(member, port)
        self._connection.request("GET", path + STREAM)
        self._answer = self._connection.getresponse()
        self.start()

    def run(self) -> None:
        """See :class:`threading.Thread`."""
        try:
            while data := self._answer.read1(65536):
                self.heard += data
        except (OSError, HTTPException, ValueError):
            return  # It was closed, by either end.


class FeedCanaryTests(CanaryTestCase, ClusterTestCase):
    def test_feeds(self) -> None:
        """Success, failure, cancellation and nonsense on one node, and its member's eyes on all of it."""
        engine = ScriptedEngine("", self.mark("wrong-credential"), self.scripts())
        self.addCleanup(engine.close)
        node = self.make_peer(
            "log.level=debug",
            "proxy.explain=true",
            "proxy.start_deadline=1",
            *("engines.first.kind=openai-compatible", f"engines.first.url={engine.url}"),
        )
        # Two for each feed of the node: the follower of the member, and the listener with the key of the other one.
        member, other = self.make_peer("log.level=debug"), self.make_peer()
        start(node, member, other)
        self.pair(node, member)
        self.pair(node, other)
        self.wait_until_agreed(node, member, other)
        other.stop()
        listeners = {name: Listener(other, node.ports[name], path) for name, path in FEEDS.items()}
        for name in ("ollama", "lmstudio"):
            facade = node.facade(name)
            self.served(facade, engine, stream=name == "lmstudio")
            self.refused(facade)
            self.left(facade)
        wait_for("the jobs to end", lambda: all(each["completedAt"] for each in node.jobs()))
        wait_for("the member to know", lambda: keys(member) == keys(node))

        heard = {f"feed {name}": each.heard for name, each in listeners.items()}
        documents = {f"document {name}": self.document(other, node, name) for name in FEEDS}
        places = {**heard, **documents, **{f"member {at}": text for at, text in self.places(member).items()}}
        self.assertEqual(found(places, self.word), [])
        traces = found(places, "breaks-off")
        self.assertLessEqual(
            {"feed workloads", "document workloads", "member /api/v1/jobs", "member events"}, set(traces)
        )
        self.assertIn("feed inventory", found(places, '"engine:first"'))
        member.stop()
        files = self.files(member)
        self.assertEqual(found(files, self.word), [])
        self.assertIn("pair.sqlite3", found(files, "breaks-off"))

    def document(self, member: ClusterNode, node: ClusterNode, name: str) -> bytes:
        """The document of a feed as a member reads it."""
        with closing(connection_as(member, node.ports[name])) as connection:
            connection.request("GET", FEEDS[name])
            return told(Answer(connection.getresponse()))


def keys(node: ClusterNode) -> set[tuple[str, str]]:
    """Of all jobs that it lists as ended."""
    return {(each["origin"], each["id"]) for each in node.get("/jobs?limit=500")["jobs"] if each["completedAt"]}
