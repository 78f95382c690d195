"""Tests of pair.surfaces.feeds: a feed's port behind its real site and guard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from twisted.internet.address import IPv4Address
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from pair.cluster.pins import PeerLeaf
from pair.errors.book import ErrorBook
from pair.errors.registry import Registry
from pair.feeds.outflow import PAUSED_MAX
from pair.feeds.publisher import BATCH_SECONDS, STREAMS_MAX, Feed
from pair.feeds.wire import BEAT_SECONDS
from pair.surfaces.callers import Callers
from pair.surfaces.feeds import NDJSON, WORKLOADS, feed_site
from pair.test.cluster.household import Trustee
from pair.test.cluster.world import A, B, C, D, World, player
from pair.test.feeds.links import CODEC, GENERATION, Sheet
from pair.test.surfaces.wire import Answer, Conversation, Secure, Transport, request

if TYPE_CHECKING:
    from pair.test.cluster.world import Player

STREAM = f"{WORKLOADS}/stream"
OWN_ADDRESS = "192.168.1.20"
LOOPBACK = "127.0.0.1"


class Line(Secure):
    """A connection under mutual TLS, with a stream on it."""

    producer: Any

    def __init__(self, who: Player, address: str) -> None:
        super().__init__(PeerLeaf.of(who.leaf), IPv4Address("TCP", address, 1))

    def unchunked(self) -> bytes:
        """The body that came so far."""
        _, _, rest = self.value().partition(b"\r\n\r\n")
        body = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            body += rest[: int(size, 16)]
            rest = rest[int(size, 16) + 2 :]
        return body

    @property
    def lines(self) -> list[Any]:
        return [msgspec.json.decode(line) for line in self.unchunked().splitlines()]

    @property
    def kinds(self) -> list[str]:
        return [line["kind"] for line in self.lines]


class FeedSurfaceTestCase(SynchronousTestCase):
    """The port of A, whose cluster has the members B and C, and the former D."""

    local = False

    def setUp(self) -> None:
        self.reactor = MemoryReactorClock()
        world = World(A)
        statements = [world.root, *world.enter(A, B, C, D), world.remove(A, D)]
        self.trust = Trustee(world, A, statements)
        self.world = world
        self.callers = Callers(
            self.reactor, A.node, self.trust, OWN_ADDRESS.__eq__, ErrorBook(A.node, Registry(()), lambda: 0)
        )
        self.addCleanup(self.callers.close)
        self.feed = Feed(self.reactor, "sheets", A.node, "0.0.0", CODEC, 100, GENERATION, lambda: 5)
        self.feed.startService()
        self.addCleanup(self.feed.stopService)
        self.heard: list[str] = []
        self.site = feed_site(
            self.reactor, self.feed, WORKLOADS, self.callers, self.heard.append, self.document(), self.local
        )

    def document(self) -> Any:
        return None

    def connect(self, who: Player | None, address: str = "192.168.1.30") -> Conversation:
        if who is None:
            return Conversation(self.site, Transport(peerAddress=IPv4Address("TCP", address, 1)))
        return Conversation(self.site, Line(who, address))

    def ask(self, who: Player | None, data: bytes, address: str = "192.168.1.30") -> Answer:
        conversation = self.connect(who, address)
        conversation.send(data)
        return conversation.answer

    def verdict(self, who: Player | None, data: bytes, address: str = "192.168.1.30") -> tuple[int, str]:
        answer = self.ask(who, data, address)
        return answer.status, answer.code

    def follow(self, who: Player, query: str = "") -> Line:
        conversation = self.connect(who)
        conversation.send(request("GET", STREAM + query))
        line = conversation.transport
        assert isinstance(line, Line)
        return line

    def put(self, key: str, n: int = 0) -> None:
        self.feed.put(key, Sheet(key, n, A.node))


class DocumentTests(FeedSurfaceTestCase):
    def test_document(self) -> None:
        """A member reads the whole table at one instant, and is heard of (JB-11)."""
        self.put("a", 7)
        answer = self.ask(B, request("GET", f"{WORKLOADS}?since=x"))
        self.assertEqual((answer.status, answer.field("content-type")), (200, "application/json"))
        self.assertEqual(answer.body, self.feed.document())
        self.assertEqual(answer.json["records"]["a"]["n"], 7)
        self.assertEqual(self.heard, [B.node])

    def test_head(self) -> None:
        """HEAD gives the head of the document, and of the stream, which then does not begin (JB-11)."""
        answer = self.ask(B, request("HEAD", WORKLOADS))
        self.assertEqual((answer.status, answer.body), (200, b""))
        self.assertEqual(answer.field("content-length"), str(len(self.feed.document())))
        answer = self.ask(B, request("HEAD", STREAM))
        self.assertEqual((answer.status, answer.field("content-type")), (200, NDJSON.decode()))
        self.assertEqual(self.feed.followers, ())

    def test_methods(self) -> None:
        """There is nothing to be changed here: 405, before a body is read."""
        for path in (WORKLOADS, STREAM):
            for method in ("POST", "PUT", "DELETE", "OPTIONS"):
                answer = self.ask(B, request(method, path, None, content_length="9"))
                self.assertEqual((answer.status, answer.field("allow")), (405, "GET, HEAD"))

    def test_body(self) -> None:
        """A GET has no body here."""
        self.assertEqual(self.verdict(B, request("GET", WORKLOADS, b"{}"))[0], 413)

    def test_paths(self) -> None:
        """Other paths are 404."""
        for path in ("/", "/v1/errors", f"{STREAM}/x"):
            self.assertEqual(self.verdict(B, request("GET", path)), (404, "no_such_route"))


class CallerTests(FeedSurfaceTestCase):
    def test_strangers(self) -> None:
        """Who is no member is refused, with the evidence that is due to a former one (JB-12, CL-17)."""
        for who in (D, player("stranger")):
            for path in (WORKLOADS, STREAM):
                answer = self.ask(who, request("GET", path))
                self.assertEqual((answer.status, answer.code), (403, "not_member"))
                self.assertEqual(bool(answer.json["evidence"]), who is D)
        self.assertEqual((self.heard, self.feed.followers), ([], ()))

    def test_plain(self) -> None:
        """In the clear nothing is served, to this machine neither (JB-12)."""
        for address in ("192.168.1.30", LOOPBACK):
            for path in (WORKLOADS, STREAM, "/x"):
                self.assertEqual(self.verdict(None, request("GET", path), address), (403, "mtls_required"))

    def test_itself(self) -> None:
        """This node is no follower of its own."""
        self.assertEqual(self.ask(A, request("GET", STREAM), OWN_ADDRESS).code, "is_self")

    def test_removed(self) -> None:
        """A member that is removed while it follows is refused from then on; what cuts its stream is CL-18."""
        line = self.follow(B)
        self.trust.say(self.world.remove(A, B))
        line.loseConnection()
        self.assertEqual(self.feed.followers, ())
        self.assertEqual(self.verdict(B, request("GET", STREAM)), (403, "not_member"))


class StreamTests(FeedSurfaceTestCase):
    def test_stream(self) -> None:
        """A member is told what there is, what changes, and that all is well, in lines as they come (JB-8, JB-9)."""
        self.put("a")
        line = self.follow(B)
        head = line.value().partition(b"\r\n\r\n")[0].lower()
        self.assertIn(b"200 ok", head)
        for field in (
            b"content-type: application/x-ndjson",
            b"transfer-encoding: chunked",
            b"cache-control: no-store",
        ):
            self.assertIn(field, head)
        self.assertEqual(line.kinds, ["hello", "put", "end"])
        self.assertEqual(self.feed.followers, (B.node,))
        self.assertEqual(self.heard, [B.node])
        self.put("b")
        self.reactor.advance(BATCH_SECONDS)
        self.reactor.advance(BEAT_SECONDS - BATCH_SECONDS)
        self.assertEqual(line.kinds[3:], ["put", "beat"])

    def test_no_time_limit(self) -> None:
        """A stream lasts; the limits of a request are not its own."""
        line = self.follow(B)
        for _ in range(60):
            self.reactor.advance(BEAT_SECONDS)
        self.assertTrue(line.connected)
        self.assertEqual(line.kinds.count("beat"), 60)

    def test_position(self) -> None:
        """A follower goes on from where it was (JB-8); ``since`` alone is a snapshot (JB-14)."""
        self.put("a")
        self.put("b")
        revision = self.feed.revision - 1
        for who, query, mode in ((B, f"&generation={GENERATION}", "delta"), (C, "", "snapshot")):
            hello, *_ = self.follow(who, f"?since={revision}{query}").lines
            self.assertEqual(hello["mode"], mode)

    def test_bad_parameters(self) -> None:
        """Positions that are none are 400 (JB-14)."""
        for query in ("since=-1", "since=x", "generation=1", f"generation={GENERATION}&since=1&since=2"):
            self.assertEqual(self.verdict(B, request("GET", f"{STREAM}?{query}")), (400, "bad_request"), query)
        self.assertEqual(self.feed.followers, ())

    def test_replaced(self) -> None:
        """A second stream of a member ends the first, and its connection (JB-10, JB-15)."""
        first, second = self.follow(B), self.follow(B)
        self.assertEqual((first.kinds[-1], first.lines[-1]["reason"]), ("bye", "replaced"))
        self.assertTrue(first.value().endswith(b"\r\n0\r\n\r\n"))
        self.assertEqual((first.connected, second.connected), (False, True))
        self.assertEqual(self.feed.followers, (B.node,))

    def test_no_place(self) -> None:
        """The 65th follower is told to come again (JB-15)."""
        for number in range(STREAMS_MAX):
            self.feed.serve(f"somebody {number}", _Sink(), None)
        answer = self.ask(B, request("GET", STREAM))
        self.assertEqual((answer.status, answer.code, answer.field("retry-after")), (503, "no_place", "5"))
        self.assertEqual(answer.field("content-type"), "application/json")

    def test_gone(self) -> None:
        """A follower that hangs up is followed by nothing, and nothing is logged of it."""
        for end in ("loseConnection", "abortConnection"):
            line = self.follow(B)
            self.assertEqual(self.feed.followers, (B.node,))
            getattr(line, end)()
            self.assertEqual(self.feed.followers, ())
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_stop(self) -> None:
        """When the feed stops, followers are told and their connections close (JB-10)."""
        line = self.follow(B)
        self.feed.stopService()
        self.assertEqual(line.lines[-1], {"kind": "bye", "reason": "shutdown"})
        self.assertFalse(line.connected)
        self.assertEqual(self.verdict(B, request("GET", STREAM)), (503, "no_place"))

    def test_slow(self) -> None:
        """A connection that is full pauses its stream alone, and after 30 s is closed (JB-16, JB-17)."""
        slow, quick = self.follow(B), self.follow(C)
        slow.producer.pauseProducing()
        self.put("a")
        self.reactor.advance(BATCH_SECONDS)
        self.assertEqual((slow.kinds, quick.kinds), (["hello", "end"], ["hello", "end", "put"]))
        slow.producer.resumeProducing()
        self.assertEqual(slow.kinds, quick.kinds)
        slow.producer.pauseProducing()
        self.reactor.advance(PAUSED_MAX)
        self.assertEqual((slow.connected, quick.connected), (False, True))
        self.assertEqual(self.feed.followers, (C.node,))


class LocalTests(FeedSurfaceTestCase):
    """A port that local programs may read."""

    local = True

    def document(self) -> Any:
        return lambda: b'{"all":1}'

    def test_document(self) -> None:
        """Members and programs of this machine read the same document (EN-84)."""
        for who, address in ((B, "192.168.1.30"), (None, LOOPBACK), (None, "::ffff:127.0.0.1")):
            for method, body in (("GET", b'{"all":1}'), ("HEAD", b"")):
                answer = self.ask(who, request(method, WORKLOADS), address)
                self.assertEqual((answer.status, answer.body, answer.field("content-length")), (200, body, "9"))
        self.assertEqual(set(self.heard), {B.node})

    def test_nothing_else(self) -> None:
        """From elsewhere, and all but the document, is refused in the clear; other methods are 405 (EN-84)."""
        for address in ("192.168.1.30", OWN_ADDRESS, "10.0.0.1"):
            self.assertEqual(self.verdict(None, request("GET", WORKLOADS), address), (403, "mtls_required"))
        for path in (STREAM, "/", f"{WORKLOADS}/"):
            self.assertEqual(self.verdict(None, request("GET", path), LOOPBACK), (403, "mtls_required"))
        self.assertEqual(self.verdict(None, request("POST", WORKLOADS), LOOPBACK)[0], 405)

    def test_pages(self) -> None:
        """No page in a browser here reads it, by a name that was made to mean this machine neither."""
        script = {"host": "127.0.0.1:14322", "sec-fetch-site": "cross-site"}
        for fields in ({"origin": "http://evil.example"}, {"host": "evil.example:14322"}, {"host": None}, script):
            status, _ = self.verdict(None, request("GET", WORKLOADS, None, **fields), LOOPBACK)
            self.assertIn(status, (400, 403), fields)


class _Sink:
    """Takes a stream that nobody reads."""

    def registerProducer(self, producer: object, streaming: bool) -> None:
        pass

    def unregisterProducer(self) -> None:
        pass

    def write(self, data: bytes) -> None:
        pass

    def finish(self) -> None:
        pass

    def abort(self) -> None:
        pass
