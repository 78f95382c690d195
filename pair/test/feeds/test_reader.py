"""Tests of :mod:`pair.feeds.reader`: bytes in, news out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from pair.feeds.reader import (
    RECORD_MEAN,
    Beaten,
    CaughtUp,
    Changed,
    Fault,
    FeedReader,
    Foreign,
    Greeted,
    Incompatible,
    Left,
    Removed,
    Replaced,
    Told,
)
from pair.feeds.wire import (
    LINE_MAX,
    PROTOCOLS,
    RECORD_MAX,
    Beat,
    Bye,
    Del,
    End,
    Hello,
    Position,
    Protocols,
    Put,
    write_line,
)
from pair.test.feeds.links import CODEC, GENERATION, NEXT_GENERATION, A, B, Sheet

if TYPE_CHECKING:
    from pair.feeds.reader import FaultReason
    from pair.feeds.wire import Line


def hello(revision: int, count: int, mode: str = "snapshot", **fields: Any) -> bytes:
    values: dict[str, Any] = {
        "protocol": PROTOCOLS,
        "version": "0.0.0",
        "feed": "sheets",
        "node": A,
        "generation": GENERATION,
        "heartbeat_ms": 5000,
    }
    return write_line(Hello(revision=revision, count=count, mode=mode, **{**values, **fields}))  # type: ignore[arg-type]


def put(revision: int, key: str, n: int = 0) -> bytes:
    return write_line(Put(revision, key, msgspec.Raw(CODEC.encode(Sheet(key, n)))))


def lines(*messages: Line) -> bytes:
    return b"".join(write_line(each) for each in messages)


SNAPSHOT = hello(5, 2) + put(3, "a") + put(5, "b") + lines(End(5))
NEWS = put(6, "a", 1) + lines(Del(7, "b"), Beat(7, 1000))


class ReaderTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.reader = FeedReader("sheets", A, CODEC, most=3)

    def read(self, *data: bytes) -> list[Told[Sheet]]:
        """What a new stream of ``data`` tells."""
        self.reader.begin()
        return [told for each in data for told in self.reader.read(each)]

    def know(self) -> None:
        """The snapshot has been read."""
        self.read(SNAPSHOT)

    def assert_fault(self, reason: FaultReason, *data: bytes) -> None:
        """The stream is faulty from its last line on; then the position is forgotten, and nothing more is read."""
        told = self.read(*data)
        self.assertEqual(told[-1:], [Fault(reason)])
        self.assertIsNone(self.reader.position)
        self.assertEqual(self.reader.read(put(99, "z")), [])


class ReadingTests(ReaderTestCase):
    def test_snapshot(self) -> None:
        """A snapshot takes the place of the table at its end, and not before (JB-24)."""
        self.assertEqual(self.read(SNAPSHOT[:-1]), [Greeted()])
        self.assertEqual(dict(self.reader.records), {})
        self.assertIsNone(self.reader.position)
        news = Replaced(False, (Changed("a", Sheet("a"), None), Changed("b", Sheet("b"), None)))
        self.assertEqual(self.reader.read(b"\n"), [news])
        self.assertEqual(dict(self.reader.records), {"a": Sheet("a"), "b": Sheet("b")})
        self.assertEqual(self.reader.position, Position(GENERATION, 5))

    def test_news(self) -> None:
        """What follows is told line by line."""
        self.know()
        told = self.reader.read(NEWS)
        self.assertEqual(told, [Changed("a", Sheet("a", 1), Sheet("a")), Removed("b", Sheet("b")), Beaten(1000)])
        self.assertEqual(self.reader.position, Position(GENERATION, 7))

    def test_every_split(self) -> None:
        """Wherever the reads of a stream are cut, it tells the same (JB-24, JB-25)."""
        stream = SNAPSHOT + NEWS
        whole = self.read(stream)
        self.assertEqual(len(whole), 5)
        for split in range(len(stream) + 1):
            self.reader = FeedReader("sheets", A, CODEC)
            self.assertEqual(self.read(stream[:split], stream[split:]), whole)
        self.reader = FeedReader("sheets", A, CODEC)
        self.assertEqual(self.read(*(stream[at : at + 1] for at in range(len(stream)))), whole)

    def test_delta(self) -> None:
        """A delta is applied line by line: one that breaks off is gone on from there (JB-24)."""
        self.know()
        delta = hello(8, 3, "delta") + put(6, "a", 1) + lines(Del(7, "b")) + put(8, "c")
        told = self.read(delta)
        self.assertEqual(
            told,
            [
                Greeted(),
                Changed("a", Sheet("a", 1), Sheet("a")),
                Removed("b", Sheet("b")),
                Changed("c", Sheet("c"), None),
            ],
        )
        self.assertEqual(self.reader.position, Position(GENERATION, 8))
        self.assertEqual(
            self.read(hello(8, 0, "delta") + lines(End(8), Beat(8, 0))), [Greeted(), CaughtUp(), Beaten(0)]
        )

    def test_broken_snapshot(self) -> None:
        """A snapshot that breaks off changes nothing, wherever that is (JB-24)."""
        self.know()
        table, position = dict(self.reader.records), self.reader.position
        snapshot = hello(9, 2) + put(8, "c") + put(9, "d") + lines(End(9))
        for cut in range(len(snapshot)):
            self.assertLessEqual(len(self.read(snapshot[:cut])), 1)
            self.assertEqual((dict(self.reader.records), self.reader.position), (table, position))

    def test_removal_by_snapshot(self) -> None:
        """A key that a snapshot lacks is one removal; what is equal is no news (JB-24)."""
        self.know()
        told = self.read(hello(9, 1) + put(3, "a") + lines(End(9)))
        self.assertEqual(told, [Greeted(), Replaced(False, (Removed("b", Sheet("b")),))])

    def test_restart(self) -> None:
        """A snapshot of another generation clears what the origin has no more, and says so."""
        self.know()
        told = self.read(hello(1, 1, generation=NEXT_GENERATION) + put(1, "c") + lines(End(1)))
        self.assertEqual(
            told[-1],
            Replaced(True, (Removed("a", Sheet("a")), Removed("b", Sheet("b")), Changed("c", Sheet("c"), None))),
        )
        self.assertEqual(self.reader.position, Position(NEXT_GENERATION, 1))

    def test_restart_after_fault(self) -> None:
        """That the origin has restarted is also seen when the position was forgotten meanwhile."""
        self.know()
        self.assert_fault("malformed", b"?\n")
        told = self.read(hello(0, 0, generation=NEXT_GENERATION) + lines(End(0)))
        self.assertEqual(told[-1], Replaced(True, (Removed("a", Sheet("a")), Removed("b", Sheet("b")))))

    def test_unknown(self) -> None:
        """An unknown kind is ignored, and is a line all the same: between hello and end it counts (JB-23)."""
        song = b'{"kind":"song"}\n'
        told = self.read(hello(5, 2) + put(5, "a") + song + lines(End(5)) + song + put(6, "b"))
        self.assertEqual([type(each) for each in told], [Greeted, Replaced, Changed])
        self.assertEqual(self.reader.lines, 6)

    def test_owner(self) -> None:
        """A record that names another node is the origin's (JB-28)."""
        record = msgspec.Raw(CODEC.encode(Sheet("a", node=B)))
        self.read(hello(1, 1) + lines(Put(1, "a", record), End(1)))
        self.assertEqual(self.reader.records["a"].node, A)

    def test_bye(self) -> None:
        """After a bye nothing is read, and the position is kept (JB-10)."""
        self.know()
        self.assertEqual(self.reader.read(lines(Bye("slow")) + put(6, "a", 1)), [Left("slow")])
        self.assertEqual(self.reader.position, Position(GENERATION, 5))

    def test_foreign(self) -> None:
        """A stream of another node or of another feed is none of ours (JB-23)."""
        self.assertEqual(self.read(hello(0, 0, node=B)), [Foreign()])
        self.assertEqual(self.read(hello(0, 0, feed="songs")), [Foreign()])

    def test_incompatible(self) -> None:
        """Without a common protocol nothing else of the line matters (JB-23, OP-58)."""
        line = b'{"kind":"hello","protocol":{"min":2,"max":4},"everything":"else"}\n'
        self.assertEqual(self.read(line), [Incompatible(Protocols(2, 4))])


