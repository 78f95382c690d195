"""GETs between nodes on real sockets: a race over loopback, a feed that is followed, and one that is not read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from pair.addresses import Place
from pair.cluster.asker import Asker
from pair.cluster.connections import PeerConnections
from pair.cluster.dialing import PinnedDial
from pair.cluster.getting import PeerGetter
from pair.cluster.leaf import leaf_digest
from pair.cluster.tls import server_factory
from pair.protocols.eager import listen_eager
from pair.protocols.firstbyte import FirstByteFactory
from pair.records.asking import Answer, AskFailed
from pair.records.telemetry import NodeInfo
from pair.telemetry.reduce import decode, encode
from pair.test.cluster.peers import Pins, credentials, identity

if TYPE_CHECKING:
    from twisted.web.server import Request

reactor: Any = global_reactor
DESK, RACK, OTHER = identity(), identity(), identity()
MUCH = bytes(1 << 20)


class Node(Resource):
    """Serves node-info, and as ``/stream`` something without end that a test writes."""

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.stream: Deferred[Request] = Deferred()

    def render_GET(self, request: Request) -> bytes | int:
        if request.path == b"/stream":
            request.write(b"hello\n")
            self.stream.callback(request)
            return NOT_DONE_YET
        return encode(NodeInfo(host_uuid=DESK.uuid))


class Meter:
    """A receiver that counts.

    Attributes:
        octets: So many came.
        gone: Fires when the connection is lost.
    """

    def __init__(self) -> None:
        self.octets = 0
        self.gone: Deferred[None] = Deferred()
        self.waiting: list[tuple[int, Deferred[None]]] = []

    def received(self, data: bytes) -> None:
        self.octets += len(data)
        for count, reached in tuple(self.waiting):
            if self.octets >= count:
                self.waiting.remove((count, reached))
                reached.callback(None)

    def lost(self) -> None:
        self.gone.callback(None)

    def have(self, count: int) -> Deferred[None]:
        reached: Deferred[None] = Deferred()
        self.waiting.append((count, reached))
        self.received(b"")
        return reached


class Pump:
    """Writes for as long as its consumer takes it, as a push producer; ``written`` octets so far."""

    def __init__(self, request: Request) -> None:
        self.written = 0
        self.full: Deferred[None] = Deferred()
        self.request = request

    def pauseProducing(self) -> None:
        if not self.full.called:
            self.full.callback(None)

    def resumeProducing(self) -> None:
        pass

    def stopProducing(self) -> None:
        pass

    async def fill(self) -> None:
        while not self.full.called:
            self.request.write(MUCH)
            self.written += len(MUCH)
            await deferLater(reactor, 0.01, lambda: None)


class GettingTests(TestCase):
    timeout = 20

    def setUp(self) -> None:
        self.node = Node()
        self.inbound, self.outbound = PeerConnections(), PeerConnections()
        site = Site(self.node, reactor=reactor)
        tls = server_factory(credentials(DESK), site, self.inbound, reactor)
        self.listening = listen_eager(reactor, 0, FirstByteFactory(reactor, site, tls), "127.0.0.1")
        port: int = self.listening.getHost().port  # type: ignore[attr-defined]
        self.place = Place("127.0.0.1", port)
        self.places = (Place("127.0.0.2", port), Place("::1", port), self.place)
        self.pins = Pins(DESK)
        dialling = PinnedDial(reactor, credentials(RACK), lambda: self.pins, self.outbound)
        self.getter = PeerGetter(reactor, dialling)
        self.asker = Asker(reactor, self.getter, lambda: self.pins, decode)

    async def tear_down(self) -> None:
        await maybeDeferred(self.listening.stopListening)
        self.inbound.abort_all()
        self.outbound.abort_all()
        await deferLater(reactor, 0.01, lambda: None)  # In this time the sockets close.

    def tearDown(self) -> Deferred[None]:  # type: ignore[override]
        return Deferred.fromCoroutine(self.tear_down())

    async def all_closed(self) -> None:
        while self.inbound or self.outbound:
            await deferLater(reactor, 0.01, lambda: None)

    async def test_member(self) -> None:
        """A member answers at one of its addresses, and the connection does not stay."""
        answer = await self.asker.node_info(DESK.uuid, self.places, 3)
        self.assertEqual(answer, Answer(answer.info, self.place, leaf_digest(DESK.leaf)))
        self.assertEqual(answer.info.host_uuid, DESK.uuid)
        self.assertTrue(await self.asker.knock(DESK.uuid, self.places, True, 2))
        await self.all_closed()

    async def test_stranger(self) -> None:
        """The same port tells a stranger in the clear, at a name too, which is resolved."""
        self.pins = Pins()
        places = (*self.places, Place("localhost", self.place.port))
        answer = await self.asker.node_info(DESK.uuid, places, 3)
        self.assertEqual((answer.info.host_uuid, answer.leaf), (DESK.uuid, None))
        self.assertEqual((await self.asker.node_info(None, places[-1:], 3)).place, places[-1])
        self.assertTrue(await self.asker.knock(None, self.places, False, 2))

    async def test_nobody(self) -> None:
        """The word that is told fits what is there: nobody, no way, no address, another."""
        self.pins = Pins()
        for host, word in (
            ("127.0.0.2", "refused"),
            ("fe80::1%nosuchzone", "unreachable"),
            ("no-such-host.invalid", "unresolvable"),
        ):
            with self.assertRaises(AskFailed) as caught:
                await self.asker.node_info(None, (Place(host, self.place.port),), 3)
            self.assertEqual(caught.exception.word, word)
        with self.assertRaises(AskFailed) as caught:
            await self.asker.node_info(OTHER.uuid, self.places, 3)
        self.assertEqual(caught.exception.word, "other")
        self.pins = Pins()
        self.pins.members[DESK.uuid] = OTHER.leaf
        with self.assertRaises(AskFailed) as caught:
            await self.asker.node_info(DESK.uuid, self.places, 3)
        self.assertEqual(caught.exception.word, "other")

    async def test_stream(self) -> None:
        """A feed comes as it is sent; aborted, both ends close."""
        stream = await self.getter.stream(DESK.uuid, self.places, "/stream")
        self.assertEqual(stream.place, self.place)
        request, meter = await self.node.stream, Meter()
        stream.deliver(meter)
        await meter.have(6)
        request.write(b"more\n")
        await meter.have(11)
        request.write(MUCH)
        await meter.have(11 + len(MUCH))
        left = request.notifyFinish()
        stream.abort()
        await meter.gone
        await left.addErrback(lambda _: None)
        await self.all_closed()

    async def test_unread(self) -> None:
        """Of a feed that is not delivered yet no more is read than the buffers on the way take."""
        stream = await self.getter.stream(DESK.uuid, self.places, "/stream")
        request = await self.node.stream
        pump = Pump(request)
        request.registerProducer(pump, True)
        await pump.fill()
        meter = Meter()
        stream.deliver(meter)
        await meter.have(6 + pump.written)
        request.unregisterProducer()
        request.finish()
        await meter.gone
        self.assertEqual(meter.octets, 6 + pump.written)
        await self.all_closed()

    async def test_cut(self) -> None:
        """A feed of one that is a member no more ends in that turn (CL-18)."""
        stream = await self.getter.stream(DESK.uuid, self.places, "/stream")
        meter = Meter()
        stream.deliver(meter)
        await meter.have(6)
        self.assertEqual(self.outbound.cut(Pins(OTHER)), 1)
        await meter.gone
        await self.all_closed()
