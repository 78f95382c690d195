"""Requests out of bytes: what is read, what is refused, and that cuts between reads change nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from pair.protocols.http_reader import Malformed, RequestHead, RequestReader

HOST = b"Host: localhost\r\n"
CHUNKED = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"

MALFORMED = {
    "two equal lengths": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    "two lengths": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "a list of lengths": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1, 1\r\n\r\nx",
    "length and coding": b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding and length": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
    "gzip, chunked": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked, chunked": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "identity": b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: identity\r\n\r\n",
    "chunked in HTTP/1.0": b"POST / HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "empty length": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length:\r\n\r\n",
    "plus": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: +1\r\n\r\nx",
    "minus": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\nx",
    "hexadecimal": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 0x1\r\n\r\nx",
    "space in a length": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1 1\r\n\r\nx",
    "20 digits": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 00000000000000000001\r\n\r\nx",
    "HTTP/0.9 line": b"GET /\r\n\r\n",
    "HTTP/0.9": b"GET / HTTP/0.9\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\n" + HOST + b"\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "RTSP": b"GET / RTSP/1.0\r\n" + HOST + b"\r\n",
    "ICE": b"SOURCE / ICE/1.0\r\n" + HOST + b"\r\n",
    "two spaces": b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n",
    "space at the end": b"GET / HTTP/1.1 \r\n" + HOST + b"\r\n",
    "method unknown": b"BREW / HTTP/1.1\r\n" + HOST + b"\r\n",
    "method in small letters": b"get / HTTP/1.1\r\n" + HOST + b"\r\n",
    "CONNECT": b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "blank line first": b"\r\nGET / HTTP/1.1\r\n" + HOST + b"\r\n",
    "CR first": b"\rGET / HTTP/1.1\r\n" + HOST + b"\r\n",
    "LF first": b"\nGET / HTTP/1.1\r\n" + HOST + b"\r\n",
    "bare LF": b"GET / HTTP/1.1\nHost: localhost\n\n",
    "bare LF behind a field": b"GET / HTTP/1.1\r\nHost: localhost\nA: b\r\n\r\n",
    "bare LF at the end": b"GET / HTTP/1.1\r\nHost: localhost\r\n\n",
    "bare CR": b"GET / HTTP/1.1\r\nHost: local\rhost\r\n\r\n",
    "folded field": b"GET / HTTP/1.1\r\nHost: localhost\r\nA: b\r\n c\r\n\r\n",
    "space before the colon": b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
    "no colon": b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
    "empty name": b"GET / HTTP/1.1\r\n: localhost\r\n\r\n",
    "NUL in a value": b"GET / HTTP/1.1\r\nHost: local\0host\r\n\r\n",
    "high byte in the target": b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n",
    "TLS": b"\x16\x03\x01\x00\x05hello\r\n\r\n",
    "101 fields": b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 101 + b"\r\n",
    "a long head": b"GET / HTTP/1.1\r\nA: " + b"b" * 16384 + b"\r\n\r\n",
    "a long head without end": b"GET / HTTP/1.1\r\nA: " + b"b" * 16384,
    "a chunk size with a sign": CHUNKED + b"+1\r\nx\r\n0\r\n\r\n",
    "a chunk size with 0x": CHUNKED + b"0x1\r\nx\r\n0\r\n\r\n",
    "a chunk size with a space": CHUNKED + b"1 \r\nx\r\n0\r\n\r\n",
    "a space, then a chunk size": CHUNKED + b" 1\r\nx\r\n0\r\n\r\n",
    "a chunk size of 17 digits": CHUNKED + b"10000000000000001\r\nx\r\n0\r\n\r\n",
    "no chunk size": CHUNKED + b"\r\n\r\n",
    "a bare LF behind a chunk size": CHUNKED + b"1\nx\r\n0\r\n\r\n",
    "a bare LF behind a chunk": CHUNKED + b"1\r\nx\n0\r\n\r\n",
    "a chunk longer than its size": CHUNKED + b"1\r\nxx\r\n0\r\n\r\n",
    "a length in the trailer": CHUNKED + b"1\r\nx\r\n0\r\nContent-Length: 1\r\n\r\n",
    "a long chunk extension": CHUNKED + b"1;" + b"e" * 17000 + b"\r\nx\r\n0\r\n\r\n",
    "long extensions": CHUNKED + (b"1;" + b"e" * 1000 + b"\r\nx\r\n") * 20 + b"0\r\n\r\n",
    "a long trailer": CHUNKED + b"1\r\nx\r\n0\r\n" + b"T: x\r\n" * 3000 + b"\r\n",
}

H2C = (
    b"POST /a HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade, HTTP2-Settings\r\n"
    b"Upgrade: h2c\r\nHTTP2-Settings: x\r\nContent-Length: 18\r\n\r\n"
)


def read(pieces: list[bytes]) -> tuple[list[tuple[RequestHead, bytes]], bytes]:
    """All complete requests in ``pieces``, as a connection reads them, and what is left over."""
    reader = RequestReader(16384, 100)
    held, requests = b"", []
    head: RequestHead | None = None
    payload = b""
    for piece in pieces:
        held += piece
        while held:
            if head is None:
                found = reader.read_head(held)
                if found is None:
                    break
                head, used = found
                payload = b""
            else:
                data, used = reader.read_body(held)
                payload += data
            held = held[used:]
            if reader.ended:
                requests.append((head, payload))
                head = None
    return requests, held


def refused(pieces: list[bytes]) -> bool:
    try:
        read(pieces)
    except Malformed:
        return True
    return False


class RequestReaderTests(SynchronousTestCase):
    def test_head(self) -> None:
        """A head is given as sent: names in their case, values without blanks around them."""
        requests, held = read([b"GET /a?b=%20c HTTP/1.1\r\nHost: localhost\r\nX-EmPty:\r\nTwo: \t b c \t\r\n\r\nGET"])
        self.assertEqual(
            requests[0][0],
            RequestHead(
                method=b"GET",
                target=b"/a?b=%20c",
                minor=1,
                fields=((b"Host", b"localhost"), (b"X-EmPty", b""), (b"Two", b"b c")),
                named={b"host": [b"localhost"], b"x-empty": [b""], b"two": [b"b c"]},
                content_length=None,
                chunked=False,
                keep_alive=True,
                expects_continue=False,
            ),
        )
        self.assertEqual(held, b"GET")

    def test_lookup(self) -> None:
        """Fields are found whatever their case; the first of several is the value."""
        head = read([b"GET / HTTP/1.1\r\nA: 1\r\na: 2\r\nBB: 3\r\n\r\n"])[0][0][0]
        self.assertEqual((head.values(b"a"), head.value(b"a"), head.value(b"bb")), ([b"1", b"2"], b"1", b"3"))
        self.assertEqual((head.values(b"c"), head.value(b"c")), ([], None))

    def test_keep_alive(self) -> None:
        """HTTP/1.1 keeps the connection unless told otherwise, HTTP/1.0 only when asked; ``close`` wins."""
        for version, fields, expected in (
            (b"1.1", b"", True),
            (b"1.1", b"Connection: close\r\n", False),
            (b"1.1", b"Connection: x, Close\r\n", False),
            (b"1.1", b"Connection: close\r\nConnection: keep-alive\r\n", False),
            (b"1.0", b"", False),
            (b"1.0", b"Connection: Keep-Alive\r\n", True),
        ):
            head = read([b"GET / HTTP/" + version + b"\r\n" + fields + b"\r\n"])[0][0][0]
            self.assertIs(head.keep_alive, expected, fields)

    def test_expectation(self) -> None:
        """``Expect: 100-continue`` counts in HTTP/1.1 only (RFC 9110, 10.1.1)."""
        fields = b"Expect: 100-Continue\r\nContent-Length: 0\r\n\r\n"
        self.assertTrue(read([b"POST / HTTP/1.1\r\n" + fields])[0][0][0].expects_continue)
        self.assertFalse(read([b"POST / HTTP/1.0\r\n" + fields])[0][0][0].expects_continue)

    def test_bodies(self) -> None:
        """A body ends where its length or its last chunk says; what follows is the next request's."""
        following = b"GET /next HTTP/1.1\r\n\r\n"
        for body in (
            b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab\r\nc",
            CHUNKED + b"2\r\nab\r\n3;x=y\r\n\r\nc\r\n0\r\n\r\n",
            CHUNKED + b"5\r\nab\r\nc\r\n000\r\nT: x\r\nU: y\r\n\r\n",
        ):
            requests, held = read([body + following])
            self.assertEqual([payload for _, payload in requests], [b"ab\r\nc", b""])
            self.assertEqual(requests[1][0].target, b"/next")
            self.assertEqual(held, b"")

    def test_trailer_is_no_field(self) -> None:
        """What a trailer says is not in the head, nor in the next one."""
        requests, _ = read([CHUNKED + b"0\r\nX: y\r\n\r\n" + b"GET / HTTP/1.1\r\n\r\n"])
        self.assertEqual([head.value(b"x") for head, _ in requests], [None, None])

    def test_chunks_of_one_byte(self) -> None:
        """The smallest chunks are within the budget of PX-10, however many."""
        requests, _ = read([CHUNKED + b"1\r\nx\r\n" * 20000 + b"0\r\n\r\n"])
        self.assertEqual(requests[0][1], b"x" * 20000)

    def test_full_head(self) -> None:
        """A head of exactly 16 KiB and one of 100 fields pass (PX-9)."""
        start = b"GET / HTTP/1.1\r\nA: "
        self.assertFalse(refused([start + b"b" * (16384 - len(start) - 4) + b"\r\n\r\n"]))
        self.assertTrue(refused([start + b"b" * (16385 - len(start) - 4) + b"\r\n\r\n"]))
        self.assertFalse(refused([b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100 + b"\r\n"]))

    def test_upgrade(self) -> None:
        """A request to upgrade is an ordinary one without those fields, its body whole (PX-8)."""
        requests, _ = read([H2C + b"GET /b HTTP/1.1\r\n" + b"XGET /c HTTP/1.1\r\n\r\n"])
        (head, payload), (second, _) = requests
        self.assertEqual(payload, b"GET /b HTTP/1.1\r\nX")
        self.assertEqual(second.target, b"/c")
        self.assertEqual((head.values(b"upgrade"), head.upgrade), ([], b"h2c"))
        self.assertIsNone(requests[1][0].upgrade)
        self.assertEqual(head.values(b"connection"), [b"keep-alive, http2-settings"])
        self.assertTrue(head.keep_alive)

    def test_known_again(self) -> None:
        """A head that comes again is the same as read by itself, whatever comes between, and whatever the length."""
        post, get = (
            b"POST /a HTTP/1.1\r\n" + HOST + b"content-LENGTH: %d\r\nX: y\r\n\r\n%b",
            b"GET /b HTTP/1.1\r\n\r\n",
        )
        each = [post % (len(body), body) for body in (b"ab", b"ab", b"", b"abc" * 9, b"\r\n\r\n", b"ab")]
        each += [
            get,
            get,
            CHUNKED + b"1\r\nx\r\n0\r\n\r\n",
            get,
            get,
            each[0],
            get.replace(b"b", b"c"),
            H2C + b"z" * 18,
        ]
        alone = [read([one])[0][0] for one in each]
        for size in (1, 7, 100000):
            data = b"".join(each)
            self.assertEqual(read([data[at : at + size] for at in range(0, len(data), size)]), (alone, b""))

    def test_notes(self) -> None:
        """What is noted of a head is there when it comes again with another length, and no other head has it."""
        reader = RequestReader(16384, 100)
        data = b"POST /%b HTTP/1.1\r\nContent-Length: %d\r\n\r\n"
        noted = []
        for target, length in ((b"a", 0), (b"a", 0), (b"a", 12), (b"a", 12), (b"b", 0), (b"a", 0)):
            found = reader.read_head(data % (target, length))
            assert found is not None
            head, _ = found
            noted.append(head.notes.get("it"))
            head.notes["it"] = target
            reader.read_body(b"x" * length)
        self.assertEqual(noted, [None, None, b"a", b"a", None, None])

    def test_malformed_behind_others(self) -> None:
        """What is malformed is so behind any number of good requests that begin as it does."""
        good = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\n\r\nx"
        get = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
        for name, data in MALFORMED.items():
            self.assertTrue(refused([good * 3 + data]), name)
            self.assertTrue(refused([get * 3, data]), name)

    def test_malformed(self) -> None:
        """Each of these is refused, in one read and in one byte a read (PX-9, PX-10)."""
        for name, data in MALFORMED.items():
            self.assertTrue(refused([data]), name)
            self.assertTrue(refused([data[at : at + 1] for at in range(len(data))]), name)

    def test_malformed_cut_in_two(self) -> None:
        """Where the two reads meet makes no difference."""
        for name, data in MALFORMED.items():
            if len(data) < 1000:
                for at in range(1, len(data)):
                    self.assertTrue(refused([data[:at], data[at:]]), (name, at))

    @given(st.lists(st.integers(min_value=1, max_value=500), max_size=12))
    def test_cuts_change_nothing(self, cuts: list[int]) -> None:
        """However the bytes are cut into reads, the same requests come out."""
        data = (
            b"GET /1 HTTP/1.1\r\n" + HOST + b"E:\r\nF: \r\n\r\n"
            b"POST /2 HTTP/1.1\r\nContent-Length: 6\r\n\r\n\r\n\r\nab"
            + CHUNKED
            + b"4;a=b\r\n\r\n\r\n\r\n3\r\n\r\n\r\r\n0\r\nT: x\r\n\r\n"
            + H2C
            + b"0123456789abcdefgh"
            + CHUNKED
            + b"0\r\n\r\n"
        )
        pieces, at = [], 0
        for size in [*cuts, len(data)]:
            pieces.append(data[at : at + size])
            at += size
        self.assertEqual(read(pieces), read([data]))
        self.assertEqual(read([bytes((each,)) for each in data]), read([data]))
        self.assertEqual(len(read([data])[0]), 5)
