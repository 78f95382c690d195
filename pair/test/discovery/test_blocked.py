"""Whether multicast is blocked on the way."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from pair.addresses import Interface, InterfaceAddress
from pair.discovery.blocked import Deafness, is_near

FOUND = (
    Interface("eth0", (InterfaceAddress("192.168.1.2", 24), InterfaceAddress("fe80::2", 64))),
    Interface("wg0", (InterfaceAddress("10.8.0.2", 24),), point_to_point=True),
    Interface("eth1", (InterfaceAddress("10.9.0.2", 24),), up=False),
    Interface("odd", (InterfaceAddress("10.10.0.2"),)),
    Interface("lo", (InterfaceAddress("127.0.0.1", 8),)),
)


class NearTests(SynchronousTestCase):
    def test_near(self) -> None:
        """A host is near if it is inside a prefix of an interface that multicast goes by; this one is not."""
        near = ("192.168.1.77", "::ffff:192.168.1.77", "fe80::9%eth0")
        ours = ("192.168.1.2", "::ffff:192.168.1.2", "fe80::2%eth0", "10.8.0.2")
        far = ("192.168.2.1", "10.8.0.1", "10.9.0.1", "10.10.0.2", "2001:db8::1", "spark.local", "127.0.0.1")
        self.assertEqual([is_near(each, FOUND) for each in near], [True] * len(near))
        self.assertEqual([is_near(each, FOUND) for each in far], [False] * len(far))
        self.assertEqual([is_near(each, iter(FOUND)) for each in ours], [False] * len(ours))


class DeafnessTests(SynchronousTestCase):
    """DS-29."""

    def setUp(self) -> None:
        self.deafness = Deafness()

    def answer(self, start: int, end: int, step: int = 10) -> None:
        for now in range(start, end + 1, step):
            self.deafness.answered(float(now))

    def test_nobody(self) -> None:
        """Where nobody answers there is nothing to hear."""
        self.assertFalse(self.deafness.holds(None, 1000.0))

    def test_a_minute(self) -> None:
        """A minute of answers without any packet."""
        self.answer(0, 60)
        self.assertEqual([self.deafness.holds(None, now) for now in (59.0, 60.0)], [False, True])

    def test_heard(self) -> None:
        """A packet ends it, and the minute begins anew."""
        self.answer(0, 120)
        self.assertEqual([self.deafness.holds(heard, 120.0) for heard in (59.0, 61.0)], [True, False])

    def test_gap(self) -> None:
        """Answers that are far apart are no minute of answers, and old ones say nothing."""
        self.answer(0, 120, 60)
        self.assertFalse(self.deafness.holds(None, 120.0))
        self.answer(130, 200)
        self.assertFalse(self.deafness.holds(None, 241.0))
