"""The record by which nodes are found."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.discovery.txt import Record, decode, encode, instance_name, shown_name, target_name

UUID = "3f0c8a52-1d7e-4b6f-9a51-7c0de4b2a911"
CLUSTER = "b7d0f6f0-9c1b-4d1e-8f5a-2a6f3b0c9d11"
FULL = Record(UUID, CLUSTER, ("192.168.1.20", "fd00::20"), {"ni": 14318, "ol": 11434, "zz": 9, "cl": 14321, "aa": 1})


def strings(data: bytes) -> list[bytes]:
    found = []
    while data:
        found.append(data[1 : 1 + data[0]])
        data = data[1 + data[0] :]
    return found


def text(*pairs: str | bytes) -> bytes:
    encoded = [each.encode() if isinstance(each, str) else each for each in pairs]
    return b"".join(bytes((len(each),)) + each for each in encoded)


def read(*pairs: str | bytes) -> Record:
    record = decode(text(f"uuid={UUID}", *pairs))
    assert record is not None
    return record


class EncodeTests(SynchronousTestCase):
    """What we say."""

    def test_order(self) -> None:
        """Keys stand in the order of the page, those of later versions behind, sorted (section 3)."""
        self.assertEqual(
            strings(encode(FULL)),
            [
                b"v=1",
                b"uuid=" + UUID.encode(),
                b"cluster-uuid=" + CLUSTER.encode(),
                b"ip=192.168.1.20",
                b"ips=192.168.1.20,fd00::20",
                *(b"ni=14318", b"ol=11434", b"cl=14321", b"aa=1", b"zz=9"),
            ],
        )

    def test_absent(self) -> None:
        """What there is none of is left out; one address alone has no list."""
        self.assertEqual(strings(encode(Record(UUID))), [b"v=1", b"uuid=" + UUID.encode()])
        self.assertIn(b"ip=10.0.0.1", strings(encode(Record(UUID, addresses=("10.0.0.1",)))))
        self.assertNotIn(b"ips=", encode(Record(UUID, addresses=("10.0.0.1",))))

    def test_the_cluster(self) -> None:
        """A member names its cluster's id, never its own; a node in none names none (DS-9)."""
        self.assertIn(f"cluster-uuid={CLUSTER}".encode(), strings(encode(FULL)))
        self.assertNotIn(b"cluster-uuid", encode(Record(UUID, None, FULL.addresses, FULL.services)))

    def test_cut(self) -> None:
        """At most six addresses are listed, and at most 250 bytes of them, from the front."""
        many = tuple(f"10.0.0.{n}" for n in range(9))
        self.assertIn(b"ips=" + ",".join(many[:6]).encode(), strings(encode(Record(UUID, addresses=many))))
        long = tuple(f"{n:x}" * 60 for n in range(6))
        self.assertIn(b"ips=" + ",".join(long[:4]).encode(), strings(encode(Record(UUID, addresses=long))))

    def test_names(self) -> None:
        """The instance has the host's label, cut and cleaned, and the first of the UUID; the target is our own."""
        for host, label in {
            "spark": "spark",
            "": "node",
            "spark.lan": "spark-lan",
            "a\nb\x7f": "a-b-",
            "ü" * 30: "ü" * 20,
            "x" + "ü" * 30: "x" + "ü" * 19,
            "bad\udc80": "bad-",
        }.items():
            self.assertEqual(instance_name(host, UUID), f"{label}-3f0c8a52._nvpair-node._tcp.local.")
        self.assertEqual(target_name(UUID), f"pair-{UUID}.local.")

    def test_shown_name(self) -> None:
        """A name of others is shown without its suffix, without controls and at most 63 characters long (DS-14)."""
        self.assertEqual(shown_name(instance_name("spark", UUID), UUID), "spark")
        self.assertEqual(shown_name("sp\u202eark\x1b[31m-3f0c8a52._nvpair-node._tcp.local.", UUID), "spark[31m")
        self.assertEqual(len(shown_name("x" * 300, UUID)), 63)


