"""Tests of :mod:`pair.feeds.publisher` and :mod:`pair.feeds.outflow`."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IPushProducer
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site
from zope.interface.verify import verifyObject

from pair.feeds.codec import StructCodec
from pair.feeds.outflow import PAUSED_MAX, PIECE, Outflow
from pair.feeds.publisher import BATCH_SECONDS, KEPT_SECONDS, STREAMS_MAX, Feed, NoPlaceError
from pair.feeds.reader import Beaten, Changed, FeedReader, Greeted, Left, Removed, Replaced, Told
from pair.feeds.table import RING
from pair.feeds.wire import BEAT_SECONDS, RECORD_MAX, Position
from pair.test.feeds.links import CODEC, GENERATION, HIGH, A, Link, Sheet, new_feed


class Follower:
    """One who reads what a link brings."""

    def __init__(self) -> None:
        self.reader = FeedReader("sheets", A, CODEC)
        self.told: list[Told[Sheet]] = []
        self.link = Link()
        self.octets = b""

    def begin(self) -> Link:
        self.link = Link()
        self.reader.begin()
        self.link.deliver(self)
        return self.link

    def received(self, data: bytes) -> None:
        self.octets += data
        self.told += self.reader.read(data)

    def lost(self) -> None:
        """Seen by ``link.gone``."""

    def drain(self) -> list[Told[Sheet]]:
        """What came since the last call."""
        self.link.pump()
        told, self.told = self.told, []
        return told


class FeedTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.feed = new_feed(self.clock)
        self.addCleanup(self.feed.stopService)

    def follow(self, peer: str = "b", position: Position | None = None) -> Follower:
        """A follower that has read all there is."""
        follower = Follower()
        self.connect(follower, peer, position)
        follower.drain()
        return follower

    def connect(self, follower: Follower, peer: str, position: Position | None = None) -> Outflow:
        return self.feed.serve(peer, follower.begin(), position)

    def flush(self) -> None:
        self.clock.advance(BATCH_SECONDS)


class ServingTests(FeedTestCase):
    def test_opening(self) -> None:
        """A new follower gets a snapshot, one that comes back the delta from its position (JB-8)."""
        self.feed.put("a", Sheet("a"))
        self.feed.put("b", Sheet("b"))
        follower = self.follow()
        self.assertEqual(dict(follower.reader.records), {"a": Sheet("a"), "b": Sheet("b")})
        self.feed.put("a", Sheet("a", 1))
        self.connect(follower, "c", follower.reader.position)
        self.assertEqual(follower.drain()[:2], [Greeted(), Changed("a", Sheet("a", 1), Sheet("a"))])
        hello = json.loads(follower.octets.splitlines()[-3])
        self.assertEqual((hello["mode"], hello["count"], hello["heartbeatMs"]), ("delta", 1, 5000))

    def test_batch(self) -> None:
        """Changes are sent 50 ms after the first of them, of each key the last one (JB-7)."""
        follower = self.follow()
        for n in range(3):
            self.feed.put("a", Sheet("a", n))
        self.feed.put("b", Sheet("b"))
        self.clock.advance(BATCH_SECONDS - 0.01)
        self.assertEqual(follower.drain(), [])
        self.clock.advance(0.01)
        self.assertEqual(follower.drain(), [Changed("a", Sheet("a", 2), None), Changed("b", Sheet("b"), None)])

    def test_encoded_when_sent(self) -> None:
        """What nobody reads is never encoded, and of a batch only the last record of each key (JB-6, JB-7)."""
        encoded: list[int] = []

        class Counting(StructCodec[Sheet]):
            def encode(self, record: Sheet) -> bytes:
                encoded.append(record.n)
                return super().encode(record)

        feed = Feed(self.clock, "sheets", A, "0", Counting(Sheet, "id", "node"), 9, GENERATION, lambda: 0)
        feed.startService()
        self.addCleanup(feed.stopService)
        for n in range(3):
            feed.put("a", Sheet("a", n))
        feed.put("b", Sheet("b"))
        feed.remove("b")
        self.flush()
        self.assertEqual(encoded, [])
        follower = Follower()
        feed.serve("b", follower.begin(), None)
        for n in range(3, 6):
            feed.put("a", Sheet("a", n))
        self.flush()
        self.assertEqual(encoded, [2, 5])
        self.assertEqual([type(each) for each in follower.drain()], [Greeted, Replaced, Changed])

    def test_removal_apart(self) -> None:
        """A record and its removal are never in one batch (JB-7)."""
        follower = self.follow()
        self.feed.put("a", Sheet("a"))
        self.feed.remove("a")
        self.flush()
        self.assertEqual(follower.drain(), [Changed("a", Sheet("a"), None)])
        self.flush()
        self.assertEqual(follower.drain(), [Removed("a", Sheet("a"))])

    def test_removal_revoked(self) -> None:
        """A removal that has waited for its batch is none when there is a record again."""
        follower = self.follow()
        self.feed.put("a", Sheet("a"))
        self.feed.remove("a")
        self.feed.put("a", Sheet("a", 1))
        self.clock.advance(KEPT_SECONDS)
        self.flush()
        self.assertEqual(follower.drain(), [Changed("a", Sheet("a", 1), None)])

    def test_removal_kept_for_slow(self) -> None:
        """A removal waits for a follower that is paused, but not for longer than a second (JB-49)."""
        follower = self.follow()
        stream = self.connect(follower, "b")
        follower.drain()
        stream.pauseProducing()
        self.feed.put("a", Sheet("a"))
        self.feed.remove("a")
        self.flush()
        self.clock.advance(KEPT_SECONDS - 0.2)
        self.assertIn("a", json.loads(self.feed.document())["records"])
        for _ in range(10):
            self.flush()
        self.assertEqual(json.loads(self.feed.document())["records"], {})

    def test_removal_without_followers(self) -> None:
        """Where nobody follows, a removal waits for nothing, and no timer runs but the beat's."""
        self.feed.put("a", Sheet("a"))
        self.feed.remove("a")
        self.assertEqual(json.loads(self.feed.document())["records"], {})
        self.assertEqual(len(self.clock.getDelayedCalls()), 1)

    def test_beat(self) -> None:
        """There is a beat every 5 s, of the revision that the follower has (JB-9)."""
        follower = self.follow()
        self.clock.advance(BEAT_SECONDS - 0.01)
        self.feed.put("a", Sheet("a"))
        self.clock.advance(0.01)
        self.assertEqual(follower.drain(), [Beaten(5000)])
        self.flush()
        self.clock.advance(BEAT_SECONDS)
        self.assertEqual(follower.drain(), [Changed("a", Sheet("a"), None), Beaten(10_050)])

    def test_document(self) -> None:
        """The plain answer has the whole table at one instant (JB-11)."""
        self.feed.put("a", Sheet("a"))
        self.assertEqual(
            json.loads(self.feed.document()),
            {
                "protocol": {"min": 1, "max": 1},
                "feed": "sheets",
                "node": A,
                "generation": GENERATION,
                "revision": 1,
                "records": {"a": {"id": "a", "n": 0, "node": A, "text": ""}},
            },
        )

    def test_over_limit(self) -> None:
        """A record over its limit is not published; that is told once, and once that it is over (JB-5)."""
        told: list[bool] = []
        self.feed.over_limit.subscribe(told.append)
        big = "x" * RECORD_MAX
        self.feed.put("a", Sheet("a", text=big))
        self.feed.put("b", Sheet("b", text=big))
        self.assertEqual((told, self.feed.revision), ([True], 0))
        self.feed.put("a", Sheet("a"))
        self.assertEqual(told, [True])
        self.feed.remove("b")
        self.assertEqual(told, [True, False])


