"""By which interfaces multicasts go, and how that goes."""

from __future__ import annotations

import errno

from twisted.trial.unittest import SynchronousTestCase

from pair.addresses import Interface
from pair.discovery.sending import DENIED_SECONDS, Leg, Sends, Sent, legs, own_records
from pair.test.discovery.test_addresses import DOCKER, ETH, HOST, LO, addresses


class LegsTests(SynchronousTestCase):
    def test_all_that_are_up(self) -> None:
        """Each interface, by both families where it has them and they are wanted (DS-21)."""
        found = (*HOST, Interface("eth1", addresses("10.0.0.1/8"), up=False))
        self.assertEqual(
            legs(found, ipv6=True), (Leg("eth0", "192.168.1.20", True), Leg("docker0", "172.17.0.1", False))
        )
        self.assertEqual(legs(found, ipv6=False)[0], Leg("eth0", "192.168.1.20", False))

    def test_families(self) -> None:
        """IPv6 alone is enough, unless it is not wanted; a routed IPv4 address is better than a link-local one."""
        six = Interface("eth1", addresses("fe80::1/64"))
        self.assertEqual(legs([six], ipv6=True), (Leg("eth1", None, True),))
        self.assertEqual(legs([six], ipv6=False), ())
        both = Interface("eth1", addresses("169.254.1.1/16", "10.0.0.1/8", "10.0.0.2/8"))
        self.assertEqual(legs([both], ipv6=True), (Leg("eth1", "10.0.0.1", False),))

    def test_containers(self) -> None:
        """The hundred ends of containers' links are not used; one that has an address of a network is."""
        pod = Interface("veth1", addresses("fe80::1/64"), type="veth")
        self.assertEqual(legs([ETH, pod], ipv6=True), legs([ETH], ipv6=True))
        self.assertEqual(
            [each.name for each in legs([Interface("veth1", addresses("10.77.0.1/24"))], ipv6=True)], ["veth1"]
        )

    def test_loopback(self) -> None:
        """It counts where there is nothing else, by IPv4."""
        self.assertEqual(legs([LO], ipv6=True), (Leg("lo", "127.0.0.1", False),))
        self.assertEqual(legs([], ipv6=True), ())

    def test_records(self) -> None:
        """A and AAAA have all addresses of these interfaces, link-local ones too, but no loopback."""
        self.assertEqual(own_records(HOST, ipv6=True), ("192.168.1.20", "fd00::20", "fe80::20", "172.17.0.1"))
        self.assertEqual(own_records((ETH, DOCKER), ipv6=False), ("192.168.1.20", "172.17.0.1"))
        self.assertEqual(own_records([LO], ipv6=True), ())


class SendsTests(SynchronousTestCase):
    """What is logged and reported of sending (DS-28)."""

    def test_one_line_a_minute(self) -> None:
        """Of each interface, however often it fails."""
        sends = Sends()
        told = [sends.told(Sent(True, {"eth0": errno.ENOBUFS}), float(at)) for at in range(120)]
        self.assertEqual([at for at, each in enumerate(told) if each], [0, 60])
        self.assertEqual(sends.told(Sent(True, {"eth1": errno.ENOBUFS}), 120.0), {"eth1": errno.ENOBUFS})

    def test_denied(self) -> None:
        """Nothing went out for so long, and the system says why; the first success ends it."""
        sends = Sends()
        nothing = Sent(False, {"eth0": errno.EHOSTUNREACH, "wg0": errno.EDESTADDRREQ})
        sends.told(nothing, 10.0)
        self.assertFalse(sends.denied(10.0 + DENIED_SECONDS - 1))
        self.assertTrue(sends.denied(10.0 + DENIED_SECONDS))
        sends.told(Sent(True, {"wg0": errno.EDESTADDRREQ}), 30.0)
        self.assertFalse(sends.denied(99.0))

    def test_not_denied(self) -> None:
        """D07: one of two interfaces fails, or all do, but for another reason: nothing is said."""
        for sent in (Sent(True, {"eth0": errno.EPERM}), Sent(False, {"eth0": errno.ENOBUFS})):
            sends = Sends()
            sends.told(sent, 0.0)
            self.assertFalse(sends.denied(99.0))

    def test_other_interfaces(self) -> None:
        """The count begins anew with other interfaces."""
        sends = Sends()
        sends.told(Sent(False, {"eth0": errno.EPERM}), 0.0)
        sends.forget()
        self.assertFalse(sends.denied(99.0))
