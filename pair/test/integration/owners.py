"""A node that clients ask, and the members that have what they ask for (PX-53).

The first node has no engine: each request goes over mutual TLS to one of the
owners. What is counted is counted where the clients are, and in the end nothing
may be in use on any node.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pair.test.integration.cluster import ClusterNode, ClusterTestCase, start
from pair.test.integration.engines import MODEL, Engine
from pair.test.integration.node import LIMIT, wait_for
from pair.test.integration.streams import Crowd
from pair.test.integration.test_faults import INFERENCE, figures, in_use, jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

T = TypeVar("T", bound=Any)

LONG = bool(os.environ.get("PAIR_FAULTS"))
"""Whether there is time for what takes long."""


def takes_long(test: T) -> T:
    """A decorator for what is left out, its setting up too, unless there is time."""
    if not LONG:
        test.skip = "only with PAIR_FAULTS=1: it takes half a minute or more"
    return test


SIZE = 50 if LONG else 12
"""How many clients ask at once."""

BROKEN = {"told", "cut"}
"""How an answer ends that was under way when its node went."""


class OwnersTestCase(ClusterTestCase):
    """Makes a cluster in which the engines are on other nodes than the clients.

    Attributes:
        front: the node that clients ask.
        owners: the others.
    """

    front: ClusterNode
    owners: list[ClusterNode]

    def start_engine(self, *arguments: str) -> Engine:
        """A double of Ollama; at 200 tokens a second, unless the arguments say otherwise."""
        engine = Engine("ollama", *(arguments or ("--rate", "200")))
        self.addCleanup(engine.kill)
        return engine

    def gather(
        self, *owners: dict[str, Engine], settings: Sequence[Sequence[str]] = (), front: Sequence[str] = ()
    ) -> None:
        """Start and pair them; each owner has these engines, by their ids, and these settings; ``front``: its own."""
        self.front = self.make_peer("proxy.explain=true", *front)
        more = [*settings, *[()] * len(owners)]
        self.owners = [
            self.make_peer(*more[number], *(each for id, engine in has.items() for each in engine.settings(id)))
            for number, has in enumerate(owners)
        ]
        self.join()
        for node, has in zip(self.owners, owners, strict=True):
            self.wait_until_offered(node, *has)

    def join(self) -> None:
        """Start them, and make them a cluster."""
        start(self.front, *self.owners)
        for each in self.owners:
            self.pair(self.front, each)
        self.wait_until_agreed(self.front, *self.owners)

    def wait_until_offered(self, owner: ClusterNode, *engines: str, facade: str = "ollama") -> None:
        """Wait until the first node would send requests to these engines of an owner."""

        def offered() -> bool:
            found = {each["engine"] for each in candidates(self.front, facade) if each["node"] == owner.uuid}
            return found >= set(engines)

        wait_for("the engines to be offered", offered)

    def restart(self, owner: ClusterNode, *engines: str) -> None:
        """Start an owner that was killed, at the ports where it was, and wait until it may be asked again."""
        (known,) = (each for each in self.front.get("/nodes")["nodes"] if each["uuid"] == owner.uuid)
        owner.launch("--set", f"proxy.ports.ollama={known['services']['ol']}")
        owner.wait_until_ready()
        self.wait_until_offered(owner, *engines)

    def crowd(
        self,
        model: str = MODEL,
        *,
        stream: bool = True,
        first: Callable[[], None] | None = None,
        length: int | None = None,
        patience: float = LIMIT,
    ) -> Crowd:
        """All the clients, on their way to the first node."""
        with place(self.front):
            return Crowd(
                self.front.facade("ollama"), model, SIZE, stream=stream, first=first, length=length, patience=patience
            )

    def assert_ends(self, crowd: Crowd, *expected: str) -> Counter[str]:
        """All ended in one of these ways; how often each was seen."""
        ends = crowd.ends()
        self.assertEqual(ends.total(), SIZE)
        self.assertLessEqual(set(ends), set(expected), ends)
        return ends

    def assert_settled(self, *ends: Counter[str], gone: Sequence[ClusterNode] = ()) -> None:
        """Nothing is in use on any node, all list the same jobs, and these say what the clients saw.

        Args:
            ends: all that clients of the first node saw since its start.
            gone: nodes that do not answer, or are no members any more.
        """
        seen = sum(ends, Counter[str]())
        good = seen["full"] + seen["empty"]
        counted = {"completed": good, "failed": seen.total() - good - seen["busy"]}
        there = [each for each in (self.front, *self.owners) if each not in gone]
        for node in there:
            with place(node):
                self.assert_unused(node)
                self.assertEqual(figures(node, "pair_unhandled_errors_total"), {"": 0})
        with place(self.front):
            self.assertEqual(jobs(self.front), {state: number for state, number in counted.items() if number})
        listed = states(self.front)
        for node in there:
            wait_for("the same jobs everywhere", partial(_lists, node, listed), seconds=5)

    def assert_unused(self, node: ClusterNode, seconds: float = 5) -> None:
        """Nothing is in use on a node, a moment later."""
        wait_for("nothing to be in use", lambda: not in_use(node), seconds=seconds)


def place(node: ClusterNode) -> AbstractContextManager[None]:
    """The host of a node, to be on it."""
    host = getattr(node, "host", None)
    return nullcontext() if host is None else host.inside()


def candidates(node: ClusterNode, facade: str = "ollama") -> list[Any]:
    """The engines among which a node chooses for any request at a facade."""
    for each in node.get("/routing")["facades"]:
        if each["facade"] == facade:
            return [one for one in each["candidates"] if one["eligible"]]
    return []


def _lists(node: ClusterNode, jobs: dict[str, tuple[str, str | None]]) -> bool:
    return states(node) == jobs


def states(node: ClusterNode) -> dict[str, tuple[str, str | None]]:
    """The newest jobs that a node lists: how each ended, and where."""
    return {each["id"]: (each["state"], each["placedOn"]) for each in node.get("/jobs?limit=500")["jobs"]}


def fail(engine: Engine, fault: str, **fields: object) -> None:
    """All inference at an engine meets a fault."""
    for path in INFERENCE:
        engine.fault(fault, path=path, **fields)


def met(engine: Engine, *paths: str) -> int:
    """How often an engine was asked to infer, at paths that begin so or at any."""
    return sum(path.startswith(paths or INFERENCE) for _, path in engine.asked())


def kill(node: ClusterNode) -> None:
    """End a node at once."""
    node.signal(signal.SIGKILL)
    node.end()
