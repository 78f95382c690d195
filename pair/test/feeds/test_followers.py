"""Tests of :mod:`pair.feeds.followers`, :mod:`pair.feeds.alarms` and their conditions."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.errors.book import ErrorBook
from pair.errors.registry import Registry
from pair.feeds.alarms import FeedAlarms
from pair.feeds.conditions import CONDITIONS
from pair.feeds.followers import FeedNews, Followers
from pair.feeds.following import NUDGE_SECONDS, WAITS, NotReachedError
from pair.feeds.publisher import Feed
from pair.feeds.reader import Changed, Removed, Replaced
from pair.feeds.watch import SKEW_MS, FeedFinding, FeedState
from pair.feeds.wire import PROTOCOLS, RECORD_MAX, Beat, End, Hello, Protocols, write_line
from pair.records.errors import Subject
from pair.test.feeds.links import CODEC, GENERATION, STEP, A, B, Link, Sheet

if TYPE_CHECKING:
    from pair.feeds.following import Stream

ME = B
C = "cccccccc-0000-4000-8000-000000000003"
PATH = "/v1/sheets/stream"


class FollowersTestCase(SynchronousTestCase):
    """B follows A and C.

    Attributes:
        feeds: The feeds that there are, by their nodes.
        scripts: What is said in the place of a feed.
        held: Streams that are asked for and not given; None: they are given at once.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.feeds = {node: self.new_feed(node) for node in (A, C)}
        self.scripts: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.links: dict[str, Link] = {}
        self.held: list[Deferred[Stream]] | None = None
        self.book = ErrorBook(ME, Registry(CONDITIONS), self.now)
        self.alarms = FeedAlarms(self.book, {A: "desk", C: "rack"}.__getitem__)
        self.followers = self.new_followers("sheets")
        self.news: list[FeedNews[Sheet]] = []
        self.states: list[tuple[str, str]] = []
        self.heard: list[str] = []
        self.dropped: list[str] = []
        self.incompatible: list[FeedFinding] = []
        self.followers.news.subscribe(self.news.append)
        self.followers.state_changed.subscribe(lambda state: self.states.append((state.origin, state.state)))
        self.followers.heard.subscribe(self.heard.append)
        self.followers.dropped.subscribe(self.dropped.append)
        self.followers.incompatible.subscribe(self.incompatible.append)

    def now(self) -> int:
        return int(self.clock.seconds() * 1000)

    def new_feed(self, node: str) -> Feed[Sheet]:
        feed = Feed(self.clock, "sheets", node, "0.0.0", CODEC, 100, GENERATION, self.now)
        feed.startService()
        return feed

    def new_followers(self, feed: str) -> Followers[Sheet]:
        return Followers(self.clock, self.connect, ME, feed, PATH, CODEC, self.alarms, self.now, lambda *_: 1.0)

    def connect(self, node: str, path: str) -> Deferred[Stream]:
        self.asked.append(node)
        if self.held is not None:
            self.held.append(Deferred())
            return self.held[-1]
        link = Link()
        if node in self.scripts:
            link.write(self.scripts[node])
        elif node in self.feeds:
            self.feeds[node].serve(ME, link, None)
        else:
            raise NotReachedError("refused")
        self.links[node] = link
        return succeed(link)

    def run_for(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP) + 1):
            for link in tuple(self.links.values()):
                link.pump()
            self.clock.advance(STEP)

    def start(self, *members: str) -> None:
        self.followers.members(members)
        self.followers.startService()
        self.run_for(STEP)

    def hello(self, node: str, protocols: Protocols = PROTOCOLS, feed: str = "sheets") -> bytes:
        hello = Hello(protocols, "0.0.0", feed, node, GENERATION, 0, "snapshot", 0, 5000)
        return write_line(hello) + write_line(End(0))

    def ids(self) -> list[str]:
        return sorted(each.id for each in self.book.entries())