class PlaceTests(FeedTestCase):
    def test_replaced(self) -> None:
        """A second stream of one peer ends the first with a word (JB-15)."""
        first = self.follow()
        second = self.follow()
        self.assertEqual(first.drain(), [Left("replaced")])
        self.assertTrue(first.link.gone and not first.link.aborted and not second.link.gone)
        self.assertEqual(self.feed.followers, ("b",))

    def test_full(self) -> None:
        """There is no place for a 65th, but for one that comes back (JB-15)."""
        for number in range(STREAMS_MAX):
            self.follow(f"{number}")
        with self.assertRaises(NoPlaceError):
            self.follow("other")
        self.follow("7")
        self.assertEqual(len(self.feed.followers), STREAMS_MAX)

    def test_gone(self) -> None:
        """A stream whose connection is gone is forgotten; changes go on."""
        follower = self.follow()
        self.feed.put("a", Sheet("a"))
        follower.link.cut()
        self.assertEqual(self.feed.followers, ())
        self.clock.advance(PAUSED_MAX)

    def test_shutdown(self) -> None:
        """A stop takes leave of all, leaves no timer, and nobody may follow after it (JB-10)."""
        reading, stalled = self.follow("b"), self.follow("c")
        stream = self.connect(stalled, "d")
        stream.pauseProducing()
        self.feed.put("a", Sheet("a"))
        self.feed.remove("a")
        self.successResultOf(self.feed.stopService())
        self.assertEqual(reading.drain(), [Left("shutdown")])
        self.assertTrue(stalled.link.aborted)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        with self.assertRaises(NoPlaceError):
            self.follow("e")
        self.feed.startService()


