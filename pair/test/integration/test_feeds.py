"""A feed's port and its followers on real sockets, over mutual TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.task import Clock, deferLater
from twisted.trial.unittest import TestCase

from pair.addresses import Place
from pair.cluster.connections import PeerConnections
from pair.cluster.dialing import PinnedDial
from pair.cluster.getting import PeerGetter
from pair.cluster.tls import server_factory
from pair.feeds.alarms import FeedAlarms
from pair.feeds.followers import Followers
from pair.feeds.outflow import PAUSED_MAX
from pair.feeds.publisher import BATCH_SECONDS, Feed
from pair.protocols.eager import listen_eager
from pair.protocols.firstbyte import FirstByteFactory
from pair.surfaces.callers import Callers
from pair.surfaces.feeds import STREAM, WORKLOADS, feed_site
from pair.test.cluster.household import Entries
from pair.test.cluster.peers import Pins, credentials, identity
from pair.test.feeds.links import CODEC, GENERATION, Sheet

if TYPE_CHECKING:
    from collections.abc import Callable

    from pair.cluster.getting import FeedStream
    from pair.cluster.identity import Identity
    from pair.cluster.pins import PeerLeaf
    from pair.feeds.following import Stream

reactor: Any = global_reactor
DESK, RACK, LAMP = identity(), identity(), identity()

TEXT = "x" * 60_000
ENOUGH = 400
"""So many records with that text are more than two sockets take, and are told before anybody loses patience."""


class Trust:
    """Whom the origin counts as members."""

    def __init__(self, *members: Identity) -> None:
        self.pins = Pins(*members)

    def evidence(self, peer: PeerLeaf) -> tuple[bytes, ...]:
        return ()


class Stalled:
    """Takes a stream, and reads nothing after its first bytes until it is told to.

    Attributes:
        gone: Fires when the connection is lost.
    """

    def __init__(self, stream: FeedStream) -> None:
        self.gone: Deferred[None] = Deferred()
        self._transport: Any = stream._answer._door._guard.transport  # type: ignore[union-attr]
        self._stalls = True
        stream.deliver(self)

    def received(self, data: bytes) -> None:
        if self._stalls:
            self._transport.pauseProducing()

    def read_on(self) -> None:
        self._stalls = False
        self._transport.resumeProducing()

    def lost(self) -> None:
        self.gone.callback(None)


class FeedTests(TestCase):
    """The desk has a feed; the rack and the lamp follow it."""

    timeout = 60

    def setUp(self) -> None:
        self.clock = Clock()  # The feed's: batches and patience are in the test's hand.
        self.feed = Feed(self.clock, "sheets", DESK.uuid, "0.0.0", CODEC, 1000, GENERATION, lambda: 0)
        self.feed.startService()
        self.trust = Trust(RACK, LAMP)
        self.errors = Entries()
        self.heard: list[str] = []
        callers = Callers(reactor, DESK.uuid, self.trust, lambda _: True, self.errors)  # type: ignore[arg-type]
        self.site = feed_site(reactor, self.feed, WORKLOADS, callers, self.heard.append)
        self.inbound, self.outbound = PeerConnections(), PeerConnections()
        tls = server_factory(credentials(DESK), self.site, self.inbound, reactor)
        self.listening = listen_eager(reactor, 0, FirstByteFactory(reactor, self.site, tls), "127.0.0.1")
        self.places = [Place("127.0.0.1", self.listening.getHost().port)]  # type: ignore[attr-defined]
        self.services: list[Followers[Sheet]] = []

    async def tear_down(self) -> None:
        await gatherResults([each.stopService() for each in self.services])
        await self.feed.stopService()
        await maybeDeferred(self.listening.stopListening)
        await self.site.close()
        self.outbound.abort_all()
        await self.until(lambda: not self.inbound and not self.outbound)

    def tearDown(self) -> Deferred[None]:  # type: ignore[override]
        return Deferred.fromCoroutine(self.tear_down())

    def getter(self, who: Identity) -> PeerGetter:
        pins = Pins(DESK)
        return PeerGetter(reactor, PinnedDial(reactor, credentials(who), lambda: pins, self.outbound))

    def follow(self, who: Identity) -> Followers[Sheet]:
        getter = self.getter(who)

        def connect(node: str, path: str) -> Deferred[Stream]:
            return cast("Deferred[Stream]", getter.stream(node, self.places, path))

        followers = Followers(
            reactor,
            connect,
            who.uuid,
            "sheets",
            WORKLOADS + STREAM,
            CODEC,
            FeedAlarms(self.errors, str),  # type: ignore[arg-type]
            lambda: 0,
        )
        followers.members([DESK.uuid, who.uuid])
        followers.startService()
        self.services.append(followers)
        return followers

    async def until(self, true: Callable[[], bool]) -> None:
        while not true():
            await deferLater(reactor, 0.005, lambda: None)

    def put(self, key: str, text: str = "") -> None:
        self.feed.put(key, Sheet(key, node=DESK.uuid, text=text))
        self.clock.advance(BATCH_SECONDS)

    def keys(self, followers: Followers[Sheet]) -> set[str]:
        return set(followers.tables()[DESK.uuid])

    async def test_follow(self) -> None:
        """What there is comes, and what changes; the other end may stop and begin anew (JB-8, JB-21)."""
        self.put("a")
        followers = self.follow(RACK)
        await self.until(lambda: self.keys(followers) == {"a"})
        self.put("b")
        await self.until(lambda: self.keys(followers) == {"a", "b"})
        self.assertEqual(self.feed.followers, (RACK.uuid,))
        self.assertEqual(self.heard, [RACK.uuid])
        self.feed.stopService()
        await self.until(lambda: followers.state(DESK.uuid).state == "stale")
        self.feed.startService()
        followers.nudge(DESK.uuid)
        await self.until(lambda: followers.state(DESK.uuid).state == "live")
        self.assertEqual(self.keys(followers), {"a", "b"})

    async def test_removed(self) -> None:
        """A member that is removed is cut off and refused from then on, and told so (CL-18, JB-12)."""
        followers = self.follow(RACK)
        await self.until(lambda: followers.state(DESK.uuid).state == "live")
        self.trust.pins = Pins(LAMP)
        self.assertEqual(self.inbound.cut(self.trust.pins), 1)
        await self.until(lambda: followers.state(DESK.uuid).state == "stale")
        self.assertEqual(self.feed.followers, ())
        getter = self.getter(RACK)
        refused: list[str] = []
        getter.refused.subscribe(lambda each: refused.append(each.node))
        got = await getter.get(DESK.uuid, self.places, WORKLOADS, 10_000, 5)
        self.assertEqual((got.status, refused), (403, [DESK.uuid]))

    async def test_stalled(self) -> None:
        """One that does not read costs no more than its buffers and delays nobody; then it goes on (JB-16, JB-18)."""
        stalled = Stalled(await self.getter(LAMP).stream(DESK.uuid, self.places, WORKLOADS + STREAM))
        followers = self.follow(RACK)
        await self.until(lambda: len(self.feed.followers) == 2)
        for number in range(ENOUGH):
            self.put(str(number), TEXT)
            await deferLater(reactor, 0, lambda: None)
        await self.until(lambda: len(self.keys(followers)) == ENOUGH)
        (unsent,) = [each for each in self.unsent() if each]
        self.assertLess(unsent, 512 * 1024)
        stalled.read_on()
        await self.until(lambda: not any(self.unsent()))
        self.assertEqual(len(self.feed.followers), 2)

    async def test_patience(self) -> None:
        """One that does not read for 30 s is closed; so it is in the middle of its snapshot (JB-17)."""
        for number in range(ENOUGH):
            self.put(str(number), TEXT)
        stalled = Stalled(await self.getter(LAMP).stream(DESK.uuid, self.places, WORKLOADS + STREAM))
        await self.until(lambda: any(self.unsent()))
        self.clock.advance(PAUSED_MAX)
        self.assertEqual(self.feed.followers, ())
        await self.until(lambda: not self.inbound)
        stalled.read_on()
        await stalled.gone

    def unsent(self) -> list[int]:
        """The octets that wait for each connection of the port."""
        sockets: list[Any] = [channel.transport.transport for channel in self.site.channels]  # type: ignore[attr-defined]
        return [len(each.dataBuffer) - each.offset + each._tempDataLen for each in sockets]
