"""Tests of :mod:`pair.hostlinks`."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from pair.addresses import Interface, InterfaceAddress
from pair.hostlinks import default_sources, interfaces


class HostLinksTests(SynchronousTestCase):
    """What the system says of its interfaces."""

    def setUp(self) -> None:
        self.system = Path(self.mktemp())
        self.ipv6 = Path(self.mktemp())

    def loopback(self) -> Interface:
        """The one interface that every host has."""
        found = interfaces(self.system, self.ipv6)
        return next(each for each in found if InterfaceAddress("127.0.0.1", 8) in each.addresses)

    def test_this_host(self) -> None:
        """Loopback is there with its network; where the system describes nothing, nothing is said of it."""
        found = self.loopback()
        self.assertEqual((found.up, found.point_to_point, found.type, found.master), (True, False, "", ""))

    def test_described(self) -> None:
        """The kernel's words for it, and what it is a part of (DS-33)."""
        described = self.system / self.loopback().name
        (described / "device").mkdir(parents=True)
        (described / "uevent").write_text("INTERFACE=x\nDEVTYPE=bridge\n")
        (described / "device" / "driver").symlink_to("../../drivers/e1000e")
        (described / "master").symlink_to("../br0")
        found = self.loopback()
        self.assertEqual((found.type, found.driver, found.master), ("bridge", "e1000e", "br0"))
        (described / "tun_flags").touch()
        self.assertEqual(self.loopback().type, "tun")

    def test_temporary(self) -> None:
        """A privacy address is known by the kernel's flag (DS-31)."""
        loopback = next((each for each in self.loopback().addresses if each.ip == "::1"), None)
        if loopback is None:
            raise SkipTest("this host has no IPv6 loopback address")
        self.assertFalse(loopback.temporary)
        self.ipv6.write_text("00000000000000000000000000000001 01 80 10 81       lo\n")
        self.assertIn(InterfaceAddress("::1", 128, temporary=True), self.loopback().addresses)

    def test_sources(self) -> None:
        """At most one of each family, and never loopback."""
        sources = default_sources()
        self.assertLessEqual(len(sources), 2)
        self.assertNotIn("127.0.0.1", sources)
