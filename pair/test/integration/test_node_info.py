"""Node-info on a real port: a member asks over mutual TLS, a stranger in the clear, a former member in vain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.endpoints import HostnameEndpoint, connectProtocol
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from pair.addresses import Place
from pair.cluster.asker import PATH, Asker
from pair.cluster.connections import PeerConnections
from pair.cluster.dialing import PinnedDial
from pair.cluster.getting import PeerGetter, Refused
from pair.errors.book import ErrorBook
from pair.errors.registry import Registry
from pair.protocols.eager import listen_eager
from pair.records.asking import AskFailed
from pair.records.telemetry import NodeInfo
from pair.surfaces.callers import Callers
from pair.surfaces.conditions import CONDITIONS
from pair.surfaces.listening import PeerSurface
from pair.surfaces.node_info import STRANGERS, node_info_sites
from pair.telemetry.reduce import decode
from pair.test.cluster.peers import Pins, Taking, credentials, identity

if TYPE_CHECKING:
    from pair.cluster.identity import Identity
    from pair.cluster.pins import PeerLeaf

reactor: Any = global_reactor
DESK, RACK = identity(), identity()
FULL = NodeInfo(host_uuid=DESK.uuid, name="desk", cluster_uuid=None, gpu_utilization_percent=7.0)


class Trust:
    """Has a pin table, and no evidence."""

    def __init__(self, *members: Identity) -> None:
        self.pins = Pins(*members)

    def evidence(self, peer: PeerLeaf) -> tuple[bytes, ...]:
        return ()


class NodeInfoTests(TestCase):
    timeout = 20

    def setUp(self) -> None:
        self.trust, self.heard = Trust(RACK), [""]
        errors = ErrorBook(DESK.uuid, Registry(CONDITIONS), lambda: 0)
        callers = Callers(reactor, DESK.uuid, self.trust, lambda _: False, errors)
        sites = node_info_sites(reactor, lambda: FULL, callers, "members", tuple, self.heard.append)
        self.connections = PeerConnections()
        self.surface = PeerSurface(
            "node_info",
            reactor,
            lambda port, factory, address: listen_eager(reactor, port, factory, address),  # type: ignore[arg-type]
            0,
            sites.tls,
            credentials(DESK),
            self.connections,
            errors,
            ("127.0.0.1",),
            sites.plain,
        )
        self.surface.startService()
        assert self.surface.port is not None
        self.place = Place("127.0.0.1", self.surface.port)
        self.pins = Pins(DESK)
        self.getter = PeerGetter(reactor, PinnedDial(reactor, credentials(RACK), lambda: self.pins, PeerConnections()))
        self.asker = Asker(reactor, self.getter, lambda: self.pins, decode)

    async def tear_down(self) -> None:
        await self.surface.stopService()
        await deferLater(reactor, 0.01, lambda: None)  # In this time the clients' sockets close.

    def tearDown(self) -> Deferred[None]:  # type: ignore[override]
        return Deferred.fromCoroutine(self.tear_down())

    async def test_member(self) -> None:
        """A member is told all, and is heard."""
        answer = await self.asker.node_info(DESK.uuid, (self.place,), 3)
        self.assertEqual((answer.info, answer.leaf is not None), (FULL, True))
        self.assertEqual(self.heard, ["", RACK.uuid])

    async def test_stranger(self) -> None:
        """On this host so is a stranger."""
        self.pins = Pins()
        answer = await self.asker.node_info(None, (self.place,), 3)
        self.assertEqual((answer.info, answer.leaf, self.heard), (FULL, None, [""]))

    async def test_put_out(self) -> None:
        """Who is a member no more is refused; why is passed on (CL-17)."""
        refusals: list[Refused] = []
        self.getter.refused.subscribe(refusals.append)
        self.trust.pins = Pins()
        with self.assertRaises(AskFailed) as caught:
            await self.asker.node_info(DESK.uuid, (self.place,), 3)
        self.assertEqual(caught.exception.word, "refused")
        self.assertIn(b'"evidence":[]', refusals[0].body)

    async def test_room(self) -> None:
        """Idle connections of one stranger keep other strangers out for a while, but no member (DS-83)."""
        endpoint = HostnameEndpoint(reactor, self.place.host, self.place.port)
        idle = await gatherResults([connectProtocol(endpoint, Taking()) for _ in range(STRANGERS.of_one)])
        for each in idle:
            each.transport.write(b"GET ")
        await deferLater(reactor, 0.05, lambda: None)
        self.pins, pins = Pins(), self.pins
        with self.assertRaises(AskFailed):
            await self.asker.node_info(None, (self.place,), 3)
        self.pins = pins
        self.assertEqual((await self.asker.node_info(DESK.uuid, (self.place,), 3)).info, FULL)
        for each in idle:
            each.transport.abortConnection()
        await deferLater(reactor, 0.05, lambda: None)
        self.assertEqual((await self.getter.plain(self.place, f"{PATH}?view=compact", 1000, 3)).status, 200)
