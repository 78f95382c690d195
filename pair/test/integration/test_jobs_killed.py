"""Nodes of a cluster killed while they serve: in the end all of them list the same jobs (jobs page, sections 5 to 8).

How long each answer is, and who is killed when, follows from a number; the
moment at which the signal meets the process does not.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from http.client import HTTPException
from itertools import count
from random import Random
from threading import Thread
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pair.records.jobs import TERMINAL
from pair.test.integration.cluster import ClusterTestCase, start
from pair.test.integration.engines import MODEL, Engine
from pair.test.integration.node import ask, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pair.test.integration.cluster import ClusterNode

REQUESTS, KILLS = (1000, 20) if os.environ.get("PAIR_FAULTS") else (200, 4)

CLIENTS = 3
"""Of each node, each with one request at a time."""

RATE = 100
LONGEST = 80
"""Tokens a second of each engine, and of the longest answer."""

PAUSE = 2.0
"""Seconds between a start after a kill and the next kill, at most."""

LOST_MS = 2000
"""What an origin ended so long before it was killed may be lost with it: a batch of a second, and its writing."""

AGREED = 30.0
"""Seconds in which all list the same, a wait of 15 s between two tries included (JB-21)."""

Key = tuple[str, str]


class Kill(Struct, frozen=True):
    """A kill, at some instant between two in epoch milliseconds."""

    node: str
    earliest: int
    latest: int


class Client(Thread):
    """Asks its node one thing after another, as long as there are numbers.

    Attributes:
        answered: When each whole answer had come, in epoch milliseconds.
        broken: How many answers broke off.
    """

    def __init__(self, node: ClusterNode, urls: dict[str, str], numbers: Iterator[int]) -> None:
        super().__init__(daemon=True)
        self.answered: list[int] = []
        self.broken = 0
        self.node = node.uuid
        self._urls = urls
        self._numbers = numbers
        self.start()

    def run(self) -> None:
        """See :class:`threading.Thread`."""
        for number in self._numbers:
            while not self._asked(number):
                time.sleep(0.05)

    def _asked(self, number: int) -> bool:
        """Whether the node took it, whatever came of it."""
        most = Random(number).randrange(1, LONGEST)
        body = {"model": MODEL, "prompt": f"{number}", "options": {"num_predict": most}}
        try:
            answer = ask(self._urls[self.node], "/api/generate", body)
        except ConnectionRefusedError:
            return False
        except (OSError, HTTPException):
            self.broken += 1
            return True
        if answer.status == 200 and b'"done":true' in answer.body:
            self.answered.append(now())
        return True


class KilledTests(ClusterTestCase):
    def test_killed(self) -> None:
        """All nodes list the same jobs at the end, each with one end, and none that its origin does not know.

        But for guesses, and for what an origin ended just before it was killed.
        """
        engines = [Engine("ollama", "--rate", str(RATE)) for _ in range(3)]
        for engine in engines:
            self.addCleanup(engine.kill)
        nodes = [self.make_peer(*engine.settings("double"), "cluster.gossip_interval=5") for engine in engines]
        start(*nodes)
        for each in nodes[1:]:
            self.pair(nodes[0], each)
        self.wait_until_agreed(*nodes)
        self.urls = {each.uuid: serving(each) for each in nodes}
        self.ends: dict[tuple[str, Key], set[str]] = {}
        numbers = iter(range(REQUESTS))
        clients = [Client(each, self.urls, numbers) for each in nodes for _ in range(CLIENTS)]
        kills = self.kill_some(nodes)
        for client in clients:
            client.join()
        self.assertGreater(sum(each.broken for each in clients), 0)

        try:
            wait_for("the same jobs everywhere", lambda: not list(self.differences(nodes, kills)), AGREED)
        except AssertionError as waited:
            raise AssertionError(f"{waited}: {list(self.differences(nodes, kills))}") from None
        self.assert_all_listed(nodes, clients, kills)
        self.assertEqual([each for each in self.ends.values() if len(each) > 1], [])
        for each in nodes:
            self.assertEqual([id for id in each.errors() if id.startswith(("feeds:", "jobs:"))], [])

    def kill_some(self, nodes: list[ClusterNode]) -> list[Kill]:
        """Kill nodes, and start them again."""
        random = Random(0)
        kills: list[Kill] = []
        for number in count():
            deadline = time.monotonic() + random.uniform(0, PAUSE)
            while time.monotonic() < deadline:
                self.look(random.choice(nodes))
            if number == KILLS:
                return kills
            victim = random.choice(nodes)
            earliest = now()
            victim.signal(signal.SIGKILL)
            self.assertEqual(victim.end(), -signal.SIGKILL)
            kills.append(Kill(victim.uuid, earliest, now()))
            start(victim)
            self.urls[victim.uuid] = serving(victim)
        raise AssertionError("it counts for ever")

    def look(self, node: ClusterNode) -> dict[Key, Any]:
        """All jobs that a node lists; how each has ended is noted."""
        found: dict[Key, Any] = {}
        cursor = ""
        while True:
            page = node.get(f"/jobs?limit=500{cursor}")
            for job in page["jobs"]:
                key = job["origin"], job["id"]
                self.assertNotIn(key, found, "it is listed twice")
                found[key] = job
                if job["state"] in TERMINAL and not job["inferred"]:
                    self.ends.setdefault((node.uuid, key), set()).add(job["state"])
            if page["nextCursor"] is None:
                return found
            cursor = f"&cursor={page['nextCursor']}"

    def differences(self, nodes: list[ClusterNode], kills: list[Kill]) -> Iterator[str]:
        """What is listed otherwise than it may be."""
        lists = {each.uuid: self.look(each) for each in nodes}
        told = {key: job for listed in lists.values() for key, job in listed.items() if not job["inferred"]}
        for node, listed in lists.items():
            for key, job in listed.items():
                if job["state"] not in TERMINAL:
                    yield f"{node} lists {key} as {job['state']}"
                elif job["inferred"] and not was_killed(job["origin"], job["createdAt"], kills):
                    yield f"{node} takes {key} for {job['error']}, but its origin has lived ever since"
            for key, job in told.items():
                shown = listed.get(key)
                if may_be_lost(key[0], job["completedAt"] or 0, kills):
                    continue
                if shown is None or shown["inferred"] or shown["state"] != job["state"]:
                    yield f"{node} has {shown} where others have {job}"

    def assert_all_listed(self, nodes: list[ClusterNode], clients: list[Client], kills: list[Kill]) -> None:
        """No job is missing whose client has its answer."""
        sure = Counter(
            client.node for client in clients for at in client.answered if not may_be_lost(client.node, at, kills)
        )
        self.assertGreater(sure.total(), 0)
        for node in nodes:
            completed = Counter(origin for (origin, _), job in self.look(node).items() if job["state"] == "completed")
            self.assertLessEqual(sure, completed)


def now() -> int:
    """Epoch milliseconds."""
    return int(time.time() * 1000)


def serving(node: ClusterNode) -> str:
    """The URL where a node answers, once it has found its engine."""

    def found() -> bool:
        engines = node.get("/engines")["engines"]
        return any(each["node"] == node.uuid and each["id"] == "double" and each["routable"] for each in engines)

    wait_for("its engine", found)
    return node.facade("ollama")


def was_killed(node: str, since: int, kills: list[Kill]) -> bool:
    """Whether it was after that instant."""
    return any(each.node == node and each.latest >= since for each in kills)


def may_be_lost(origin: str, ended_at: int, kills: list[Kill]) -> bool:
    """Whether the origin was killed so soon after it ended a job that this may not be written, or told, at all."""
    return any(each.node == origin and each.earliest - LOST_MS <= ended_at <= each.latest for each in kills)
