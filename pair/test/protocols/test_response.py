"""Tests of :mod:`pair.protocols.response`."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.protocols.response import HEAD_LIMIT, MalformedResponseError, ResponseReader, _resting

HELLO = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
CHUNKED = HELLO + b"Transfer-Encoding: chunked\r\n\r\n"
BODY = b"4\r\nh\xc3\xa9l\r\n6;x=y\r\nlo \r\n\n\r\n0\r\nTrailer: t\r\n\r\n"
LAST = b"0\r\n\r\n"
WITH_LENGTH = HELLO + b"Content-Length: %d\r\n\r\n%b"
STREAM = CHUNKED + b"%x\r\n%b\r\n"

WIRES = (
    *(WITH_LENGTH % (len(body), body) for body in (b"", b"hi", LAST)),
    *(STREAM % (len(body), body) + LAST for body in (b"canary", LAST, b"\r\n")),
    *(CHUNKED + b"1\r\nx\r\n0\r\n" + trailer + b"\r\n" for trailer in (b"T:\r\n", b"Connection: close\r\n")),
    CHUNKED + b"1;x\r\nx\r\n0;y=z\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    CHUNKED + b"1\r\nx\r\n0\r\nTransfer-Encoding: gzip\r\n\r\n",
    b"HTTP/1.1 103 Early\r\n\r\n" + CHUNKED + BODY,
    CHUNKED + BODY + b"\r\n",
    *(
        CHUNKED + b"1\r\nx\r\n" + bad
        for bad in (b"\n", b"g\r\n", b"1\r\nxx\r\n", LAST + b"x", b"0\r\nContent-Length: 1\r\n\r\n")
    ),
    HELLO + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    HELLO + b"\r\n",
)
"""Answers, good ones and bad ones, that may come behind and beside each other."""

SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"


def read(*reads: bytes, head_only: bool = False, upgrade: bool = False) -> tuple[ResponseReader, bytes, bytes]:
    """Feed ``reads``: the reader, the raw body, the body without framing."""
    reader = ResponseReader(head_only, upgrade)
    raw = body = b""
    for data in reads:
        part, parts = reader.feed(data)
        raw += part
        body += b"".join(parts)
    return reader, raw, body


Told = tuple[bytes, bytes, bool, bool, int, bool]
"""What a reader told of one read: the raw body, the body, its state, and whether a chunk may follow."""


def feed(reader: ResponseReader, data: bytes) -> Told | None:
    """Let ``reader`` read ``data``; None: it refused that."""
    try:
        raw, parts = reader.feed(data)
    except MalformedResponseError:
        return None
    return raw, b"".join(parts), reader.complete, reader.surplus, reader.received, reader.at_boundary()


class Line:
    """One connection: a reader with its memory, and for each answer one that is new and shares nothing."""

    def __init__(self) -> None:
        self.reader = ResponseReader()
        self.alone = ResponseReader()
        self.left = b""
        self.over = False

    def read(self, wire: bytes, size: int) -> tuple[Told | None, Told | None]:
        """Go on with what is left of an answer, or with ``wire`` as the next: what the two readers told."""
        if not self.left:
            self.left = wire
            self.reader.begin()
            self.alone = ResponseReader()
        data, self.left = self.left[:size], self.left[size:]
        told = feed(self.reader, data)
        shared, _resting[:] = _resting[:], []
        expected = feed(self.alone, data)
        _resting[:] = shared
        self.over = told is None or self.reader.surplus or (not self.left and not self.reader.complete)
        return told, expected


class ResponseReaderTests(SynchronousTestCase):
    def test_content_length(self) -> None:
        """A body with a length is complete at its last byte, and the head is told as it was sent."""
        reader, raw, body = read(HELLO + b"Content-Length: 5 \r\n\r\nhel", b"lo")
        assert reader.head is not None
        self.assertEqual((raw, body, reader.complete, reader.received), (b"hello", b"hello", True, 5))
        self.assertEqual((reader.head.status, reader.head.reason, reader.head.minor), (200, b"OK", 1))
        self.assertEqual(reader.head.fields, ((b"Content-Type", b"text/plain"), (b"Content-Length", b"5")))
        self.assertEqual((reader.head.content_length, reader.head.chunked, reader.keep_alive), (5, False, True))
        self.assertEqual(reader.head.value(b"content-type"), b"text/plain")

    def test_reason(self) -> None:
        """A reason phrase is without control characters, which the terminal of a client would obey."""
        reader, _, _ = read(b"HTTP/1.1 200 \x1b[31mVery\x01 well\r\nContent-Length: 0\r\n\r\n")
        assert reader.head is not None
        self.assertEqual(reader.head.reason, b"[31mVery well")

    @given(st.lists(st.integers(0, len(CHUNKED + BODY)), max_size=8))
    def test_any_split(self, cuts: list[int]) -> None:
        """However a chunked response is cut into reads, the raw bytes and the body are the same (PX-58)."""
        wire = b"HTTP/1.1 102 Processing\r\n\r\n" + CHUNKED + BODY
        edges = [0, *sorted(cuts), len(wire)]
        reader, raw, body = read(*(wire[a:b] for a, b in pairwise(edges) if a < b))
        self.assertEqual((raw, body), (BODY, b"h\xc3\xa9llo \r\n\n"))
        self.assertTrue(reader.complete and not reader.surplus)

    def test_byte_by_byte(self) -> None:
        """One byte a read gives the same as one read; a trailer is no header."""
        wire = CHUNKED + BODY
        reader, raw, body = read(*(wire[n : n + 1] for n in range(len(wire))))
        assert reader.head is not None
        self.assertEqual((raw, body, reader.complete), (BODY, b"h\xc3\xa9llo \r\n\n", True))
        self.assertIsNone(reader.head.value(b"trailer"))

    @given(st.permutations(range(5)))
    def test_one_after_another(self, order: list[int]) -> None:
        """A reader that has read others reads a response as a new one does: nothing of them is left in it."""
        wires = (
            CHUNKED + BODY,
            HELLO + b"Content-Length: 5\r\n\r\nhello",
            b"HTTP/1.1 103 Early\r\nLink: y\r\n\r\nHTTP/1.1 204 Nothing\r\nX-A: b\r\n\r\n",
            b"HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx",
        )
        reader = ResponseReader()
        for wire in [wires[each] for each in order]:
            reader.begin()
            self.assertEqual((reader.head, reader.began, reader.received), (None, False, 0))
            raw = reader.feed(wire[:30])[0] + reader.feed(wire[30:])[0]
            fresh, raw_of_fresh, _ = read(wire)
            self.assertEqual((raw, reader.head, reader.received), (raw_of_fresh, fresh.head, fresh.received))
            self.assertTrue(reader.complete and not reader.surplus)

    def test_known_again(self) -> None:
        """A head that comes again is read as by a new reader, whatever the length and wherever the reads are cut."""
        wires = [HELLO + b"Content-Length: %d\r\n\r\n%b" % (len(body), body) for body in (b"hi", b"", b"0123456789")]
        wires += [CHUNKED + BODY, b"HTTP/1.1 204 Nothing\r\nX-A: b\r\n\r\n", b"HTTP/1.1 100 \r\n\r\n" + wires[0]]
        for order in ((0, 0, 0, 0, 1, 0, 2), (2, 2, 2, 1, 2, 0), (3, 3, 3, 4, 4, 4), (5, 5, 0, 5, 5)):
            for cut in range(len(CHUNKED) + 9):
                reader = ResponseReader()
                for wire in [wires[each] for each in order]:
                    reader.begin()
                    read_by_it = [reader.feed(piece) for piece in (wire[:cut], wire[cut:]) if piece]
                    fresh, raw, _ = read(wire)
                    self.assertEqual(b"".join(piece for piece, _ in read_by_it), raw)
                    self.assertEqual((reader.head, reader.received), (fresh.head, fresh.received))
                    self.assertTrue(reader.complete and reader.keep_alive and not reader.surplus)

    def test_behind_a_known_head(self) -> None:
        """What may not come behind a response may not come behind a known head, nor has a HEAD's a body."""
        told = HELLO + b"Content-Length: 2\r\n\r\nhi"
        reader = ResponseReader()
        for _ in range(3):
            reader.begin()
            reader.feed(told)
        reader.begin(head_only=True)
        self.assertEqual((reader.feed(told[:-2])[0], reader.complete), (b"", True))
        reader.begin()
        self.assertEqual((reader.feed(told[:-1])[0], reader.complete), (b"h", False))
        self.assertEqual((reader.feed(b"i\r\n")[0], reader.complete, reader.surplus), (b"i", True, True))
        for second in (b"HTTP/1.1 200 OK\r\n", b"junk"):
            reader.begin()
            self.assertRaises(MalformedResponseError, reader.feed, told + second)

    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 12)), max_size=80))
    def test_side_by_side(self, turns: list[tuple[int, int]]) -> None:
        """Readers that take turns, wherever one is when the next goes on, each read their own response."""
        wires = (
            CHUNKED + BODY,
            CHUNKED + b"3\r\n\r\n\r\r\n0\r\n\r\n",
            CHUNKED + b"1\r\nx\n",
            CHUNKED + BODY + b"\r\n",
        )
        whole = (b"h\xc3\xa9llo \r\n\n", b"\r\n\r", None, b"h\xc3\xa9llo \r\n\n")
        readers = [ResponseReader() for _ in wires]
        left, bodies = list(wires), [b""] * len(wires)
        refused = [False] * len(wires)
        for each, size in (*turns, *((each, 1000) for each in range(len(wires)))):
            reader, data = readers[each], left[each][:size]
            left[each] = left[each][size:]
            if not data or reader.complete or refused[each]:
                continue
            try:
                bodies[each] += b"".join(reader.feed(data)[1])
            except MalformedResponseError:
                refused[each] = True
        self.assertEqual(refused, [body is None for body in whole])
        for reader, body, expected in zip(readers, bodies, whole, strict=True):
            if expected is not None:
                self.assertEqual((reader.complete, body), (True, expected))

    @given(
        st.lists(
            st.tuples(st.integers(0, 3), st.sampled_from(WIRES), st.sampled_from((1, 2, 7, 30, 200))), max_size=60
        )
    )
    @example([(0, WIRES[7], 200), (0, WIRES[7], 200), (1, WIRES[3], 200)])
    @example([(0, WIRES[9], 200)])
    def test_nothing_of_another(self, turns: list[tuple[int, bytes, int]]) -> None:
        """What a reader tells is the same whatever it and others have read before and read meanwhile (PX-58).

        Others may be refused, be broken off, or stand anywhere: it reads as one
        that is new, with a parser of its own.
        """
        lines = [Line() for _ in range(4)]
        for number, wire, size in turns:
            told, expected = lines[number].read(wire, size)
            self.assertEqual(told, expected)
            if lines[number].over:
                lines[number] = Line()
            self.assertTrue(all(not each.sink.over for each in _resting))

    def test_interim_responses(self) -> None:
        """Interim responses are swallowed, also in the read that holds the final head; they count as a beginning."""
        reader, _, _ = read(b"HTTP/1.1 100 Continue\r\nContent-Length: 9\r\n\r\nHTTP/1.1 102 \r\nLink: x\r\n\r\n")
        self.assertEqual((reader.head, reader.began, reader.complete), (None, True, False))
        raw, _ = reader.feed(b"HTTP/1.1 102 \r\n\r\n" + CHUNKED + BODY)
        assert reader.head is not None
        self.assertEqual((raw, reader.head.status, reader.complete), (BODY, 200, True))
        self.assertEqual(len(reader.head.fields), 2)

    def test_many_interim_responses(self) -> None:
        """The limit of a head is for each head alone (PX-54: one each 5 s)."""
        reader = ResponseReader()
        for _ in range(4000):
            reader.feed(b"HTTP/1.1 102 Processing\r\n\r\n")
        self.assertEqual(reader.feed(CHUNKED + BODY)[0], BODY)

    def test_head_request(self) -> None:
        """After HEAD the response ends at its head, whatever its length says."""
        reader, raw, _ = read(HELLO + b"Content-Length: 5\r\n\r\nsurplus", head_only=True)
        self.assertEqual((raw, reader.complete), (b"", True))

    def test_bodiless_statuses(self) -> None:
        """204 and 304 have no body, whatever they declare."""
        for head in (b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 304 \r\nContent-Length: 10\r\n\r\n"):
            reader, raw, _ = read(head)
            self.assertEqual((raw, reader.complete, reader.surplus), (b"", True, False))

    def test_until_close(self) -> None:
        """With neither length nor chunks the body goes on until the close."""
        reader, raw, body = read(HELLO + b"\r\nhel", b"lo")
        self.assertEqual((raw, body, reader.complete, reader.until_close), (b"hello", b"hello", False, True))
        self.assertFalse(read(CHUNKED)[0].until_close)

    @given(st.lists(st.integers(0, len(SWITCHING) + 40), max_size=8))
    def test_switched(self, cuts: list[int]) -> None:
        """Behind a 101 that was asked for all is body, whatever it looks like, until the close (PX-75)."""
        frames = b"\x81\x02hi\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"
        wire = b"HTTP/1.1 100 Continue\r\n\r\n" + SWITCHING + frames
        edges = [0, *sorted(cuts), len(wire)]
        reader, raw, body = read(*(wire[a:b] for a, b in pairwise(edges) if a < b), upgrade=True)
        assert reader.head is not None
        self.assertEqual((reader.head.status, reader.head.value(b"upgrade")), (101, b"x"))
        self.assertEqual((raw, body, reader.received), (frames, frames, len(frames)))
        self.assertEqual((reader.complete, reader.until_close, reader.at_boundary()), (False, True, True))

    def test_asked_to_switch_and_did_not(self) -> None:
        """Another answer is an ordinary one; a 101 that names no protocol, or lengths, is judged as what it is."""
        reader, raw, _ = read(HELLO + b"Content-Length: 5\r\n\r\nhello", upgrade=True)
        self.assertEqual((raw, reader.complete), (b"hello", True))
        with self.assertRaises(MalformedResponseError):
            read(b"HTTP/1.1 101 Switching\r\nA: b\r\n\r\n", upgrade=True)
        reader, raw, _ = read(SWITCHING[:-2] + b"Content-Length: 0\r\n\r\nhello", upgrade=True)
        self.assertEqual((raw, reader.complete, reader.until_close), (b"hello", False, True))

    def test_refused(self) -> None:
        """What is not HTTP/1, or unsafe to relay raw, is refused, whole or byte by byte."""
        for response in (
            b"SSH-2.0-OpenSSH_9.6\r\n",
            b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 99 OK\r\n\r\n",
            SWITCHING,
            b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
            b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            HELLO + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
            HELLO + b"Content-Length: +5\r\n\r\nhello",
            HELLO + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            HELLO + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            HELLO + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            HELLO + b"Folded: a\r\n b\r\nContent-Length: 0\r\n\r\n",
            CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
            CHUNKED + b"5\nhello\r\n0\r\n\r\n",
            CHUNKED + b"5\r\nhello0\r\n\r\n",
        ):
            self.assertRaises(MalformedResponseError, read, response)
            pieces = [response[n : n + 1] for n in range(len(response))]
            self.assertRaises(MalformedResponseError, read, *pieces)

    def test_head_limit(self) -> None:
        """A head of 64 KiB passes, one octet more does not, also when it never ends."""
        padding = HEAD_LIMIT - len(HELLO + b"X: \r\nContent-Length: 0\r\n\r\n")
        for extra, response in ((0, b"Content-Length: 0\r\n\r\n"), (1, b"Content-Length: 0\r\n\r\n"), (70000, b"")):
            wire = HELLO + b"X: " + b"x" * (padding + extra) + b"\r\n" + response
            pieces = [wire[n : n + 1000] for n in range(0, len(wire), 1000)]
            if extra:
                self.assertRaises(MalformedResponseError, read, *pieces)
            else:
                self.assertTrue(read(*pieces)[0].complete)

    def test_framing_limit(self) -> None:
        """What is neither head nor body is not read for ever: an extension, a trailer, or many (PX-58)."""
        for endless in (b"5;" + b"x" * 100, b"0\r\nX: " + b"y" * 100, b"0\r\n" + b"X: y\r\n" * 20):
            for body in (b"", b"4\r\nbody\r\n"):
                reader, _, _ = read(CHUNKED + body, endless)
                again = b"X: y\r\n" * 2000 if endless.endswith(b"\n") else b"z" * 14000
                with self.assertRaises(MalformedResponseError):
                    for _ in range(HEAD_LIMIT // len(again) + 1):
                        reader.feed(again)

    def test_framing_of_many_chunks(self) -> None:
        """The limit is for framing in a row: a chunk's size may come in a read of its own, however many there are."""
        reader, _, body = read(CHUNKED, *[b"1;" + b"x" * 98 + b"\r\n", b"a\r\n"] * 1000, b"0\r\n\r\n")
        self.assertEqual((len(body), reader.complete), (1000, True))

    def test_second_response(self) -> None:
        """Bytes of a second response in the read that ends the first spoil the read (PX-58)."""
        for response in (
            CHUNKED + b"0\r\n\r\n",
            HELLO + b"Content-Length: 2\r\n\r\nhi",
            HELLO + b"Content-Length: 2\r\nConnection: close\r\n\r\nhi",
            b"HTTP/1.1 204 \r\n\r\n",
        ):
            for second in (b"HTTP/1.1 200 OK\r\n", b"junk"):
                self.assertRaises(MalformedResponseError, read, response + second)

    def test_blank_lines_behind(self) -> None:
        """Blank lines behind the end are cut off, wherever the reads are cut, and spoil the connection."""
        for head, body in ((CHUNKED, b"2\r\nhi\r\n0\r\n\r\n"), (HELLO + b"Content-Length: 4\r\n\r\n", b"hi\r\n")):
            for cut in range(len(body)):
                reader, raw, _ = read(head + body[:cut], body[cut:] + b"\r\n")
                self.assertEqual((raw, reader.complete, reader.surplus), (body, True, True))
                self.assertEqual(reader.received, len(body))

    def test_at_boundary(self) -> None:
        """Another chunk may follow exactly where a chunk of the body may begin (PX-63)."""
        body = b"4;x=y\r\n\r\n\r\n\r\n10\r\n0123456789abcdef\r\n"
        ends = {0, body.index(b"10"), len(body)}
        for cut in range(len(body) + 1):
            self.assertIs(read(CHUNKED + body[:cut])[0].at_boundary(), cut in ends, body[:cut])
            pieces = [body[n : n + 1] for n in range(cut)]
            self.assertIs(read(CHUNKED, *pieces)[0].at_boundary(), cut in ends, body[:cut])

    def test_no_boundary_in_the_last_chunk(self) -> None:
        """No chunk may follow the size of the last one, part of it, or a trailer."""
        for end in (b"0", b"00", b"0\r", b"0\r\n", b"0\r\nA: b\r\n", b"0\r\n\r\n"):
            self.assertFalse(read(CHUNKED + b"2\r\nhi\r\n" + end)[0].at_boundary(), end)

    def test_boundary_of_other_framings(self) -> None:
        """A body until the close takes a chunk at any time, for we frame it; one with a length never does."""
        self.assertTrue(read(HELLO + b"\r\nhal")[0].at_boundary())
        self.assertFalse(read(HELLO + b"Content-Length: 9\r\n\r\nhal")[0].at_boundary())
        self.assertFalse(read(HELLO)[0].at_boundary())
