"""Tests of :mod:`pair.feeds.table`, :mod:`pair.feeds.codec` and :mod:`pair.feeds.wire`."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.feeds.table import FeedTable, OverLimitError
from pair.feeds.wire import (
    LINE_MAX,
    RECORD_MAX,
    Del,
    Position,
    Protocols,
    Put,
    read_line,
    read_position,
    write_line,
)
from pair.test.feeds.links import CODEC, GENERATION, NEXT_GENERATION, A, B, Sheet

KEYS = ("a", "b", "c", "d")


def table(most: int = 100, ring: int = 4096) -> FeedTable[Sheet]:
    return FeedTable(GENERATION, CODEC, most, ring)


class TableTests(SynchronousTestCase):
    def test_revisions(self) -> None:
        """Each change raises the revision by one; an equal record is none, nor is a removal of none (JB-2, JB-3)."""
        records = table()
        self.assertEqual(records.revision, 0)
        self.assertTrue(records.put("a", Sheet("a", 1)))
        self.assertFalse(records.put("a", Sheet("a", 1)))
        self.assertTrue(records.put("a", Sheet("a", 2)))
        self.assertFalse(records.remove("b"))
        self.assertTrue(records.remove("a"))
        self.assertEqual((records.revision, len(records)), (3, 0))

    def test_delta(self) -> None:
        """A delta has each changed key once, in the order of its latest revision (JB-4)."""
        records = table()
        for key in "abc":
            records.put(key, Sheet(key))
        records.put("a", Sheet("a", 1))
        records.remove("b")
        delta = records.delta(1)
        assert delta is not None
        self.assertEqual(
            [(type(each), each.key, each.revision) for each in delta], [(Put, "c", 3), (Put, "a", 4), (Del, "b", 5)]
        )
        self.assertEqual(records.delta(5), [])

    def test_reach(self) -> None:
        """There is a delta as long as every later revision is in the ring, and none from the future (JB-4)."""
        records = table(ring=3)
        for n in range(5):
            records.put("a", Sheet("a", n))
        self.assertEqual([records.reaches(since) for since in range(7)], [False, False, True, True, True, True, False])
        self.assertIsNone(records.delta(1))

    def test_opening(self) -> None:
        """Who comes back in the same generation and within the ring gets a delta, others a snapshot (JB-8)."""
        records = table(ring=2)
        for key in "abc":
            records.put(key, Sheet(key))
        records.put("a", Sheet("a", 1))
        self.assertEqual(records.opening(Position(GENERATION, 3))[0], "delta")
        for position in (None, Position(NEXT_GENERATION, 3), Position(GENERATION, 1), Position(GENERATION, 5)):
            mode, changes = records.opening(position)
            self.assertEqual((mode, [each.key for each in changes]), ("snapshot", ["b", "c", "a"]))

    def test_record_limit(self) -> None:
        """A record of 64 KiB is taken and one octet more is not; what there was stays (JB-5)."""
        records = table()
        frame = len(CODEC.encode(Sheet("a")))
        records.put("a", Sheet("a", text="x" * (RECORD_MAX - frame)))
        with self.assertRaises(OverLimitError):
            records.put("a", Sheet("a", text="y" * (RECORD_MAX - frame + 1)))
        self.assertEqual((records.revision, records.revision_of("a")), (1, 1))

    def test_key_limits(self) -> None:
        """A key is 1 to 256 octets without control characters (JB-5); the longest line is within its limit."""
        records = table()
        for key in ("", "x" * 257, "é" * 129, "a\nb", "a\x7f", "a\x85", "\ud800"):
            with self.assertRaises(OverLimitError):
                records.put(key, Sheet(key))
        key = '"' * 256
        frame = len(CODEC.encode(Sheet("a")))
        records.put(key, Sheet("a", text="x" * (RECORD_MAX - frame)))
        self.assertLess(len(write_line(records.snapshot()[0])), LINE_MAX)

    def test_most(self) -> None:
        """No more records than may be; those that are there can change."""
        records = table(most=2)
        records.put("a", Sheet("a"))
        records.put("b", Sheet("b"))
        with self.assertRaises(OverLimitError):
            records.put("c", Sheet("c"))
        self.assertTrue(records.put("a", Sheet("a", 1)))
        records.remove("b")
        self.assertTrue(records.put("c", Sheet("c")))

    @given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-1, 2)), max_size=40), st.integers(1, 8))
    def test_any_delta(self, changes: list[tuple[str, int]], ring: int) -> None:
        """From wherever a delta begins, it leads to the present table; its revisions rise (JB-2 to JB-4)."""
        records = table(ring=ring)
        states: list[dict[str, bytes]] = [{}]
        for key, n in changes:
            changed = records.remove(key) if n < 0 else records.put(key, Sheet(key, n))
            if changed:
                states.append({put.key: bytes(put.record) for put in records.snapshot()})
        self.assertEqual(len(states) - 1, records.revision)
        for since, state in enumerate(states):
            delta = records.delta(since)
            self.assertEqual(delta is None, records.revision - since > ring)
            for change in delta or ():
                if isinstance(change, Put):
                    state[change.key] = bytes(change.record)
                else:
                    state.pop(change.key, None)
            if delta is not None:
                self.assertEqual(state, states[-1])
                self.assertEqual([each.revision for each in delta], sorted({each.revision for each in delta}))


class WireTests(SynchronousTestCase):
    def test_line(self) -> None:
        """A line is what the page shows, and reads back as it was."""
        put = Put(906, "k", msgspec.Raw(b'{"id":"k"}'))
        line = write_line(put)
        self.assertEqual(line, b'{"kind":"put","revision":906,"key":"k","record":{"id":"k"}}\n')
        self.assertEqual(read_line(line), put)

    def test_unknown(self) -> None:
        """Unknown kinds and fields are ignored (JB-23)."""
        self.assertIsNone(read_line(b'{"kind":"song","revision":"high"}'))
        self.assertEqual(read_line(b'{"kind":"del","revision":1,"key":"k","why":[]}'), Del(1, "k"))

    def test_position(self) -> None:
        """A position reads back as it was asked; half of one is none (JB-14)."""
        self.assertEqual(Position(GENERATION, 7).query, f"generation={GENERATION}&since=7")
        whole = {b"generation": [GENERATION.encode()], b"since": [b"7"]}
        self.assertEqual(read_position(whole), Position(GENERATION, 7))
        for name in whole:
            self.assertIsNone(read_position({name: whole[name]}))
        self.assertIsNone(read_position({}))

    def test_bad_position(self) -> None:
        """What is malformed or given twice is refused (JB-14)."""
        good, seven = GENERATION.encode(), b"7"
        for generation, since in (
            ([b"x"], [seven]),
            ([good.upper()], [seven]),
            ([good], [b"-1"]),
            ([good], [b"1" * 19]),
            ([good], [b"\xb2"]),
            ([good, good], [seven]),
            ([good], [seven, seven]),
        ):
            with self.assertRaises(ValueError):
                read_position({b"generation": generation, b"since": since})

    def test_protocols(self) -> None:
        """Two ranges meet where they have a number in common (OP-57, OP-58)."""
        ours = Protocols(2, 3)
        meets = [ours.meets(Protocols(*each)) for each in ((1, 1), (1, 2), (3, 9), (1, 9), (4, 4))]
        self.assertEqual(meets, [False, True, True, True, False])


class CodecTests(SynchronousTestCase):
    def test_owner(self) -> None:
        """A record is of the node that is connected to, whatever it says (JB-28)."""
        self.assertEqual(CODEC.decode(A, "a", CODEC.encode(Sheet("a", node=B))), Sheet("a", node=A))

    def test_key(self) -> None:
        """A record under another key than its own is refused (JB-25)."""
        with self.assertRaises(ValueError):
            CODEC.decode(A, "b", CODEC.encode(Sheet("a")))
