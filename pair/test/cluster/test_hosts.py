"""Tests of :mod:`pair.cluster.hosts`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from pair.addresses import Interface, InterfaceAddress
from pair.cluster.hosts import published

ANY = ("0.0.0.0", "::")


def interface(name: str, *addresses: str) -> Interface:
    return Interface(name, tuple(map(InterfaceAddress, addresses)))


LO = interface("lo", "127.0.0.1", "::1")
ETH = interface("eth0", "2001:db8::7", "fe80::7", "10.0.0.7")


class HostTests(SynchronousTestCase):
    """What others are told of this host's addresses."""

    def test_published(self) -> None:
        """All that others can dial, IPv4 first; loopback only where there is no other."""
        self.assertEqual(published(ANY, (LO, ETH)), ("10.0.0.7", "2001:db8::7"))
        self.assertEqual(published(("0.0.0.0",), (LO, ETH)), ("10.0.0.7",))
        self.assertEqual(published(("10.0.0.7", "127.0.0.1"), (LO, ETH)), ("10.0.0.7",))
        self.assertEqual(published(("127.0.0.1",), (LO, ETH)), ("127.0.0.1",))
        self.assertEqual(published(ANY, (LO,)), ("127.0.0.1", "::1"))

    def test_not_more_than_a_note_holds(self) -> None:
        """Eight at most (CL-62)."""
        many = interface("eth1", *(f"10.0.1.{n}" for n in range(20)))
        self.assertEqual(len(published(ANY, (many,))), 8)
