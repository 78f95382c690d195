"""Tests of pair.surfaces.listening: a port for peers, over a listening port of the test's own."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from klein import Klein
from twisted.internet.address import IPv4Address
from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.connections import PeerConnections
from pair.errors.book import ErrorBook
from pair.errors.registry import Registry
from pair.proxy.listeners import PortTaken
from pair.supervision.child import SupervisedService
from pair.supervision.conditions import CONDITIONS as SUPERVISION
from pair.surfaces.answers import json_reply, render_failures, send
from pair.surfaces.conditions import CONDITIONS
from pair.surfaces.listening import ADDRESSES, CutOffError, PeerSurface
from pair.surfaces.site import SurfaceSite
from pair.test.cluster.peers import credentials, identity
from pair.test.surfaces.wire import Conversation, Transport, request

if TYPE_CHECKING:
    from pair.surfaces.rules import Head

DESK = identity()


class Anyone:
    """Lets everybody in."""

    def check(self, head: Head) -> None:
        return None

    def body_limit(self, head: Head) -> int:
        return 0


def site(reactor: MemoryReactorClock, word: str) -> SurfaceSite:
    """Answers everything with ``word``."""
    app = Klein()

    @app.route("/")
    def say(request: Any) -> bytes:
        return send(request, json_reply(word))

    render_failures(app)
    return SurfaceSite(app.resource(), Anyone(), reactor)


class Port:
    """A listening port that says where."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.open = True

    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", "0.0.0.0", self.port)

    def stopListening(self) -> None:
        self.open = False


class PeerSurfaceTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.errors = ErrorBook(DESK.uuid, Registry(CONDITIONS), lambda: 0)
        self.site = site(self.reactor, "secure")
        self.ports: list[tuple[str, Port]] = []
        self.taken = False
        self.factory: Any = None

    def listen(self, port: int, factory: Any, address: str) -> Any:
        if self.taken:
            raise CannotListenError(address, port, OSError(errno.EADDRINUSE, "in use"))
        self.factory = factory
        self.ports.append((address, Port(port or 40000)))
        return self.ports[-1][1]

    def surface(self, port: int = 14318, plain: SurfaceSite | None = None) -> PeerSurface:
        return PeerSurface(
            "node_info",
            self.reactor,
            self.listen,
            port,
            self.site,
            credentials(DESK),
            PeerConnections(),
            self.errors,
            plain=plain,
        )

    def ask(self) -> Any:
        """What is answered in the clear."""
        transport = Transport(peerAddress=IPv4Address("TCP", "127.0.0.1", 1))
        first = self.factory.buildProtocol(transport.getPeer())
        transport.protocol = first
        first.makeConnection(transport)
        first.dataReceived(request("GET", "/"))
        conversation = Conversation.__new__(Conversation)
        conversation.transport = transport
        return conversation.answer.json

    def test_listens(self) -> None:
        """It listens at all addresses, on one port, until it is stopped (overview page, ports)."""
        surface = self.surface(0)
        self.assertIsNone(surface.port)
        surface.startService()
        self.assertEqual([(address, each.port) for address, each in self.ports], [(each, 40000) for each in ADDRESSES])
        self.assertEqual(surface.port, 40000)
        conversation = Conversation(self.site)
        self.successResultOf(surface.stopService())
        self.assertEqual((surface.port, [each.open for _, each in self.ports]), (None, [False, False]))
        self.assertFalse(conversation.transport.connected)

    def test_taken(self) -> None:
        """A port that is taken fails the start, and is told until it can be had (OP-15)."""
        self.taken = True
        surface = self.surface()
        self.assertRaises(PortTaken, surface.startService)
        self.successResultOf(surface.stopService())
        (entry,) = self.errors.entries()
        self.assertEqual((entry.id, entry.subject.port), ("ports:taken:node_info", 14318))
        self.assertIn("14318", entry.message)
        self.taken = False
        self.surface().startService()
        self.assertEqual(self.errors.entries(), ())

    def test_made_anew(self) -> None:
        """D08: one that is to be listened on anew is stopped, and another is made in its place."""
        made: list[PeerSurface] = []

        def make() -> PeerSurface:
            made.append(self.surface())
            return made[-1]

        self.errors = ErrorBook(DESK.uuid, Registry((*CONDITIONS, *SUPERVISION)), lambda: 0)
        supervised = SupervisedService("node_info", make, self.reactor, self.errors)
        supervised.startService()
        made[0].give_up()
        self.assertEqual((made[0].port, len(self.flushLoggedErrors(CutOffError))), (None, 1))
        self.reactor.advance(2)
        self.assertEqual([each.port for each in made], [None, 14318])
        self.successResultOf(supervised.stopService())

    def test_one_site(self) -> None:
        """What is not in TLS gets the same, unless there is something of its own for it."""
        self.surface().startService()
        self.assertEqual(self.ask(), "secure")

    def test_two_sites(self) -> None:
        """With one of its own it gets that; both are closed with the port."""
        plain = site(self.reactor, "plain")
        surface = self.surface(plain=plain)
        surface.startService()
        self.assertEqual(self.ask(), "plain")
        conversations = Conversation(self.site), Conversation(plain)
        self.successResultOf(surface.stopService())
        self.assertEqual([each.transport.connected for each in conversations], [False, False])
