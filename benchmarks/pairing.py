"""B-pair, B-revoke: how long two nodes need to pair, and how soon a removed one is cut off."""

from __future__ import annotations

import platform
import ssl
import statistics
import time
from contextlib import ExitStack, closing, suppress
from threading import Thread
from typing import TYPE_CHECKING

import pair
from benchmarks._load import stream
from benchmarks._nodes import pair_nodes, started, wait_until_agreed
from benchmarks._report import Bound, Report, main

if TYPE_CHECKING:
    from http.client import HTTPSConnection

    from benchmarks._nodes import Node

PASSES = 2
"""How often each joiner pairs, and then leaves."""

_PATH = "/v1/chat/completions"
_FIELDS = {"Content-Type": "application/json", "X-Pair-Hop": "1"}
_EVENT_US = 20_000
_END_SECONDS = 30.0
_REST_SECONDS = 1.0
"""For what the removal before has left to do."""


class Stream:
    """An answer that is being streamed from one node to another, or rather to us in its name.

    Attributes:
        ended_at: when it ended, as :func:`time.monotonic` has it; None until then.
    """

    def __init__(self, connection: HTTPSConnection) -> None:
        connection.request("POST", _PATH, stream(_EVENT_US), _FIELDS)
        answer = connection.getresponse()
        if answer.status != 200 or not answer.read1():
            raise RuntimeError(f"no stream: {answer.status}")
        assert connection.sock is not None, "it is still open"
        self.ended_at: float | None = None
        self._socket = connection.sock
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait(self) -> float:
        """Wait for its end, and say when that was.

        Raises:
            RuntimeError: It does not end.
        """
        self._reader.join(_END_SECONDS)
        if self.ended_at is None:
            raise RuntimeError("a stream to a removed node goes on")
        return self.ended_at

    def _read(self) -> None:
        with suppress(ConnectionError, ssl.SSLError):
            while self._socket.recv(65536):
                pass
        self.ended_at = time.monotonic()


def _pairings(inviter: Node, joiners: list[Node]) -> list[float]:
    """Milliseconds of each of many pairings, each of which founds a cluster; the first is a rehearsal."""
    taken = []
    for _ in range(PASSES):
        for joiner in joiners:
            taken.append(1000 * pair_nodes(inviter, joiner))
            wait_until_agreed((inviter, joiner))
            for each in (joiner, inviter):
                each.ask("/cluster/leave", {})
    return taken[1:]


def _removals(remover: Node, other: Node, victims: list[Node]) -> list[tuple[float, float]]:
    """Milliseconds until the streams of each removed node end: those of the remover, and of another member."""
    for each in (other, *victims):
        pair_nodes(remover, each)
    wait_until_agreed((remover, other, *victims))
    taken = []
    with ExitStack() as stack:

        def open_stream(victim: Node, node: Node) -> Stream:
            return Stream(stack.enter_context(closing(victim.connection_to(node))))

        streams = {each.uuid: (open_stream(each, remover), open_stream(each, other)) for each in victims}
        for victim in victims:
            here, there = streams.pop(victim.uuid)
            time.sleep(_REST_SECONDS)
            began = time.monotonic()
            remover.ask(f"/cluster/members/{victim.uuid}", method="DELETE")
            taken.append((1000 * (here.wait() - began), 1000 * (there.wait() - began)))
            if any(each.ended_at is not None for both in streams.values() for each in both):
                raise RuntimeError("a stream to a member ended")
    return taken


def measure(quick: bool) -> Report:
    """Take the figures."""
    with started(5 if quick else 8) as (inviter, other, *joiners):
        pairings = _pairings(inviter, joiners)
        removals = _removals(inviter, other, joiners)
    here, there = ([each[place] for each in removals] for place in (0, 1))
    figures = {
        name: {"median_ms": statistics.median(each), "most_ms": max(each)}
        for name, each in (("pairing", pairings), ("removal, here", here), ("removal, there", there))
    }
    bounds = (
        Bound("pair_ms", figures["pairing"]["most_ms"], must=500, goal=250),
        Bound("revoke_here_ms", figures["removal, here"]["most_ms"], must=50, goal=5),
        Bound("revoke_there_ms", figures["removal, there"]["most_ms"], must=2000, goal=300),
    )
    versions = {"python": platform.python_version(), "pair": pair.__version__}
    return Report("B-pair, B-revoke", figures, bounds, versions)


if __name__ == "__main__":
    main(measure)
