"""Calls to members and plain ones, in memory: what is sent, what is taken, and how each can fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred
from twisted.web.http_headers import Headers

from pair.cluster.calls import PLAIN_ANSWER_MAX, PeerAnswer, PeerCaller, PlainCaller, Reply
from pair.cluster.dialing import PeerUnreachable
from pair.cluster.posting import FRAMING_MAX, CallError
from pair.protocols.dial import DialError
from pair.test.cluster.peers import Pins
from pair.test.cluster.test_dialing import FAR, NEAR, OTHER, RACK, DialCase

if TYPE_CHECKING:
    from twisted.test.iosim import IOPump

    from pair.cluster.means import PlainReply

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
LIMIT = 1000


def long_answer(size: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)


class CallCase(DialCase):
    """A test plays the server: it sees the request and writes the answer itself."""

    def say(self, pump: IOPump, data: bytes, close: bool = False) -> None:
        self.there.last.transport.write(data)
        pump.flush()
        if close:
            self.there.last.transport.loseConnection()
            pump.flush()

    @property
    def request(self) -> tuple[bytes, Headers, bytes]:
        """The request line, the fields, the body."""
        head, _, body = self.there.last.data.partition(b"\r\n\r\n")
        line, *fields = head.split(b"\r\n")
        headers = Headers()
        for each in fields:
            name, _, value = each.partition(b": ")
            headers.addRawHeader(name, value)
        return line, headers, body

    def assert_nothing_left(self) -> None:
        """No connection, no timer, and no further dial."""
        self.assertEqual(self.dialled, [])
        self.assertEqual(len(self.connections), 0)
        self.assertEqual(self.reactor.getDelayedCalls(), [])


class PeerCallerTests(CallCase):
    def setUp(self) -> None:
        super().setUp()
        self.caller = PeerCaller(self.reactor, self.dialling)

    def post(self, *addresses: str) -> Deferred[PeerAnswer]:
        return self.caller.post(RACK.uuid, "/v1/cluster/sync", b'{"v":1}', LIMIT, addresses)

    def assert_unreachable(self, call: Deferred[PeerAnswer], reason: str) -> None:
        self.assertEqual(self.failureResultOf(call, PeerUnreachable).value.reason, reason)
        self.assert_nothing_left()

    def test_call(self) -> None:
        """The body arrives as JSON over HTTP/1.1, the answer comes with the address that gave it (AR-7)."""
        call = self.post(NEAR, FAR)
        self.refuse()
        self.assertEqual(self.reactor.tcpClients[0][:2], (FAR, 14321))
        pump = self.answer(RACK)
        line, headers, body = self.request
        self.assertEqual((line, body), (b"POST /v1/cluster/sync HTTP/1.1", b'{"v":1}'))
        self.assertEqual(headers.getRawHeaders(b"Content-Type"), [b"application/json"])
        self.assertEqual(headers.getRawHeaders(b"Content-Length"), [b"7"])
        self.say(pump, OK)
        self.assertEqual(self.successResultOf(call), PeerAnswer(200, b"{}", FAR))
        self.assert_nothing_left()

    def test_host(self) -> None:
        """Host is the UUID: no address, no zone, no name (CL-13)."""
        self.post(FAR)
        self.answer(RACK)
        self.assertEqual(self.request[1].getRawHeaders(b"Host"), [f"{RACK.uuid}:14321".encode()])

    def test_refusal_is_an_answer(self) -> None:
        """403 and its evidence come to the caller; a redirect is not followed, a cookie not kept."""
        for status in (403, 307):
            call = self.post(NEAR, FAR)
            pump = self.answer(RACK)
            head = b"HTTP/1.1 %d No\r\nLocation: http://192.0.2.9/\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\n\r\n{}"
            self.say(pump, head % status)
            self.assertEqual(self.successResultOf(call), PeerAnswer(status, b"{}", NEAR))
            self.assert_nothing_left()
        self.post(NEAR)
        self.answer(RACK)
        self.assertIsNone(self.request[1].getRawHeaders(b"Cookie"))

    def test_lost_before_the_answer(self) -> None:
        """A connection that ends before the first octet of an answer is no connection: the next is tried (CL-19)."""
        call = self.post(NEAR, FAR)
        self.say(self.answer(RACK), b"", close=True)
        self.assertEqual(self.dialled, [FAR])
        self.say(self.answer(RACK), OK)
        self.assertEqual(self.successResultOf(call).address, FAR)

    def test_lost_everywhere(self) -> None:
        """Then it is refused, and not for its leaf, though another's was seen elsewhere."""
        call = self.post(NEAR, FAR)
        self.say(self.answer(RACK), b"", close=True)
        self.answer(OTHER)
        self.assert_unreachable(call, "refused")

    def test_another_leaf(self) -> None:
        """Where only other leaves are shown, nothing is sent."""
        call = self.post(NEAR)
        self.answer(OTHER)
        self.assertEqual(self.there.last.data, b"")
        self.assert_unreachable(call, "certificate")

    def test_no_pin(self) -> None:
        """Who is no member is not called."""
        self.pins = Pins()
        self.assert_unreachable(self.post(NEAR), "no_pin")

    def test_no_answer(self) -> None:
        """An address that is silent for 5 s after the handshake is given up for the next."""
        call = self.post(NEAR, FAR)
        pump = self.answer(RACK)
        self.reactor.advance(5)
        pump.flush()
        self.assertEqual(self.dialled, [FAR])
        self.refuse()
        self.assert_unreachable(call, "timeout")

    def test_total(self) -> None:
        """All addresses together have 10 s, and an answer that drips has no more."""
        call = self.post(NEAR, FAR)
        self.reactor.advance(3)
        self.reactor.tcpClients.pop(0)
        pump = self.answer(RACK)
        self.say(pump, OK[:-1])
        self.reactor.advance(6.9)
        self.assertNoResult(call)
        self.reactor.advance(0.1)
        pump.flush()
        self.assert_unreachable(call, "timeout")

    def test_total_while_connecting(self) -> None:
        """When the time is over no further address is dialled."""
        call = self.post(*(f"192.0.2.{at}" for at in range(1, 9)))
        for _ in range(10):
            self.reactor.advance(1)
        self.assertEqual(self.failureResultOf(call, PeerUnreachable).value.reason, "timeout")
        self.assertEqual(self.dialled, [f"192.0.2.{at}" for at in range(1, 5)])
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_too_large(self) -> None:
        """An answer beyond its limit is broken off, not read to its end, and not asked for elsewhere."""
        for answer in (
            long_answer(LIMIT + 1),
            b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + bytes(LIMIT + 1),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * (LIMIT + 1),
            b"HTTP/1.1 200 OK\r\n" + b"X-Field: more\r\n" * (FRAMING_MAX // 8),
            b"HTTP/1.1 103 Early Hints\r\n\r\n" * (FRAMING_MAX // 16),
        ):
            call = self.post(NEAR, FAR)
            self.say(self.answer(RACK), answer)
            self.assertEqual(self.failureResultOf(call, CallError).value.reason, "too_large", answer[:60])
            self.assert_nothing_left()

    def test_just_not_too_large(self) -> None:
        """The limit itself is allowed."""
        call = self.post(NEAR)
        self.say(self.answer(RACK), long_answer(LIMIT))
        self.assertEqual(len(self.successResultOf(call).body), LIMIT)

    def test_broken(self) -> None:
        """What is no HTTP, or ends too early, is no answer; it was one of the peer's, so no other is asked for."""
        for answer in (OK[:-1], OK[:20], b"hello\r\n\r\n", OK.replace(b"2", b"x"), b"HTTP/1.1 200 OK\r\n\r\n{}"):
            call = self.post(NEAR, FAR)
            self.say(self.answer(RACK), answer, close=True)
            self.assertEqual(self.failureResultOf(call, CallError).value.reason, "broken", answer)
            self.assert_nothing_left()

    def test_cut(self) -> None:
        """A call to a member that a new view no longer names ends in its turn, and no other address is dialled."""
        call = self.post(NEAR, FAR)
        pump = self.answer(RACK)
        self.pins = Pins()
        self.assertEqual(self.connections.cut(self.pins), 1)
        pump.flush()
        self.assert_unreachable(call, "no_pin")

    def test_cancelled(self) -> None:
        """Who gives up has nothing left open: while it connects, before the answer, in the middle of it."""
        call = self.post(NEAR, FAR)
        call.cancel()
        self.failureResultOf(call, CancelledError)
        self.reactor.tcpClients.clear()
        self.assert_nothing_left()
        for said in (b"", OK[:20], OK[:-1]):
            call = self.post(NEAR, FAR)
            pump = self.answer(RACK)
            self.say(pump, said)
            call.cancel()
            pump.flush()
            self.failureResultOf(call, CancelledError)
            self.assertTrue(self.there.last.lost)
            self.assert_nothing_left()

    def test_silent(self) -> None:
        """Nothing of an answer shows itself in a log (CL-105)."""
        self.assertNotIn("secret", repr(PeerAnswer(200, b"secret", NEAR)) + repr(Reply(200, b"secret", b"secret")))


class PlainCallerTests(CallCase):
    def setUp(self) -> None:
        super().setUp()
        self.caller = PlainCaller(self.reactor)

    def post(self, address: str = NEAR, fields: dict[bytes, bytes] | None = None) -> Deferred[PlainReply]:
        return self.caller.post(address, 4321, "/v1/cluster/pairing", b"{}", fields or {}, 25.0)

    def test_call(self) -> None:
        """By address and port; the fields that are given go along, status, MAC and body come back."""
        call = self.post(fields={b"X-Pair-Mac": b"bWFj"})
        self.assertEqual(self.reactor.tcpClients[0][:2], (NEAR, 4321))
        pump = self.answer(None)
        line, headers, body = self.request
        self.assertEqual((line, body), (b"POST /v1/cluster/pairing HTTP/1.1", b"{}"))
        self.assertEqual(headers.getRawHeaders(b"X-Pair-Mac"), [b"bWFj"])
        self.assertEqual(headers.getRawHeaders(b"Content-Type"), [b"application/json"])
        self.say(pump, OK.replace(b"\r\n\r\n", b"\r\nX-Pair-Mac: aGVycw==\r\n\r\n"))
        self.assertEqual(self.successResultOf(call), Reply(200, b"aGVycw==", b"{}"))
        self.assert_nothing_left()

    def test_mac(self) -> None:
        """No MAC, or two, is none."""
        for fields in (b"", b"X-Pair-Mac: a\r\nX-Pair-Mac: b\r\n"):
            call = self.post()
            self.say(self.answer(None), b"HTTP/1.1 409 No\r\n" + fields + b"Content-Length: 0\r\n\r\n")
            self.assertEqual(self.successResultOf(call), Reply(409, None, b""))

    def test_host(self) -> None:
        """The zone is dialled and not told, nor is a name (CL-13)."""
        for address, host in (("192.0.2.1", b"192.0.2.1:4321"), ("fe80::7%eth1", b"[fe80::7]:4321")):
            self.post(address)
            self.assertEqual(self.dialled, [address])
            self.answer(None)
            self.assertEqual(self.request[1].getRawHeaders(b"Host"), [host])

    def test_no_connection(self) -> None:
        """Refused, or silent for 3 s (CL-56)."""
        call = self.post()
        self.refuse()
        self.assertEqual(self.failureResultOf(call, DialError).value.reason, "refused")
        call = self.post()
        self.reactor.advance(3)
        self.assertEqual(self.failureResultOf(call, DialError).value.reason, "timeout")

    def test_no_answer(self) -> None:
        """A long poll may take the time that it was given, and no more."""
        call = self.post()
        pump = self.answer(None)
        self.reactor.advance(24.9)
        self.assertNoResult(call)
        self.reactor.advance(0.1)
        pump.flush()
        self.assertEqual(self.failureResultOf(call, CallError).value.reason, "timeout")
        self.assertTrue(self.there.last.lost)
        self.assert_nothing_left()

    def test_lost(self) -> None:
        """The connection ended without an answer."""
        call = self.post()
        self.say(self.answer(None), b"", close=True)
        self.assertEqual(self.failureResultOf(call, CallError).value.reason, "lost")

    def test_too_large(self) -> None:
        """A stranger's answer has a limit too."""
        call = self.post()
        self.say(self.answer(None), long_answer(PLAIN_ANSWER_MAX + 1))
        self.assertEqual(self.failureResultOf(call, CallError).value.reason, "too_large")
        self.assert_nothing_left()

    def test_cancelled(self) -> None:
        """The connection goes with the call."""
        call = self.post()
        pump = self.answer(None)
        call.cancel()
        pump.flush()
        self.failureResultOf(call, CancelledError)
        self.assertTrue(self.there.last.lost)
