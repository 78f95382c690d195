"""The first byte decides between TLS and plain HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.address import IPv4Address
from twisted.internet.protocol import Protocol, ServerFactory
from twisted.internet.task import Clock
from twisted.internet.testing import AccumulatingProtocol, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from pair.protocols.firstbyte import FirstByteFactory

if TYPE_CHECKING:
    from twisted.internet.interfaces import IAddress

CLIENT_HELLO = bytes((0x16, 0x03, 0x01, 0x00, 0x05)) + b"hello"
PEER = IPv4Address("TCP", "127.0.0.1", 4000)


class Wire(StringTransport):
    """A transport whose reads go to its present protocol, as a socket's do."""

    protocol: Protocol

    def receive(self, data: bytes) -> None:
        self.protocol.dataReceived(data)


class Taking(ServerFactory):
    """Makes protocols that keep what they get; remembers them."""

    noisy = False

    def __init__(self) -> None:
        self.made: list[AccumulatingProtocol] = []
        self.addresses: list[IAddress | None] = []

    def buildProtocol(self, addr: IAddress | None) -> Protocol:
        self.addresses.append(addr)
        self.made.append(AccumulatingProtocol())
        return self.made[-1]


class Refusing(ServerFactory):
    def buildProtocol(self, addr: IAddress | None) -> None:
        return None


class FirstByteTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.plain = Taking()
        self.tls = Taking()

    def connect(self, tls: bool = True) -> Wire:
        factory = FirstByteFactory(self.clock, self.plain, self.tls if tls else None)
        wire = Wire(peerAddress=PEER)
        wire.protocol = factory.buildProtocol(PEER)
        wire.protocol.makeConnection(wire)
        return wire

    def test_handshake_byte_chooses_tls(self) -> None:
        """0x16 chooses TLS, and the byte itself is replayed, however the ClientHello is cut (PX-6, P11)."""
        for step in range(1, len(CLIENT_HELLO) + 1):
            wire = self.connect()
            for at in range(0, len(CLIENT_HELLO), step):
                wire.receive(CLIENT_HELLO[at : at + step])
            self.assertEqual(self.tls.made[-1].data, CLIENT_HELLO)
        self.assertEqual(self.plain.made, [])

    def test_slow_client_hello(self) -> None:
        """A ClientHello of one byte each 50 ms is not cut off: only the first byte is waited for (P11)."""
        wire = self.connect()
        for each in CLIENT_HELLO * 50:
            wire.receive(bytes((each,)))
            self.clock.advance(0.05)
        self.assertEqual(self.tls.made[0].data, CLIENT_HELLO * 50)
        self.assertFalse(wire.disconnecting)

    def test_anything_else_is_plain(self) -> None:
        """Every other first byte chooses plain HTTP, junk included (PX-6)."""
        for first in range(256):
            if first != 0x16:
                self.connect().receive(bytes((first,)) + b"rest")
                self.assertEqual(self.plain.made[-1].data, bytes((first,)) + b"rest")
        self.assertEqual(self.tls.made, [])

    def test_gets_out_of_the_way(self) -> None:
        """After the decision the chosen protocol is the transport's own, connected once, and knows its peer."""
        wire = self.connect()
        wire.receive(b"G")
        wire.receive(b"ET")
        self.assertIs(wire.protocol, self.plain.made[0])
        self.assertIs(self.plain.made[0].transport, wire)
        self.assertEqual(self.plain.made[0].data, b"GET")
        self.assertEqual(self.plain.addresses, [PEER])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_silence(self) -> None:
        """No first byte in 10 s: the connection is aborted (PX-7)."""
        wire = self.connect()
        self.clock.advance(9.9)
        self.assertFalse(wire.disconnected)
        self.clock.advance(0.1)
        self.assertTrue(wire.disconnected)

    def test_leaving_in_silence(self) -> None:
        """A client that leaves before its first byte leaves no timer behind."""
        self.connect().protocol.connectionLost()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_tls_refused(self) -> None:
        """Without TLS a 0x16 gets the fatal alert handshake_failure and the close."""
        wire = self.connect(tls=False)
        wire.receive(CLIENT_HELLO)
        self.assertEqual(wire.value(), bytes.fromhex("15030300020228"))
        self.assertTrue(wire.disconnecting)
        self.assertEqual(self.plain.made, [])

    def test_too_many(self) -> None:
        """Of more that say nothing than may wait, the oldest gives way, and who speaks is none of them."""
        factory = FirstByteFactory(self.clock, self.plain, most=2)
        wires = [Wire(peerAddress=PEER) for _ in range(5)]
        for wire in wires:
            wire.protocol = factory.buildProtocol(PEER)
            wire.protocol.makeConnection(wire)
            if wire in wires[:2]:
                wire.receive(b"GET")
        self.assertEqual([each.disconnected for each in wires], [False, False, True, False, False])
        self.clock.advance(10)
        self.assertEqual([each.disconnected for each in wires], [False, False, True, True, True])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_no_protocol(self) -> None:
        """A factory that makes no protocol closes the connection."""
        factory = FirstByteFactory(self.clock, Refusing())
        wire = Wire()
        wire.protocol = factory.buildProtocol(PEER)
        wire.protocol.makeConnection(wire)
        wire.receive(b"GET")
        self.assertTrue(wire.disconnecting)

    def test_factories_start_and_stop_together(self) -> None:
        """The factories behind are started and stopped with the port's."""
        factory = FirstByteFactory(self.clock, self.plain, self.tls)
        factory.noisy = False
        factory.doStart()
        self.assertEqual((self.plain.numPorts, self.tls.numPorts), (1, 1))
        factory.doStop()
        self.assertEqual((self.plain.numPorts, self.tls.numPorts), (0, 0))
