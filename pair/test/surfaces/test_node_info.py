"""Tests of pair.surfaces.node_info: who is told how much of this node (DS-77 to DS-83)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from pair.addresses import Interface, InterfaceAddress
from pair.cluster.conditions import CONDITIONS
from pair.cluster.pins import PeerLeaf
from pair.errors.book import ErrorBook
from pair.errors.registry import Registry
from pair.records.telemetry import Cpu, Gpu, Memory, NodeInfo, ProtocolRange, System
from pair.surfaces.callers import Callers
from pair.surfaces.node_info import STRANGERS, AudienceSetting, NodeInfoSites, audience, node_info_sites, told
from pair.surfaces.rules import Peer
from pair.telemetry.reduce import decode
from pair.test.cluster.household import Trustee
from pair.test.cluster.world import A, B, C, D, World, player
from pair.test.surfaces.wire import Answer, Conversation, Secure, Transport, request

if TYPE_CHECKING:
    from twisted.internet.interfaces import IAddress

    from pair.test.cluster.world import Player

LINKS = (
    Interface("lo", (InterfaceAddress("127.0.0.1", 8), InterfaceAddress("::1", 128))),
    Interface(
        "eth0",
        (
            InterfaceAddress("192.168.1.20", 24),
            InterfaceAddress("2001:db8:1::20", 64),
            InterfaceAddress("fe80::20", 64),
        ),
    ),
    Interface("wg0", (InterfaceAddress("10.8.0.2", 24), InterfaceAddress("fe80::30", 64)), point_to_point=True),
    Interface("eth1", (InterfaceAddress("10.9.0.2", 24),), up=False),
    Interface("eth2", (InterfaceAddress("10.10.0.2"),)),
)
GPU = Gpu("GPU-1b2c", 0, "nvidia", "RTX 4090", vram_total_bytes=24 << 30, utilization_percent=62, sampled_at=17)
FULL = NodeInfo(
    host_uuid=A.node,
    instance="9f3a6c0d51e2b774",
    name="spark",
    version="0.3.0",
    protocol=ProtocolRange(1, 1),
    cluster_uuid="b7d0f6f0-0000-4000-8000-000000000001",
    services={"ni": 14318, "cl": 14321},
    ips=("192.168.1.20",),
    telemetry_valid=True,
    sample_age_ms=310,
    gpu_utilization_percent=62,
    os=System("linux", "6.8.0", "x86_64"),
    cpu=Cpu("AMD", 16, 32, 12.5),
    memory=Memory(1 << 37, 1 << 36, 1 << 36),
    gpus=(GPU,),
)
FIELDS = [
    *("v", "hostUuid", "instance", "name", "version", "protocol", "capabilities", "clusterUuid", "services", "ips"),
    *("telemetryValid", "sampleAgeMs", "gpuUtilizationPercent", "os", "cpu", "memory", "gpus"),
]
IDENTITY = {"v", "hostUuid", "instance", "version", "protocol", "clusterUuid", "services"}
BARE = {"v", "hostUuid", "clusterUuid"}
ON_LINK = "192.168.1.77"
OFF_LINK = "192.168.2.77"


class AudienceTests(SynchronousTestCase):
    def test_matrix(self) -> None:
        """Who is told how much, by both settings (DS-81)."""
        for address, subnet, members in (
            ("127.0.0.1", "full", "full"),
            ("127.8.8.8", "full", "full"),
            ("::1", "full", "full"),
            ("::ffff:127.0.0.1", "full", "full"),
            ("192.168.1.20", "full", "bare"),
            (ON_LINK, "full", "bare"),
            (f"::ffff:{ON_LINK}", "full", "bare"),
            ("2001:db8:1::77", "full", "bare"),
            ("fe80::77%eth0", "full", "bare"),
            (OFF_LINK, "identity", "bare"),
            ("2001:db8:2::77", "identity", "bare"),
            ("fe80::77%wg0", "identity", "bare"),
            ("fe80::77%7", "identity", "bare"),
            ("10.8.0.77", "identity", "bare"),
            ("10.9.0.77", "identity", "bare"),
            ("10.10.0.2", "identity", "bare"),
            ("8.8.8.8", "identity", "bare"),
        ):
            self.assertEqual(audience(Peer(address), LINKS, "subnet"), subnet, address)
            self.assertEqual(audience(Peer(address), LINKS, "members"), members, address)
            self.assertEqual(audience(Peer(address, tls=True), LINKS, "members"), "full", address)

    def test_no_links(self) -> None:
        """A host whose interfaces are not known yet has no neighbours."""
        self.assertEqual(audience(Peer(ON_LINK), (), "subnet"), "identity")

    def test_told(self) -> None:
        """What is withheld is as if it were not known, whatever is known (DS-81)."""
        self.assertIs(told(FULL, "full"), FULL)
        self.assertEqual(told(FULL, "bare"), NodeInfo(host_uuid=FULL.host_uuid, cluster_uuid=FULL.cluster_uuid))


class NodeInfoCase(SynchronousTestCase):
    """A, whose cluster has the member B, the admitted C and the former D."""

    setting: AudienceSetting = "subnet"

    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        self.world = World(A)
        statements = [self.world.root, *self.world.enter(A, B, D), self.world.admit(A, C)]
        statements.append(self.world.remove(A, D))
        self.trust = Trustee(self.world, A, statements)
        errors = ErrorBook(A.node, Registry(CONDITIONS), lambda: 0)
        callers = Callers(self.reactor, A.node, self.trust, "192.168.1.20".__eq__, errors)
        self.addCleanup(callers.close)
        self.info = FULL
        self.heard: list[str] = []
        self.sites: NodeInfoSites = node_info_sites(
            self.reactor, lambda: self.info, callers, self.setting, lambda: LINKS, self.heard.append
        )

    def ask(
        self,
        path: str = "/v1/node-info",
        address: str = "127.0.0.1",
        who: Player | None = None,
        data: bytes | None = None,
    ) -> Answer:
        where: IAddress = (IPv6Address if ":" in address else IPv4Address)("TCP", address, 1)
        if who is None:
            conversation = Conversation(self.sites.plain, Transport(peerAddress=where))
        else:
            conversation = Conversation(self.sites.tls, Secure(PeerLeaf.of(who.leaf), where))
        conversation.send(request("GET", path) if data is None else data)
        conversation.transport.loseConnection()
        return conversation.answer

    def known(self, answer: Answer) -> set[str]:
        """The fields of a body that say something."""
        return {name for name, value in answer.json.items() if value not in (None, [], False)}


class BodyTests(NodeInfoCase):
    def test_full(self) -> None:
        """Every field is there, in order, and is what the node knows (DS-77)."""
        answer = self.ask()
        self.assertEqual((answer.status, answer.field("content-type")), (200, "application/json"))
        self.assertEqual(list(answer.json), FIELDS)
        self.assertEqual(decode(answer.body), FULL)

    def test_unknown(self) -> None:
        """What is not known is null, never 0 and never left out; no GPU is an empty list (DS-77)."""
        self.info = NodeInfo(host_uuid=A.node, cluster_uuid=None, cpu=Cpu(), memory=Memory(), os=System())
        body: dict[str, Any] = self.ask().json
        self.assertEqual(list(body), FIELDS)
        self.assertEqual((body["gpus"], body["telemetryValid"], body["sampleAgeMs"]), ([], False, None))
        self.assertEqual(body["memory"], {"totalBytes": None, "usedBytes": None, "availableBytes": None})
        self.assertIsNone(body["clusterUuid"])

    def test_compact(self) -> None:
        """The compact view has what a scheduler needs (DS-80)."""
        compact = ["v", "hostUuid", "instance", "protocol", "clusterUuid"]
        compact += ["telemetryValid", "sampleAgeMs", "gpuUtilizationPercent"]
        answer = self.ask("/v1/node-info?view=compact")
        self.assertEqual(list(answer.json), compact)
        self.assertEqual(answer.json["gpuUtilizationPercent"], 62)
        far = self.ask("/v1/node-info?view=compact", OFF_LINK)
        self.assertEqual((list(far.json), self.known(far) & {*compact[5:]}), (compact, set()))

    def test_as_of_now(self) -> None:
        """Each answer is made when it is asked for."""
        self.ask()
        self.info = NodeInfo(host_uuid=A.node, cluster_uuid=None, name="another")
        self.assertEqual(self.ask().json["name"], "another")

    def test_refusals(self) -> None:
        """Another view, another method, another path, a body (DS-80)."""
        for path in ("?view=all", "?view=", "?view=compact&view=compact"):
            answer = self.ask(f"/v1/node-info{path}")
            self.assertEqual((answer.status, answer.code), (400, "bad_request"), path)
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            answer = self.ask(data=request(method, "/v1/node-info"))
            self.assertEqual((answer.status, answer.code), (405, "method_not_allowed"), method)
            self.assertIn("GET", answer.field("allow") or "")
        for path in ("/", "/v1/node-info/", "/v1/node-info/x", "/v1"):
            self.assertEqual(self.ask(path).status, 404, path)
        self.assertEqual(self.ask(data=request("POST", "/v1/node-info", b"{}")).status, 413)

    def test_head(self) -> None:
        """HEAD is answered as GET is, without the body."""
        conversation = Conversation(self.sites.plain)
        conversation.send(request("HEAD", "/v1/node-info"))
        head, _, body = conversation.transport.value().partition(b"\r\n\r\n")
        self.assertEqual((head[:12], body), (b"HTTP/1.1 200", b""))


class StrangerTests(NodeInfoCase):
    def test_subnet(self) -> None:
        """In the clear neighbours are told all, others who this node is (DS-81)."""
        for address in ("127.0.0.1", "::ffff:127.0.0.1", ON_LINK, f"::ffff:{ON_LINK}"):
            self.assertEqual(self.ask(address=address).json["name"], "spark", address)
        answer = self.ask(address=OFF_LINK)
        self.assertEqual((answer.status, list(answer.json), self.known(answer)), (200, FIELDS, IDENTITY))

    def test_forwarding_fields(self) -> None:
        """What a request says of its way counts for nothing (DS-82)."""
        asked = request("GET", "/v1/node-info", x_forwarded_for="127.0.0.1", forwarded="for=127.0.0.1")
        self.assertEqual(self.known(self.ask(address=OFF_LINK, data=asked)), IDENTITY)

    def test_room(self) -> None:
        """So many connections in the clear, so many of one address, and no more; members have their own (DS-83)."""

        def enter(address: str) -> Conversation | None:
            where = IPv4Address("TCP", address, 1)
            if self.sites.plain.buildProtocol(where) is None:
                return None
            return Conversation(self.sites.plain, Transport(peerAddress=where))

        first = [enter("10.0.0.1") for _ in range(STRANGERS.of_one)]
        self.assertNotIn(None, first)
        self.assertIsNone(self.sites.plain.buildProtocol(IPv4Address("TCP", "10.0.0.1", 1)))
        self.assertIsNone(self.sites.plain.buildProtocol(IPv6Address("TCP", "::ffff:10.0.0.1", 1)))
        for number in range(STRANGERS.most - STRANGERS.of_one):
            self.assertIsNotNone(enter(f"10.0.1.{number}"))
        self.assertIsNone(self.sites.plain.buildProtocol(IPv4Address("TCP", "127.0.0.1", 1)))
        self.assertEqual(self.ask(who=B).status, 200)
        assert first[0] is not None
        first[0].transport.loseConnection()
        self.assertIsNotNone(self.sites.plain.buildProtocol(IPv4Address("TCP", "127.0.0.1", 1)))


class MembersTests(NodeInfoCase):
    setting = "members"

    def test_strangers(self) -> None:
        """By this setting strangers are told next to nothing, neighbours too; loopback is told all (DS-81)."""
        for address in (ON_LINK, OFF_LINK):
            answer = self.ask(address=address)
            self.assertEqual((answer.status, list(answer.json), self.known(answer)), (200, FIELDS, BARE))
        self.assertEqual(self.ask().json["name"], "spark")

    def test_member(self) -> None:
        """A member is told all, wherever it is, and that it asks is a sign of life (DS-82)."""
        for address in (ON_LINK, OFF_LINK):
            self.assertEqual(decode(self.ask(address=address, who=B).body), FULL)
        self.assertEqual(self.heard, [B.node, B.node])

    def test_no_member(self) -> None:
        """Over TLS all others are refused, with the reason if there is one (DS-82, CL-17)."""
        for who in (C, D, player("stranger")):
            for path in ("/v1/node-info", "/nowhere"):
                answer = self.ask(path, ON_LINK, who)
                self.assertEqual((answer.status, answer.code), (403, "not_member"))
        self.assertTrue(self.ask(who=D).json["evidence"])
        self.assertEqual(self.heard, [])

    def test_removed(self) -> None:
        """Whoever is removed is refused from its next request on (CL-16)."""
        self.assertEqual(self.ask(who=B).status, 200)
        self.trust.say(self.world.remove(A, B))
        self.assertEqual(self.ask(who=B).status, 403)
