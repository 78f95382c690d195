"""Tests of :mod:`pair.feeds.follower`, :mod:`pair.feeds.following` and :mod:`pair.feeds.watch`."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from pair.feeds.follower import FeedFollower
from pair.feeds.following import (
    HELLO_SECONDS,
    JITTER,
    PROVEN_SECONDS,
    SHUN_SECONDS,
    SILENCE_SECONDS,
    WAITS,
    NotReachedError,
)
from pair.feeds.reader import Changed, Removed, Replaced
from pair.feeds.watch import FAULT_SECONDS, SKEW_MS, FeedFinding, FeedState
from pair.feeds.wire import PROTOCOLS, Beat, Bye, End, Hello, Protocols, write_line
from pair.test.feeds.links import CODEC, GENERATION, NEXT_GENERATION, A, B, Link, Network, Sheet, new_feed

if TYPE_CHECKING:
    from pair.feeds.following import Stream
    from pair.feeds.reader import News

PATH = "/v1/sheets/stream"


class FollowerTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.network = Network(self.clock, new_feed(self.clock))
        self.jitter: list[tuple[float, float]] = []
        self.follower = self.new_follower(B)
        self.news: list[News[Sheet]] = []
        self.states: list[str] = []
        self.findings: list[FeedFinding] = []
        self.follower.news.subscribe(self.news.append)
        self.follower.state_changed.subscribe(lambda state: self.states.append(state.state))
        self.follower.found.subscribe(self.findings.append)

    def new_follower(self, name: str) -> FeedFollower[Sheet]:
        def uniform(least: float, most: float) -> float:
            self.jitter.append((least, most))
            return 1.0

        now = lambda: int(self.clock.seconds() * 1000)  # noqa: E731 - one line
        return FeedFollower(self.clock, self.network.connector(name), A, "sheets", PATH, CODEC, now, uniform)

    def start(self) -> None:
        self.follower.startService()
        self.network.pump()

    def tries(self) -> list[float]:
        """The seconds from each try to the next."""
        instants = [at for at, _ in self.network.asked]
        return [round(b - a, 3) for a, b in pairwise(instants)]

    def put(self, key: str, n: int = 0) -> None:
        self.network.feed.put(key, Sheet(key, n))

    def restart(self) -> None:
        """The origin's process ends and another begins."""
        self.network.feed.stopService()
        self.network.pump()
        self.network.feed = new_feed(self.clock, NEXT_GENERATION)


