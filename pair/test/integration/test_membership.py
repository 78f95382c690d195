"""Removal, leave and rejoin with real processes (cluster page, section 9).

Whoever has the key and the leaf of a node is that node to the others: so the
tests hold connections and ask in the name of one.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from typing import TYPE_CHECKING

from pair.test.integration.cluster import ClusterNode, ClusterTestCase, Held, connection_as, start
from pair.test.integration.engines import MODEL, Engine
from pair.test.integration.node import Answer, ask, wait_for

if TYPE_CHECKING:
    from pathlib import Path

HERE = 0.5
"""Seconds in which a removal has its effect where it is made, slow machines included (CL-86)."""

THERE = 2.0
"""Seconds in which it has its effect on a member that is reached (CL-86)."""

STORY = {"model": MODEL, "messages": [{"role": "user", "content": "Say 2000 words"}]}
SYNC = "/v1/cluster/sync"


class MembershipTests(ClusterTestCase):
    def test_removed_with_connections_open(self) -> None:
        """CL-18, CL-86: what a member has open ends at once where it is removed, and within 2 s on another member.

        An answer that is being streamed to it is no exception. Then it knows that it is out, and by whom (CL-85,
        CL-89), and comes back by a new invitation (CL-91).
        """
        engine = Engine("ollama", "--rate", "20")
        self.addCleanup(engine.kill)
        remover = self.make_peer(*engine.settings("double"))
        other, victim = self.make_peer(), self.make_peer()
        start(remover, other, victim)
        self.pair(remover, other)
        self.pair(remover, victim)
        self.wait_until_agreed(remover, other, victim)
        wait_for("the engine to be found", lambda: remover.engine("double")["routable"])

        stream, idle, there = self.stream(victim, remover), self.sync(victim, remover), self.sync(victim, other)
        self.assertTrue(stream.open and idle.open and there.open)
        began = time.monotonic()
        removed = remover.remove(victim)
        self.assertEqual((removed["nodes"], removed["told"]), ([victim.uuid], [other.uuid]))
        for held, seconds in ((stream, HERE), (idle, HERE), (there, THERE)):
            self.assertLess(held.ended() - began, seconds)
        for node in (remover, other):
            self.assertFalse(node.serves(victim))
        self.wait_until_out(victim, remover)
        self.wait_until_agreed(remover, other)

        self.pair(other, victim)
        self.wait_until_agreed(remover, other, victim)

    def test_removed_while_off(self) -> None:
        """CL-85, CL-89: who was off learns of its removal by the evidence in the first refusal, and rejoins (P05)."""
        remover, victim = self.start_pair()
        victim.stop()
        exit_code, removed = remover.command("cluster", "remove", victim.uuid[:12], "--yes").end()
        self.assertEqual((exit_code, removed["nodes"], removed["told"]), (0, [victim.uuid], []))
        victim.start()
        self.wait_until_out(victim, remover)
        self.pair(remover, victim)
        self.wait_until_agreed(remover, victim)
        self.assertTrue(remover.serves(victim) and victim.serves(remover))

    def test_bare_refusal(self) -> None:
        """CL-85: a refusal without evidence puts nobody out.

        It comes from a member whose state is that of a time before the cluster was. Left and joined anew by hand, all
        is well again (CL-91).
        """
        restored, member = self.start_peers(2, "cluster.gossip_interval=5")
        restored.stop()
        before = self.copy(restored.state)
        restored.start()
        self.pair(restored, member)
        self.wait_until_agreed(restored, member)
        restored.stop()
        shutil.rmtree(restored.state)
        shutil.copytree(before, restored.state)
        restored.start()
        wait_for("a sync to be refused", lambda: syncs(member).get("refused"))
        self.assertEqual(member.members(), {restored.uuid, member.uuid})
        self.assertEqual(complaints(member), [])
        self.assertIsNone(restored.cluster())

        left = member.leave()
        self.assertEqual((left["left"], left["told"], left["untold"]), (True, [], [restored.uuid]))
        self.pair(restored, member)
        self.wait_until_agreed(restored, member)

    def test_left_with_all_peers_off(self) -> None:
        """CL-88, CL-90: to leave takes nobody else; who returns hears of it from the leaver, or from who did."""
        leaver, first, second = self.start_peers(3)
        self.pair(leaver, first)
        self.pair(leaver, second)
        self.wait_until_agreed(leaver, first, second)
        first.stop()
        second.stop()
        left = leaver.leave()
        self.assertEqual((left["left"], left["told"]), (True, []))
        self.assertEqual(set(left["untold"]), {first.uuid, second.uuid})
        self.assertIsNone(leaver.cluster())
        self.assertEqual(leaver.leave()["left"], False)

        for node in (second, first):
            node.start()
        self.wait_until_agreed(first, second)
        for node in (first, second):
            self.assertEqual(formers(node), {leaver.uuid: "left"})
            self.assertFalse(node.serves(leaver))
        self.pair(second, leaver)
        self.wait_until_agreed(leaver, first, second)

    def test_left(self) -> None:
        """CL-88, CL-91: the other hears of it at once, and they pair again, whoever invites (P05, P10)."""
        first, second = self.start_pair()
        for leaver, other in ((second, first), (first, second)):
            exit_code, left = leaver.command("cluster", "leave", "--yes").end()
            self.assertEqual((exit_code, left["left"], left["told"]), (0, True, [other.uuid]))
            self.assertEqual(other.members(), {other.uuid})
            self.assertFalse(other.serves(leaver))
            self.pair(other, leaver)
            self.wait_until_agreed(first, second)

    # What they are made of.

    def start_pair(self) -> list[ClusterNode]:
        """Two nodes, paired."""
        first, second = self.start_peers(2)
        self.pair(first, second)
        self.wait_until_agreed(first, second)
        return [first, second]

    def wait_until_out(self, victim: ClusterNode, remover: ClusterNode) -> None:
        """Wait until a node knows that it was removed; then it says by whom."""
        wait_for("the removal to be known", lambda: victim.cluster() is None)
        self.assertEqual(victim.members(), set())
        self.assertEqual(complaints(victim), [f"cluster:removed:{remover.uuid}"])

    def stream(self, caller: ClusterNode, node: ClusterNode) -> Held:
        """A long answer, on its way to a member."""
        connection = connection_as(caller, int(node.facade("ollama").rpartition(":")[2]))
        self.addCleanup(connection.close)
        connection.request(
            "POST", "/api/chat", json.dumps(STORY), {"Content-Type": "application/json", "X-Pair-Hop": "1"}
        )
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        self.assertTrue(answer.read1())
        return Held(connection)

    def sync(self, caller: ClusterNode, node: ClusterNode) -> Held:
        """A connection over which a member has synced."""
        connection = connection_as(caller, node.port)
        self.addCleanup(connection.close)
        opening = {"v": 1, "cluster": node.cluster(), "instance": "0" * 16, "root": "0" * 64}
        connection.request("POST", SYNC, json.dumps(opening), {"Content-Type": "application/json"})
        self.assertEqual(Answer(connection.getresponse()).status, 200)
        return Held(connection)

    def copy(self, folder: Path) -> Path:
        """A copy of a folder beside it."""
        beside = folder.with_name("copy")
        shutil.copytree(folder, beside)
        return beside


def syncs(node: ClusterNode) -> dict[str, float]:
    """How many syncs of a node ended how."""
    text = ask(node.control, "/metrics").body.decode()
    found = re.findall(r'^pair_cluster_sync_total\{outcome="(\w+)"\} (\S+)$', text, re.MULTILINE)
    return {outcome: float(count) for outcome, count in found}


def complaints(node: ClusterNode) -> list[str]:
    """The ids of the error entries that are about the cluster."""
    return [each for each in node.errors() if each.startswith("cluster:")]


def formers(node: ClusterNode) -> dict[str, str]:
    """The nodes that are in its cluster no more, by UUID, and how that came."""
    return {each["node"]: each["how"] for each in node.get("/cluster")["former"]}
