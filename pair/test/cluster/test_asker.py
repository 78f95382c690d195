"""Nodes are asked who they are, in memory: a member by its pin, a stranger by what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectError, DNSLookupError, NoRouteError, TCPTimedOutError

from pair.cluster.asker import Asker
from pair.cluster.leaf import leaf_digest
from pair.records.asking import Answer, AskFailed
from pair.records.telemetry import NodeInfo
from pair.test.cluster.peers import Pins
from pair.test.cluster.test_dialing import OTHER, RACK
from pair.test.cluster.test_getting import ONE, PLACES, TWO, GetterCase

if TYPE_CHECKING:
    from pair.addresses import Place
    from pair.cluster.identity import Identity


def decode(body: bytes) -> NodeInfo | None:
    """In these tests node-info is a UUID, or empty."""
    return NodeInfo(host_uuid=body.decode()) if body else None


def said(node: Identity | None, status: int = 200) -> bytes:
    body = b"" if node is None else node.uuid.encode()
    return b"HTTP/1.1 %d So\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


class AskerCase(GetterCase):
    def setUp(self) -> None:
        super().setUp()
        self.asker = Asker(self.reactor, self.getter, lambda: self.pins, decode)
        self.strayed: list[Answer] = []
        self.asker.strayed.subscribe(self.strayed.append)

    def ask(self, *places: Place, node: str | None = RACK.uuid, seconds: float = 2.0) -> Deferred[Answer]:
        return self.asker.node_info(node, places or (ONE,), seconds)

    def assert_failed(self, asking: Deferred[Answer], word: str) -> None:
        self.assertEqual(self.failureResultOf(asking, AskFailed).value.word, word)
        self.reactor.tcpClients.clear()
        self.assert_nothing_left()


class MemberTests(AskerCase):
    def test_answer(self) -> None:
        """A member is asked over mutual TLS; the answer names place and leaf (DS-37)."""
        asking = self.ask(ONE, TWO)
        pump = self.answer(RACK)
        self.assertEqual(self.request[0], b"GET /v1/node-info HTTP/1.1")
        self.say(pump, said(RACK))
        answer = Answer(NodeInfo(host_uuid=RACK.uuid), ONE, leaf_digest(RACK.leaf))
        self.assertEqual(self.successResultOf(asking), answer)
        self.assertEqual(self.strayed, [])
        self.assert_nothing_left()

    def test_failures(self) -> None:
        """Why it does not answer is told in a word (DS-73)."""
        for error, word in (
            (ConnectError(), "refused"),
            (NoRouteError(), "unreachable"),
            (TCPTimedOutError(), "timeout"),
        ):
            asking = self.ask()
            self.refuse(error)
            self.assert_failed(asking, word)
        asking = self.ask()
        self.answer(OTHER)
        self.assert_failed(asking, "other")
        asking = self.asker.node_info(RACK.uuid, (), 2.0)
        self.assert_failed(asking, "unreachable")
        for answer, word in (
            (said(None), "not_pair"),
            (said(RACK, 404), "not_pair"),
            (said(RACK, 403), "refused"),
            (b"hello\r\n\r\n", "not_pair"),
        ):
            asking = self.ask()
            self.say(self.answer(RACK), answer)
            self.assert_failed(asking, word)
        self.assertEqual(len(self.refusals), 1)

    def test_wrong_name(self) -> None:
        """A member that names another node is not taken at its word (DS-52)."""
        asking = self.ask()
        self.say(self.answer(RACK), said(OTHER))
        self.assert_failed(asking, "other")
        self.assertEqual([each.info.host_uuid for each in self.strayed], [OTHER.uuid])

    def test_times(self) -> None:
        """An address has a second to show who it is, and one to begin its answer; all have their own limit."""
        asking = self.ask(ONE, TWO, seconds=3.0)
        self.reactor.advance(0.3)
        pump = self.answer_at(TWO)
        self.reactor.advance(1.0)
        pump.flush()
        self.reactor.advance(1.0)
        self.assert_failed(asking, "timeout")
        asking = self.ask(*PLACES, seconds=0.5)
        self.reactor.advance(0.5)
        self.assert_failed(asking, "timeout")


class StrangerTests(AskerCase):
    def setUp(self) -> None:
        super().setUp()
        self.pins = Pins()

    def test_answer(self) -> None:
        """A stranger is asked in the clear, and the answer has no leaf."""
        asking = self.ask()
        self.say(self.answer(None), said(RACK))
        self.assertEqual(self.successResultOf(asking), Answer(NodeInfo(host_uuid=RACK.uuid), ONE))
        self.assert_nothing_left()

    def test_first_that_names_it(self) -> None:
        """The first that names the node counts, not the first that answers; who the others are is told (DS-37, 69)."""
        asking = self.ask(ONE, TWO)
        self.reactor.advance(0.3)
        self.say(self.answer_at(ONE, None), said(OTHER))
        self.assertNoResult(asking)
        self.say(self.answer_at(TWO, None), said(RACK))
        self.assertEqual(self.successResultOf(asking).place, TWO)
        self.assertEqual(self.strayed, [Answer(NodeInfo(host_uuid=OTHER.uuid), ONE)])
        self.assert_nothing_left()

    def test_whoever(self) -> None:
        """Where nobody in particular is asked, the first that is a node counts (DS-73)."""
        asking = self.ask(ONE, TWO, node=None)
        self.say(self.answer(None), said(None))
        self.say(self.answer(None), said(OTHER))
        self.assertEqual(self.successResultOf(asking).info.host_uuid, OTHER.uuid)
        self.assertEqual(self.strayed, [])

    def test_failures(self) -> None:
        """Of several addresses that is told which tells most (DS-73)."""
        for error, word in (
            (DNSLookupError(), "unresolvable"),
            (NoRouteError(), "unreachable"),
            (TCPTimedOutError(), "timeout"),
            (ConnectError(), "refused"),
        ):
            asking = self.ask(ONE, TWO)
            self.refuse(error)
            self.refuse(DNSLookupError())
            self.assert_failed(asking, word)
        for answer, word in ((said(None), "not_pair"), (said(RACK, 500), "not_pair"), (said(OTHER), "other")):
            asking = self.ask(ONE, TWO)
            self.say(self.answer(None), answer)
            self.refuse()
            self.assert_failed(asking, word)
        asking = self.ask()
        self.say(self.answer(None), b"", close=True)
        self.assert_failed(asking, "refused")
        self.assert_failed(self.asker.node_info(None, (), 2.0), "unreachable")

    def test_times(self) -> None:
        """An address has a second, however it spends it; all have their own limit."""
        asking = self.ask(ONE, TWO)
        pump = self.answer(None)
        for seconds in (0.3, 0.7):
            self.reactor.advance(seconds)
        pump.flush()
        self.assertNoResult(asking)
        self.reactor.advance(0.3)
        self.assert_failed(asking, "timeout")
        asking = self.ask(*PLACES, seconds=0.5)
        self.reactor.advance(0.5)
        self.assert_failed(asking, "timeout")

    def test_cancelled(self) -> None:
        """Who gives up leaves nothing open."""
        asking = self.ask(ONE, TWO)
        pump = self.answer(None)
        asking.cancel()
        pump.flush()
        self.failureResultOf(asking, CancelledError)
        self.assertTrue(self.there.last.lost)
        self.assert_nothing_left()

    def test_knock(self) -> None:
        """To knock is the getter's."""
        asking = self.asker.knock(None, (ONE,), False, 2.0)
        self.refuse()
        self.assertFalse(self.successResultOf(asking))
