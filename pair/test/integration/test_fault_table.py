"""What clients see when other nodes fail, each request on its way over mutual TLS (PX-44 to PX-46, PX-63, PX-64).

Each client gets a full answer, or an error in its own words; an answer that
breaks off never looks finished; and nothing is left in use on any node. With
``PAIR_FAULTS`` there are fifty clients, and also the rows that take minutes.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from pair.test.integration.engines import MODEL, Engine
from pair.test.integration.node import ask, wait_for
from pair.test.integration.owners import BROKEN, LONG, SIZE, OwnersTestCase, fail, kill, met, takes_long

if TYPE_CHECKING:
    from collections import Counter

    from pair.test.integration.streams import Crowd

WAITING = "/api/chat"
"""A third of the clients ask there."""

FEW_ROUNDS = ("proxy.start_deadline=1",)
"""Not all five: they are tested on a virtual clock."""

ANSWERS = {
    "404": {"404", "model_unknown"},
    "429": {"429", "busy"},
    "500": {"500"},
    "503": {"503", "busy"},
    "garbage": {"engine_unreachable"},
    "cut": {"engine_unreachable"},
    "empty": {"empty"},
    "exit": {"engine_unreachable", "engine_stopped", "no_local_engine"},
}
"""What an engine does instead of an answer, and what clients are told where nobody else has the model."""


class EngineAnswersTests(OwnersTestCase):
    def test_answers(self) -> None:
        """Each is an engine of a member. Another member serves if it has the model; else the fault is told.

        One has no fault, but neither the models that its node has told of (RT-51).
        """
        good = self.start_engine()
        faulty = {fault: self.start_engine() for fault in (*ANSWERS, "stale")}
        for fault, engine in faulty.items():
            copy(engine, f"both-{fault}", f"only-{fault}")
            copy(good, f"both-{fault}")
        for fault in ANSWERS:
            fail(faulty[fault], fault, after=0)
        self.gather({f"f{fault}": engine for fault, engine in faulty.items()}, {"good": good}, front=FEW_ROUNDS)
        drop(faulty["stale"], "both-stale", "only-stale")
        seen = []
        for fault, told in {"stale": ANSWERS["404"], **ANSWERS}.items():
            served = {"full", "empty"} if fault == "empty" else {"full"}
            seen.append(self.assert_ends(self.crowd(f"both-{fault}"), *served))
            if fault != "exit":
                self.assertTrue(met(faulty[fault]), fault)
            seen.append(self.assert_ends(self.crowd(f"only-{fault}"), *told))
        self.assert_settled(*seen)


class TwoOwnersTestCase(OwnersTestCase):
    """Two owners, each with an engine; the first will fail.

    Attributes:
        victim: the first.
        engine: its engine.
    """

    front_settings: tuple[str, ...] = ()

    def setUp(self) -> None:
        """All is well."""
        self.engines = [self.start_engine("--rate", "20") for _ in range(2)]
        self.gather(*({"double": each} for each in self.engines), front=self.front_settings)
        self.victim, self.engine = self.owners[0], self.engines[0]


class NodeTests(TwoOwnersTestCase):
    def begin(self) -> tuple[Crowd, int]:
        """Clients of whom some wait at the victim, and some have answers of it under way: so many."""
        self.engine.fault("hang", path=WAITING)
        crowd = self.crowd(length=60, patience=90)
        wait_for("all to wait or to be answered", lambda: crowd.begun + met(self.engine, WAITING) == SIZE)
        streams = met(self.engine, "/v1/")
        self.assertTrue(streams)
        # Who comes to which node is chance. Of a few clients, once in thirty times none of those who wait is there.
        self.assertTrue(met(self.engine, WAITING) or not LONG)
        return crowd, streams

    def assert_broken(self, crowd: Crowd, streams: int) -> Counter[str]:
        """The answers of the victim end in errors; who waited there is served by the other, as all others are."""
        ends = self.assert_ends(crowd, "full", *BROKEN)
        self.assertEqual(ends["full"], SIZE - streams, ends)
        return ends

    def test_killed(self) -> None:
        """A node is killed (PX-44, PX-63)."""
        crowd, streams = self.begin()
        kill(self.victim)
        self.assert_settled(self.assert_broken(crowd, streams), gone=[self.victim])

    def test_removed(self) -> None:
        """A node is put out of the cluster (CL-18)."""
        crowd, streams = self.begin()
        self.front.remove(self.victim)
        self.assert_settled(self.assert_broken(crowd, streams), gone=[self.victim])
        self.assert_unused(self.victim)

    @takes_long
    def test_frozen(self) -> None:
        """A node freezes: its answers end when it was silent for 30 s and does not answer a knock (PX-64)."""
        crowd, streams = self.begin()
        self.victim.signal(signal.SIGSTOP)
        began = time.monotonic()
        first = self.assert_broken(crowd, streams)
        self.assertTrue(30 < time.monotonic() - began < 50)
        second = self.assert_ends(self.crowd(), "full")
        self.victim.signal(signal.SIGCONT)
        self.assert_settled(first, second)

    @takes_long
    def test_frozen_for_a_while(self) -> None:
        """A node freezes for 20 s and wakes: its answers go on, and who waited is with the other."""
        crowd, _ = self.begin()
        self.victim.signal(signal.SIGSTOP)
        time.sleep(20)
        self.victim.signal(signal.SIGCONT)
        self.assert_settled(self.assert_ends(crowd, "full"))

    def test_frozen_before_the_first_byte(self) -> None:
        """Who waits at a node that freezes is served by the other 8 s later; who asks then does not wait (PX-55)."""
        fail(self.engine, "hang")
        crowd = self.crowd()
        wait_for("requests at the engine", lambda: met(self.engine) >= SIZE // 3)
        self.victim.signal(signal.SIGSTOP)
        began = time.monotonic()
        first = self.assert_ends(crowd, "full")
        self.assertLess(time.monotonic() - began, 11)
        began = time.monotonic()
        second = self.assert_ends(self.crowd(), "full")
        self.assertLess(time.monotonic() - began, 6)
        self.victim.signal(signal.SIGCONT)
        self.assert_settled(first, second)

    @takes_long
    def test_slow_engines(self) -> None:
        """Five minutes before the first byte are waited for: the nodes say that they are at it (PX-54)."""
        for each in self.engines:
            fail(each, "slow", seconds=300)
        self.assert_settled(self.assert_ends(self.crowd(patience=330), "full"))


class OwnersGoneTests(TwoOwnersTestCase):
    front_settings = FEW_ROUNDS

    def test_back(self) -> None:
        """All owners are killed: that is told. One comes back: it serves."""
        for each in self.owners:
            kill(each)
        first = self.assert_ends(self.crowd(), "engine_unreachable", "node_silent", "owners_offline")
        self.restart(self.victim, "double")
        second = self.assert_ends(self.crowd(), "full")
        self.assert_settled(first, second, gone=self.owners[1:])


class AddressesTests(OwnersTestCase):
    def test_dead(self) -> None:
        """The first address of each owner is dead: one answers nothing, one refuses (DS-37)."""
        engines = [{"double": self.start_engine()} for _ in range(2)]
        self.gather(*engines, settings=[(advertise("192.0.2.1"),), (advertise("127.0.0.9"),)])
        began = time.monotonic()
        ends = self.assert_ends(self.crowd(), "full")
        self.assertLess(time.monotonic() - began, 4)
        for each in engines:
            self.assertTrue(met(each["double"]))
        self.assert_settled(ends)


def advertise(dead: str) -> str:
    """The setting by which a node says that it is at a place where it is not, and then where it is."""
    return f'node.advertise=["{dead}","127.0.0.1"]'


def copy(engine: Engine, *names: str) -> None:
    """An engine has its model by these names too."""
    for each in names:
        answer = ask(engine.url, "/api/copy", {"source": MODEL, "destination": each})
        assert answer.status == 200, answer.body


def drop(engine: Engine, *names: str) -> None:
    """An engine has no such models any more."""
    for each in names:
        answer = ask(engine.url, "/api/delete", {"model": each}, method="DELETE")
        assert answer.status == 200, answer.body
