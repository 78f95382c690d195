"""Exchanges without sockets: how an answer is written and a body delivered."""

from __future__ import annotations

from twisted.internet.address import IPv6Address

from pair.protocols.http_server import Exchange, Framing, HTTPServerProtocol
from pair.test.protocols.serving import (
    BAD_REQUEST,
    CHUNKED,
    EXPECTING,
    GET,
    HEAD,
    OK,
    OK_CLOSE,
    OLD_GET,
    POST,
    Body,
    Producer,
    ServerCase,
    Wire,
    answer_ok,
)
from pair.test.protocols.test_http_reader import H2C


class AnswerTests(ServerCase):
    def test_head_of_the_request(self) -> None:
        """The exchange tells the request's head and who asks."""
        self.receive(GET)
        self.assertEqual(self.exchanges[0].head.target, b"/a")
        self.assertEqual(self.exchanges[0].peer, "127.0.0.1")

    def test_mapped_peer(self) -> None:
        """``::ffff:127.0.0.1`` is 127.0.0.1, other IPv6 addresses are themselves (AR-10)."""
        for host, expected in (("::ffff:127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("fe80::1%eth0", "fe80::1%eth0")):
            server = HTTPServerProtocol(self.factory)
            server.makeConnection(Wire(peerAddress=IPv6Address("TCP", host, 1)))
            self.assertEqual(server.peer, expected)

    def test_respond(self) -> None:
        """A whole answer is one write, with its length; the connection stays open."""
        self.receive(GET)
        self.exchanges[0].respond(404, [(b"A", b"b")], b"no")
        self.assertEqual(self.sent(), b"HTTP/1.1 404 Not Found\r\nA: b\r\nContent-Length: 2\r\n\r\nno")
        self.assertEqual(self.wire.writes, 1)
        self.assertTrue(self.exchanges[0].done)
        self.assertFalse(self.wire.disconnecting)

    def test_head(self) -> None:
        """The answer to HEAD has the length and no body; nor is one written later."""
        self.receive(HEAD)
        self.exchanges[0].respond(200, [], b"ok")
        self.assertEqual(self.sent(), b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        self.receive(HEAD)
        self.exchanges[1].begin(200, None, [], Framing.CHUNKED, b"ok")
        self.exchanges[1].write(b"more")
        self.exchanges[1].finish()
        self.assertEqual(self.sent(), b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.receive(HEAD + GET)
        self.exchanges[2].respond(200, [], b"ok")
        self.exchanges[3].respond(200, [], b"ok")
        self.assertEqual(self.sent(), b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + OK)

    def test_no_content(self) -> None:
        """204 and 304 have neither body nor length (RFC 9110, 8.6)."""
        self.receive(GET)
        self.exchanges[0].respond(204, [], b"ok")
        self.assertEqual(self.sent(), b"HTTP/1.1 204 No Content\r\n\r\n")

    def test_passed(self) -> None:
        """With framing ``PASSED`` bytes go out as they come: head and first bytes in one write, then a write each."""
        self.receive(GET)
        exchange = self.exchanges[0]
        exchange.begin(200, b"Fine", [(b"Transfer-Encoding", b"chunked")], Framing.PASSED, b"1\r\nx\r\n")
        self.assertEqual(self.wire.writes, 1)
        exchange.write(b"0\r\n\r\n")
        self.assertEqual(self.wire.writes, 2)
        exchange.finish()
        self.assertEqual(self.wire.writes, 2)
        self.assertEqual(self.sent(), b"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
        self.assertFalse(self.wire.disconnecting)

    def test_chunked(self) -> None:
        """With framing ``CHUNKED`` each write is a chunk, an empty one nothing, and the end the last chunk."""
        self.receive(GET)
        exchange = self.exchanges[0]
        exchange.begin(200, None, [], Framing.CHUNKED, b"0123456789abcdef")
        exchange.write(b"")
        exchange.write(b"x")
        exchange.finish()
        self.assertEqual(
            self.sent(),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n0123456789abcdef\r\n1\r\nx\r\n0\r\n\r\n",
        )

    def test_chunked_for_an_old_client(self) -> None:
        """A client of HTTP/1.0 knows no chunks: it gets the payload, ended by the close (PX-58)."""
        self.receive(OLD_GET)
        exchange = self.exchanges[0]
        exchange.begin(200, None, [], Framing.CHUNKED, b"a")
        exchange.write(b"b")
        exchange.finish()
        self.assertEqual(self.sent(), b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nab")
        self.assertTrue(self.wire.disconnecting)

    def test_old_client_that_keeps_alive(self) -> None:
        """An HTTP/1.0 client that asks to keep the connection is told that it is kept."""
        self.application = answer_ok
        self.receive(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        self.assertEqual(self.sent(), b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")
        self.assertFalse(self.wire.disconnecting)

    def test_close_asked_for(self) -> None:
        """``Connection: close`` is obeyed; what follows it is not understood."""
        self.application = answer_ok
        self.receive(GET[:-2] + b"Connection: close\r\n\r\n" + GET)
        self.assertEqual(self.sent(), OK_CLOSE)
        self.assertTrue(self.wire.disconnecting)
        self.assertEqual(len(self.exchanges), 1)

    def test_nothing_kept(self) -> None:
        """While an answer goes out nothing is kept of the head that asked for it."""
        self.receive(GET)
        self.exchanges[0].begin(200, None, [], Framing.CHUNKED)
        self.assertFalse(hasattr(self.exchanges[0], "head"))

    def test_begun_twice(self) -> None:
        """An answer begins once."""
        self.receive(GET)
        self.exchanges[0].begin(200, None, [], Framing.CHUNKED)
        self.assertRaises(RuntimeError, self.exchanges[0].begin, 200, None, [], Framing.CHUNKED)

    def test_after_the_end(self) -> None:
        """Once done, an exchange writes nothing, whatever is called."""
        self.receive(GET)
        exchange = self.exchanges[0]
        answer_ok(exchange)
        self.sent()
        exchange.respond(500, [], b"x")
        exchange.begin(500, None, [], Framing.CLOSE, b"x")
        exchange.write(b"x")
        exchange.finish()
        exchange.abort()
        exchange.read_body(Body())
        exchange.pause_body()
        exchange.resume_body()
        exchange.register_producer(Producer())
        self.assertEqual((self.sent(), self.wire.producer, exchange.unsent), (b"", None, 0))
        self.assertFalse(self.wire.disconnecting)

    def test_abort(self) -> None:
        """An aborted answer is cut: no last chunk; the application is not told what it did itself."""
        self.receive(GET)
        self.exchanges[0].begin(200, None, [], Framing.CHUNKED, b"a")
        self.exchanges[0].abort()
        self.assertTrue(self.sent().endswith(b"1\r\na\r\n"))
        self.assertTrue(self.wire.aborted)
        self.server.connectionLost()
        self.assertEqual(self.lost, [])

    def test_producer(self) -> None:
        """A producer is the transport's own, a push producer, until the exchange is done (AR-9)."""
        self.receive(GET)
        producer = Producer()
        self.exchanges[0].register_producer(producer)
        self.assertEqual((self.wire.producer, self.wire.streaming), (producer, True))
        answer_ok(self.exchanges[0])
        self.assertIs(self.wire.producer, None)

    def test_unsent(self) -> None:
        """The exchange tells what the socket has not taken (PX-60)."""
        self.receive(GET)
        self.wire.unsent = 7
        self.assertEqual(self.exchanges[0].unsent, 7)


class BodyTests(ServerCase):
    def test_whole(self) -> None:
        """A body that came with its head can be had at once; of any other nothing is taken."""
        found: list[bytes | None] = []
        bodies = [Body() for _ in range(4)]

        def take(exchange: Exchange) -> None:
            found.append(exchange.whole_body())
            if found[-1] is None:
                exchange.read_body(bodies[len(found) - 1])
            else:
                answer_ok(exchange)

        self.application = take
        self.receive(EXPECTING + b"hello" + GET + POST + b"he")
        self.assertEqual((found, bodies[2].log), ([b"hello", b"", None], [b"he"]))
        self.receive(b"llo" + CHUNKED + b"0\r\n\r\n")
        self.assertEqual((found[2:], bodies[2].log[1:]), ([None], [b"llo", "end"]))
        answer_ok(self.exchanges[2])
        self.assertEqual((found[2:], bodies[3].log), ([None, None], ["end"]))
        answer_ok(self.exchanges[3])
        self.assertIsNone(self.exchanges[3].whole_body())
        self.assertEqual(self.sent(), OK * 4)

    def test_bodies(self) -> None:
        """A body is delivered without its framing, then its end."""
        for request in (POST + b"hello", CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"):
            body = Body()
            self.application = lambda exchange, body=body: exchange.read_body(body)  # type: ignore[misc]
            self.receive(request)
            self.assertEqual(body.log, [b"hello", "end"])
            answer_ok(self.exchanges[-1])
        self.assertEqual(self.sent(), OK * 2)

    def test_one_delivery_a_read(self) -> None:
        """What one read holds is delivered at once, however many chunks it is."""
        body = Body()
        self.application = lambda exchange: exchange.read_body(body)
        self.receive(CHUNKED)
        self.receive(b"1\r\na\r\n1\r\nb\r\n2\r\ncd")
        self.receive(b"\r\n0\r\n\r\n")
        self.assertEqual(body.log, [b"abcd", "end"])

    def test_no_body(self) -> None:
        """Without a body its end comes at once."""
        for request in (GET, b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"):
            body = Body()
            self.receive(request)
            self.exchanges[-1].read_body(body)
            self.assertEqual(body.log, ["end"])
            answer_ok(self.exchanges[-1])

    def test_asked_for_later(self) -> None:
        """A body that came before it was asked for is delivered when it is."""
        body = Body()
        self.receive(POST + b"hel")
        self.receive(b"lo" + GET)
        self.exchanges[0].read_body(body)
        self.assertEqual(body.log, [b"hello", "end"])
        answer_ok(self.exchanges[0])
        self.assertEqual(len(self.exchanges), 2)

    def test_continue(self) -> None:
        """A client that expects it is sent 100 when the body is asked for, not before (PX-30, H11)."""
        self.receive(EXPECTING)
        self.assertEqual(self.sent(), b"")
        self.exchanges[0].read_body(Body())
        self.assertEqual(self.sent(), b"HTTP/1.1 100 Continue\r\n\r\n")

    def test_refused_without_continue(self) -> None:
        """A refusal in place of 100 closes the connection, for the client may send the body or not (H11)."""
        self.receive(EXPECTING)
        self.exchanges[0].respond(413, [], b"")
        self.assertTrue(self.sent().startswith(b"HTTP/1.1 413 "))
        self.assert_lingers()

    def test_continue_too_late(self) -> None:
        """No 100 where the body is coming already."""
        self.receive(EXPECTING + b"h")
        self.exchanges[0].read_body(Body())
        self.assertEqual(self.sent(), b"")

    def test_answer_before_the_body(self) -> None:
        """An answer begun before the body was read closes: half, and what comes is thrown away for 2 s."""
        self.receive(POST + b"he")
        answer_ok(self.exchanges[0])
        self.assertEqual(self.sent(), OK_CLOSE)
        self.assert_lingers()
        self.receive(b"llo" + GET)
        self.assertEqual(len(self.exchanges), 1)
        self.server.writeConnectionLost()
        self.clock.advance(1)
        self.assertFalse(self.wire.aborted)
        self.clock.advance(1)
        self.assertTrue(self.wire.aborted)

    def test_client_closes_after_the_answer(self) -> None:
        """When the client has read the answer and closes, so do we."""
        self.receive(POST)
        answer_ok(self.exchanges[0])
        self.server.readConnectionLost()
        self.assertTrue(self.wire.disconnecting)
        self.assertFalse(self.wire.aborted)
        self.assertEqual(self.lost, [])

    def test_endless_body_behind_an_answer(self) -> None:
        """What is thrown away has a bound: 128 MiB."""
        self.receive(CHUNKED)
        answer_ok(self.exchanges[0])
        for _ in range(128):
            self.receive(bytes(2**20))
        self.assertFalse(self.wire.aborted)
        self.receive(b"x")
        self.assertTrue(self.wire.aborted)

    def test_body_read_while_answering(self) -> None:
        """An answer may begin before the body has ended: it goes on being delivered, then the connection closes."""
        body = Body()
        self.receive(POST)
        exchange = self.exchanges[0]
        exchange.read_body(body)
        exchange.begin(200, None, [], Framing.CHUNKED)
        self.assertIn(b"Connection: close", self.sent())
        self.receive(b"hello")
        self.assertEqual(body.log, [b"hello", "end"])
        exchange.finish()
        self.assert_lingers()

    def test_pause(self) -> None:
        """A paused body pauses the socket, and nothing is delivered until it is resumed."""
        body = Body()
        self.receive(POST)
        self.exchanges[0].read_body(body)
        self.exchanges[0].pause_body()
        self.assertEqual(self.wire.producerState, "paused")
        self.receive(b"hello")
        self.assertEqual(body.log, [])
        self.clock.advance(500)
        self.assertEqual(body.log, [])
        self.exchanges[0].resume_body()
        self.assertEqual(self.wire.producerState, "producing")
        self.assertEqual(body.log, [b"hello", "end"])

    def test_big_body_not_asked_for(self) -> None:
        """An upload nobody has asked for yet stops at 64 KiB, and goes on when it is."""
        body = Body()
        self.receive(b"POST / HTTP/1.1\r\nContent-Length: 70000\r\n\r\n")
        self.receive(b"a" * 65537)
        self.assertEqual(self.wire.producerState, "paused")
        self.exchanges[0].read_body(body)
        self.assertEqual(self.wire.producerState, "producing")
        self.receive(b"a" * 4463)
        self.assertEqual(body.log, [b"a" * 65537, b"a" * 4463, "end"])

    def test_stalled(self) -> None:
        """A gap of 120 s is told once; the application answers (PX-31)."""
        body = Body()
        self.receive(POST)
        self.exchanges[0].read_body(body)
        self.clock.pump([1] * 100)
        self.receive(b"h")
        self.clock.pump([1] * 119)
        self.assertEqual(body.log, [b"h"])
        self.clock.pump([1] * 300)
        self.assertEqual(body.log, [b"h", "stalled"])
        self.exchanges[0].respond(408, [], b"")
        self.assert_lingers()

    def test_no_gap_once_ended(self) -> None:
        """A complete body cannot stall, nor does an open answer ever time out here."""
        body = Body()
        self.receive(POST + b"hello")
        self.exchanges[0].read_body(body)
        self.clock.pump([60] * 60)
        self.assertEqual(body.log, [b"hello", "end"])
        self.assertFalse(self.wire.disconnecting)

    def test_malformed_body(self) -> None:
        """A malformed chunk is answered 400; the application is told that the exchange is lost (PX-10)."""
        body = Body()
        self.receive(CHUNKED)
        self.exchanges[0].read_body(body)
        self.receive(b"1\r\na\r\n")
        self.receive(b"1\r\nb\r\nx\r\n")
        self.assertEqual(body.log, [b"a"])
        self.assertEqual(self.sent(), BAD_REQUEST)
        self.assertEqual(self.lost, [b"/a"])
        self.assert_lingers()

    def test_malformed_body_behind_an_answer(self) -> None:
        """Once the answer has begun there is only the abort."""
        self.receive(CHUNKED)
        self.exchanges[0].read_body(Body())
        self.exchanges[0].begin(200, None, [], Framing.CHUNKED)
        self.sent()
        self.receive(b"x\r\n")
        self.assertEqual((self.sent(), self.lost), (b"", [b"/a"]))
        self.assertTrue(self.wire.aborted)

    def test_upgrade(self) -> None:
        """A POST that asks for h2c, with a body that looks like a request, is one request (PX-8)."""
        body = Body()
        self.application = lambda exchange: exchange.read_body(body)
        self.receive(H2C + b"GET / HTTP/1.1\r\n\r\n")
        self.assertEqual(body.log, [b"GET / HTTP/1.1\r\n\r\n", "end"])
        self.assertEqual(len(self.exchanges), 1)


class SwitchTests(ServerCase):
    """An exchange that hands its connection over to another protocol (PX-75)."""

    ASK = GET[:-2] + b"Connection: Upgrade\r\nUpgrade: x\r\n\r\n"
    FIELDS = ((b"Connection", b"Upgrade"), (b"Upgrade", b"x"))

    def setUp(self) -> None:
        super().setUp()
        self.came: list[bytes] = []
        self.receive(self.ASK + b"GET ")
        self.exchange = self.exchanges[0]
        self.exchange.switch(self.FIELDS, self.came.append)

    def test_both_ways(self) -> None:
        """The head as it was given, then bytes both ways as they come; also those that were there before."""
        self.receive(b"/ HTTP/1.1\r\n\r\n")
        self.exchange.write(b"pong")
        self.assertEqual(
            self.sent(), b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\npong"
        )
        self.assertEqual((self.came, len(self.exchanges)), ([b"GET ", b"/ HTTP/1.1\r\n\r\n"], 1))

    def test_no_limit(self) -> None:
        """It may rest for as long as it likes, and the factory waits for it."""
        emptied = self.factory.drain()
        self.clock.advance(86400)
        self.receive(b"late")
        self.assertEqual((self.came[-1], self.wire.disconnecting), (b"late", False))
        self.assertNoResult(emptied)

    def test_pause(self) -> None:
        """The socket is read only while the other side takes what it gives."""
        self.exchange.pause_body()
        self.assertEqual(self.wire.producerState, "paused")
        self.exchange.resume_body()
        self.assertEqual(self.wire.producerState, "producing")

    def test_ends(self) -> None:
        """Cut, what was written is sent first; aborted, it is gone; a client that leaves is told of."""
        self.exchange.cut()
        self.receive(b"more")
        self.assert_lingers()
        self.assertEqual((self.came, self.lost), ([b"GET "], []))
        for leave in (lambda server: server.readConnectionLost(), lambda server: server.connectionLost()):
            self.server, self.wire = self.connect()
            self.receive(self.ASK)
            self.exchanges[-1].switch(self.FIELDS, self.came.append)
            leave(self.server)
            self.assertEqual((self.lost.pop(), self.exchanges[-1].done), (b"/a", True))

    def test_application_that_raises(self) -> None:
        """It costs that connection (PX-3)."""
        self.exchange.abort()
        self.server, self.wire = self.connect()
        self.receive(self.ASK)
        self.exchanges[-1].switch(self.FIELDS, lambda data: [][0])
        self.receive(b"x")
        self.assertEqual(len(self.flushLoggedErrors(IndexError)), 1)
        self.assertTrue(self.wire.aborted)

    def test_after_the_end(self) -> None:
        """A client that has left is switched nowhere."""
        self.exchange.abort()
        self.sent()
        self.exchange.switch(self.FIELDS, self.came.append)
        self.assertEqual(self.sent(), b"")