class StallTests(FeedTestCase):
    """JB-16 to JB-18: followers that do not read, or not fast enough."""

    def fill(self, count: int, text: str = "x" * 1000) -> None:
        for n in range(count):
            self.feed.put(f"k{n}", Sheet(f"k{n}", text=text))

    def test_push_producer(self) -> None:
        """The stream is what a connection pauses and resumes."""
        self.assertTrue(verifyObject(IPushProducer, self.connect(Follower(), "b")))

    def test_opening_is_metered(self) -> None:
        """A long snapshot is written as the connection takes it, and is of one instant all the same (JB-8, JB-16)."""
        self.fill(1000)
        follower = Follower()
        self.connect(follower, "b")
        self.assertLessEqual(follower.link.most, HIGH + PIECE + 2000)
        self.feed.put("k0", Sheet("k0", 1))
        self.feed.put("new", Sheet("new"))
        self.flush()
        _, replaced, *news = follower.drain()
        assert isinstance(replaced, Replaced)
        self.assertEqual(len(replaced.changes), 1000)
        self.assertEqual([each.key for each in news if isinstance(each, Changed)], ["k0", "new"])
        self.assertLessEqual(follower.link.most, HIGH + PIECE + 2000)

    def test_no_queue(self) -> None:
        """One that is paused gets the delta from its position when it resumes (JB-16)."""
        follower = Follower()
        stream = self.connect(follower, "b")
        follower.drain()
        stream.pauseProducing()
        for n in range(50):
            self.feed.put("a", Sheet("a", n))
            self.flush()
        self.assertEqual(follower.drain(), [])
        stream.resumeProducing()
        self.assertEqual(follower.drain(), [Changed("a", Sheet("a", 49), None)])

    def test_paused_too_long(self) -> None:
        """One that takes nothing for 30 s is cut off; each resume begins the count anew (JB-17)."""
        follower = Follower()
        stream = self.connect(follower, "b")
        for _ in range(3):
            stream.pauseProducing()
            self.clock.advance(PAUSED_MAX - 0.1)
            stream.resumeProducing()
        self.assertFalse(follower.link.gone)
        stream.pauseProducing()
        self.clock.advance(PAUSED_MAX)
        self.assertTrue(follower.link.aborted)
        self.assertEqual(self.feed.followers, ())

    def test_fallen_out(self) -> None:
        """One that has fallen out of the ring is cut off at once: aborted where nothing can be written (JB-17)."""
        follower = Follower()
        stream = self.connect(follower, "b")
        follower.drain()
        stream.pauseProducing()
        self.fill(RING + 1, "")
        self.flush()
        self.assertTrue(follower.link.aborted)

    def test_fallen_out_while_reading(self) -> None:
        """Where it can be written, the reason is: more changes at once than the ring holds (JB-10, JB-17)."""
        follower = self.follow()
        self.fill(RING + 1, "")
        self.flush()
        self.assertEqual(follower.drain(), [Left("slow")])

    def test_fallen_out_while_opening(self) -> None:
        """An opening that nothing could follow any more is broken off: it would keep old records alive."""
        self.fill(200)
        follower = Follower()
        self.connect(follower, "b")
        self.fill(RING + 1, "")
        self.flush()
        self.assertTrue(follower.link.aborted)

    def test_stalled_costs_little(self) -> None:
        """JB-16 to JB-18: one of three stops reading for 60 s during 100,000 changes. The others get each change with
        the batch that it belongs to, memory grows by 256 KiB at most, and it ends equal.
        """
        followers = [Follower() for _ in range(3)]
        for number, each in enumerate(followers):
            self.connect(each, f"{number}")
        stalled = followers[0]
        lag = 0

        def change(first: int, last: int) -> None:
            nonlocal lag
            for n in range(first, last):
                self.feed.put(f"k{n % 100}", Sheet(f"k{n % 100}", n))
                if n % 83 == 82:
                    self.flush()
                    for each in followers:
                        each.drain()
                        each.octets = b""
                    for each in followers[1:]:
                        position = each.reader.position
                        assert position is not None
                        lag = max(lag, self.feed.revision - position.revision)

        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        change(0, 10_000)
        stalled.link.reading = False
        before = tracemalloc.get_traced_memory()[0]
        change(10_000, 20_000)
        most = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        self.assertLessEqual(most, 256 * 1024)
        change(20_000, 110_000)
        self.flush()
        self.assertEqual(lag, 0)
        self.assertTrue(stalled.link.aborted)
        self.assertLessEqual(stalled.link.most, HIGH + 2 * PIECE)
        self.connect(stalled, "0", stalled.reader.position)
        for each in followers:
            each.drain()
        for each in followers:
            self.assertEqual(each.reader.records, followers[1].reader.records)
        self.assertEqual(stalled.reader.records["k99"].n, 109_999)


