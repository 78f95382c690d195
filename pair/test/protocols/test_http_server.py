"""Connections without sockets: order, refusals, limits of time, loss, failures and the stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pair.protocols.http_server import Framing
from pair.test.protocols.serving import (
    BAD,
    BAD_REQUEST,
    CHUNKED,
    GET,
    OK,
    OK_CLOSE,
    OLD_GET,
    POST,
    Body,
    Producer,
    ServerCase,
    answer_ok,
    read_then_answer,
    refused,
)
from pair.test.protocols.test_http_reader import MALFORMED

if TYPE_CHECKING:
    from pair.protocols.http_server import Exchange


class PipeliningTests(ServerCase):
    def test_in_order(self) -> None:
        """A second request is begun when the first is answered: answers keep the order (PX-11, X05)."""
        self.receive(GET + POST + b"hel")
        self.receive(b"lo" + OLD_GET)
        self.assertEqual(len(self.exchanges), 1)
        self.exchanges[0].respond(200, [], b"first")
        self.assertEqual(len(self.exchanges), 2)
        body = Body()
        self.exchanges[1].read_body(body)
        self.assertEqual(body.log, [b"hello", "end"])
        self.exchanges[1].respond(200, [], b"second")
        self.exchanges[2].respond(200, [], b"third")
        self.assertEqual([each[-3:] for each in self.sent().split(b"HTTP/1.1 200 OK")[1:]], [b"rst", b"ond", b"ird"])

    def test_many(self) -> None:
        """However many requests one read holds, they are served in a loop and not one within the other."""
        self.application = read_then_answer
        self.receive(GET * 1700)
        self.assertEqual(self.sent(), OK * 1700)

    def test_too_much(self) -> None:
        """More than 64 KiB behind an open exchange: abort, and the exchange is lost (PX-11)."""
        self.receive(GET)
        self.receive(b"x" * 65536)
        self.assertFalse(self.wire.aborted)
        self.receive(b"x")
        self.assertTrue(self.wire.aborted)
        self.assertEqual((self.lost, self.sent()), ([b"/a"], b""))

    def test_malformed_in_its_turn(self) -> None:
        """A malformed request is answered 400 after the answers before it (PX-11)."""
        self.receive(GET + BAD + GET)
        self.assertEqual(self.sent(), b"")
        answer_ok(self.exchanges[0])
        self.assertEqual(self.sent(), OK + BAD_REQUEST)
        self.assertEqual(len(self.exchanges), 1)
        self.assert_lingers()


class RefusalTests(ServerCase):
    def test_malformed(self) -> None:
        """What is malformed is answered 400 once, closes, and no request of it is complete (PX-9, PX-10)."""
        complete: list[Exchange] = []
        self.application = lambda exchange: exchange.read_body(Body(lambda: complete.append(exchange)))
        for name, data in MALFORMED.items():
            for pieces in ([data], [data[at : at + 1] for at in range(len(data))]):
                self.server, self.wire = self.connect()
                for each in pieces:
                    self.receive(each)
                self.assertEqual(self.sent(), BAD_REQUEST, name)
                self.assert_lingers()
        self.assertEqual(complete, [])

    def test_head_too_slow(self) -> None:
        """A head not complete 10 s after its first byte: 408 and close (PX-9)."""
        self.clock.pump([1] * 60)
        self.receive(b"G")
        for each in GET[1:10]:
            self.clock.advance(1)
            self.receive(bytes((each,)))
        self.assertEqual(self.sent(), b"")
        self.clock.advance(1)
        self.assertEqual(self.sent(), refused(b"408 Request Timeout", b"request_timeout"))
        self.assert_lingers()
        self.assertEqual(self.exchanges, [])

    def test_second_head_too_slow(self) -> None:
        """The limit holds for a head that came behind an answered request, from then on."""
        self.application = answer_ok
        self.receive(GET + b"GET ")
        self.clock.pump([1] * 10)
        self.assertEqual(self.sent(), OK + refused(b"408 Request Timeout", b"request_timeout"))

    def test_idle(self) -> None:
        """A connection without a request is closed after 90 s, new or used (PX-9)."""
        self.application = answer_ok
        self.clock.pump([1] * 89)
        self.receive(GET)
        self.clock.pump([1] * 89)
        self.assertFalse(self.wire.disconnecting)
        self.clock.advance(1)
        self.assertTrue(self.wire.disconnecting)
        self.assertFalse(self.wire.aborted)

    def test_idle_but_still_taking(self) -> None:
        """A client that still takes the last answer is not idle; one that has stopped taking it is aborted."""
        self.application = answer_ok
        self.receive(GET)
        for unsent in (9, 8, 7):
            self.wire.unsent = unsent
            self.clock.pump([1] * 90)
        self.assertFalse(self.wire.disconnecting)
        self.clock.pump([1] * 90)
        self.assertTrue(self.wire.aborted)

    def test_closing_but_nobody_takes(self) -> None:
        """A closing connection whose client takes nothing is aborted in the end."""
        self.receive(OLD_GET)
        answer_ok(self.exchanges[0])
        self.wire.unsent = 9
        self.clock.pump([1] * 180)
        self.assertTrue(self.wire.aborted)


class LossTests(ServerCase):
    def test_close(self) -> None:
        """A client that closes is gone: told once, and what is written then goes nowhere (PX-61)."""
        self.receive(GET)
        self.server.connectionLost()
        self.assertEqual(self.lost, [b"/a"])
        self.assertTrue(self.exchanges[0].done)
        answer_ok(self.exchanges[0])
        self.assertEqual(self.sent(), b"")

    def test_half_close(self) -> None:
        """A client that half-closes is gone as well, and the connection aborted (PX-61)."""
        self.receive(GET)
        self.exchanges[0].begin(200, None, [], Framing.CHUNKED)
        self.server.readConnectionLost()
        self.assertEqual(self.lost, [b"/a"])
        self.assertTrue(self.wire.aborted)
        self.server.connectionLost()
        self.assertEqual(self.lost, [b"/a"])

    def test_half_close_in_the_body(self) -> None:
        """So is one that half-closes before its body is complete."""
        self.receive(POST)
        self.exchanges[0].read_body(Body())
        self.server.readConnectionLost()
        self.assertEqual(self.lost, [b"/a"])
        self.assertTrue(self.wire.aborted)

    def test_half_close_between_requests(self) -> None:
        """Between two requests a half-close is the ordinary end."""
        self.application = answer_ok
        self.receive(GET)
        self.server.readConnectionLost()
        self.assertTrue(self.wire.disconnecting)
        self.assertFalse(self.wire.aborted)
        self.assertEqual(self.lost, [])

    def test_nobody_asked(self) -> None:
        """An application need not care."""
        self.application = lambda exchange: setattr(exchange, "lost", None)
        self.receive(GET)
        self.server.connectionLost()
        self.assertTrue(self.exchanges[0].done)

    def test_producer_is_let_go(self) -> None:
        """A lost exchange leaves no producer on the transport."""
        self.receive(GET)
        self.exchanges[0].register_producer(Producer())
        self.server.connectionLost()
        self.assertIs(self.wire.producer, None)


class FailureTests(ServerCase):
    def fail(self, *arguments: object) -> None:  # type: ignore[override]
        raise ZeroDivisionError

    def assert_logged(self) -> None:
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_received(self) -> None:
        """If the application raises its request is answered 500, and the next is served (PX-3)."""
        self.application = self.fail
        self.receive(GET)
        internal = refused(b"500 Internal Server Error", b"internal").replace(b"Connection: close\r\n", b"")
        self.assertEqual(self.sent(), internal)
        self.assertEqual(self.lost, [b"/a"])
        self.assert_logged()
        self.application = answer_ok
        self.receive(GET)
        self.assertEqual(self.sent(), OK)

    def test_answer_begun(self) -> None:
        """If the answer has begun, it is cut off (PX-3)."""
        self.receive(POST)
        body = Body(self.fail)
        self.exchanges[0].read_body(body)
        self.exchanges[0].begin(200, None, [], Framing.CHUNKED)
        self.receive(b"hello")
        self.assertTrue(self.wire.aborted)
        self.assertEqual(self.lost, [b"/a"])
        self.assert_logged()

    def test_answer_finished(self) -> None:
        """If the answer is finished, the error is only logged."""

        def answer_and_fail(exchange: Exchange) -> None:
            answer_ok(exchange)
            self.fail()

        self.application = answer_and_fail
        self.receive(GET * 2)
        self.assertEqual(self.sent(), OK * 2)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_receiver(self) -> None:
        """Each callback of a body's receiver may raise; the next connection is served."""
        for method in ("body_received", "body_ended", "body_stalled"):
            self.server, self.wire = self.connect()
            self.receive(CHUNKED)
            body = Body()
            setattr(body, method, self.fail)
            self.exchanges[-1].read_body(body)
            self.receive(b"1\r\na\r\n")
            if method == "body_stalled":
                self.clock.pump([1] * 120)
            self.receive(b"0\r\n\r\n")
            self.assertTrue(self.sent().startswith(b"HTTP/1.1 500 "), method)
            self.assert_logged()

    def test_lost(self) -> None:
        """The call that tells of the loss may raise."""
        self.receive(GET)
        self.exchanges[0].lost = self.fail
        self.server.connectionLost()
        self.assert_logged()
        self.assertEqual(self.factory.connections, 0)


