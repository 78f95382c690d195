"""Tests of :mod:`pair.protocols.pool`."""

from __future__ import annotations

from twisted.internet.error import ConnectionLost
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.protocols.calls import Target, UpstreamFailure
from pair.protocols.pool import ClientPool
from pair.protocols.upload import PIECE
from pair.test.protocols.upstream import GET, POST, TARGET, Endpoint, Receiver, Transport

EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class PoolTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoint = Endpoint(self.clock)
        self.pool = ClientPool(self.clock, lambda target: self.endpoint)
        self.receiver = Receiver()

    def idle(self, target: Target = TARGET, response: bytes = EMPTY) -> Transport:
        """A new connection that has served a call and waits."""
        self.pool.send(target, GET, b"", Receiver(), fresh=True)
        transport = self.endpoint.accept()
        transport.receive(response)
        transport.clear()
        return transport

    def send(self, target: Target = TARGET) -> Receiver:
        receiver = Receiver()
        self.pool.send(target, GET, b"", receiver)
        return receiver


class ReuseTests(PoolTestCase):
    def test_last_in_first_out(self) -> None:
        """The connection that served last is taken first (PX-52)."""
        first = self.idle()
        second = self.idle()
        receiver = self.send()
        self.assertEqual((first.value(), second.value()), (b"", GET))
        self.send()
        self.assertEqual(first.value(), GET)
        self.send()
        self.assertEqual(len(self.endpoint.dials), 3)
        second.receive(EMPTY)
        self.assertTrue(receiver.ended)

    def test_targets_apart(self) -> None:
        """A connection serves its own target only."""
        idle = self.idle()
        self.send(Target("engine", "127.0.0.1", 11436, b"127.0.0.1:11436"))
        self.assertEqual((idle.value(), len(self.endpoint.dials)), (b"", 2))

    def test_fresh(self) -> None:
        """A call may ask for a new connection (PX-26); it is kept afterwards."""
        self.idle()
        self.pool.send(TARGET, GET, b"", self.receiver, fresh=True)
        transport = self.endpoint.accept()
        transport.receive(EMPTY)
        transport.clear()
        self.send()
        self.assertEqual(transport.value(), GET)

    def test_idle_life(self) -> None:
        """An idle connection is not used past its time, and closed within a second of it."""
        transport = self.idle()
        self.clock.advance(3.9)
        self.send()
        self.assertEqual(transport.value(), GET)
        transport.receive(EMPTY)
        self.clock.advance(4.0)
        self.send()
        self.assertEqual(len(self.endpoint.dials), 2)
        self.clock.pump([1, 0])
        self.assertTrue(transport.closed)

    def test_sweep_ends(self) -> None:
        """When nothing is idle no timer runs."""
        transport = self.idle()
        self.clock.pump([1] * 6)
        self.assertTrue(transport.closed)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_keep_alive(self) -> None:
        """Where the response says how long the engine keeps it, that less a second counts."""
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nKeep-Alive: max=9, timeout=%d\r\n\r\n"
        for timeout in (3, 60):
            transport = self.idle(response=head % timeout)
            self.clock.pump([1] * (timeout - 2))
            self.assertFalse(transport.closed)
            self.clock.advance(1)
            self.assertTrue(transport.closed)
        self.assertTrue(self.idle(response=head % 1).disconnecting)

    def test_most_idle(self) -> None:
        """32 idle connections are kept for a target, no more."""
        receivers = [self.send() for _ in range(33)]
        transports = [dial.accept() for dial in self.endpoint.dials]
        for transport in transports:
            transport.receive(EMPTY)
        self.clock.advance(0)
        self.assertEqual([each.closed for each in transports], [False] * 32 + [True])
        self.assertTrue(all(each.ended for each in receivers))

    def test_closed_while_idle(self) -> None:
        """A connection that the engine closes while it is idle is forgotten."""
        self.idle().close()
        self.send()
        self.assertEqual(len(self.endpoint.dials), 2)

    def test_bytes_while_idle(self) -> None:
        """A connection on which bytes come unasked is closed and not used, not even in the same turn."""
        transport = self.idle()
        transport.receive(EMPTY)
        self.assertTrue(transport.aborted)
        self.send()
        self.assertEqual((transport.value(), len(self.endpoint.dials)), (b"", 2))

    def test_not_kept(self) -> None:
        """A connection that ended in surplus, or after which the engine closes, is not used again."""
        for response in (EMPTY + b"\r\n", b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"):
            transport = self.idle(response=response)
            self.send()
            self.assertEqual(transport.value(), b"")

    def test_response_within_response(self) -> None:
        """A receiver may send again on the same connection as soon as its response has ended."""
        self.pool.send(TARGET, GET, b"", self.receiver)
        transport = self.endpoint.accept()
        transport.clear()
        again: list[Receiver] = []
        self.receiver.response_ended = lambda: again.append(self.send())  # type: ignore[method-assign]
        transport.receive(EMPTY)
        self.assertEqual(transport.value(), GET)
        transport.receive(EMPTY)
        self.assertTrue(again[0].ended)


class RepeatTests(PoolTestCase):
    def test_repeated(self) -> None:
        """A used connection that dies without a byte: the request is repeated on a new one, unseen (PX-50)."""
        old = self.idle()
        call = self.pool.send(TARGET, POST, b"ping", self.receiver)
        old.close(ConnectionLost())
        new = self.endpoint.accept()
        self.assertEqual((new.value(), call.sent), (POST + b"ping", True))
        new.receive(EMPTY)
        self.assertEqual((self.receiver.ended, self.receiver.failure), (1, None))

    def test_once(self) -> None:
        """It is repeated once, and never on another used connection."""
        spare, old = self.idle(), self.idle()
        self.pool.send(TARGET, GET, b"", self.receiver)
        old.close()
        self.endpoint.accept().close()
        self.assertEqual(self.receiver.failure, UpstreamFailure("broken"))
        self.assertEqual(spare.value(), b"")

    def test_not_after_a_byte(self) -> None:
        """Where any byte came, be it of an interim response, nothing is repeated."""
        for began in (b"H", b"HTTP/1.1 102 Processing\r\n\r\n", b"HTTP/1.1 200 OK\r\n"):
            receiver = Receiver()
            old = self.idle()
            self.pool.send(TARGET, GET, b"", receiver)
            old.receive(began)
            old.close()
            self.assertEqual(receiver.failure, UpstreamFailure("broken"))

    def test_not_after_framing(self) -> None:
        """An answer that is not HTTP is no death: nothing is repeated."""
        old = self.idle()
        self.pool.send(TARGET, GET, b"", self.receiver)
        old.receive(b"SSH-2.0\r\n")
        self.assertEqual(self.receiver.failure, UpstreamFailure("framing"))

    def test_not_streamed(self) -> None:
        """A body that is not kept cannot be repeated."""
        old = self.idle()
        self.pool.send(TARGET, POST, None, self.receiver)
        old.close()
        self.assertEqual(self.receiver.failure, UpstreamFailure("write"))

    def test_long_body(self) -> None:
        """A long body begins anew, from its first byte."""
        old = self.idle()
        old.room = PIECE
        body = bytes(range(256)) * 1000
        self.pool.send(TARGET, POST, body, self.receiver)
        old.close(ConnectionLost())
        self.assertEqual(self.endpoint.accept().value(), POST + body)
        self.clock.advance(31)
        self.assertIsNone(self.receiver.failure)

    def test_pause_holds(self) -> None:
        """A call that was paused is paused on the new connection too."""
        old = self.idle()
        call = self.pool.send(TARGET, GET, b"", self.receiver)
        call.pauseProducing()
        old.close()
        self.assertEqual(self.endpoint.accept().producerState, "paused")

    def test_abort(self) -> None:
        """A call given up while the repeat connects gives up that connection."""
        old = self.idle()
        call = self.pool.send(TARGET, GET, b"", self.receiver)
        old.close()
        call.abort()
        self.assertTrue(self.endpoint.dials[-1].cancelled)


class DropTests(PoolTestCase):
    def test_drop(self) -> None:
        """Idle connections to the key go at once, busy ones serve their call and go then; others stay."""
        other = self.idle(Target("other", "127.0.0.1", 1, b"127.0.0.1:1"))
        idle = self.idle()
        self.pool.send(TARGET, GET, b"", self.receiver, fresh=True)
        busy = self.endpoint.accept()
        self.pool.drop("engine")
        self.clock.advance(0)
        self.assertEqual((other.closed, idle.closed, busy.closed), (False, True, False))
        busy.receive(EMPTY)
        self.clock.advance(0)
        self.assertTrue(busy.closed)
        self.assertEqual(self.receiver.ended, 1)


class CloseTests(PoolTestCase):
    def test_close(self) -> None:
        """All connections are aborted, attempts cancelled, calls told; then it fires."""
        idle = self.idle()
        receivers = [Receiver(), Receiver()]
        self.pool.send(TARGET, GET, b"", receivers[0], fresh=True)
        busy = self.endpoint.accept()
        self.pool.send(TARGET, GET, b"", receivers[1], fresh=True)
        closed = self.pool.close()
        self.assertNoResult(closed)
        self.clock.advance(0)
        self.successResultOf(closed)
        self.assertTrue(idle.closed and busy.closed and self.endpoint.dials[-1].cancelled)
        self.assertEqual([each.failure for each in receivers], [UpstreamFailure("broken"), UpstreamFailure("connect")])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_send_after_close(self) -> None:
        """What is sent afterwards, repeats included, fails and connects nowhere."""
        self.idle()
        self.pool.send(TARGET, GET, b"", self.receiver)
        closed = self.pool.close()
        self.clock.advance(0)
        self.successResultOf(closed)
        late = self.send()
        self.clock.advance(0)
        self.assertEqual(
            (self.receiver.failure, late.failure), (UpstreamFailure("connect"), UpstreamFailure("connect"))
        )
        self.assertEqual(len(self.endpoint.dials), 1)

    def test_nothing_open(self) -> None:
        """Without connections it fires at once; a second call gives the same."""
        closed = self.pool.close()
        self.successResultOf(closed)
        self.assertIs(self.pool.close(), closed)
