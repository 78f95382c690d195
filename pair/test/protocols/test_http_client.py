"""Tests of :mod:`pair.protocols.http_client` and :mod:`pair.protocols.upload`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.error import ConnectionDone, ConnectionLost, DNSLookupError
from twisted.internet.error import TimeoutError as ConnectTimeout
from twisted.internet.interfaces import IHandshakeListener, IPushProducer
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from pair.protocols.calls import FailureKind, Target, UpstreamFailure
from pair.protocols.http_client import Call, ClientConnection
from pair.protocols.pool import ClientPool
from pair.protocols.upload import PIECE
from pair.test.protocols.upstream import GET, POST, TARGET, Endpoint, Receiver, Transport

if TYPE_CHECKING:
    from pair.protocols.response import ResponseHead

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
TLS_TARGET = Target("remote", "192.0.2.1", 443, b"192.0.2.1", tls=True)


class CallTestCase(SynchronousTestCase):
    """A pool whose targets are in memory."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoint = Endpoint(self.clock)
        self.pool = ClientPool(self.clock, lambda target: self.endpoint)
        self.receiver = Receiver()

    def connected(
        self, head: bytes = GET, body: bytes | None = b"", head_only: bool = False
    ) -> tuple[Call, Transport]:
        """A call on a new connection."""
        call = self.pool.send(TARGET, head, body, self.receiver, head_only=head_only)
        return call, self.endpoint.accept()

    def assert_lost(self, kind: FailureKind, at_boundary: bool = False) -> None:
        self.assertEqual(self.receiver.failure, UpstreamFailure(kind, at_boundary))
        self.assertFalse(self.receiver.ended)


