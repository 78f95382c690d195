"""Addresses as people write them (CL-4, CL-56, CL-58)."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.places import Place, PlaceError, parse_node, parse_place, spread


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

    def test_none(self) -> None:
        """What is no place is refused."""
        for text in ("", "a b", "http://rack", "rack:0", "rack:65536", "[fe80::1%eth0]:x", "[rack%eth0]:1", "[::1"):
            self.assertRaises(PlaceError, parse_place, text, 14321)

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
