"""From packets to claims."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from pair.addresses import Interface
from pair.discovery.claims import Claim
from pair.discovery.hearing import A_SECOND_MAX, AT_ONCE_MAX, KEPT_MAX, Allowance, Hearing, zone_of
from pair.discovery.packets import Packet
from pair.discovery.txt import Record, encode, instance_name, target_name
from pair.test.discovery.test_addresses import HOST, addresses

UUID = "3f0c9a52-0000-4000-8000-000000000001"
OTHER = "3f0c9a52-0000-4000-8000-000000000002"
INSTANCE = instance_name("spark", UUID)
RECORD = Record(UUID, None, ("192.168.1.9",), {"ni": 14318})


def packet(record: Record = RECORD, *records: str) -> Packet:
    """As a node sends it."""
    name = instance_name("spark", record.uuid)
    target = target_name(record.uuid)
    return Packet({name: encode(record)}, {name: target}, (), {target: records} if records else {})


def claim(*records: str, uuid: str = UUID) -> Claim:
    return Claim("mdns", uuid, INSTANCE, None, "spark", ("192.168.1.9",), records, {"ni": 14318})


class AllowanceTests(SynchronousTestCase):
    def test_flood(self) -> None:
        """Many nodes may answer at once; of a flood the most is as if it had been lost."""
        allowance = Allowance()
        given = packet(RECORD, "192.168.1.9", "192.168.1.20")
        self.assertEqual(sum(allowance.covers(given, 0.0) for _ in range(10_000)), AT_ONCE_MAX // 4)
        self.assertEqual(sum(allowance.covers(given, 1.0) for _ in range(10_000)), A_SECOND_MAX // 4)
        self.assertEqual(sum(allowance.covers(given, 3600.0) for _ in range(10_000)), AT_ONCE_MAX // 4)
        self.assertTrue(allowance.covers(Packet(), 3600.0), "it costs nothing")


class HearingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.hearing = Hearing()

    def test_claim(self) -> None:
        """A whole record is a claim; of its addresses those that may lead there (DS-13)."""
        heard = self.hearing.take(packet(RECORD, "192.168.1.9", "192.168.1.20", "fe80::9"), "eth0", HOST)
        self.assertEqual(heard, (claim("192.168.1.9", "fe80::9%eth0"),))

    def test_parts(self) -> None:
        """SRV alone, TXT alone: what they lack is remembered. Before that SRV alone says nothing."""
        alone = Packet(targets={INSTANCE: target_name(UUID)})
        self.assertEqual(self.hearing.take(alone, None, HOST), ())
        self.hearing.take(packet(RECORD, "192.168.1.9"), "eth0", HOST)
        self.assertEqual(self.hearing.take(alone, None, HOST), (claim("192.168.1.9"),))
        text = Packet({INSTANCE: encode(RECORD)})
        self.assertEqual(self.hearing.take(text, None, HOST), (claim("192.168.1.9"),))

    def test_addresses_in_a_packet_of_their_own(self) -> None:
        """They are no sighting, but count from the next on."""
        self.assertEqual(self.hearing.take(Packet(addresses={target_name(UUID): ("192.168.1.9",)}), "eth0", HOST), ())
        self.assertEqual(self.hearing.take(packet(), "eth0", HOST), (claim("192.168.1.9"),))

    def test_two_links(self) -> None:
        """Heard by two links it is one claim with the addresses of both, in one order (DS-4, DS-6)."""
        both = claim("192.168.1.9", "fe80::9%eth0", "fe80::9%eth1")
        sent = packet(RECORD, "192.168.1.9", "fe80::9")
        self.hearing.take(sent, "eth0", HOST)
        for zone in ("eth1", "eth0"):
            self.assertEqual(self.hearing.take(sent, zone, HOST), (both,))
        self.hearing.forget_addresses()
        self.assertEqual(self.hearing.take(sent, "eth1", HOST), (claim("192.168.1.9", "fe80::9%eth1"),))

    def test_equal_instances(self) -> None:
        """Two nodes with one instance name are two (DS-24)."""
        second = Packet({INSTANCE: encode(Record(OTHER))}, {INSTANCE: target_name(OTHER)})
        self.hearing.take(packet(), None, HOST)
        self.assertEqual([each.uuid for each in self.hearing.take(second, None, HOST)], [OTHER])
        alone = Packet(targets={INSTANCE: target_name(UUID)})
        self.assertEqual([each.uuid for each in self.hearing.take(alone, None, HOST)], [UUID])

    def test_no_uuid(self) -> None:
        """A TXT without a UUID is ignored, whatever SRV says (DS-12)."""
        bad = Packet({INSTANCE: b"\x03v=1"}, {INSTANCE: target_name(UUID)})
        self.assertEqual(self.hearing.take(bad, None, HOST), ())

    def test_bounded(self) -> None:
        """Memory does not grow with what strangers say (DS-15)."""
        for number in range(KEPT_MAX * 2):
            uuid = f"3f0c9a52-0000-4000-8000-{number:012x}"
            self.hearing.take(packet(Record(uuid), "192.168.1.9"), None, HOST)
        self.assertEqual((len(self.hearing._records), len(self.hearing._hosts)), (KEPT_MAX, KEPT_MAX))


class ZoneTests(SynchronousTestCase):
    def test_network(self) -> None:
        """The network that a source is in tells the interface, where it is one alone."""
        second = Interface("eth1", addresses("10.0.0.1/8", "fe80::1/64"))
        found = (*HOST, second)
        self.assertEqual(zone_of("192.168.1.9", found), "eth0")
        self.assertEqual(zone_of("fd00::9", found), "eth0")
        self.assertEqual(zone_of("10.9.9.9", found), "eth1")
        self.assertIsNone(zone_of("fe80::9", found))
        self.assertIsNone(zone_of("8.8.8.8", found))
