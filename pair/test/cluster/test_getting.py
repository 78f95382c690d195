"""GETs to members and plain ones, in memory: which address is asked, what is taken, and how a feed comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectError, NoRouteError
from twisted.test.iosim import connect, makeFakeClient, makeFakeServer

from pair.addresses import Place
from pair.cluster.dialing import PeerUnreachable
from pair.cluster.getting import FeedStream, Got, PeerGetter, Refused
from pair.cluster.leaf import leaf_digest
from pair.cluster.posting import FRAMING_MAX, CallError
from pair.feeds.following import NotReachedError
from pair.protocols.dial import DialError
from pair.test.cluster.peers import Pins
from pair.test.cluster.test_calls import LIMIT, OK, CallCase, long_answer
from pair.test.cluster.test_dialing import OTHER, RACK

if TYPE_CHECKING:
    from twisted.test.iosim import IOPump

    from pair.cluster.identity import Identity

PLACES = tuple(Place(f"192.0.2.{at}", 14322) for at in range(1, 7))
ONE, TWO, THREE = PLACES[:3]
PATH = "/v1/models?since=4"
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Taker:
    """A receiver that keeps what it gets.

    Attributes:
        stop: The stream that it aborts with the first bytes; None: none.
        fails: Whether it fails with them, and with the end.
    """

    def __init__(self) -> None:
        self.data = b""
        self.losses = 0
        self.stop: FeedStream | None = None
        self.fails = False

    def received(self, data: bytes) -> None:
        assert not self.losses, "nothing comes after the end"
        self.data += data
        if self.stop is not None:
            self.stop.abort()
        if self.fails:
            raise ValueError("a mistake")

    def lost(self) -> None:
        self.losses += 1
        if self.fails:
            raise ValueError("another")


class GetterCase(CallCase):
    def setUp(self) -> None:
        super().setUp()
        self.getter = PeerGetter(self.reactor, self.dialling)
        self.refusals: list[Refused] = []
        self.getter.refused.subscribe(self.refusals.append)

    def get(self, *places: Place, each: float = 3.0, seconds: float = 10.0) -> Deferred[Got]:
        return self.getter.get(RACK.uuid, places or (ONE,), PATH, LIMIT, seconds, each)

    def stream(self, *places: Place) -> Deferred[FeedStream]:
        return self.getter.stream(RACK.uuid, places or (ONE,), PATH)

    def answer_at(self, place: Place, node: Identity | None = RACK) -> IOPump:
        """As :meth:`answer`, at one of several addresses that are dialled."""
        at = self.dialled.index(place.host)
        self.reactor.tcpClients.append(self.reactor.tcpClients.pop(at))
        return self.answer(node)

    def assert_given_up(self, *hosts: str) -> None:
        """These were dialled in vain, and the dials are stopped."""
        stopped = [each for each in self.reactor.connectors if each.stoppedConnecting]
        self.assertEqual(len(stopped), len(hosts))
        self.assertEqual(self.dialled, list(hosts))
        self.reactor.tcpClients.clear()


class GetTests(GetterCase):
    def test_get(self) -> None:
        """One GET over HTTP/1.1, without a body; the answer comes with its place and the leaf there (AR-7)."""
        call = self.get(ONE, TWO)
        self.assertEqual(self.reactor.tcpClients[0][:2], (ONE.host, ONE.port))
        pump = self.answer(RACK)
        line, headers, body = self.request
        self.assertEqual((line, body), (b"GET /v1/models?since=4 HTTP/1.1", b""))
        self.assertEqual(headers.getRawHeaders(b"Host"), [RACK.uuid.encode()])
        self.assertEqual(headers.getRawHeaders(b"Connection"), [b"close"])
        self.say(pump, OK)
        self.assertEqual(self.successResultOf(call), Got(200, b"{}", ONE, leaf_digest(RACK.leaf)))
        self.assert_nothing_left()
        self.assertEqual(self.refusals, [])

    def test_race(self) -> None:
        """The first address that shows the right leaf is asked, and no other (DS-37)."""
        call = self.get(*PLACES)
        for _ in range(4):
            self.reactor.advance(0.3)
        self.assertEqual(self.dialled, [each.host for each in PLACES[:4]])
        self.answer_at(TWO, OTHER)
        self.assertEqual(self.there.last.data, b"")
        self.assertEqual(self.dialled[-1], PLACES[4].host)
        pump = self.answer_at(THREE)
        self.assert_given_up(ONE.host, PLACES[3].host, PLACES[4].host)
        self.say(pump, OK)
        self.assertEqual(self.successResultOf(call).place, THREE)
        self.assert_nothing_left()

    def test_race_in_the_handshake(self) -> None:
        """An open port decides nothing: who is in its handshake is cut off when another has shown its leaf."""
        call = self.get(ONE, TWO)
        silent = self.answer(None)
        self.reactor.advance(0.3)
        pump = self.answer(RACK)
        silent.flush()
        self.say(pump, OK)
        self.assertEqual(self.successResultOf(call).place, TWO)
        self.assert_nothing_left()

    def test_lost_before_the_answer(self) -> None:
        """A connection that ends before the first octet of an answer is no connection: the others are raced."""
        call = self.get(ONE, TWO, THREE)
        self.say(self.answer(RACK), b"", close=True)
        self.refuse()
        self.say(self.answer(RACK), b"", close=True)
        self.assertEqual(self.dialled, [TWO.host])
        self.refuse()
        self.assertEqual(self.failureResultOf(call, PeerUnreachable).value.reason, "refused")
        self.assert_nothing_left()

    def test_silent(self) -> None:
        """So it is with one that shows its leaf and then says nothing."""
        call = self.get(ONE, TWO, each=1.0)
        pump = self.answer(RACK)
        self.reactor.advance(1)
        pump.flush()
        self.say(self.answer_at(TWO), OK)
        self.assertEqual(self.successResultOf(call).place, TWO)
        self.assert_nothing_left()

    def test_nobody(self) -> None:
        """What tells most of all addresses is told."""
        for errors, reason in (
            ((NoRouteError(), NoRouteError()), "unreachable"),
            ((NoRouteError(), ConnectError()), "refused"),
            ((ConnectError(), NoRouteError()), "refused"),
        ):
            call = self.get(ONE, TWO)
            for error in errors:
                self.refuse(error)
            self.assertEqual(self.failureResultOf(call, PeerUnreachable).value.reason, reason)
            self.assert_nothing_left()

    def test_another(self) -> None:
        """Where others are, that is told, and they hear nothing."""
        call = self.get(ONE, TWO)
        self.refuse()
        self.answer(OTHER)
        self.assertEqual(self.there.last.data, b"")
        self.assertEqual(self.failureResultOf(call, PeerUnreachable).value.reason, "certificate")
        self.assert_nothing_left()

    def test_no_pin(self) -> None:
        """Without a pin nothing is dialled; one that is lost on the way ends the race (CL-12)."""
        call = self.get(ONE, TWO, THREE)
        self.reactor.advance(0.3)
        self.pins = Pins()
        self.answer_at(TWO)
        self.assertEqual(self.failureResultOf(call, PeerUnreachable).value.reason, "no_pin")
        self.assert_given_up(ONE.host)
        self.assertEqual(self.failureResultOf(self.get(ONE, TWO), PeerUnreachable).value.reason, "no_pin")
        self.assert_nothing_left()

    def test_no_place(self) -> None:
        """Who is nowhere is not reached."""
        call = self.getter.get(RACK.uuid, (), PATH, LIMIT, 1.0)
        self.assertEqual(self.failureResultOf(call, PeerUnreachable).value.reason, "no_address")

    def test_times(self) -> None:
        """One place has its own limit, the race 3 s, and the call its own."""
        call = self.get(ONE, each=1.0)
        self.reactor.advance(1.0)
        self.assertEqual(self.failureResultOf(call, PeerUnreachable).value.reason, "timeout")
        call = self.get(*PLACES)
        for _ in range(30):
            self.reactor.advance(0.1)
        self.assertEqual(self.failureResultOf(call, PeerUnreachable).value.reason, "timeout")
        self.reactor.tcpClients.clear()
        call = self.get(ONE, seconds=1.0)
        pump = self.answer(RACK)
        self.say(pump, OK[:-1])
        self.reactor.advance(1.0)
        pump.flush()
        self.assertEqual(self.failureResultOf(call, PeerUnreachable).value.reason, "timeout")
        self.reactor.tcpClients.clear()
        self.assert_nothing_left()

    def test_refused(self) -> None:
        """A refusal is an answer; its evidence is passed on (CL-17)."""
        call = self.get()
        self.say(self.answer(RACK), b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\n{}")
        self.assertEqual(self.successResultOf(call).status, 403)
        self.assertEqual(self.refusals, [Refused(RACK.uuid, b"{}")])

    def test_bad_answers(self) -> None:
        """One that is too long or no HTTP is not taken, and nobody else is asked."""
        for answer, reason in ((long_answer(LIMIT + 1), "too_large"), (b"hello\r\n\r\n", "broken")):
            call = self.get(ONE, TWO)
            self.say(self.answer(RACK), answer)
            self.assertEqual(self.failureResultOf(call, CallError).value.reason, reason)
            self.assert_nothing_left()

    def test_cut(self) -> None:
        """A call to one that is a member no more ends in that turn (CL-18)."""
        call = self.get(ONE, TWO)
        pump = self.answer(RACK)
        self.pins = Pins()
        self.connections.cut(self.pins)
        pump.flush()
        self.assertEqual(self.failureResultOf(call, PeerUnreachable).value.reason, "no_pin")

    def test_cancelled(self) -> None:
        """Who gives up leaves nothing open: in the race, before the answer, in the middle of it."""
        call = self.get(ONE, TWO)
        self.reactor.advance(0.3)
        call.cancel()
        self.failureResultOf(call, CancelledError)
        self.assert_given_up(ONE.host, TWO.host)
        for said in (b"", OK[:20], OK[:-1]):
            call = self.get()
            pump = self.answer(RACK)
            self.say(pump, said)
            call.cancel()
            pump.flush()
            self.failureResultOf(call, CancelledError)
            self.assertTrue(self.there.last.lost)
            self.assert_nothing_left()

    def test_unseen(self) -> None:
        """Nothing of an answer shows itself in a log (CL-105)."""
        self.assertNotIn("secret", repr(Got(200, b"secret", ONE)) + repr(Refused(RACK.uuid, b"secret")))


class StreamTests(GetterCase):
    def begin(self, head: bytes = STREAM) -> tuple[FeedStream, IOPump]:
        call = self.stream()
        pump = self.answer(RACK)
        self.say(pump, head)
        return self.successResultOf(call), pump

    def test_stream(self) -> None:
        """It comes as it is sent, without its framing, for as long as it will; nothing is waited for any more."""
        stream, pump = self.begin()
        taker = Taker()
        stream.deliver(taker)
        self.assertEqual((stream.place, self.reactor.getDelayedCalls()), (ONE, []))
        self.say(pump, chunk(b"one\n"))
        self.reactor.advance(3600)
        self.say(pump, chunk(b"tw"))
        self.assertEqual((taker.data, taker.losses), (b"one\ntw", 0))
        self.say(pump, chunk(bytes(FRAMING_MAX * 4)))
        self.assertEqual((len(taker.data), taker.losses), (6 + FRAMING_MAX * 4, 0))

    def test_not_read_before(self) -> None:
        """What came before it is delivered is kept, and no more is read; then it comes all the same."""
        stream, pump = self.begin(STREAM + chunk(b"early\n"))
        read: list[str] = []
        transport: Any = pump.clientIO
        transport.resumeProducing = lambda: read.append("resumed")
        taker = Taker()
        self.assertEqual(read, [])
        stream.deliver(taker)
        self.assertEqual((taker.data, read), (b"early\n", ["resumed"]))

    def test_abort(self) -> None:
        """Aborted, from within or not, its connection is gone at once; that is told once, and last."""
        for within in (False, True):
            stream, pump = self.begin()
            taker = Taker()
            taker.stop = stream if within else None
            stream.deliver(taker)
            self.say(pump, chunk(b"one\n"))
            if not within:
                self.assertEqual(taker.losses, 0)
                stream.abort()
            stream.abort()
            pump.flush()
            self.assertTrue(self.there.last.lost)
            self.assertEqual((taker.data, taker.losses), (b"one\n", 1))
            stream.abort()
            self.assert_nothing_left()

    def test_abort_before(self) -> None:
        """A stream that nobody wants is closed too."""
        stream, pump = self.begin()
        stream.abort()
        pump.flush()
        self.assertTrue(self.there.last.lost)
        self.assert_nothing_left()

    def test_ends(self) -> None:
        """However it ends: complete, broken, cut off; the loss is told once, when the connection is gone."""
        for said, close in (
            (chunk(b"one\n") + b"0\r\n\r\n", False),
            (chunk(b"one\n"), True),
            (b"nonsense\r\n", False),
        ):
            stream, pump = self.begin()
            taker = Taker()
            stream.deliver(taker)
            self.say(pump, said, close=close)
            self.assertEqual(taker.losses, 1, said)
            self.assertTrue(self.there.last.lost)
            self.assert_nothing_left()
        stream, pump = self.begin()
        taker = Taker()
        stream.deliver(taker)
        self.assertEqual(self.connections.cut(Pins()), 1)
        pump.flush()
        self.assertEqual(taker.losses, 1)

    def test_ended_before(self) -> None:
        """One that is over before it is delivered has what came, and its loss."""
        stream, _ = self.begin(STREAM + chunk(b"one\n") + b"0\r\n\r\n")
        taker = Taker()
        stream.deliver(taker)
        self.assertEqual((taker.data, taker.losses), (b"one\n", 1))
        self.assert_nothing_left()

    def test_mistake(self) -> None:
        """A receiver that fails is told of in the log, and its stream ends."""
        stream, pump = self.begin()
        taker = Taker()
        taker.fails = True
        stream.deliver(taker)
        self.say(pump, chunk(b"one\n"))
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 2)
        self.assertEqual(taker.losses, 1)
        self.assert_nothing_left()

    def test_refused(self) -> None:
        """Another status is no stream; the evidence of a refusal is passed on."""
        for status in (403, 503, 204, 307):
            call = self.stream(ONE, TWO)
            self.say(self.answer(RACK), b"HTTP/1.1 %d No\r\nContent-Length: 2\r\n\r\n{}" % status)
            self.assertEqual(str(self.failureResultOf(call, NotReachedError).value), f"status {status}")
            self.assert_nothing_left()
        self.assertEqual(self.refusals, [Refused(RACK.uuid, b"{}")])

    def test_not_reached(self) -> None:
        """Why there is none is told in a word: it is nowhere, is another, or does not answer in 5 s."""
        call = self.stream()
        self.refuse()
        self.assertEqual(str(self.failureResultOf(call, NotReachedError).value), "refused")
        call = self.stream()
        self.answer(OTHER)
        self.assertEqual(str(self.failureResultOf(call, NotReachedError).value), "certificate")
        call = self.stream()
        self.say(self.answer(RACK), b"hello\r\n\r\n")
        self.assertEqual(str(self.failureResultOf(call, NotReachedError).value), "broken")
        call = self.stream()
        pump = self.answer(RACK)
        self.reactor.advance(5.0)
        pump.flush()
        self.assertEqual(str(self.failureResultOf(call, NotReachedError).value), "timeout")
        self.assert_nothing_left()

    def test_too_late(self) -> None:
        """An answer that drips does not begin for ever."""
        call = self.stream()
        pump = self.answer(RACK)
        self.say(pump, STREAM[:10])
        self.reactor.advance(8.0)
        pump.flush()
        self.assertEqual(str(self.failureResultOf(call, NotReachedError).value), "timeout")
        self.assert_nothing_left()

    def test_cancelled(self) -> None:
        """A follower that gives up leaves nothing open."""
        call = self.stream()
        pump = self.answer(RACK)
        call.cancel()
        pump.flush()
        self.failureResultOf(call, CancelledError)
        self.assertTrue(self.there.last.lost)
        self.assert_nothing_left()


class PlainTests(GetterCase):
    def plain(self, place: Place = ONE, seconds: float = 1.0) -> Deferred[Got]:
        return self.getter.plain(place, "/v1/node-info", LIMIT, seconds)

    def test_plain(self) -> None:
        """By address and port, in the clear; the zone is dialled and not told (CL-13)."""
        place = Place("fe80::7%eth1", 14318)
        call = self.plain(place)
        self.assertEqual(self.reactor.tcpClients[0][:2], ("fe80::7%eth1", 14318))
        pump = self.answer(None)
        line, headers, _ = self.request
        self.assertEqual(line, b"GET /v1/node-info HTTP/1.1")
        self.assertEqual(headers.getRawHeaders(b"Host"), [b"[fe80::7]:14318"])
        self.say(pump, OK)
        self.assertEqual(self.successResultOf(call), Got(200, b"{}", place))
        self.assert_nothing_left()

    def test_failures(self) -> None:
        """No connection, no answer, one that is too long; a redirect is not followed."""
        call = self.plain()
        self.refuse(NoRouteError())
        self.assertEqual(self.failureResultOf(call, DialError).value.reason, "unreachable")
        call = self.plain()
        pump = self.answer(None)
        self.reactor.advance(1.0)
        pump.flush()
        self.assertEqual(self.failureResultOf(call, CallError).value.reason, "timeout")
        call = self.plain()
        self.say(self.answer(None), long_answer(LIMIT + 1))
        self.assertEqual(self.failureResultOf(call, CallError).value.reason, "too_large")
        call = self.plain()
        self.say(self.answer(None), b"HTTP/1.1 307 No\r\nLocation: http://192.0.2.9/\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual(self.successResultOf(call).status, 307)
        self.assert_nothing_left()
        self.assertEqual(self.refusals, [])


class KnockTests(GetterCase):
    def knock(self, pinned: bool) -> Deferred[bool]:
        return self.getter.knock(RACK.uuid, (ONE, TWO), pinned, 2.0)

    def test_pinned(self) -> None:
        """A member is there where it shows its leaf; nothing is asked, and the connection does not stay (DS-56)."""
        call = self.knock(True)
        self.answer(OTHER)
        self.assertNoResult(call)
        pump = self.answer(RACK)
        self.assertTrue(self.successResultOf(call))
        pump.flush()
        self.assertEqual((self.there.last.data, self.there.last.lost), (b"", True))
        self.assert_nothing_left()

    def test_pinned_and_nobody(self) -> None:
        """It is not where another is, or nobody; one address has a second."""
        call = self.knock(True)
        self.answer(OTHER)
        self.reactor.advance(1.0)
        self.assertFalse(self.successResultOf(call))
        self.reactor.tcpClients.clear()
        self.assert_nothing_left()

    def test_plain(self) -> None:
        """A stranger is taken to be where a connection is accepted."""
        call = self.knock(False)
        self.refuse()
        factory = self.reactor.tcpClients.pop()[2]
        here, there = factory.buildProtocol(None), self.there.buildProtocol(None)
        pump = connect(there, makeFakeServer(there), here, makeFakeClient(here), clock=self.reactor)
        self.assertTrue(self.successResultOf(call))
        pump.flush()
        self.assertEqual((there.data, there.lost), (b"", True))
        self.assert_nothing_left()

    def test_plain_and_nobody(self) -> None:
        """Or it is not."""
        call = self.knock(False)
        self.refuse()
        self.reactor.advance(1.0)
        self.assertFalse(self.successResultOf(call))
        self.reactor.tcpClients.clear()
        self.assert_nothing_left()

    def test_too_late(self) -> None:
        """All addresses together have their own limit."""
        call = self.getter.knock(None, PLACES, False, 0.5)
        self.reactor.advance(0.5)
        self.assertFalse(self.successResultOf(call))
        self.reactor.tcpClients.clear()
        self.assert_nothing_left()