class MemberTests(FollowersTestCase):
    def test_follows_members(self) -> None:
        """Each member but this node is followed, and what is told is told with its origin (JB-19)."""
        self.feeds[A].put("a", Sheet("a"))
        self.start(A, ME, C)
        self.assertEqual(sorted(self.asked), [A, C])
        self.feeds[C].put("a", Sheet("a", 1, C))
        self.run_for(0.1)
        self.assertEqual(
            [each for each in self.news if each.news != Replaced(False, ())],
            [
                FeedNews(A, Replaced(False, (Changed("a", Sheet("a"), None),))),
                FeedNews(C, Changed("a", Sheet("a", 1, C), None)),
            ],
        )
        self.assertEqual(self.followers.tables(), {A: {"a": Sheet("a")}, C: {"a": Sheet("a", 1, C)}})
        self.assertEqual(self.states, [(A, "live"), (C, "live")])
        self.assertEqual(set(self.heard), {A, C})
        self.assertEqual(self.followers.state(A).state, "live")
        self.assertEqual(self.followers.state(ME), FeedState(ME, "sheets"))

    def test_no_member_any_more(self) -> None:
        """A node that is a member no more is cut off, its table is gone, and nothing more is heard of it (JB-29)."""
        self.feeds[A].put("a", Sheet("a"))
        self.start(A, C)
        states = list(self.states)
        self.followers.members([C, ME])
        self.assertEqual(self.dropped, [A])
        self.assertTrue(self.links[A].aborted)
        self.assertEqual(set(self.followers.tables()), {C})
        self.assertEqual((self.states, self.followers.state(A)), (states, FeedState(A, "sheets")))
        self.run_for(20)
        self.assertEqual(self.asked.count(A), 1)

    def test_member_again(self) -> None:
        """A node that comes again begins with nothing."""
        self.feeds[A].put("a", Sheet("a"))
        self.start(A)
        self.followers.members([])
        self.followers.members([A])
        self.assertEqual(self.followers.tables(), {A: {}})
        self.run_for(0.1)
        self.assertEqual(self.news, [FeedNews(A, Replaced(False, (Changed("a", Sheet("a"), None),)))] * 2)

    def test_not_before_start(self) -> None:
        """Nobody is dialled before it runs (JB-19)."""
        self.followers.members([A])
        self.assertEqual((self.asked, self.followers.tables()), ([], {A: {}}))
        self.successResultOf(self.followers.stopService())

    def test_removed_by_news(self) -> None:
        """Whoever is told something may end a membership by it: nothing more is told."""
        self.start(A)
        self.followers.news.subscribe(lambda _: self.followers.members([]))
        self.feeds[A].put("a", Sheet("a"))
        self.feeds[A].put("b", Sheet("b"))
        self.run_for(0.1)
        self.assertEqual([each.news for each in self.news[1:]], [Changed("a", Sheet("a"), None)])
        self.assertEqual(self.dropped, [A])

    def test_stop(self) -> None:
        """The stop ends when no connection is open any more, that of a former member included; tables stay."""
        self.feeds[A].put("a", Sheet("a"))
        self.start(A, C)
        slow = {node: link.cut for node, link in self.links.items()}
        for link in self.links.values():
            link.cut = lambda: None  # type: ignore[method-assign]
        self.followers.members([A])
        stopped = self.followers.stopService()
        for cut in slow.values():
            self.assertNoResult(stopped)
            cut()
        self.successResultOf(stopped)
        self.assertEqual(self.states[-1], (A, "stale"))
        self.assertEqual(self.followers.tables(), {A: {"a": Sheet("a")}})
        self.followers.startService()
        self.run_for(0.1)
        self.assertEqual(self.followers.state(A).state, "live")
        self.followers.stopService()


