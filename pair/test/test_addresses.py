"""Addresses as people write them, and which are our own (CL-4, CL-56, CL-58, DS-70)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.addresses import (
    Advertised,
    Interface,
    InterfaceAddress,
    Place,
    PlaceError,
    is_own,
    parse_advertised,
    parse_node,
    parse_place,
    spread,
    zones,
)

HOST = (
    Interface("lo", (InterfaceAddress("127.0.0.1"), InterfaceAddress("::1"))),
    Interface("eth0", tuple(map(InterfaceAddress, ("2001:db8::7", "fe80::7", "10.0.0.7")))),
)


class PlaceTests(SynchronousTestCase):
    def test_places(self) -> None:
        """Addresses and names, with and without port; a zone stays with its address."""
        rows = {
            "192.168.1.4": Place("192.168.1.4", 14321),
            " 192.168.1.4:99 ": Place("192.168.1.4", 99),
            "::ffff:1.2.3.4": Place("1.2.3.4", 14321),
            "2001:DB8::1": Place("2001:db8::1", 14321),
            "[2001:db8::1]:99": Place("2001:db8::1", 99),
            "fe80::1%eth0": Place("fe80::1%eth0", 14321),
            "[fe80::1%eth0]": Place("fe80::1%eth0", 14321),
            "[fe80::1%eth0]:99": Place("fe80::1%eth0", 99),
            "Rack.local": Place("rack.local", 14321),
            "rack:99": Place("rack", 99),
        }
        self.assertEqual({each: parse_place(each, 14321) for each in rows}, rows)

    def test_shown(self) -> None:
        """A place is written as it is typed, an IPv6 address in brackets."""
        for text in ("192.168.1.4:99", "[2001:db8::1]:99", "[fe80::1%eth0]:99", "rack:99"):
            self.assertEqual(str(parse_place(text, 1)), text)

    def test_bad_addresses(self) -> None:
        """Schemes, paths, users, bad labels and numbers that only look like addresses are refused (DS-71)."""
        bad = [
            "http://rack",
            "rack/x",
            "rack:80/x",
            "me@rack",
            "me@rack:80",
            "rack:80:80",
            "1.2.3.4:80:80",
            "a..b",
            ".a",
            "-a",
            "a-",
            "rack%eth0",
            "a,b",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0x7f000001",
            "1.2.3.256",
            "[rack]",
            "[1.2.3.4]",
            "[::1",
            "[::1]x",
            "::1]",
            "[fe80::1%eth0]x",
            "[rack%eth0]:1",
            "fe80::1%",
            "fe80::1%a/b",
            ":80",
            ".",
            "é.example",
        ]
        for text in ("", " ", "a b", "rack: 80", "a" * 64, ".".join(["a" * 49] * 6), *bad):
            with self.subTest(text):
                self.assertEqual(self.assertRaises(PlaceError, parse_place, text, 14321).reason, "bad_address")

    def test_bad_ports(self) -> None:
        """A port is a decimal number from 1 to 65535 (DS-71)."""
        for text in ("rack:0", "rack:65536", "rack:-1", "rack:x", "rack:٣", "[fe80::1%eth0]:x", "1.2.3.4:123456"):
            with self.subTest(text):
                self.assertEqual(self.assertRaises(PlaceError, parse_place, text, 14321).reason, "bad_port")

    @given(st.text(max_size=40) | st.text("0123456789abcdef:.[]%/@-", max_size=40))
    def test_any_text(self, text: str) -> None:
        """Any text is a place, which reads back as itself, or is refused."""
        try:
            place = parse_place(text, 14321)
        except PlaceError:
            return
        self.assertEqual(parse_place(str(place), 1), place)

    def test_node(self) -> None:
        """A UUID is known in any spelling, and nothing else is one."""
        plain = "3f0c8a52-1d7e-4b6f-9a51-7c0de4b2a911"
        for text in (plain, plain.upper(), plain.replace("-", ""), f"urn:uuid:{plain}"):
            self.assertEqual(parse_node(text), plain)
        for text in ("", "rack", "192.168.1.4", plain[:-1]):
            self.assertIsNone(parse_node(text))

    def test_spread(self) -> None:
        """A link-local address without zone stands for one on each interface; repeats are left out."""
        places = [Place("fe80::1", 1), Place("10.0.0.1", 1), Place("fe80::2%eth7", 1), Place("10.0.0.1", 1)]
        self.assertEqual(
            spread(places, ["eth0", "wlan0"]),
            (Place("fe80::1%eth0", 1), Place("fe80::1%wlan0", 1), Place("10.0.0.1", 1), Place("fe80::2%eth7", 1)),
        )
        self.assertEqual(spread([Place("rack", 1)], ["eth0"]), (Place("rack", 1),))

    def test_own(self) -> None:
        """Any spelling of an address of an interface is ours, and all of loopback (CL-20, CL-42)."""
        for address in ("10.0.0.7", "::ffff:10.0.0.7", "fe80::7%eth0", "127.0.0.9", "::1", "2001:DB8:0::7"):
            self.assertTrue(is_own(address, HOST), address)
        for address in ("10.0.0.8", "fe80::8%eth0", "", "desk"):
            self.assertFalse(is_own(address, HOST), address)

    def test_zones(self) -> None:
        """A link-local address is tried on interfaces that have one (CL-58)."""
        self.assertEqual(zones(HOST), ("eth0",))


class AdvertisedTests(SynchronousTestCase):
    """What ``node.advertise`` may say (DS-32)."""

    def test_forms(self) -> None:
        """Addresses, and ports by the keys of services."""
        self.assertEqual(
            parse_advertised(["203.0.113.9", "ni=30018", "2001:DB8::9", "cl=30021"]),
            Advertised(("203.0.113.9", "2001:db8::9"), {"ni": 30018, "cl": 30021}),
        )

    def test_refused(self) -> None:
        """Names, unknown services, and what nobody could dial are refused."""
        for entry in ("rack", "", "0.0.0.0", "ff02::1", "fe80::1%eth0", "xx=1", "ni=0", "ni=65536", "ni=x", "=1"):
            self.assertRaises(ValueError, parse_advertised, [entry])
