"""Tests of pair.surfaces.ownports: whether ports for other nodes answer from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.addresses import Place
from pair.errors.book import ErrorBook
from pair.errors.registry import Registry
from pair.surfaces.conditions import CONDITIONS
from pair.surfaces.ownports import SECONDS, OwnPorts
from pair.test.cluster.peers import identity

if TYPE_CHECKING:
    from collections.abc import Callable

DESK = identity()


class OwnPortsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.errors = ErrorBook(DESK.uuid, Registry(CONDITIONS), lambda: 0)
        self.address: str | None = "10.0.0.2"
        self.ports = {"node_info": 14318, "cluster": 14321}
        self.shut: set[int] = set()
        self.asked: list[Place] = []
        self.renewed: list[str] = []
        self.own = self.make(lambda _, place: succeed(place.port not in self.shut))
        self.own.startService()
        self.addCleanup(self.own.stopService)

    def make(self, answers: Callable[[str, Place], Deferred[bool]]) -> OwnPorts:
        def asked(surface: str, place: Place) -> Deferred[bool]:
            self.asked.append(place)
            return answers(surface, place)

        return OwnPorts(
            self.clock, lambda: self.address, lambda: dict(self.ports), asked, self.renewed.append, self.errors
        )

    def look(self, times: int = 1) -> None:
        self.clock.pump([SECONDS] * times)

    @property
    def entries(self) -> list[str]:
        return [each.id for each in self.errors.entries()]

    def test_all_well(self) -> None:
        """D08: each port is dialled at this node's own address, every 60 s."""
        self.assertEqual(self.asked, [Place("10.0.0.2", 14318), Place("10.0.0.2", 14321)])
        self.look(2)
        self.assertEqual((len(self.asked), self.renewed, self.entries), (6, [], []))

    def test_shut(self) -> None:
        """D08: one that fails twice is listened on anew, and that is told until it answers."""
        self.shut = {14318}
        self.look()
        self.assertEqual((self.renewed, self.entries), ([], []))
        self.look()
        self.assertEqual((self.renewed, self.entries), (["node_info"], ["ports:unreachable:node_info"]))
        self.assertIn("14318", self.errors.entries()[0].message)
        self.shut = set()
        self.look()
        self.assertEqual((self.renewed, self.entries), (["node_info"], []))

    def test_once(self) -> None:
        """A miss now and then is nothing."""
        for _ in range(5):
            self.shut = {14318, 14321}
            self.look()
            self.shut = set()
            self.look()
        self.assertEqual((self.renewed, self.entries), ([], []))

    def test_no_help(self) -> None:
        """Where it does not help it is done ever more seldom."""
        self.shut = {14321}
        self.look(20)
        self.assertEqual((self.renewed, self.entries), (["cluster"] * 4, ["ports:unreachable:cluster"]))

    def test_no_address(self) -> None:
        """Without a network there is nothing to look at, and what was told is no more."""
        self.shut = {14318}
        self.look(3)
        self.address = None
        self.asked.clear()
        self.look()
        self.assertEqual((self.asked, self.entries), ([], []))

    def test_changed_meanwhile(self) -> None:
        """A port that is not listened on any more when the answer is due, or an address that is gone, is no miss."""
        self.own.stopService()
        waiting: list[Deferred[bool]] = []

        def later(_: str, __: Place) -> Deferred[bool]:
            waiting.append(Deferred())
            return waiting[-1]

        self.ports = {"node_info": 14318}
        own = self.make(later)
        own.startService()
        for change in (self.ports.clear, lambda: setattr(self, "address", "10.0.0.3")):
            for _ in range(3):
                self.ports["node_info"] = 14318
                self.address = "10.0.0.2"
                self.look()
                change()
                waiting.pop().callback(False)
        self.assertEqual((self.renewed, self.entries), ([], []))
        self.look()
        self.successResultOf(own.stopService())
