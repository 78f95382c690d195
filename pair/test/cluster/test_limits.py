"""Limits for strangers (CL-44, CL-105)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.limits import PENDING_MAX, PENDING_PER_SOURCE, Doorkeeper, Sparing, source_of


class SourceTests(SynchronousTestCase):
    def test_one_source(self) -> None:
        """An IPv4 address, also a mapped one; an IPv6 /64; of link-local ones the whole, with its zone."""
        rows = {
            "10.0.0.1": "10.0.0.1",
            "::ffff:10.0.0.1": "10.0.0.1",
            "::FFFF:0a00:0001": "10.0.0.1",
            "2001:db8:0:7::1": "2001:db8:0:7::/64",
            "2001:db8:0:7:ffff::": "2001:db8:0:7::/64",
            "2001:db8:0:8::1": "2001:db8:0:8::/64",
            "::1": "::/64",
            "fe80::1": "fe80::1",
            "fe80::1%eth0": "fe80::1%eth0",
            "fe80::2%eth0": "fe80::2%eth0",
        }
        self.assertEqual({each: source_of(each) for each in rows}, rows)


class DoorkeeperTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.keeper = Doorkeeper()

    def test_apart(self) -> None:
        """One new invitation of a source in ten seconds; others are not touched by that."""
        self.assertIsNone(self.keeper.admit("a", "here", 100.0))
        self.assertEqual(self.keeper.admit("b", "here", 103.0), 7.0)
        self.assertIsNone(self.keeper.admit("c", "there", 103.0))
        self.assertIsNone(self.keeper.admit("b", "here", 110.0))

    def test_refused_do_not_count(self) -> None:
        """Who is refused waits no longer for that."""
        self.keeper.admit("a", "here", 100.0)
        self.keeper.admit("b", "here", 109.0)
        self.assertIsNone(self.keeper.admit("b", "here", 110.0))

    def test_two_of_a_source(self) -> None:
        """A third pending one of a source is refused until one of its two has ended."""
        self.keeper.admit("a", "here", 0.0)
        self.keeper.admit("b", "here", 10.0)
        self.assertEqual(self.keeper.admit("c", "here", 20.0), 10.0)
        self.keeper.release("a")
        self.assertIsNone(self.keeper.admit("c", "here", 20.0))

    def test_eight_in_all(self) -> None:
        """So is the ninth of all."""
        for each in range(8):
            self.assertIsNone(self.keeper.admit(f"invite {each}", f"source {each}", 0.0))
        self.assertEqual(self.keeper.admit("ninth", "another", 0.0), 10.0)
        self.keeper.release("invite 3")
        self.keeper.release("invite 3")
        self.assertIsNone(self.keeper.admit("ninth", "another", 0.0))

    @given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 6), st.booleans()), max_size=60))
    def test_bounds(self, knocks: list[tuple[int, float, bool]]) -> None:
        """Whatever comes: never more than eight, two of a source, or two of a source within ten seconds."""
        keeper, now = Doorkeeper(), 0.0
        pending: dict[str, tuple[str, float]] = {}
        last: dict[str, float] = {}
        for at, (which, pause, ends) in enumerate(knocks):
            now += pause
            source = f"source {which}"
            if keeper.admit(str(at), source, now) is None:
                self.assertGreaterEqual(now, last.get(source, -10.0) + 10.0)
                pending[str(at)] = source, now
                last[source] = now
            if ends and pending:
                gone = next(iter(pending))
                del pending[gone]
                keeper.release(gone)
            self.assertLessEqual(len(pending), PENDING_MAX)
            self.assertLessEqual(sum(each == source for each, _ in pending.values()), PENDING_PER_SOURCE)


class SparingTests(SynchronousTestCase):
    def test_once_a_minute(self) -> None:
        """One line a minute for each source."""
        sparing = Sparing()
        said = [sparing.worth(source, now) for source, now in (("a", 0.0), ("a", 59.0), ("b", 59.0), ("a", 60.0))]
        self.assertEqual(said, [True, False, True, True])

    def test_many_sources(self) -> None:
        """It remembers a thousand sources, and is silent of more until a minute has passed."""
        sparing = Sparing()
        said = [sparing.worth(str(each), 0.0) for each in range(1100)]
        self.assertEqual(said.count(True), 1024)
        self.assertTrue(sparing.worth("late", 61.0))
