"""A member is dialled by its pin, at one address after the other, in memory."""

from __future__ import annotations

import errno
from socket import gaierror
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import (
    ConnectError,
    ConnectionLost,
    DNSLookupError,
    NoRouteError,
    TCPTimedOutError,
)
from twisted.internet.error import TimeoutError as ConnectTimeoutError
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from twisted.test.iosim import connect, makeFakeClient, makeFakeServer
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.connections import PeerConnections
from pair.cluster.dialing import PeerUnreachable, PinnedDial
from pair.cluster.pins import PeerLeaf
from pair.cluster.tls import server_factory
from pair.protocols.dial import DialError, dial
from pair.test.cluster.peers import Pins, credentials, identity, taking

if TYPE_CHECKING:
    from twisted.internet.interfaces import IProtocol
    from twisted.test.iosim import IOPump

    from pair.cluster.identity import Identity

DESK, RACK, OTHER = identity(), identity(), identity()
RENEWED = replace(identity(), uuid=RACK.uuid)
"""The rack, by another key."""

NEAR, FAR = "192.0.2.1", "fe80::7%eth1"


class DialCase(SynchronousTestCase):
    """A node, ``DESK``, that dials; what is at an address, a test says.

    Attributes:
        there: What the peer's protocols got.
    """

    def setUp(self) -> None:
        self.reactor: Any = MemoryReactorClock()
        self.pins = Pins(RACK)
        self.connections = PeerConnections()
        self.there = taking()
        self.here = taking(b"a request")
        self.dialling = PinnedDial(self.reactor, credentials(DESK), lambda: self.pins, self.connections)

    def connect(self, *addresses: str) -> Deferred[IProtocol]:
        return self.dialling.connect(RACK.uuid, 14321, self.here, addresses)

    @property
    def dialled(self) -> list[str]:
        """The addresses that were dialled and have not been answered."""
        return [host for host, *_ in self.reactor.tcpClients]

    def answer(self, node: Identity | None, greet: bool = True) -> IOPump:
        """The address that is dialled now is of ``node``; None: of something that accepts and says nothing."""
        factory = self.reactor.tcpClients.pop()[2]
        server: Any = self.there
        if node is not None:
            server = server_factory(credentials(node), self.there, PeerConnections(), self.reactor)
        here, there = factory.buildProtocol(None), server.buildProtocol(None)
        pump: IOPump = connect(
            there, makeFakeServer(there), here, makeFakeClient(here), greet=greet, clock=self.reactor
        )
        return pump

    def refuse(self, error: Exception | None = None) -> None:
        """There is no connection to the address that is dialled now."""
        factory = self.reactor.tcpClients.pop()[2]
        factory.clientConnectionFailed(None, Failure(error or ConnectError()))

    def assert_unreached(self, dialling: Deferred[Any], reason: str) -> None:
        """The dial failed so, and left nothing behind."""
        self.assertEqual(self.failureResultOf(dialling, PeerUnreachable).value.reason, reason)
        self.assertEqual(self.dialled, [])
        self.assertEqual(len(self.connections), 0)
        self.assertEqual(self.reactor.getDelayedCalls(), [])