class DecodeTests(SynchronousTestCase):
    """What others say."""

    def test_round_trip(self) -> None:
        """What is said is read again (DS-11)."""
        self.assertEqual(decode(encode(FULL)), FULL)

    def test_keys(self) -> None:
        """Case does not matter, the first of two counts, and what is no ``key=value`` in UTF-8 is skipped (DS-11)."""
        self.assertEqual(read("OL=1", "ol=2", "flag", "=x", b"lm=\xff", "lm=3").services, {"ol": 1, "lm": 3})
        self.assertEqual(decode(text(f"UUID={UUID.upper()}")), Record(UUID))

    def test_services(self) -> None:
        """Any unknown key with a port is a service; a known one without, and all else, is dropped (DS-11)."""
        record = read("v=2", "ol=0", "lm=65536", "er=-1", "wl=1.5", "cl=٣", "em=", "ec=65535", "later=77", "os=linux")
        self.assertEqual(record.services, {"ec": 65535, "later": 77})

    def test_addresses(self) -> None:
        """``ip`` comes first, and what is no address is dropped; zones of others mean nothing here (DS-13)."""
        record = read("ip=10.0.0.2", "ips=10.0.0.1,rack,,10.0.0.2,::ffff:10.0.0.3,fe80::1%eth0,10.0.0.1")
        self.assertEqual(record.addresses, ("10.0.0.2", "10.0.0.1", "10.0.0.3", "fe80::1"))

    def test_no_uuid(self) -> None:
        """A record without the UUID of a node is none (DS-12)."""
        for value in ("", "rack", UUID[:-1], UUID + "0", UUID.replace("4b6f", "1b6f"), UUID.replace("-", "")):
            self.assertIsNone(decode(text(f"uuid={value}", "ip=10.0.0.1")), value)
        self.assertIsNone(decode(b""))

    def test_too_long(self) -> None:
        """A record of more than 1,300 bytes is none (DS-12)."""
        data = text(f"uuid={UUID}")
        self.assertIsNotNone(decode(data + bytes(1300 - len(data))))
        self.assertIsNone(decode(data + bytes(1301 - len(data))))

    def test_cluster(self) -> None:
        """A cluster's id that is none says that there is none."""
        self.assertEqual(read(f"cluster-uuid={CLUSTER.upper()}").cluster, CLUSTER)
        self.assertIsNone(read("cluster-uuid=home").cluster)

    @given(st.binary(max_size=1400) | st.lists(st.binary(max_size=255), max_size=12).map(lambda each: text(*each)))
    def test_any_bytes(self, data: bytes) -> None:
        """Any bytes are read without an exception, and none but clean ones get through (DS-11, DS-14)."""
        for record in (decode(data), decode(text(f"uuid={UUID}") + data)):
            if record is None:
                continue
            for key, port in record.services.items():
                self.assertTrue(1 <= port <= 65535 and len(key) <= 63)
                self.assertTrue(all(unicodedata.category(each) not in ("Cc", "Zl", "Zp") for each in key))
            self.assertEqual(
                decode(encode(record)), Record(record.uuid, record.cluster, record.addresses[:6], record.services)
            )

    @given(
        st.uuids(version=4),
        st.none() | st.uuids(),
        st.lists(st.ip_addresses(v=4).map(str), unique=True, max_size=6),
        st.dictionaries(st.text("abcdefghij", min_size=1, max_size=8), st.integers(1, 65535), max_size=8),
    )
    def test_any_record(self, uuid: object, cluster: object, addresses: list[str], services: dict[str, int]) -> None:
        """Whatever is said is read again, as long as it fits."""
        record = Record(str(uuid), None if cluster is None else str(cluster), tuple(addresses), services)
        self.assertEqual(decode(encode(record)), record)