class ResponseTests(CallTestCase):
    def test_round(self) -> None:
        """Request in one write, head and body told, one call a read, then the end; the connection stays."""
        call, transport = self.connected(POST, b"ping")
        self.assertEqual((transport.value(), call.sent), (POST + b"ping", True))
        transport.receive(OK + b"Content-Length: 8\r\n\r\npo")
        assert self.receiver.head is not None
        self.assertEqual((self.receiver.head.status, self.receiver.raw, call.received), (200, b"po", 2))
        transport.receive(b"ng")
        transport.receive(b"pong")
        self.assertEqual((self.receiver.raw, self.receiver.reads, self.receiver.ended), (b"pongpong", 3, 1))
        self.assertEqual(call.received, 8)
        self.clock.advance(0)
        self.assertFalse(transport.closed)

    def test_chunked(self) -> None:
        """Raw bytes come with their framing, the parts without it."""
        _, transport = self.connected()
        transport.receive(CHUNKED)
        transport.receive(b"2\r\nhi\r\n3\r\nyou\r\n0\r\n\r\n")
        self.assertEqual(self.receiver.raw, b"2\r\nhi\r\n3\r\nyou\r\n0\r\n\r\n")
        self.assertEqual((self.receiver.parts, self.receiver.reads, self.receiver.ended), ([b"hi", b"you"], 1, 1))

    def test_interim(self) -> None:
        """The receiver hears nothing of interim responses (PX-78)."""
        _, transport = self.connected()
        transport.receive(b"HTTP/1.1 102 Processing\r\n\r\n")
        self.assertIsNone(self.receiver.head)
        transport.receive(b"HTTP/1.1 103 Hints\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n")
        self.assertEqual((self.receiver.reads, self.receiver.ended), (0, 1))

    def test_head_request(self) -> None:
        """After HEAD the response ends at its head, and its connection is closed (PX-58)."""
        _, transport = self.connected(head_only=True)
        transport.receive(OK + b"Content-Length: 5\r\n\r\n")
        self.assertEqual((self.receiver.reads, self.receiver.ended), (0, 1))
        self.clock.advance(0)
        self.assertTrue(transport.closed)

    def test_until_close(self) -> None:
        """A body without framing is complete at a clean close (PX-58)."""
        _, transport = self.connected()
        transport.receive(OK + b"\r\nhello")
        self.assertFalse(self.receiver.ended)
        transport.close()
        self.assertEqual((self.receiver.raw, self.receiver.ended, self.receiver.failure), (b"hello", 1, None))

    def test_until_reset(self) -> None:
        """A body without framing is not complete when the socket fails."""
        _, transport = self.connected()
        transport.receive(OK + b"\r\nhello")
        transport.close(ConnectionLost())
        self.assert_lost("broken", at_boundary=True)

    def test_receiver_replaced(self) -> None:
        """A receiver may hand the response over at its head; the next hears the rest of the same read."""
        call, transport = self.connected()
        relay = Receiver()

        def hand_over(head: ResponseHead) -> None:
            call.receiver = relay

        self.receiver.head_received = hand_over  # type: ignore[method-assign]
        transport.receive(OK + b"Content-Length: 2\r\n\r\nhi")
        self.assertEqual((relay.raw, relay.ended, self.receiver.ended), (b"hi", 1, 0))

    def test_connection_close(self) -> None:
        """A connection that the engine will not keep is closed at the end."""
        _, transport = self.connected()
        transport.receive(OK + b"Connection: close\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual(self.receiver.ended, 1)
        self.clock.advance(0)
        self.assertTrue(transport.closed)

    def test_early_response(self) -> None:
        """A response that is complete before the request is sent is told; the connection is then aborted."""
        call, transport = self.connected(POST, None)
        transport.receive(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual(self.receiver.ended, 1)
        call.write_body(b"ping")
        call.end_body()
        self.clock.advance(0)
        self.assertTrue(transport.aborted)
        self.assertEqual(transport.value(), POST)


class SwitchTests(CallTestCase):
    """A call that asks for another protocol (PX-75)."""

    SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"

    def switching(self) -> tuple[Call, Transport]:
        call = self.pool.send(TARGET, GET, b"", self.receiver, upgrade=True)
        return call, self.endpoint.accept()

    def test_switched(self) -> None:
        """The caller has the connection: what comes is told, what it writes is sent; it serves no other call."""
        call, transport = self.switching()
        transport.receive(self.SWITCHING + b"hel")
        transport.receive(b"lo")
        self.assertEqual((self.receiver.raw, self.receiver.parts), (b"hello", [b"hel", b"lo"]))
        call.switched.write(b"ping")
        self.assertEqual(transport.value(), GET + b"ping")
        self.pool.send(TARGET, GET, b"", Receiver())
        self.assertEqual(len(self.endpoint.dials), 2)
        transport.close()
        self.assertEqual(self.receiver.ended, 1)

    def test_reset(self) -> None:
        """A connection that breaks is a loss."""
        _, transport = self.switching()
        transport.receive(self.SWITCHING)
        transport.close(ConnectionLost())
        self.assert_lost("broken", at_boundary=True)

    def test_another_answer(self) -> None:
        """It is told as any other is, and the connection is kept."""
        _, transport = self.switching()
        transport.receive(OK + b"Content-Length: 2\r\n\r\nok")
        self.assertEqual((self.receiver.raw, self.receiver.ended), (b"ok", 1))
        self.pool.send(TARGET, GET, b"", Receiver())
        self.assertEqual(len(self.endpoint.dials), 1)


class LossTests(CallTestCase):
    def test_broken(self) -> None:
        """Closed or reset after the request was sent: ``broken``, told whether a chunk may follow (PX-63)."""
        for end, at_boundary in ((b"2\r\nhi\r\n", True), (b"2\r\nh", False), (b"", True)):
            self.receiver = Receiver()
            _, transport = self.connected()
            transport.receive(CHUNKED + end)
            transport.close(ConnectionDone())
            self.assert_lost("broken", at_boundary)
            self.assertEqual(self.receiver.raw, end)

    def test_closed_without_a_byte(self) -> None:
        """A *new* connection that closes without an answer is broken; nothing is repeated."""
        _, transport = self.connected()
        transport.close()
        self.assert_lost("broken")
        self.assertEqual(len(self.endpoint.dials), 1)

    def test_content_length(self) -> None:
        """A body that is shorter than its length is broken, and nothing may follow it."""
        _, transport = self.connected()
        transport.receive(OK + b"Content-Length: 5\r\n\r\nhell")
        transport.close()
        self.assert_lost("broken")

    def test_framing(self) -> None:
        """Of a read with an error nothing is told; the connection is aborted (PX-58)."""
        _, transport = self.connected()
        transport.receive(CHUNKED + b"2\r\nhi\r\n")
        transport.receive(b"2\r\nho\r\nbroken\r\n")
        self.assert_lost("framing")
        self.assertEqual(self.receiver.raw, b"2\r\nhi\r\n")
        self.assertTrue(transport.aborted)

    def test_second_response(self) -> None:
        """Two responses in one read: nothing of it is told."""
        _, transport = self.connected()
        transport.receive(OK + b"Content-Length: 2\r\n\r\nhi" + OK)
        self.assert_lost("framing")
        self.assertIsNone(self.receiver.head)

    def test_reset_while_sending(self) -> None:
        """A connection that goes before the request is sent: ``write``."""
        _, transport = self.connected(POST, None)
        transport.close(ConnectionLost())
        self.assert_lost("write")

    def test_no_connection(self) -> None:
        """No connection: ``connect``, told in a later turn."""
        self.pool.send(TARGET, GET, b"", self.receiver)
        self.endpoint.dials[0].refuse(DNSLookupError())
        self.assertIsNone(self.receiver.failure)
        self.clock.advance(0)
        self.assert_lost("connect")

    def test_connect_timeout(self) -> None:
        """No connection within 3 s: ``timeout``, and the attempt is given up (PX-51)."""
        self.pool.send(TARGET, GET, b"", self.receiver)
        self.clock.advance(2.9)
        self.assertFalse(self.endpoint.dials[0].cancelled)
        self.clock.advance(0.1)
        self.assertTrue(self.endpoint.dials[0].cancelled)
        self.clock.advance(0)
        self.assert_lost("timeout")

    def test_system_timeout(self) -> None:
        """The system's own time-out counts as one."""
        self.pool.send(TARGET, GET, b"", self.receiver)
        self.endpoint.dials[0].refuse(ConnectTimeout())
        self.clock.advance(0)
        self.assert_lost("timeout")


class HandshakeTests(CallTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.call = self.pool.send(TLS_TARGET, GET, b"", self.receiver)

    def test_nothing_before(self) -> None:
        """The request leaves when TLS is agreed on."""
        transport = self.endpoint.accept()
        self.assertEqual(transport.value(), b"")
        self.assertTrue(verifyObject(IHandshakeListener, transport.protocol))
        transport.protocol.handshakeCompleted()
        self.assertEqual(transport.value(), GET)

    def test_failed(self) -> None:
        """A connection that goes during the handshake: ``tls``."""
        self.endpoint.accept().close(ConnectionLost())
        self.clock.advance(0)
        self.assert_lost("tls")

    def test_slow(self) -> None:
        """Connection and handshake have 3 s together."""
        self.clock.advance(2)
        transport = self.endpoint.accept()
        self.clock.advance(1)
        self.assertTrue(transport.aborted)
        self.clock.advance(0)
        self.assert_lost("timeout")

    def test_abort(self) -> None:
        """A call given up during the handshake aborts the socket and hears nothing."""
        transport = self.endpoint.accept()
        self.call.abort()
        self.assertTrue(transport.aborted)
        self.clock.advance(5)
        self.assertIsNone(self.receiver.failure)


class AbortTests(CallTestCase):
    def test_connected(self) -> None:
        """The socket is aborted in the same turn and the receiver hears nothing more (AR-9)."""
        call, transport = self.connected()
        transport.receive(CHUNKED)
        call.stopProducing()
        self.assertTrue(transport.aborted)
        transport.receive(b"2\r\nhi\r\n")
        self.clock.advance(0)
        call.abort()
        self.assertEqual((self.receiver.raw, self.receiver.failure), (b"", None))

    def test_at_boundary(self) -> None:
        """Who is about to abort learns whether a chunk may follow what was delivered (PX-63)."""
        for end, at_boundary in ((b"", True), (b"2\r\nhi\r\n", True), (b"2\r\nhi", False)):
            self.receiver = Receiver()
            call, transport = self.connected()
            transport.receive(CHUNKED + end)
            self.assertIs(call.at_boundary, at_boundary)
            call.abort()

    def test_connecting(self) -> None:
        """An attempt to connect is cancelled."""
        call = self.pool.send(TARGET, GET, b"", self.receiver)
        call.abort()
        self.assertTrue(self.endpoint.dials[0].cancelled)
        self.clock.advance(5)
        self.assertIsNone(self.receiver.failure)

    def test_refused_before(self) -> None:
        """A call given up between a refusal and its telling hears nothing."""
        call = self.pool.send(TARGET, GET, b"", self.receiver)
        self.endpoint.dials[0].refuse(DNSLookupError())
        call.abort()
        self.clock.advance(0)
        self.assertIsNone(self.receiver.failure)

    def test_within_head(self) -> None:
        """A receiver that gives up when it has seen the head hears nothing of the rest of the read."""
        call, transport = self.connected()
        self.receiver.head_received = lambda head: call.abort()  # type: ignore[method-assign]
        transport.receive(OK + b"Content-Length: 2\r\n\r\nhi")
        self.assertEqual((self.receiver.raw, self.receiver.ended), (b"", 0))
        self.assertTrue(transport.aborted)

    def test_within_body(self) -> None:
        """A receiver that gives up within the last read is not told of the end."""
        call, transport = self.connected()
        self.receiver.body_received = lambda raw, parts: call.abort()  # type: ignore[method-assign]
        transport.receive(OK + b"Content-Length: 2\r\n\r\nhi")
        self.assertEqual(self.receiver.ended, 0)
        self.assertTrue(transport.aborted)

    def test_after_the_end(self) -> None:
        """A call that is over no longer touches its connection."""
        call, transport = self.connected()
        transport.receive(OK + b"Content-Length: 0\r\n\r\n")
        call.pauseProducing()
        call.abort()
        self.assertFalse(transport.aborted)
        self.assertEqual(transport.producerState, "producing")


class FlowTests(CallTestCase):
    def test_pause(self) -> None:
        """A call is a push producer: it pauses and resumes its socket (PX-59)."""
        call, transport = self.connected()
        self.assertTrue(verifyObject(IPushProducer, call))
        call.pauseProducing()
        self.assertEqual(transport.producerState, "paused")
        call.resumeProducing()
        self.assertEqual(transport.producerState, "producing")

    def test_pause_before_connection(self) -> None:
        """A pause while there is no connection yet holds for the one that comes."""
        call = self.pool.send(TARGET, GET, b"", self.receiver)
        call.pauseProducing()
        self.assertEqual(self.endpoint.accept().producerState, "paused")

    def test_resumed_for_the_next(self) -> None:
        """A connection that was paused is resumed before the next call may have it (AR-9)."""
        call, transport = self.connected()
        call.pauseProducing()
        transport.receive(OK + b"Content-Length: 0\r\n\r\n")
        self.assertEqual(transport.producerState, "producing")


@implementer(IPushProducer)
class Source:
    """Where a streamed body comes from."""

    paused = False

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False

    def stopProducing(self) -> None:
        raise AssertionError("the source is the caller's to stop")


class StreamedBodyTests(CallTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.source = Source()
        self.call = self.pool.send(TARGET, POST, None, self.receiver)
        self.call.register_producer(self.source)

    def test_rests_until_connected(self) -> None:
        """The source rests until there is a connection; what it wrote goes out with the head."""
        self.assertTrue(self.source.paused)
        self.call.write_body(b"pi")
        transport = self.endpoint.accept()
        self.assertFalse(self.source.paused)
        self.assertEqual(transport.value(), POST + b"pi")
        self.call.write_body(b"ng")
        self.assertFalse(self.call.sent)
        self.call.end_body()
        self.assertTrue(self.call.sent)
        self.assertEqual(transport.value(), POST + b"ping")
        self.assertIsNone(transport.producer)

    def test_whole_before_connected(self) -> None:
        """A body that was whole before the connection was made is sent in one write."""
        self.call.write_body(b"ping")
        self.call.end_body()
        transport = self.endpoint.accept()
        self.assertEqual((transport.value(), self.call.sent), (POST + b"ping", True))
        transport.receive(OK + b"Content-Length: 0\r\n\r\n")
        self.assertFalse(transport.disconnecting)

    def test_pace(self) -> None:
        """A full socket pauses the source; the request is sent when the socket has taken the last of it."""
        transport = self.endpoint.accept()
        transport.room = 1000
        self.call.write_body(b"x" * 2000)
        self.assertTrue(self.source.paused)
        self.call.end_body()
        self.assertFalse(self.call.sent)
        transport.drain()
        self.assertTrue(self.call.sent)
        self.clock.advance(31)
        self.assertIsNone(self.receiver.failure)

    def test_stall(self) -> None:
        """30 s in which the socket takes nothing: ``write``, and the socket is aborted (PX-51)."""
        transport = self.endpoint.accept()
        transport.room = 1000
        self.call.write_body(b"x" * 2000)
        self.clock.advance(29)
        transport.drain()
        self.assertFalse(self.source.paused)
        self.call.write_body(b"x" * 2000)
        self.clock.advance(29)
        self.assertIsNone(self.receiver.failure)
        self.clock.advance(1)
        self.assert_lost("write")
        self.assertTrue(transport.aborted)

    def test_abort(self) -> None:
        """A call given up leaves the source at rest and no timer behind."""
        transport = self.endpoint.accept()
        transport.room = 1000
        self.call.write_body(b"x" * 2000)
        self.call.abort()
        self.clock.advance(0)
        self.assertTrue(self.source.paused)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class LongBodyTests(CallTestCase):
    def test_in_pieces(self) -> None:
        """A body over 64 KiB goes out as the socket takes it, piece by piece."""
        body = bytes(range(256)) * 1000
        call = self.pool.send(TARGET, POST, body, self.receiver)
        transport = self.endpoint.dials[0].accept()
        self.assertTrue(call.sent)
        self.assertEqual(transport.value(), POST + body)

    def test_pace(self) -> None:
        """Each time the socket is full the upload waits; each time has 30 s."""
        body = bytes(range(256)) * 1000
        _, transport = self.connected_with_room(body, PIECE)
        sent = b""
        for _ in range(2):
            self.clock.advance(29)
            self.assertLess(len(transport.value()), 3 * PIECE)
            sent += transport.drain()
        self.assertEqual(sent + transport.drain(), POST + body)
        self.clock.advance(31)
        self.assertIsNone(self.receiver.failure)

    def test_stall(self) -> None:
        """An engine that takes nothing for 30 s: ``write``."""
        call, transport = self.connected_with_room(b"x" * 10 * PIECE, PIECE)
        self.clock.advance(30)
        self.assertFalse(call.sent)
        self.assertTrue(transport.aborted)
        self.assert_lost("write")

    def connected_with_room(self, body: bytes, room: int) -> tuple[Call, Transport]:
        """A call on a socket that takes ``room`` octets at a time."""
        self.pool.send(TARGET, GET, b"", Receiver())
        transport = self.endpoint.accept()
        transport.room = room
        transport.receive(OK + b"Content-Length: 0\r\n\r\n")
        transport.clear()
        return self.pool.send(TARGET, POST, body, self.receiver), transport


class Owner:
    """Of connections: counts those that are gone."""

    def __init__(self) -> None:
        self.lost: list[ClientConnection] = []

    def served(self, connection: ClientConnection, resting: bytes | None) -> None:
        """It needs none."""

    def gone(self, connection: ClientConnection) -> None:
        self.lost.append(connection)


class ConnectionTests(SynchronousTestCase):
    def test_unasked(self) -> None:
        """Bytes on a connection that carries no call close it."""
        clock = Clock()
        owner = Owner()
        connection = ClientConnection(TARGET, owner)
        transport = Transport(clock)
        transport.protocol = connection
        connection.makeConnection(transport)
        transport.receive(OK)
        clock.advance(0)
        self.assertEqual((owner.lost, connection.reusable), ([connection], False))
