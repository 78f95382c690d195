"""What clients see when the network between nodes fails, each node on a host of its own (PX-55, PX-63, PX-64)."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from pair.test.integration.hosts import HostNode, HostTestCase
from pair.test.integration.node import wait_for
from pair.test.integration.owners import BROKEN, SIZE, OwnersTestCase, fail, met, takes_long

if TYPE_CHECKING:
    from pair.test.integration.cluster import ClusterNode
    from pair.test.integration.engines import Engine
    from pair.test.integration.network import Host


class LinkTests(HostTestCase, OwnersTestCase):
    """Two owners on other hosts than the clients; the link of the first will fail.

    Attributes:
        victim: where it is.
    """

    victim: HostNode

    def make_peer(self, *settings: str, embedded: bool = False) -> ClusterNode:
        """A node on the next host that has none."""
        self.assertFalse(embedded)
        return self.node_on(self._free.pop(0), *settings)

    def gather_on_hosts(self, rate: str) -> Engine:
        """All is well; the engine of the victim, whose answers come at this rate."""
        self.make_hosts(3)
        self._free = list(self.hosts)
        engines = [self.start_engine_on(each, rate) for each in self.hosts[1:]]
        self.gather(*({"double": each} for each in engines))
        victim = self.owners[0]
        assert isinstance(victim, HostNode)
        self.victim = victim
        return engines[0]

    def start_engine_on(self, host: Host, rate: str) -> Engine:
        """A double that a node on the same host finds."""
        with host.inside():
            return self.start_engine("--rate", rate)

    def test_slow(self) -> None:
        """A link at a crawl costs time, and nothing else."""
        self.gather_on_hosts("200")
        self.switch.slow(*self.hosts)
        self.assert_settled(self.assert_ends(self.crowd(), "full"))

    @takes_long
    def test_cut_before_the_first_byte(self) -> None:
        """Who waits at the node that is cut off is served by the other, 8 s later (PX-55)."""
        engine = self.gather_on_hosts("200")
        with self.victim.host.inside():
            fail(engine, "hang")
        crowd = self.crowd()
        self.wait_until_asked(engine)
        self.switch.cut(self.victim.host)
        began = time.monotonic()
        ends = self.assert_ends(crowd, "full")
        self.assertLess(time.monotonic() - began, 11)
        self.assert_settled(ends, gone=[self.victim])
        self.assert_released()

    @takes_long
    def test_cut_in_a_stream(self) -> None:
        """Answers that came over the link end in an error, and the node works at none of them any more."""
        self.gather_on_hosts("20")
        crowd = self.crowd(length=40, patience=90)
        wait_for("all answers to begin", lambda: crowd.begun == SIZE)
        self.switch.cut(self.victim.host)
        ends = self.assert_ends(crowd, "full", *BROKEN)
        self.assertTrue(ends["full"] and ends["full"] < SIZE, ends)
        self.assert_settled(ends, gone=[self.victim])
        self.assert_released()

    @takes_long
    def test_half_open(self) -> None:
        """The node is gone when the cable is back, and the connections are open at one end only."""
        self.gather_on_hosts("20")
        crowd = self.crowd(length=40, patience=90)
        wait_for("all answers to begin", lambda: crowd.begun == SIZE)
        self.switch.cut(self.victim.host)
        self.victim.signal(signal.SIGKILL)
        self.victim.end()
        self.switch.heal(self.victim.host)
        began = time.monotonic()
        ends = self.assert_ends(crowd, "full", *BROKEN)
        self.assertTrue(ends["full"] and ends["full"] < SIZE, ends)
        self.assertLess(time.monotonic() - began, 50)
        self.assert_settled(ends, gone=[self.victim])

    def wait_until_asked(self, engine: Engine) -> None:
        """Wait until some requests are at the engine of the victim."""
        with self.victim.host.inside():
            wait_for("requests at the engine", lambda: met(engine) >= SIZE // 3)

    def assert_released(self) -> None:
        """When the link is back, nothing is in use at the victim, once its system has told the other's again."""
        self.switch.heal(self.victim.host)
        with self.victim.host.inside():
            self.assert_unused(self.victim, seconds=20)