class FaultTests(ReaderTestCase):
    def test_no_hello(self) -> None:
        """Another first line is a fault, as are a second hello and an end without a beginning."""
        self.assert_fault("malformed", put(1, "a"))
        self.assert_fault("order", SNAPSHOT, hello(5, 0))
        self.assert_fault("order", SNAPSHOT, lines(End(5)))
        self.assert_fault("order", hello(5, 2), hello(5, 2))

    def test_long_line(self) -> None:
        """A line of 128 KiB is read, one octet more is a fault; lines before it count (JB-25)."""
        self.know()
        line = b'{"kind":"song","of":"%b"}'
        room = LINE_MAX - len(line % b"")
        self.assertEqual(self.reader.read(line % (b"x" * room) + b"\n"), [])
        told = self.reader.read(put(6, "a", 1) + line % (b"x" * (room + 1)))
        self.assertEqual(told, [Changed("a", Sheet("a", 1), Sheet("a")), Fault("long_line")])

    def test_malformed(self) -> None:
        """Broken JSON, a missing field, a key that is none and a record that the codec refuses are faults (JB-25)."""
        nested = b'{"kind":"put","revision":6,"key":"a","record":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n"
        for bad in (
            b"?\n",
            b"\n",
            b"[]\n",
            b'{"kind":"del","revision":6}\n',
            b'{"kind":"del","revision":-6,"key":"a"}\n',
            b'{"kind":"del","revision":6,"key":"\xff"}\n',
            lines(Put(6, "a", msgspec.Raw(b'{"id":"b"}'))),
            lines(Put(6, "a", msgspec.Raw(b'{"n":1}'))),
            lines(Put(6, "", msgspec.Raw(b'{"id":""}'))),
            nested,
        ):
            self.assert_fault("malformed", SNAPSHOT, bad)
            self.assertEqual(set(self.reader.records), {"a", "b"})

    def test_revision(self) -> None:
        """A revision that does not rise is a fault, before the end and after it (JB-25)."""
        self.assert_fault("revision", hello(5, 2), put(3, "a"), put(3, "b"))
        self.assert_fault("revision", hello(5, 2), put(3, "a"), put(6, "b"))
        self.assert_fault("revision", hello(5, 1), put(3, "a"), lines(End(4)))
        self.assert_fault("revision", SNAPSHOT, put(5, "a", 1))
        self.know()
        self.assert_fault("revision", hello(6, 1, "delta"), put(5, "a", 1))

    def test_gap(self) -> None:
        """A beat, and the end of a delta, that have seen more than we have tell of a line that was lost."""
        self.assert_fault("revision", SNAPSHOT, lines(Beat(6, 0)))
        self.know()
        self.assert_fault("revision", hello(7, 1, "delta"), put(6, "a", 1), lines(End(7)))

    def test_count(self) -> None:
        """More or fewer lines than were announced are a fault; the table is untouched (JB-25)."""
        self.know()
        self.assert_fault("count", hello(9, 2), put(8, "c"), lines(End(9)))
        self.assert_fault("count", hello(9, 1), put(8, "c"), put(9, "d"))
        self.assertEqual(set(self.reader.records), {"a", "b"})

    def test_many_keys(self) -> None:
        """More keys than there may be are a fault, in a snapshot and after it (JB-25)."""
        self.assert_fault("too_many_keys", hello(5, 4), *(put(n, f"{n}") for n in range(1, 5)))
        self.assert_fault("too_many_keys", SNAPSHOT, put(6, "a", 1), put(7, "c"), put(8, "d"))
        self.assertEqual(len(self.reader.records), 3)

    def test_large_record(self) -> None:
        """So is a record over its limit, though its line is not (JB-5)."""
        large = Sheet("c", text="x" * RECORD_MAX)
        self.assert_fault("too_large", SNAPSHOT, write_line(Put(6, "c", msgspec.Raw(CODEC.encode(large)))))

    def test_large_table(self) -> None:
        """So are records that are too much together; what was replaced or removed counts no more."""
        size = 3 * RECORD_MEAN // 2

        def large(revision: int, key: str) -> bytes:
            return write_line(Put(revision, key, msgspec.Raw(CODEC.encode(Sheet(key, revision, text="x" * size)))))

        self.assert_fault("too_large", SNAPSHOT, large(6, "a"), large(7, "b"))
        self.know()
        told = self.reader.read(b"".join(large(revision, "a") for revision in range(6, 20)))
        told += self.reader.read(lines(Del(20, "a")) + large(21, "b"))
        self.assertFalse([each for each in told if isinstance(each, Fault)])
        self.assert_fault("too_large", hello(5, 2) + large(4, "a") + large(5, "b"))

    def test_delta_from_elsewhere(self) -> None:
        """A delta that does not go on where we are is a fault."""
        self.assert_fault("resumed_elsewhere", hello(5, 0, "delta"))
        self.know()
        self.assert_fault("resumed_elsewhere", hello(5, 0, "delta", generation=NEXT_GENERATION))
        self.know()
        self.assert_fault("resumed_elsewhere", hello(4, 0, "delta"))

    def test_removal_in_snapshot(self) -> None:
        """A snapshot has records only."""
        self.assert_fault("order", hello(5, 1), lines(Del(5, "a")))