class PinnedDialTests(DialCase):
    def test_connects(self) -> None:
        """The protocol comes when the handshake is done, at the service's port, and the connection is known."""
        dialling = self.connect(NEAR)
        self.assertEqual(self.reactor.tcpClients[0][:2], (NEAR, 14321))
        pump = self.answer(RACK, greet=False)
        self.assertNoResult(dialling)
        pump.flush()
        self.assertIs(self.successResultOf(dialling), self.here.last)
        self.assertEqual(self.here.last.transport.peerLeaf, PeerLeaf.of(RACK.leaf))
        self.assertEqual(self.there.last.data, b"a request")
        self.assertEqual(len(self.connections), 1)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_zone(self) -> None:
        """An address is dialled with its zone (CL-13)."""
        self.connect(FAR)
        self.assertEqual(self.dialled, [FAR])

    def test_no_pin(self) -> None:
        """Who has no pin is not dialled (CL-12)."""
        self.pins = Pins(OTHER)
        self.assert_unreached(self.connect(NEAR), "no_pin")

    def test_no_address(self) -> None:
        """Who has no address cannot be dialled."""
        self.assert_unreached(self.connect(), "no_address")

    def test_next_address(self) -> None:
        """One address after the other: refused, silent for 3 s, silent in the handshake for 10 s, another's, right."""
        dialling = self.connect(NEAR, "192.0.2.2", "192.0.2.3", "192.0.2.4", FAR)
        self.refuse()
        self.assertEqual(self.dialled, ["192.0.2.2"])
        self.reactor.advance(2.9)
        self.assertEqual(self.dialled, ["192.0.2.2"])
        self.reactor.advance(0.1)
        self.assertEqual(self.dialled[-1], "192.0.2.3")
        pump = self.answer(None)
        self.reactor.advance(10)
        pump.flush()
        self.assertEqual(self.dialled[-1], "192.0.2.4")
        self.answer(OTHER)
        self.assertEqual(self.dialled[-1], FAR)
        self.answer(RACK)
        self.assertIs(self.successResultOf(dialling), self.here.last)

    def test_refused(self) -> None:
        """Nobody listens."""
        dialling = self.connect(NEAR)
        self.refuse()
        self.assert_unreached(dialling, "refused")

    def test_no_tls(self) -> None:
        """What answers, and not in TLS, refuses."""
        self.there = taking(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        dialling = self.connect(NEAR)
        self.answer(None)
        self.assert_unreached(dialling, "refused")

    def test_another_leaf(self) -> None:
        """Where all that answer show another leaf, that is said, and no byte of ours reached them (CL-12)."""
        dialling = self.connect(NEAR, FAR, "192.0.2.2")
        self.answer(OTHER)
        self.assertEqual(self.there.last.data, b"")
        self.refuse()
        self.answer(OTHER)
        self.assertEqual(self.there.last.data, b"")
        self.assert_unreached(dialling, "certificate")

    def test_dialled_again(self) -> None:
        """A peer has to show its leaf in each dial, and another one once it has another pin (CL-10, CL-12)."""
        for node, pinned in ((RACK, RACK), (OTHER, RACK), (RACK, RACK), (RACK, RENEWED), (RENEWED, RENEWED)):
            self.pins = Pins(pinned)
            dialling = self.connect(NEAR)
            self.answer(node)
            if node is pinned:
                self.assertIs(self.successResultOf(dialling), self.here.last)
                self.assertEqual(self.here.last.transport.peerLeaf, PeerLeaf.of(node.leaf))
                self.connections.abort_all()
            else:
                self.assertEqual(self.there.last.data, b"")
                self.assert_unreached(dialling, "certificate")

    def test_pin_removed_between_choice_and_dial(self) -> None:
        """The pin is looked up for each dial, not when the addresses are chosen (CL-12, P02)."""
        dialling = self.connect(NEAR, FAR)
        self.pins = Pins()
        self.refuse()
        self.assert_unreached(dialling, "no_pin")

    def test_pin_removed_in_the_handshake(self) -> None:
        """A connection that was dialled by an old view is none in the new one (CL-18)."""
        for pins in (Pins(), Pins(OTHER)):
            self.pins = Pins(RACK)
            dialling = self.connect(NEAR, FAR)
            pump = self.answer(RACK, greet=False)
            self.pins = pins
            self.connections.cut(self.pins)
            pump.flush()
            self.assert_unreached(dialling, "no_pin")
            self.assertEqual(self.there.last.data, b"")

    def test_cancelled(self) -> None:
        """Who gives up dials no further address: while it connects, and in the handshake."""
        dialling = self.connect(NEAR, FAR)
        dialling.cancel()
        self.failureResultOf(dialling, CancelledError)
        self.assertEqual(self.dialled, [NEAR])
        dialling = self.connect(NEAR, FAR)
        pump = self.answer(RACK, greet=False)
        dialling.cancel()
        pump.flush()
        self.failureResultOf(dialling, CancelledError)
        self.assertEqual(self.dialled, [NEAR])
        self.assertEqual(len(self.connections), 0)


class DialTests(DialCase):
    def dial(self, host: str) -> Deferred[IProtocol]:
        return Deferred.fromCoroutine(dial(self.reactor, host, 80, self.here))

    def test_failures(self) -> None:
        """What a connection can fail of, in a word (DS-73)."""
        for error, reason in (
            (ConnectError(), "refused"),
            (NoRouteError(), "unreachable"),
            (ConnectError(errno.EHOSTUNREACH), "unreachable"),
            (gaierror(), "unreachable"),
            (DNSLookupError(), "unresolvable"),
            (ConnectionLost(), "refused"),
            (TCPTimedOutError(), "timeout"),
            (ConnectTimeoutError(), "timeout"),
        ):
            dialling = self.dial(NEAR)
            self.refuse(error)
            self.assertEqual(self.failureResultOf(dialling, DialError).value.reason, reason)

    def test_no_name(self) -> None:
        """A text that is neither address nor name is refused, like an address where nobody listens."""
        for host in ("", "a..b", f"{'x' * 64}.example"):
            self.assertEqual(self.failureResultOf(self.dial(host), DialError).value.reason, "refused", host)