class FollowingTests(FollowerTestCase):
    def test_live(self) -> None:
        """It begins with what there is, and keeps up (JB-24, JB-26)."""
        self.put("a")
        self.assertEqual(self.follower.state, FeedState(A, "sheets"))
        self.start()
        self.put("a", 1)
        self.network.feed.remove("b")
        self.network.run(0.1)
        self.network.feed.remove("a")
        self.network.run(0.1)
        self.assertEqual(
            self.news,
            [
                Replaced(False, (Changed("a", Sheet("a"), None),)),
                Changed("a", Sheet("a", 1), Sheet("a")),
                Removed("a", Sheet("a", 1)),
            ],
        )
        self.assertEqual(self.states, ["live"])

    def test_resume(self) -> None:
        """After a break the table is stale, and goes on from where it was (JB-26)."""
        self.put("a")
        self.start()
        self.network.links[0].cut()
        self.assertEqual(self.states, ["live", "stale"])
        self.put("b")
        self.network.run(1)
        self.assertEqual(self.network.asked[1][1], f"{PATH}?generation={GENERATION}&since=1")
        self.assertEqual(self.news[1:], [Changed("b", Sheet("b"), None)])
        self.assertEqual(self.states, ["live", "stale", "live"])

    def test_restart_of_origin(self) -> None:
        """A restart of the origin clears what it no longer has."""
        self.put("a")
        self.put("b")
        self.start()
        self.restart()
        self.assertEqual(self.follower.state.state, "stale")
        self.assertEqual(set(self.follower.records), {"a", "b"})
        self.put("b")
        self.put("c")
        self.network.run(1)
        self.assertEqual(self.news[1:], [Replaced(True, (Removed("a", Sheet("a")), Changed("c", Sheet("c"), None)))])
        self.assertEqual(set(self.follower.records), {"b", "c"})

    def test_stop(self) -> None:
        """A stop ends when the connection is gone; nothing is tried after it, and the table is kept as stale."""
        self.put("a")
        self.start()
        (link,) = self.network.links
        lost, link.cut = link.cut, lambda: None  # type: ignore[method-assign]
        stopped = self.follower.stopService()
        self.assertNoResult(stopped)
        lost()
        self.successResultOf(stopped)
        self.network.run(60)
        self.assertEqual(len(self.network.asked), 1)
        self.assertEqual((self.states, set(self.follower.records)), (["live", "stale"], {"a"}))

    def test_stop_while_waiting(self) -> None:
        """A stop ends a wait."""
        self.network.fault = "refused"
        self.start()
        self.successResultOf(self.follower.stopService())
        self.network.run(60)
        self.assertEqual(len(self.network.asked), 1)

    def test_stop_while_connecting(self) -> None:
        """A stop gives up what is under way."""
        cancelled: list[bool] = []
        going: Deferred[Stream] = Deferred(lambda _: cancelled.append(True))
        follower = FeedFollower(self.clock, lambda *_: going, A, "sheets", PATH, CODEC, lambda: 0)
        follower.startService()
        follower.nudge()
        self.successResultOf(follower.stopService())
        self.assertEqual(cancelled, [True])
        self.assertEqual(self.clock.getDelayedCalls(), self.clock.getDelayedCalls()[:1], "but the beat of the feed")

    def test_stopped_by_news(self) -> None:
        """Whoever is told of news may stop the follower: nothing more of that read is told."""
        self.start()

        def stop(_: object) -> None:
            self.follower.stopService()

        self.follower.news.subscribe(stop)
        self.put("a")
        self.put("b")
        self.network.run(0.1)
        self.assertEqual(self.news[1:], [Changed("a", Sheet("a"), None)])

    def test_again_after_stop(self) -> None:
        """It can be started anew, and goes on from where it was."""
        self.put("a")
        self.start()
        self.successResultOf(self.follower.stopService())
        self.start()
        self.assertEqual(self.states, ["live", "stale", "live"])
        self.assertEqual(len(self.news), 1)

    def test_evidence(self) -> None:
        """Each read that brings a line says that the origin is there, and when it was (JB-27)."""
        heard: list[str] = []
        self.follower.heard.subscribe(heard.append)
        self.start()
        self.assertEqual(heard, [A])
        self.network.run(5.1)
        self.assertEqual(heard, [A, A])
        self.assertEqual(self.follower.state.last_line_at, 5000)


class LogTests(FollowerTestCase):
    def test_one_outage(self) -> None:
        """An outage of 10 min is two lines: a warning as it begins, and word that it is over (JB-85)."""
        self.start()
        with capturedLogs() as events:
            self.network.fault = "refused"
            self.network.links[0].cut()
            self.network.run(600, 0.5)
            self.network.fault = None
            self.network.run(16, 0.5)
        shown = [(each["log_level"], formatEvent(each)) for each in events if each["log_level"] > LogLevel.debug]
        self.assertEqual(
            shown,
            [
                (LogLevel.warn, f"No sheets feed of node {A}: the connection broke."),
                (LogLevel.info, f"The sheets feed of node {A} is live again."),
            ],
        )

    def test_first_try(self) -> None:
        """The first try at a member that was never followed may come too early, and is no outage; a second one is."""
        self.network.fault = "refused"
        with capturedLogs() as events:
            self.follower.startService()
            self.network.run(0.2, 0.1)
            first = [each for each in events if each["log_level"] > LogLevel.debug]
            self.network.run(30, 0.5)
        shown = [each["log_level"] for each in events if each["log_level"] > LogLevel.debug]
        self.assertEqual((first, shown), ([], [LogLevel.warn]))
        self.follower.stopService()

    def test_no_line_for_a_stop(self) -> None:
        """A stop is no outage, and a stream that is well writes nothing (JB-84)."""
        with capturedLogs() as events:
            self.start()
            self.put("a")
            self.network.run(60, 0.5)
            self.follower.stopService()
        self.assertEqual([formatEvent(each) for each in events], [])