class NudgeTests(FollowersTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.held = []
        self.start(A, C)
        self.fail_all()
        for wait in WAITS[:2]:
            self.run_for(wait + STEP)
            self.fail_all()
        self.run_for(NUDGE_SECONDS)
        self.asked.clear()

    def fail_all(self) -> None:
        assert self.held is not None
        for each in tuple(self.held):
            self.held.remove(each)
            each.errback(NotReachedError("refused"))

    def test_not_too_often(self) -> None:
        """Word that comes again and again has a node tried once in a second, and not more."""
        assert self.held is not None
        began = self.clock.seconds()
        for _ in range(100):
            self.followers.nudge(C)
            self.fail_all()
            self.clock.advance(0.1)
        self.assertLessEqual(self.asked.count(C), self.clock.seconds() - began + 1)

    def test_one(self) -> None:
        """A node that is back is tried at once, the others when it is their time (JB-21)."""
        self.followers.nudge(C)
        self.assertEqual(self.asked, [C])
        self.followers.nudge(ME)
        self.assertEqual(self.asked, [C])

    def test_all(self) -> None:
        """After a wake all are tried at once (JB-21)."""
        self.followers.nudge(None)
        self.assertEqual(sorted(self.asked), [A, C])

    def test_membership(self) -> None:
        """So they are when the members have changed, and only then (JB-21)."""
        self.followers.members([A, C, ME])
        self.assertEqual(self.asked, [])
        self.followers.members([A])
        self.assertEqual(self.asked, [A])


class AlarmTests(FollowersTestCase):
    def test_bad_peer(self) -> None:
        """The wrong hello is an entry, by the node's name, until there is a right one (JB-23)."""
        self.scripts[A] = self.hello(C)
        self.start(A, C)
        (entry,) = self.book.entries()
        self.assertEqual(entry.id, f"feeds:bad_peer:{A}")
        self.assertEqual((entry.severity, entry.subject), ("warning", Subject(node=A)))
        self.assertIn("desk", entry.message)
        del self.scripts[A]
        self.run_for(61)
        self.assertEqual(self.ids(), [])

    def test_two_feeds(self) -> None:
        """An entry is of the node: it ends when no feed of it gives a reason any more."""
        others = self.new_followers("others")
        self.scripts[A] = self.hello(C)
        self.start(A)
        others.members([A])
        others.startService()
        self.run_for(STEP)
        self.assertEqual([(each.id, each.count) for each in self.book.entries()], [(f"feeds:bad_peer:{A}", 1)])
        others.members([])
        self.assertEqual(self.ids(), [f"feeds:bad_peer:{A}"])
        self.followers.members([])
        self.assertEqual(self.ids(), [])
        self.followers.stopService()
        others.stopService()

    def test_clock_skew(self) -> None:
        """A clock that is far from ours is an entry, and goes with the member (JB-27, JB-29)."""
        self.scripts[A] = self.hello(A) + write_line(Beat(0, SKEW_MS * 2))
        self.start(A)
        self.assertEqual(self.ids(), [f"feeds:clock_skew:{A}"])
        self.assertEqual(self.followers.state(A).state, "live")
        self.followers.members([])
        self.assertEqual(self.ids(), [])

    def test_incompatible(self) -> None:
        """What a node speaks is told once, and again when it has changed or is ours (JB-23, OP-58)."""
        self.scripts[A] = self.hello(A, Protocols(2, 3))
        self.start(A)
        self.run_for(130)
        del self.scripts[A]
        self.run_for(61)
        told = [FeedFinding(A, "sheets", incompatible=Protocols(2, 3)), FeedFinding(A, "sheets")]
        self.assertEqual((self.incompatible, self.ids()), (told, []))

    def test_incompatible_and_gone(self) -> None:
        """One that is followed no more is nothing any more, and so not incompatible."""
        self.scripts[A] = self.hello(A, Protocols(2, 3))
        self.start(A)
        self.followers.members([])
        self.assertEqual(self.incompatible[1:], [FeedFinding(A, "sheets")])

    def test_own_records(self) -> None:
        """A record of ours that is over its limit is an entry as long as it is (JB-5)."""
        feed = self.feeds[A]
        self.alarms.watch(feed)
        for text, ids in (("x" * RECORD_MAX, ["feeds:record_too_large:sheets"]), ("", [])):
            feed.put("a", Sheet("a", text=text))
            feed.document()
            self.assertEqual(self.ids(), ids)

    def test_table(self) -> None:
        """What leaves a table is told as what it was."""
        self.feeds[A].put("a", Sheet("a"))
        self.start(A)
        self.feeds[A].remove("a")
        self.run_for(0.1)
        self.assertEqual(self.news[-1], FeedNews(A, Removed("a", Sheet("a"))))


class ConditionsTests(SynchronousTestCase):
    def test_form(self) -> None:
        """Each is of this area, declared once, ends by itself, and its text has plain names only (JB-70)."""
        self.assertEqual(
            {each.stem: each.severity for each in CONDITIONS},
            {"feeds:bad_peer": "warning", "feeds:clock_skew": "info", "feeds:record_too_large": "error"},
        )
        for each in CONDITIONS:
            self.assertEqual(each.cleared, "auto")
            names = {name for _, name, _, _ in string.Formatter().parse(each.text) if name is not None}
            self.assertLessEqual(names, {"name", "feed"})