class _Answer:
    """A request of twisted.web as a writer: what a surface needs besides it."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.registerProducer = request.registerProducer
        self.unregisterProducer = request.unregisterProducer
        self.write = request.write
        self.finish = request.finish

    def abort(self) -> None:
        transport: Any = self._request.channel.transport
        transport.abortConnection()


class WebTests(FeedTestCase):
    """The writer is what twisted.web gives, under its own flow control."""

    def setUp(self) -> None:
        super().setUp()
        feed = self.feed

        class Streamed(Resource):
            isLeaf = True

            def render_GET(self, request: Request) -> int:
                stream = feed.serve("b", _Answer(request), None)
                request.notifyFinish().addBoth(lambda _: stream.stopProducing())
                return NOT_DONE_YET

        channel = Site(Streamed(), reactor=self.clock).buildProtocol(None)
        assert channel is not None
        self.transport = StringTransport()
        self.channel: Any = channel
        channel.makeConnection(self.transport)
        channel.dataReceived(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

    @property
    def producer(self) -> IPushProducer:
        producer: Any = self.transport.producer
        return IPushProducer(producer)

    def lines(self) -> list[str]:
        """The kinds of the lines that were sent since the last call."""
        value = self.transport.value()
        self.transport.clear()
        return [json.loads(line)["kind"] for line in value.splitlines() if line.startswith(b"{")]

    def test_stream(self) -> None:
        """Lines go out as they come, and the last chunk after the bye."""
        self.assertEqual(self.lines(), ["hello", "end"])
        self.feed.put("a", Sheet("a"))
        self.flush()
        self.assertEqual(self.lines(), ["put"])
        self.feed.stopService()
        self.assertTrue(self.transport.value().endswith(b"0\r\n\r\n"))
        self.assertEqual(self.lines(), ["bye"])
        self.feed.startService()

    def test_paused(self) -> None:
        """A connection that has enough gets nothing until it has room."""
        self.lines()
        self.producer.pauseProducing()
        self.feed.put("a", Sheet("a"))
        self.flush()
        self.assertEqual(self.lines(), [])
        self.producer.resumeProducing()
        self.assertEqual(self.lines(), ["put"])

    def test_lost(self) -> None:
        """A connection that is lost ends the stream."""
        self.channel.connectionLost(Failure(ConnectionLost()))
        self.assertEqual(self.feed.followers, ())

    def test_stalled(self) -> None:
        """One that is paused too long is cut off."""
        self.producer.pauseProducing()
        self.clock.advance(PAUSED_MAX)
        self.assertTrue(self.transport.disconnecting or self.transport.disconnected)
        self.assertEqual(self.feed.followers, ())