class WaitTests(FollowerTestCase):
    def test_waits(self) -> None:
        """The waits are 0.5, 1, 2, 4, 8, 15, 15 … s, each a fifth more or less (JB-21)."""
        self.network.fault = "refused"
        self.start()
        self.network.run(60)
        self.assertEqual(self.tries(), [*WAITS, 15.0, 15.0][: len(self.tries())])
        self.assertEqual(set(self.jitter), {(1 - JITTER, 1 + JITTER)})

    def test_reset(self) -> None:
        """Waits are short again after a stream that was live for 10 s, and not after a shorter one (JB-21)."""
        self.start()
        for live, wait in ((1.0, 0.5), (1.0, 1.0), (PROVEN_SECONDS, 0.5), (1.0, 1.0)):
            self.network.run(live)
            broken = self.clock.seconds()
            self.network.links[0].cut()
            self.network.run(wait + 0.05)
            self.assertAlmostEqual(self.network.asked[-1][0] - broken, wait, places=1)

    def test_nudge(self) -> None:
        """Word that the origin can be reached ends a wait; it disturbs no stream (JB-21)."""
        self.network.fault = "refused"
        self.start()
        self.network.run(3)
        self.network.fault = None
        tries = len(self.network.asked)
        self.follower.nudge()
        self.network.pump()
        self.assertEqual(len(self.network.asked), tries + 1)
        self.follower.nudge()
        self.network.run(1)
        self.assertEqual((len(self.network.asked), self.states), (tries + 1, ["live"]))

    def test_nudge_while_connecting(self) -> None:
        """Word that comes during a try that fails makes the next one follow, not sooner than a second after it."""
        going: list[Deferred[Stream]] = []

        def connect(*_: str) -> Deferred[Stream]:
            going.append(Deferred())
            return going[-1]

        follower = FeedFollower(self.clock, connect, A, "sheets", PATH, CODEC, lambda: 0)
        follower.startService()
        follower.nudge()
        self.clock.advance(0.4)
        going[0].errback(NotReachedError("timeout"))
        self.clock.advance(0.5)
        self.assertEqual(len(going), 1)
        self.clock.advance(0.1)
        self.assertEqual(len(going), 2)
        going[1].errback(NotReachedError("timeout"))
        self.clock.advance(0)
        self.assertEqual(len(going), 2)
        follower.stopService()

    def test_silence(self) -> None:
        """12 s without a line end the stream (JB-22); beats keep it."""
        self.start()
        self.network.run(30)
        self.assertEqual(len(self.network.asked), 1)
        self.network.links[0].reading = False
        self.network.run(SILENCE_SECONDS - 5.1)
        self.assertEqual(self.states, ["live"])
        self.network.run(6)
        self.assertEqual((len(self.network.asked), self.states), (2, ["live", "stale", "live"]))

    def test_late_hello(self) -> None:
        """A stream that does not begin within 5 s ends (JB-20)."""
        self.network.prepare = lambda link: setattr(link, "reading", False)
        self.start()
        self.network.run(HELLO_SECONDS + WAITS[0] + 0.1)
        self.assertEqual(self.tries(), [HELLO_SECONDS + WAITS[0]])
        self.assertEqual(self.states, [])

    def test_fault_in_connect(self) -> None:
        """A mistake of ours in connecting is logged with its stack, and tried again like all else (AR-14)."""
        going: Deferred[Stream] = Deferred()
        follower = FeedFollower(self.clock, lambda *_: going, A, "sheets", PATH, CODEC, lambda: 0)
        follower.startService()
        going.errback(KeyError("x"))
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)
        follower.stopService()


