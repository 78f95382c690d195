"""Tests of :mod:`pair.proxy.listeners` (PX-5, PX-95)."""

from __future__ import annotations

import errno

from twisted.internet.protocol import Factory
from twisted.trial.unittest import SynchronousTestCase

from pair.proxy.listeners import Listeners, PortDenied, PortTaken, open_listeners, with_loopback
from pair.test.proxy.network import Ports

BOTH = ("0.0.0.0", "::")


class ListenersTests(SynchronousTestCase):
    def setUp(self) -> None:
        """A host on which nothing listens."""
        self.ports = Ports()

    def open(self, port: int = 11434, addresses: tuple[str, ...] = BOTH) -> Listeners:
        """Listen."""
        return open_listeners(self.ports.listen, Factory(), addresses, port)

    def test_every_address(self) -> None:
        """One socket an address, and all are closed together."""
        listeners = self.open()
        self.assertEqual(self.ports.numbers, [(11434, "0.0.0.0"), (11434, "::")])
        self.assertEqual((listeners.port, listeners.addresses), (11434, BOTH))
        self.successResultOf(listeners.close())
        self.assertEqual(self.ports.numbers, [])

    def test_choice_of_the_kernel(self) -> None:
        """0 is one and the same port for all addresses."""
        self.assertEqual(self.open(0).port, Ports.CHOICE)
        self.assertEqual(self.ports.numbers, [(Ports.CHOICE, "0.0.0.0"), (Ports.CHOICE, "::")])

    def test_all_or_none(self) -> None:
        """PX-95: one address that is held or denied leaves nothing open; the two are told apart."""
        for number, error in (
            (errno.EADDRINUSE, PortTaken),
            (errno.EACCES, PortDenied),
            (errno.EADDRNOTAVAIL, PortDenied),
        ):
            self.ports.troubles = {"192.168.1.7": number}
            self.assertRaises(error, self.open, 11434, ("0.0.0.0", "192.168.1.7"))
            self.assertEqual(self.ports.numbers, [])

    def test_host_without_ipv6(self) -> None:
        """D13: the IPv6 wildcard is left out where the host has no IPv6, but not if it is all there is."""
        for number in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            self.ports.troubles = {"::": number}
            listeners = self.open()
            self.assertEqual(listeners.addresses, ("0.0.0.0",))
            self.successResultOf(listeners.close())
            self.assertRaises(PortDenied, self.open, 11434, ("::",))

    def test_loopback_always(self) -> None:
        """PX-5: loopback is added where no address includes one of it."""
        for addresses, added in (
            (("192.168.1.7",), ("127.0.0.1", "::1")),
            (("fe80::1%eth0", "10.0.0.1"), ("127.0.0.1", "::1")),
            (("192.168.1.7", "::1"), ()),
            (("127.0.0.2",), ()),
            (("::",), ()),
            (BOTH, ()),
        ):
            self.assertEqual(with_loopback(addresses), (*addresses, *added), addresses)

    def test_denied(self) -> None:
        """What is refused says which address and why, and whether it is that the host has no such address."""
        for number, lacks in (
            (errno.EACCES, False),
            (errno.EPERM, False),
            (errno.EADDRNOTAVAIL, True),
            (errno.EAFNOSUPPORT, True),
            (errno.EINVAL, True),
        ):
            self.ports.troubles = {"8.8.8.8": number}
            denied = self.assertRaises(PortDenied, self.open, 11434, ("0.0.0.0", "8.8.8.8"))
            self.assertEqual((denied.port, denied.address, denied.errno), (11434, "8.8.8.8", number))
            self.assertEqual(denied.lacks_address, lacks)

    def test_ipv6_wildcard_that_is_held(self) -> None:
        """A program that listens on IPv6 alone holds the port as well."""
        self.ports.troubles = {"::": errno.EADDRINUSE}
        self.assertRaises(PortTaken, self.open)
        self.assertEqual(self.ports.numbers, [])
