"""Tests of :mod:`pair.logs.backlog` and :mod:`pair.logs.repeats`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.logs.backlog import Backlog
from pair.logs.repeats import Repeats


class BacklogTests(SynchronousTestCase):
    def test_order(self) -> None:
        """Lines of all ranks come out in the order in which they came in."""
        backlog = Backlog()
        for number, rank in enumerate((2, 0, 4, 0, 1)):
            backlog.put(rank, b"%d" % number)
        self.assertEqual((len(backlog), backlog.take(3), backlog.take(9)), (5, [b"0", b"1", b"2"], [b"3", b"4"]))
        self.assertEqual((len(backlog), backlog.take(9)), (0, []))

    def test_lowest_first(self) -> None:
        """When full, the oldest line of the lowest level is dropped, and counted (OP-30)."""
        backlog = Backlog(lines=3)
        for rank, line in ((2, b"warn"), (0, b"old"), (0, b"new"), (3, b"error"), (1, b"info")):
            backlog.put(rank, line)
        self.assertEqual((backlog.dropped, backlog.take(9), backlog.dropped), (2, [b"warn", b"error", b"info"], 0))

    def test_new_line_is_the_lowest(self) -> None:
        """A new line below all that wait is the one that is dropped."""
        backlog = Backlog(lines=2)
        for rank, line in ((2, b"a"), (2, b"b"), (0, b"c")):
            backlog.put(rank, line)
        self.assertEqual(backlog.take(9), [b"a", b"b"])

    def test_bytes(self) -> None:
        """It is full by bytes as well; a line larger than all of it is dropped."""
        backlog = Backlog(size=10)
        for line in (b"x" * 6, b"y" * 6, b"z" * 11):
            backlog.put(1, line)
        self.assertEqual((backlog.dropped, backlog.take(9)), (3, []))

    @given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=60))
    def test_bounded(self, puts: list[tuple[int, int]]) -> None:
        """It is never over its bounds, loses nothing uncounted, and keeps the most important."""
        backlog = Backlog(lines=10, size=50)
        for rank, size in puts:
            backlog.put(rank, bytes([rank]) * size)
        dropped, taken = backlog.dropped, backlog.take(1000)
        self.assertLessEqual(len(taken), 10)
        self.assertLessEqual(sum(map(len, taken)), 50)
        self.assertEqual(len(taken) + dropped, len(puts))


class RepeatsTests(SynchronousTestCase):
    def admit(self, at: float, **fields: object) -> int | None:
        return self.repeats.admit({"log_time": at, "log_namespace": "pair.x", "log_format": "Slow.", **fields})

    def setUp(self) -> None:
        self.repeats = Repeats()

    def test_once_a_minute(self) -> None:
        """The same warning is written at most once a minute, then with the number left out (OP-32)."""
        seen = [self.admit(at) for at in (0, 1, 30, 59.9, 60, 61, 200)]
        self.assertEqual(seen, [0, None, None, None, 3, None, 1])

    def test_subject(self) -> None:
        """Another place, format or subject is another warning (OP-32)."""
        self.assertEqual(self.admit(0, engine="a"), 0)
        self.assertEqual(self.admit(0, engine="b"), 0)
        self.assertEqual(self.admit(0, engine="a", port=5), 0)
        self.assertEqual(self.admit(0, log_format="Slower."), 0)
        self.assertEqual(self.admit(0, log_namespace="pair.y"), 0)
        self.assertIsNone(self.admit(0, engine="a", seconds=7))

    def test_clock_set_back(self) -> None:
        """A clock that was set back silences nothing."""
        self.assertEqual((self.admit(1000), self.admit(10), self.admit(11)), (0, 0, None))

    def test_bounded(self) -> None:
        """However many warnings there are, the oldest are forgotten."""
        for number in range(5000):
            self.admit(0, engine=number)
        self.assertEqual((self.admit(1, engine=0), self.admit(1, engine=4999)), (0, None))