class StrangeTests(FollowerTestCase):
    """What is done about an origin that sends what it should not."""

    def setUp(self) -> None:
        super().setUp()
        self.script = b""
        self.asked: list[float] = []

        def connect(*_: str) -> Deferred[Stream]:
            self.asked.append(self.clock.seconds())
            link = Link()
            going: Deferred[Stream] = Deferred()
            link.write(self.script)
            self.clock.callLater(0, link.pump)
            going.callback(link)
            return going

        now = lambda: int(self.clock.seconds() * 1000)  # noqa: E731 - one line
        self.follower = FeedFollower(self.clock, connect, A, "sheets", PATH, CODEC, now, lambda *_: 1.0)
        self.follower.found.subscribe(self.findings.append)
        self.addCleanup(self.follower.stopService)

    def play(self, script: bytes) -> None:
        self.script = script
        self.follower.startService()
        self.clock.advance(0)

    def hello(self, node: str = A, protocols: Protocols = PROTOCOLS, **_: object) -> bytes:
        hello = Hello(protocols, "0.0.0", "sheets", node, GENERATION, 0, "snapshot", 0, 5000)
        return write_line(hello) + write_line(End(0))

    def test_foreign(self) -> None:
        """Another's hello: a finding at once, and 60 s of rest that nothing cuts short (JB-23)."""
        self.play(self.hello(B))
        self.assertEqual(self.findings, [FeedFinding(A, "sheets", bad_peer=True)])
        self.follower.nudge()
        self.script = self.hello()
        self.clock.advance(SHUN_SECONDS - 1)
        self.assertEqual(self.asked, [0.0])
        self.clock.advance(1)
        self.clock.advance(0)
        self.assertEqual(self.asked, [0.0, SHUN_SECONDS])
        self.assertEqual(self.findings[1:], [FeedFinding(A, "sheets")])
        self.assertEqual(self.follower.state.state, "live")

    def test_incompatible(self) -> None:
        """No common protocol: a finding with what the origin speaks, and the same rest (JB-23, OP-58)."""
        self.play(self.hello(protocols=Protocols(2, 3)))
        self.assertEqual(self.findings, [FeedFinding(A, "sheets", incompatible=Protocols(2, 3))])
        self.clock.advance(SHUN_SECONDS - 1)
        self.assertEqual(len(self.asked), 1)
        self.script = self.hello()
        self.clock.advance(1)
        self.clock.advance(0)
        self.assertEqual(self.findings[1:], [FeedFinding(A, "sheets")])

    def test_faults(self) -> None:
        """The third fault within 10 min is a finding; it ends when there were none for so long (JB-25)."""
        self.play(self.hello() + b"?\n")
        self.clock.advance(0.5)
        self.assertEqual(self.findings, [])
        self.clock.advance(1.0)
        self.assertEqual(self.findings, [FeedFinding(A, "sheets", bad_peer=True)])
        self.script = self.hello()
        self.clock.pump([2.0, 0])
        self.assertEqual(len(self.findings), 1)
        while len(self.findings) < 2:
            self.assertLess(self.clock.seconds(), FAULT_SECONDS + 2 * SILENCE_SECONDS + 20)
            self.clock.advance(1)
        self.assertGreaterEqual(self.clock.seconds(), FAULT_SECONDS)
        self.assertEqual(self.findings[1], FeedFinding(A, "sheets"))

    def test_skew(self) -> None:
        """A clock more than 5 min from ours is a finding until it is no more; nothing else comes of it (JB-27)."""
        self.play(self.hello() + write_line(Beat(0, SKEW_MS)))
        self.assertEqual(self.findings, [])
        self.successResultOf(self.follower.stopService())
        self.play(self.hello() + write_line(Beat(0, SKEW_MS + 1)))
        self.assertEqual(self.findings, [FeedFinding(A, "sheets", skewed=True)])
        self.assertEqual(self.follower.state.state, "live")
        self.successResultOf(self.follower.stopService())
        self.play(self.hello() + write_line(Beat(0, -SKEW_MS)))
        self.assertEqual(self.findings[1:], [FeedFinding(A, "sheets")])

    def test_bye(self) -> None:
        """A bye ends the stream; it is tried again as after a break (JB-10, JB-21)."""
        self.play(self.hello() + write_line(Bye("slow")))
        self.assertEqual(self.follower.state.state, "stale")
        self.clock.advance(WAITS[0])
        self.assertEqual(self.asked, [0.0, WAITS[0]])
