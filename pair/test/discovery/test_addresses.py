"""Which addresses are published, and where others are dialled."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from pair.addresses import Interface, InterfaceAddress, Place
from pair.discovery.addresses import (
    ManualError,
    NoZoneError,
    Reach,
    candidates,
    kind_of,
    parse_manual,
    rank,
    storable,
    usable,
)


def addresses(*texts: str) -> tuple[InterfaceAddress, ...]:
    """Of ``address/prefix`` each."""
    split = (each.partition("/") for each in texts)
    return tuple(InterfaceAddress(ip, int(prefix) if prefix else None) for ip, _, prefix in split)


LO = Interface("lo", addresses("127.0.0.1/8", "::1/128"))
ETH = Interface("eth0", addresses("192.168.1.20/24", "fd00::20/64", "fe80::20/64"), driver="e1000e")
DOCKER = Interface("docker0", addresses("172.17.0.1/16"), type="bridge")
HOST = (LO, ETH, DOCKER)


class KindTests(SynchronousTestCase):
    """What sort an interface is (DS-33)."""

    def test_names(self) -> None:
        """Interfaces of containers, virtual machines and tunnels are known by their names."""
        virtual = """
            docker0 br-0123456789ab veth12ab cni0 flannel.1 ovn-k8s-mp0 virbr0 vmnet8 tun0 tap1 wg0 utun4 tailscale0
        """
        for name in virtual.split():
            self.assertEqual(kind_of(Interface(name)), "virtual", name)
        for name in ("eth0", "en0", "wlp3s0", "br-ex", "br-lan", "bond0", "eth0.100"):
            self.assertEqual(kind_of(Interface(name)), "physical", name)

    def test_system(self) -> None:
        """The system's word for it counts, whatever its name, and so does what it is a part of."""
        self.assertEqual(kind_of(Interface("lan", type="bridge")), "bridge")
        self.assertEqual(kind_of(Interface("br-ex", driver="openvswitch")), "bridge")
        self.assertEqual(kind_of(Interface("office", type="wireguard")), "virtual")
        self.assertEqual(kind_of(Interface("eth9", driver="veth")), "virtual")
        self.assertEqual(kind_of(Interface("vnet0", master="virbr0"), [Interface("virbr0", type="bridge")]), "virtual")
        self.assertEqual(kind_of(Interface("enp1s0", master="br0"), [Interface("br0", type="bridge")]), "physical")


