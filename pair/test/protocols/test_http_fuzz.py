"""Random and mutated requests, with h11 as the judge: what it refuses is never forwarded.

``PAIR_FUZZ`` sets the number of random requests (``make faults`` asks for
10,000); a tenth of them, but at least 300, are mutated ones.
"""

from __future__ import annotations

import os
from random import Random

import h11
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.protocols.http_server import Exchange, HTTPServerFactory
from pair.test.protocols.serving import PEER, Wire, refusal

RANDOM = int(os.environ.get("PAIR_FUZZ", "1000"))
MUTATED = max(300, RANDOM // 10)
SEED = 20240611

Request = tuple[bytes, bytes, bytes]  # Method, target, payload.

METHODS = (b"GET", b"POST", b"POST", b"POST", b"HEAD", b"PUT", b"DELETE", b"OPTIONS")
ODD_METHODS = (b"get", b"CONNECT", b"PRI", b"BREW", b"SOURCE", b"GE T", b"", b"G\0T", b"\x16\x03\x01")
TARGETS = (b"/", b"/v1/chat/completions", b"/api/tags?x=1", b"http://localhost/a", b"*", b"/%00", b"/a;b=c")
ODD_TARGETS = (b"", b" /", b"/a b", b"/\xff", b"/\0", b"/\t", b"a", b"//", b"http://", b"/#")
ODD_VERSIONS = (b"HTTP/0.9", b"HTTP/1.2", b"HTTP/2.0", b"http/1.1", b"HTTP/1.1 ", b"HTTP/11", b"RTSP/1.0", b"")
FIELDS = (
    b"Accept: */*",
    b"Content-Type: application/json",
    b"Expect: 100-continue",
    b"X-Empty:",
    b"X-Blanks: \t a b \t",
    b"X-High: \xe9\xff",
    b"Connection: keep-alive",
    b"Connection: close",
    b"Connection: x, Keep-Alive",
    b"Connection: Upgrade\r\nUpgrade: h2c",
    b"Upgrade: websocket",
)
ODD_FIELDS = (
    b"X-Folded: a\r\n b",
    b" leading: a",
    b"Blank : a",
    b"nocolon",
    b": a",
    b"X-Nul: a\0b",
    b"X-Cr: a\rb",
    b"X-Lf: a\nb",
    b"X-Del: \x7f",
    b"X-\xe9: a",
    b"X(Y): a",
    b"Host: again",
    b"Content-Length: 0",
    b"Content-Length: 3",
    b"Content-Length: +3",
    b"Content-Length: 0x3",
    b"Content-Length: 3, 3",
    b"Content-Length: 3 3",
    b"Content-Length:",
    b"Content-Length: 99999999999999999999",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: identity",
    b"Transfer-Encoding: chunked, chunked",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: \x0bchunked",
    b"Transfer-Encoding:",
    b"\r\nX: y",
    b"X-Long: " + b"a" * 17000,
    b"\r\n".join([b"A: b"] * 101),
)
ODD_CHUNKS = (
    b"3 \r\nabc\r\n",
    b"+3\r\nabc\r\n",
    b"0x3\r\nabc\r\n",
    b"3\nabc\n",
    b"2\r\nabc\r\n",
    b"\r\n",
    b"g\r\n",
    b"-1\r\n",
)
ODD_LENGTHS = (
    b"",
    b"+3",
    b"0x3",
    b"3, 3",
    b"3 3",
    b"-1",
    b"\xb2",
    b"9" * 20,
    b"0" * 20,
    b"3\n",
    b"3\r\nContent-Length: 3",
)
BYTES = b'\0\t\n\r "%+,-0123456789:;=AFaf\x7f\x80\xff'


def some(random: Random, usual: tuple[bytes, ...], odd: tuple[bytes, ...], chance: float) -> bytes:
    return random.choice(odd if random.random() < chance else usual)


def random_request(random: Random, oddness: float) -> bytes:
    """A request, each part of which is an odd one with the chance of ``oddness``."""
    lines = [
        b"%b %b %b"
        % (
            some(random, METHODS, ODD_METHODS, oddness),
            some(random, TARGETS, ODD_TARGETS, oddness),
            some(random, (b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0"), ODD_VERSIONS, oddness),
        ),
        some(random, (b"Host: localhost",), (b"hOST:localhost:1234", b"Host:", b"X: no-host"), oddness),
    ]
    lines += [some(random, FIELDS, ODD_FIELDS, oddness) for _ in range(random.randrange(4))]
    payload = random.randbytes(random.randrange(40)) if random.random() < 0.8 else b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    match random.randrange(3):
        case 0:
            payload = b""
        case 1:
            lines.append(b"Content-Length: %d" % len(payload))
        case 2:
            lines.append(b"Transfer-Encoding: " + random.choice((b"chunked", b"chunked", b"Chunked", b"chunked \t")))
            payload = random_chunks(random, payload, oddness)
    if random.random() < 0.2:
        random.shuffle(lines[1:])
    end = some(random, (b"\r\n",), (b"\n", b"\r", b"\r\r\n"), oddness / 2)
    return end.join(lines) + end + end + payload


def random_chunks(random: Random, payload: bytes, oddness: float) -> bytes:
    chunks = []
    while payload:
        size = random.randrange(1, len(payload) + 1)
        extension = random.choice((b"", b"", b"", b";a", b";a=b", b';a="b c"'))
        chunks.append(b"%x%b\r\n%b\r\n" % (size, extension, payload[:size]))
        payload = payload[size:]
    if random.random() < oddness:
        chunks.insert(random.randrange(len(chunks) + 1), random.choice(ODD_CHUNKS))
    trailer = random.choice((b"", b"", b"T: x\r\n", b"T: x\r\nU:\r\n"))
    if random.random() < oddness:
        trailer = random.choice((b"Content-Length: 3\r\n", b"T\r\n", b" T: x\r\n", b"T: \0\r\n", b"\n"))
    return b"".join(chunks) + random.choice((b"0", b"000", b"0;e")) + b"\r\n" + trailer + b"\r\n"


def again(random: Random, oddness: float) -> bytes:
    """Requests with the same head but for their lengths, as a client sends them; one of them may be odd."""
    lines = [b"POST / HTTP/1.1", b"Host: localhost", random.choice(FIELDS[:7])]
    lines.insert(
        random.randrange(1, 4), random.choice((b"Content-Length: %b", b"content-length:\t%b ", b"CONTENT-LENGTH:%b"))
    )
    head = b"\r\n".join(lines) + b"\r\n\r\n"
    requests = []
    for _ in range(random.randrange(3, 7)):
        payload = random.choice((b"", b"x" * random.randrange(30), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
        length = b"%d" % len(payload)
        request = head % length + payload
        if random.random() < oddness:
            match random.randrange(4):
                case 0:
                    request = head % some(random, (length.zfill(19),), ODD_LENGTHS, 0.8) + payload
                case 1:
                    request = (
                        head.replace(b"\r\n", b"\r\n" + random.choice(ODD_FIELDS) + b"\r\n", 1) % length + payload
                    )
                case 2:
                    request = mutate(random, request)
                case 3:
                    request = request.swapcase()
        requests.append(request)
    return b"".join(requests)


def mutate(random: Random, data: bytes) -> bytes:
    """``data`` with one to three changes of a byte or of a short run."""
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(data))
        run = data[at : at + random.randrange(1, 9)]
        match random.randrange(5):
            case 0:
                data = data[:at] + data[at + len(run) :]
            case 1:
                data = data[:at] + run + data[at:]
            case 2:
                data = data[:at] + bytes((random.choice(BYTES),)) + data[at:]
            case 3:
                data = data[:at] + bytes((random.choice(BYTES),)) + data[at + 1 :]
            case 4:
                data = data[:at] + data[at + len(run) :] + run
        data = data or b"\r\n"
    return data


def judged(data: bytes) -> list[Request]:
    """The complete requests that h11 finds before it refuses or wants more."""
    requests: list[Request] = []
    while data:
        # A fresh one each time: h11 keeps no connection of HTTP/1.0.
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=2**20)
        connection.receive_data(data)
        payload = b""
        request: h11.Request | None = None
        try:
            while not isinstance(event := connection.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    return requests
                if isinstance(event, h11.Request):
                    request = event
                elif isinstance(event, h11.Data):
                    payload += bytes(event.data)
        except h11.RemoteProtocolError:
            return requests
        assert request is not None
        requests.append((request.method, request.target, payload))
        data = connection.trailing_data[0]
    return requests


class Forwarding:
    """Stands for the application: keeps each request that is complete and whose Host is one (PX-17)."""

    def __init__(self) -> None:
        self.forwarded: list[Request] = []

    def received(self, exchange: Exchange) -> None:
        hosts = len(exchange.head.values(b"host"))
        if hosts == 1 or (hosts == 0 and exchange.head.minor == 0):
            exchange.read_body(Collecting(exchange, self.forwarded))
        else:
            exchange.abort()


class Collecting:
    def __init__(self, exchange: Exchange, forwarded: list[Request]) -> None:
        self.exchange = exchange
        self.forwarded = forwarded
        self.payload = b""

    def body_received(self, data: bytes) -> None:
        self.payload += data

    def body_ended(self) -> None:
        self.forwarded.append((self.exchange.head.method, self.exchange.head.target, self.payload))
        self.exchange.respond(200, [], b"ok")

    def body_stalled(self) -> None:
        self.exchange.respond(408, [], b"stalled")


def served(pieces: list[bytes]) -> tuple[list[Request], bytes, bool]:
    """What is forwarded of ``pieces``, what is answered in the end, and whether the connection ended."""
    clock = Clock()
    application = Forwarding()
    server = HTTPServerFactory(clock, application.received, refusal).buildProtocol(PEER)
    wire = Wire()
    server.makeConnection(wire)
    for each in pieces:
        if wire.disconnecting:
            break
        server.dataReceived(each)
    clock.advance(200)  # Past every limit but those of closing ...
    clock.advance(200)  # ... and those.
    # Whether a client is told to continue depends on what has come of its body by then.
    return application.forwarded, wire.value().replace(b"HTTP/1.1 100 Continue\r\n\r\n", b""), wire.disconnecting


class FuzzTests(SynchronousTestCase):
    def check(self, data: bytes) -> bool:
        """What must hold for any bytes; whether something of ``data`` was forwarded."""
        forwarded, answers, ended = served([data])
        self.assertEqual(forwarded, judged(data)[: len(forwarded)], data)
        self.assertTrue(ended, data)
        bytewise = served([data[at : at + 1] for at in range(len(data))])
        self.assertEqual(bytewise, (forwarded, answers, ended), data)
        self.assertEqual(self.flushLoggedErrors(), [], data)
        return bool(forwarded)

    def test_random(self) -> None:
        """Of random requests nothing is forwarded that h11 refuses or reads otherwise; cuts change nothing."""
        random = Random(SEED)
        forwarded = sum(
            self.check(b"".join(random_request(random, oddness) for _ in range(random.randrange(1, 4))))
            for oddness in (0, 0.03, 0.1, 0.3)
            for _ in range(RANDOM // 4)
        )
        self.assertTrue(0.3 * RANDOM < forwarded < 0.9 * RANDOM, forwarded)

    def test_mutated(self) -> None:
        """The same holds for good requests with a few bytes changed."""
        random = Random(SEED)
        forwarded = sum(
            self.check(mutate(random, random_request(random, 0)) + random_request(random, 0)) for _ in range(MUTATED)
        )
        self.assertTrue(0.2 * MUTATED < forwarded < 0.9 * MUTATED, forwarded)

    def test_again(self) -> None:
        """The same holds for heads that come again, which no parser sees (PX-8)."""
        random = Random(SEED)
        forwarded = sum(self.check(again(random, oddness)) for oddness in (0, 0.1, 0.3) for _ in range(MUTATED // 3))
        self.assertTrue(forwarded > 0.8 * MUTATED, forwarded)
