"""Tests of pair.admin.sse: the same events, wherever the stream is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.admin import sse
from pair.admin.sse import Event, EventParser, TooLongError
from pair.control.changes import frame

STREAM = (
    b": a remark\n"
    b'event: snapshot\nid: g:1\ndata: {"a":"\xc3\xa4"}\n\n'
    b"event:upsert\r\ndata:x\r\ndata: y\r\ndata\r\nid:g:2\r\n\r\n"
    b"event: nothing to tell\n\n"
    b"data:  one space is kept\r\rid: bad\0id\nretry: 5\n\n"
    b"data: last\n\ndata: it never ends"
)
EVENTS = [
    Event("snapshot", '{"a":"ä"}', "g:1"),
    Event("upsert", "x\ny\n", "g:2"),
    Event("message", " one space is kept", "g:2"),
    Event("message", "last", "g:2"),
]


def read(*pieces: bytes) -> list[Event]:
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)]


class ParserTests(SynchronousTestCase):
    def test_whole(self) -> None:
        """Names, values, line ends, remarks and unfinished events are as the standard has them."""
        self.assertEqual(read(STREAM), EVENTS)

    def test_every_cut(self) -> None:
        """A stream that is cut anywhere gives the same events."""
        for at in range(len(STREAM) + 1):
            self.assertEqual(read(STREAM[:at], STREAM[at:]), EVENTS, at)
        self.assertEqual(read(*(STREAM[at : at + 1] for at in range(len(STREAM)))), EVENTS)

    def test_at_once(self) -> None:
        """An event is given as soon as its empty line is here, whatever its end."""
        for end in (b"\n\n", b"\r\r", b"\r\n\r\n"):
            parser = EventParser()
            self.assertEqual(list(parser.feed(b"data: x" + end)), [Event("message", "x", "")], end)
            self.assertEqual(list(parser.feed(b"data: y" + end)), [Event("message", "y", "")], end)

    def test_endless(self) -> None:
        """What does not end is given up."""
        self.patch(sse, "LIMIT", 100)
        for data in (b"data: " + b"x" * 100, b"data: 1234\n" * 30):
            with self.assertRaises(TooLongError):
                read(*(data[at : at + 10] for at in range(0, len(data), 10)))

    @given(st.lists(st.tuples(st.sampled_from(("upsert", "remove")), st.text())), st.data())
    def test_own_frames(self, events: list[tuple[str, str]], data: st.DataObject) -> None:
        """What PAIR writes is read again, in any pieces."""
        stream = b"".join(frame(event, f"g:{number}", value) for number, (event, value) in enumerate(events))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
        pieces = [stream[first:last] for first, last in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
        found = read(*pieces)
        self.assertEqual([each.event for each in found], [event for event, _ in events])
        self.assertEqual([each.id for each in found], [f"g:{number}" for number in range(len(events))])