class RankTests(SynchronousTestCase):
    """What is published, in which order (DS-31, DS-32, DS-34)."""

    def test_kubernetes(self) -> None:
        """The bridge with the default route comes first, tunnels and container networks last, but there (D05)."""
        found = (
            Interface("ovn-k8s-mp0", addresses("10.128.0.2/23"), driver="openvswitch"),
            DOCKER,
            Interface("tun0", addresses("10.8.0.2/24"), point_to_point=True),
            Interface("br-ex", addresses("192.168.7.4/24"), driver="openvswitch"),
        )
        self.assertEqual(rank(found, ["192.168.7.4"]), ("192.168.7.4", "10.128.0.2", "172.17.0.1", "10.8.0.2"))

    def test_lan_in_the_range_of_docker(self) -> None:
        """A real network in 172.17.0.0/16 is not judged by its range (D05)."""
        found = (DOCKER, Interface("eth0", addresses("172.17.9.9/16")))
        self.assertEqual(rank(found, ["172.17.9.9"])[0], "172.17.9.9")
        self.assertEqual(rank(found, [])[0], "172.17.9.9")

    def test_never(self) -> None:
        """Loopback, IPv6 link-local, temporary addresses, and those of interfaces that are down (DS-31)."""
        private = InterfaceAddress("fd00::77", 64, temporary=True)
        found = (
            LO,
            Interface("eth0", (*ETH.addresses, private)),
            Interface("eth1", addresses("10.1.0.1/24"), up=False),
        )
        self.assertEqual(rank(found, []), ("192.168.1.20", "fd00::20"))
        self.assertEqual(rank((LO,), []), ())

    def test_direct_cable(self) -> None:
        """IPv4 link-local is published where the interface has no other IPv4 address (DS-31)."""
        cable = Interface("eth1", addresses("169.254.3.4/16", "fe80::4/64"))
        self.assertEqual(rank((ETH, cable), ["192.168.1.20"]), ("192.168.1.20", "169.254.3.4", "fd00::20"))
        both = Interface("eth1", addresses("169.254.3.4/16", "10.0.0.4/24"))
        self.assertEqual(rank((both,), []), ("10.0.0.4",))

    def test_order(self) -> None:
        """Point-to-point and narrow links last, then the default source, the kind, IPv4, and the bytes (DS-32)."""
        found = (
            Interface("ppp0", addresses("10.0.0.1/24"), point_to_point=True),
            Interface("eth3", addresses("10.0.0.2/30", "fd00::2/127")),
            DOCKER,
            Interface("br0", addresses("10.5.0.1/24"), type="bridge"),
            Interface("eth1", addresses("10.9.0.1/24", "fd00::1/64")),
            Interface("eth0", addresses("192.168.1.9/24")),
        )
        order = ("192.168.1.9", "10.9.0.1", "fd00::1", "10.5.0.1", "172.17.0.1", "10.0.0.1", "10.0.0.2", "fd00::2")
        self.assertEqual(rank(found, ["192.168.1.9"]), order)
        self.assertEqual(rank(found[::-1], ["192.168.1.9"]), order)

    def test_advertised(self) -> None:
        """What the operator says comes first, as it stands; nothing else is left out (DS-32)."""
        self.assertEqual(
            rank(HOST, ["192.168.1.20"], ["203.0.113.9", "172.17.0.1"]),
            ("203.0.113.9", "172.17.0.1", "192.168.1.20", "fd00::20"),
        )

    def test_bind(self) -> None:
        """Where this node does not listen, nobody is sent to."""
        self.assertEqual(rank(HOST, [], bind=["0.0.0.0"]), ("192.168.1.20", "172.17.0.1"))
        self.assertEqual(rank(HOST, [], bind=["192.168.1.20", "127.0.0.1"]), ("192.168.1.20",))


class UsableTests(SynchronousTestCase):
    """What of a record's addresses is of use (DS-13)."""

    def test_dropped(self) -> None:
        """Loopback, our own, and what is no one host's address."""
        bad = "127.0.0.1 ::1 0.0.0.0 :: 224.0.0.251 ff02::fb 255.255.255.255 192.168.1.255 192.168.1.20 172.17.0.1"
        self.assertEqual(usable((*bad.split(), "fe80::20", "rack", ""), "eth0", HOST), ())

    def test_kept(self) -> None:
        """Others' addresses, IPv4-mapped ones as IPv4, once each and in order."""
        given = ("192.168.1.7", "::ffff:10.0.0.9", "10.0.0.9", "2001:DB8::1", "fd00::7")
        self.assertEqual(usable(given, None, HOST), ("192.168.1.7", "10.0.0.9", "2001:db8::1", "fd00::7"))

    def test_zone(self) -> None:
        """A link-local address has the zone of the interface by which it came, and none without is kept."""
        self.assertEqual(usable(("fe80::7", "fe80::8%en7"), "eth0", HOST), ("fe80::7%eth0", "fe80::8%eth0"))
        self.assertEqual(usable(("fe80::7",), None, HOST), ())

    def test_bounded(self) -> None:
        """At most sixteen are kept of one record, and not all are looked at of one that has nothing but others."""
        self.assertEqual(len(usable((f"10.0.{n}.1" for n in range(99)), None, HOST)), 16)
        left = iter(["127.0.0.1"] * 99)
        self.assertEqual(usable(left, None, HOST), ())
        self.assertEqual(len(list(left)), 99 - 32)


