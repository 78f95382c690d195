"""What people decide of routing, in a cluster of real nodes (RT-22, RT-27, RT-61)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pair.test.integration.cluster import ClusterNode, ClusterTestCase, start
from pair.test.integration.engines import MODEL, Engine
from pair.test.integration.node import Answer, ask, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

CHAT = {"model": MODEL, "stream": False, "messages": [{"role": "user", "content": "Say 100 words"}]}


class SteeringTests(ClusterTestCase):
    def setUp(self) -> None:
        """Two members, each with an engine that has the model."""
        engines = [Engine("ollama"), Engine("ollama")]
        for each in engines:
            self.addCleanup(each.kill)
        self.one, self.two = (self.make_peer(*each.settings("double")) for each in engines)
        start(self.one, self.two)
        self.pair(self.one, self.two)
        self.wait_until_agreed(self.one, self.two)
        both = {self.one.uuid: None, self.two.uuid: None}
        wait_for("both engines to be known", lambda: self.why(self.one) == self.why(self.two) == both)

    def why(self, node: ClusterNode) -> Mapping[str, str | None]:
        """Why each node is not asked, by its UUID; None for one that is."""
        found = node.call("/routing/explain", {"facade": "ollama", "path": "/api/chat", "model": MODEL}).value
        doubles = [each for each in found["candidates"] if each["engine"] == "double"]
        return {each["node"]: each.get("excludedBy") for each in doubles}

    def chat(self, node: ClusterNode) -> Answer:
        """A request that says where it was served, and why there."""
        answer = ask(node.facade("ollama"), "/api/chat", CHAT, {"X-Pair-Explain": "1"})
        self.assertEqual(answer.status, 200, answer.body)
        return answer

    def put(self, node: ClusterNode, path: str, body: object) -> Any:
        """A change that is made."""
        answer = node.call(path, body, "PUT")
        self.assertEqual(answer.status, 200, answer.body)
        return answer.value

    def selections(self, node: ClusterNode) -> set[str | None]:
        """The nodes that are selected on a node."""
        return {each["selection"] for each in node.get("/routing")["facades"]}

    def test_selected_and_drained(self) -> None:
        """A selected member gets the requests, until it is drained; a choice outlives a restart, and no removal."""
        one, two = self.one, self.two
        one.admin("route", "select", two.uuid)
        answer = self.chat(one)
        self.assertEqual(answer.fields["X-Pair-Node"], two.uuid)
        self.assertTrue(answer.fields["X-Pair-Why"].endswith("head=selection"))

        two.admin("node", "drain", "--reason", "new GPU")
        wait_for("the drain to be known", lambda: self.why(one)[two.uuid] == "drained")
        shown = one.get(f"/nodes/{two.uuid}")
        self.assertEqual((shown["drained"], shown["drainReason"]), (True, "new GPU"))
        for node in (one, two):
            self.assertEqual(self.chat(node).fields["X-Pair-Node"], one.uuid)

        for node in (one, two):
            node.stop()
        start(one, two)
        wait_for("the drain to be known", lambda: self.why(one).get(two.uuid) == "drained")
        self.assertEqual(self.selections(one), {two.uuid})
        two.admin("node", "undrain")
        wait_for("the end of the drain", lambda: self.why(one)[two.uuid] is None)
        # Its facade has another port since its start, of which the note may still be on its way.
        wait_for("the member to serve again", lambda: self.chat(one).fields["X-Pair-Node"] == two.uuid)

        one.remove(two)
        self.assertEqual(self.selections(one), {None})
        self.assertEqual(self.chat(one).fields["X-Pair-Node"], one.uuid)

    def test_learned(self) -> None:
        """How fast each member was is learned where the request came in, and is there after a restart."""
        one, two = self.one, self.two
        for each in (one.uuid, two.uuid):
            self.put(one, "/routing/selection", {"facade": "ollama", "node": each})
            self.chat(one)
        one.stop()

        def rows() -> list[tuple[str, str]]:
            with closing(sqlite3.connect(one.state / "pair.sqlite3")) as connection:
                return connection.execute("SELECT node, model FROM learned_speed ORDER BY place").fetchall()

        self.assertEqual(rows(), [(one.uuid, MODEL), (two.uuid, MODEL)])
        one.start()
        one.stop()
        self.assertEqual(len(rows()), 2)