class StopTests(ServerCase):
    def test_drain(self) -> None:
        """Draining closes idle connections now, busy ones after their answer, and new ones at once (PX-68)."""
        idle, idle_wire = self.connect()
        self.receive(GET * 2)
        drained = self.factory.drain()
        self.assertTrue(idle_wire.disconnecting)
        idle.connectionLost()
        self.assertFalse(self.wire.disconnecting)
        answer_ok(self.exchanges[0])
        self.assertEqual(self.sent(), OK_CLOSE)
        self.assert_lingers()
        self.assertEqual(len(self.exchanges), 1)
        late, late_wire = self.connect()
        self.assertTrue(late_wire.disconnecting)
        late.dataReceived(GET)
        self.assertEqual(late_wire.value(), b"")
        late.connectionLost()
        self.assertNoResult(drained)
        self.server.connectionLost()
        self.successResultOf(drained)

    def test_drain_behind_the_head_of_an_answer(self) -> None:
        """An answer whose head promised to keep the connection is finished; then it is closed all the same."""
        self.receive(GET)
        self.exchanges[0].begin(200, None, [], Framing.CHUNKED)
        self.factory.drain()
        self.exchanges[0].finish()
        self.assert_lingers()

    def test_nothing_open(self) -> None:
        """With nothing open draining is done at once."""
        self.server.connectionLost()
        self.successResultOf(self.factory.drain())

    def test_abort_all(self) -> None:
        """All is cut, and open exchanges are lost."""
        _, idle_wire = self.connect()
        self.receive(GET)
        self.factory.abort_all()
        self.assertTrue(self.wire.aborted)
        self.assertTrue(idle_wire.aborted)
        self.assertEqual(self.lost, [b"/a"])

    def test_no_timer_left(self) -> None:
        """One sweep serves all connections; with the last of them it is gone."""
        other, _ = self.connect()
        self.assertEqual(self.factory.connections, 2)
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        self.server.connectionLost()
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)
        other.connectionLost()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_no_timer_a_request(self) -> None:
        """Requests and writes make no timer call."""
        self.application = read_then_answer
        before = self.clock.getDelayedCalls()
        self.receive(POST + b"hello" + GET)
        self.assertEqual(self.clock.getDelayedCalls(), before)