class CandidateTests(SynchronousTestCase):
    """Where a node is dialled (DS-36)."""

    REACH = Reach(
        (Place("10.0.0.3", 9000),),
        ("10.0.0.1", "10.0.0.3"),
        ("10.0.0.2", "10.0.0.1"),
        ("fe80::1%eth0",),
        (Place("rack", 7),),
        15000,
    )

    def test_order(self) -> None:
        """Confirmed, then by turns published, roster, records, typed; each once."""
        self.assertEqual(
            list(map(str, candidates("cl", self.REACH))),
            [
                "10.0.0.3:9000",
                "10.0.0.1:15000",
                "10.0.0.2:15000",
                "[fe80::1%eth0]:15000",
                "rack:15000",
                "10.0.0.3:15000",
            ],
        )

    def test_forged_record(self) -> None:
        """However much a record says, the first of every other source is among the first six (DS-36, DS-37)."""
        forged = tuple(f"10.9.0.{each}" for each in range(64))
        earlier = (Place("10.0.0.5", 15001), Place("10.0.0.6", 15001))
        reach = Reach((), forged, ("10.0.0.2",), forged, (), 15000, ("10.0.0.4",), earlier)
        found = candidates("cl", reach)
        own = {Place("10.0.0.4", 15000), Place("10.0.0.2", 15000), earlier[0]}
        self.assertEqual(own & set(found[:4]), own)
        self.assertEqual(len(found), 16)
        self.assertEqual(candidates("cl", reach, 8), found[:8])

    def test_typed_port(self) -> None:
        """The port that a person typed is that of node-info, and of nothing else (DS-70)."""
        self.assertIn(Place("rack", 7), candidates("ni", self.REACH))
        self.assertIn(Place("rack", 15000), candidates("cl", self.REACH))

    def test_default_port(self) -> None:
        """A service that nobody has told of is looked for where it usually is."""
        self.assertEqual(candidates("em", Reach(roster=("10.0.0.1",))), (Place("10.0.0.1", 14322),))

    def test_zones_stay_here(self) -> None:
        """What has a zone is neither stored nor told (DS-39)."""
        self.assertEqual(storable((Place("fe80::1%eth0", 1), Place("10.0.0.1", 1))), (Place("10.0.0.1", 1),))


class ManualTests(SynchronousTestCase):
    """What a person types (DS-70, DS-71); the rest of the grammar is in ``pair.test.test_addresses``."""

    def refusal(self, text: str, port: int = 14318, present: tuple[Place, ...] = ()) -> str:
        error: ManualError = self.assertRaises(ManualError, parse_manual, text, HOST, port, present)
        return error.reason

    def test_forms(self) -> None:
        """Every form of an address, with the port of node-info where there is none."""
        for text, place in {
            "rack": Place("rack", 14318),
            " rack:99 ": Place("rack", 99),
            "10.0.0.7": Place("10.0.0.7", 14318),
            "10.0.0.7:99": Place("10.0.0.7", 99),
            "fd00::7": Place("fd00::7", 14318),
            "[fd00::7]": Place("fd00::7", 14318),
            "[fd00::7]:99": Place("fd00::7", 99),
            "fe80::7%eth0": Place("fe80::7%eth0", 14318),
            "[fe80::7%eth0]:99": Place("fe80::7%eth0", 99),
        }.items():
            self.assertEqual(parse_manual(text, HOST, 14318, ()), place)

    def test_refused(self) -> None:
        """Each refusal has its reason."""
        self.assertEqual(self.refusal("http://rack"), "bad_address")
        self.assertEqual(self.refusal("rack:0"), "bad_port")
        for own in ("localhost", "127.0.0.9", "[::1]:14318", "192.168.1.20", "::ffff:192.168.1.20", "fe80::20%eth0"):
            self.assertEqual(self.refusal(own), "is_self")

    def test_no_zone(self) -> None:
        """A link-local address means nothing without its interface."""
        for text in ("fe80::7", "[fe80::7]", "[fe80::7]:99"):
            self.assertRaises(NoZoneError, parse_manual, text, HOST, 14318, ())
            self.assertEqual(self.refusal(text), "bad_address")

    def test_another_node_here(self) -> None:
        """Another port of this host may be another node."""
        self.assertEqual(parse_manual("127.0.0.1:9000", HOST, 14318, ()), Place("127.0.0.1", 9000))

    def test_too_many(self) -> None:
        """Sixty-four, of which one may be named again."""
        present = tuple(Place(f"10.0.0.{n}", 14318) for n in range(64))
        self.assertEqual(self.refusal("10.0.1.1", present=present), "too_many")
        self.assertEqual(parse_manual("10.0.0.5", HOST, 14318, present), Place("10.0.0.5", 14318))
