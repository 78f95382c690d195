"""Tests of :mod:`pair.proxy.selfdial` (EN-48)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.protocols.pool import ClientPool
from pair.proxy.listeners import Listeners
from pair.proxy.selfdial import SelfDial, dialled
from pair.test.proxy.bench import NONCE, BenchCase
from pair.test.proxy.network import Engine, head, response

if TYPE_CHECKING:
    from pair.protocols.calls import Target

OURS = response(409, b"{}", (b"X-Pair-Facade", NONCE.encode()))
ANOTHERS = response(409, b"{}", (b"X-Pair-Facade", b"other"))


class DialledTests(SynchronousTestCase):
    def test_addresses(self) -> None:
        """Those loopback addresses at which clients come to what is bound."""
        for addresses, expected in [
            (("0.0.0.0", "::"), ("127.0.0.1", "::1")),
            (("127.0.0.1",), ("127.0.0.1",)),
            (("127.0.0.2", "::1"), ("127.0.0.2", "::1")),
            (("192.168.1.7", "fe80::1%eth0"), ()),
        ]:
            self.assertEqual(dialled(addresses), expected)


class SelfDialTests(SynchronousTestCase):
    """What is made of the answers at 127.0.0.1 and at ::1."""

    def setUp(self) -> None:
        """Somebody listens at both."""
        self.clock = Clock()
        self.at = {host: Engine(self.clock) for host in ("127.0.0.1", "::1")}
        self.pool = ClientPool(self.clock, self.find)
        self.dial = SelfDial(self.clock, self.pool, NONCE)

    def find(self, target: Target) -> Engine:
        """Who is at an address."""
        self.assertEqual(target.port, 11434)
        return self.at[target.host]

    def begin(self) -> Deferred[bool]:
        """Dial both."""
        return self.dial(Listeners(11434, ("0.0.0.0", "::"), ()))

    def answer(self, host: str, *pieces: bytes) -> None:
        """It comes."""
        self.at[host].answers(*pieces)
        self.turn()

    def turn(self) -> None:
        """Sockets close a turn later."""
        for _ in range(3):
            self.clock.advance(0)

    def assert_over(self, dialling: Deferred[bool], expected: bool) -> None:
        """It ended so, and nothing is left of it."""
        self.turn()
        self.assertIs(self.successResultOf(dialling), expected)
        self.assertTrue(all(each.closed for engine in self.at.values() for each in engine.connections))
        self.successResultOf(self.pool.close())
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_us(self) -> None:
        """Our nonce at both addresses: it is us."""
        dialling = self.begin()
        self.assertIn(b"Host: 127.0.0.1:11434\r\nX-Pair-Probe: 1\r\n", self.at["127.0.0.1"].asked)
        self.answer("127.0.0.1", OURS)
        self.assertIn(b"Host: [::1]:11434\r\n", self.at["::1"].asked)
        self.answer("::1", OURS)
        self.assert_over(dialling, True)

    def test_another(self) -> None:
        """Any other answer at either address: it is not. So are one that is no HTTP, and a connection that breaks."""
        for pieces in ([ANOTHERS], [response(200, b"Ollama is running")], [b"SSH-2.0-OpenSSH\r\n"], [head(200)]):
            self.setUp()
            dialling = self.begin()
            self.answer("127.0.0.1", *pieces)
            self.assert_over(dialling, False)
        self.setUp()
        dialling = self.begin()
        self.answer("127.0.0.1", OURS)
        self.at["::1"].closes()
        self.assert_over(dialling, False)

    def test_nobody(self) -> None:
        """A refused connection leads no client astray: a host may have no ::1."""
        self.at["::1"].refuses = True
        dialling = self.begin()
        self.answer("127.0.0.1", OURS)
        self.assert_over(dialling, True)

    def test_silence(self) -> None:
        """After 1 s it asks again, for the delay may have been ours; silence again is another program."""
        dialling = self.begin()
        self.clock.advance(1)
        self.turn()
        self.assertEqual(len(self.at["127.0.0.1"].connections), 2)
        self.answer("127.0.0.1", OURS)
        self.answer("::1", OURS)
        self.assert_over(dialling, True)

        self.setUp()
        dialling = self.begin()
        self.clock.advance(1)
        self.turn()
        self.clock.advance(1)
        self.assert_over(dialling, False)

    def test_no_connection(self) -> None:
        """So is a connection that does not come about."""
        self.at["127.0.0.1"].hangs = True
        dialling = self.begin()
        self.clock.advance(1)
        self.clock.advance(1)
        self.assert_over(dialling, False)
        self.assertEqual(self.at["127.0.0.1"].given_up, 2)

    def test_cancelled(self) -> None:
        """It can be given up."""
        dialling = self.begin()
        dialling.cancel()
        self.failureResultOf(dialling, CancelledError)
        self.turn()
        self.assertTrue(self.at["127.0.0.1"].socket.closed)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class FacadeAnswerTests(BenchCase):
    def test_what_a_facade_answers(self) -> None:
        """It is what a facade of this process says to a probe (PX-16)."""
        bench = self.bench()
        bench.client.sends(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:11434\r\nX-Pair-Probe: 1\r\nConnection: close\r\n\r\n")
        self.assertEqual(bench.client.answer.fields["x-pair-facade"], NONCE)
