"""Tests of :mod:`pair.cluster.hosts`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.hosts import Interface, interfaces, is_own, published, zones

LO = Interface("lo", ("127.0.0.1", "::1"))
ETH = Interface("eth0", ("2001:db8::7", "fe80::7", "10.0.0.7"))
ANY = ("0.0.0.0", "::")


class HostTests(SynchronousTestCase):
    """What is this host's, and what of it others are told."""

    def test_own(self) -> None:
        """Any spelling of an address of an interface is ours, and all of loopback (CL-20, CL-42)."""
        for address in ("10.0.0.7", "::ffff:10.0.0.7", "fe80::7%eth0", "127.0.0.9", "::1", "2001:DB8:0::7"):
            self.assertTrue(is_own(address, (LO, ETH)), address)
        for address in ("10.0.0.8", "fe80::8%eth0", "", "desk"):
            self.assertFalse(is_own(address, (LO, ETH)), address)

    def test_zones(self) -> None:
        """A link-local address is tried on interfaces that have one (CL-58)."""
        self.assertEqual(zones((LO, ETH)), ("eth0",))

    def test_published(self) -> None:
        """All that others can dial, IPv4 first; loopback only where there is no other."""
        self.assertEqual(published(ANY, (LO, ETH)), ("10.0.0.7", "2001:db8::7"))
        self.assertEqual(published(("0.0.0.0",), (LO, ETH)), ("10.0.0.7",))
        self.assertEqual(published(("10.0.0.7", "127.0.0.1"), (LO, ETH)), ("10.0.0.7",))
        self.assertEqual(published(("127.0.0.1",), (LO, ETH)), ("127.0.0.1",))
        self.assertEqual(published(ANY, (LO,)), ("127.0.0.1", "::1"))

    def test_not_more_than_a_note_holds(self) -> None:
        """Eight at most (CL-62)."""
        many = Interface("eth1", tuple(f"10.0.1.{n}" for n in range(20)))
        self.assertEqual(len(published(ANY, (many,))), 8)

    def test_this_host(self) -> None:
        """The host that runs this has loopback."""
        self.assertTrue(any("127.0.0.1" in each.addresses for each in interfaces()))
