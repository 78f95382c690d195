"""Tests of the error entries of all nodes, and of what is told of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.errors.book import AGE_MS, LIMIT, ErrorBook
from pair.errors.conditions import CONDITIONS
from pair.errors.publishing import EXPIRE_EVERY, ErrorPublisher
from pair.errors.registry import Registry
from pair.errors.view import JOIN_SECONDS, KEPT_SECONDS, ErrorView, NoSuchEntry
from pair.feeds.codec import StructCodec
from pair.feeds.publisher import Feed
from pair.feeds.reader import Changed, FeedReader, Removed, Replaced
from pair.records.errors import Condition, ServiceError
from pair.test.feeds.links import GENERATION, A, B, Link

if TYPE_CHECKING:
    from pair.feeds.reader import News
    from pair.records.errors import ErrorChanged, Severity

C = "cccccccc-0000-4000-8000-000000000003"
OWN = (
    Condition("engines:crashed:<engine>", "error", "retry", "auto", "{engine} crashed."),
    Condition("routing:policy:<name>", "warning", "dismiss", "dismiss", "Bad policy."),
    Condition("supervision:stall", "warning", "none", "age", "Stalled."),
)
CODEC = StructCodec(ServiceError, "id", "node")


def entry(n: int, severity: Severity = "warning", at: int = 5, first_at: int = 1, node: str = B) -> ServiceError:
    """Entry ``n`` of another node."""
    id = f"engines:exposed:{n}"
    return ServiceError(id, node, severity, "Exposed.", "none", "auto", first_at, at, count=1, seq=1)


def put(record: ServiceError) -> Changed[ServiceError]:
    return Changed(record.id, record, None)


def gone(record: ServiceError) -> Removed[ServiceError]:
    return Removed(record.id, record)


class ErrorTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.book = ErrorBook(A, Registry((*CONDITIONS, *OWN)), self.now)

    def now(self) -> int:
        return int(self.clock.seconds() * 1000)


class ViewTests(ErrorTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.view = ErrorView(self.clock, A, self.book)
        self.view.startService()
        self.changes: list[ErrorChanged] = []
        self.view.changed.subscribe(self.changes.append)

    def tell(self, origin: str, news: News[ServiceError]) -> None:
        """The feed of another node brings something, and nothing for a while."""
        self.view.news(origin, news)
        self.clock.advance(JOIN_SECONDS)

    def shown(self) -> list[tuple[str, str]]:
        """Node and the last word of the id of each."""
        return [(each.node[0], each.id.rpartition(":")[2]) for each in self.view.entries()]

    def told(self) -> list[tuple[str, bool]]:
        """What was told since the last call: which, and whether it is shown."""
        told = [(each.id.rpartition(":")[2], each.entry is not None) for each in self.changes]
        self.changes.clear()
        return told

    def test_order(self) -> None:
        """The worst first, then the newest, then by id, whoever's they are (JB-79)."""
        self.clock.advance(0.005)
        self.book.raise_entry("routing:policy:p", name="p")
        self.book.raise_entry("engines:crashed:e", engine="e")
        self.tell(B, Replaced(False, (put(entry(2)), put(entry(1)), put(entry(3, "info", 9)))))
        self.tell(C, put(entry(4, "error", 7, node=C)))
        self.assertEqual(self.shown(), [("c", "4"), ("a", "e"), ("b", "1"), ("b", "2"), ("a", "p"), ("b", "3")])
        self.assertEqual(len(self.told()), 6)

    def test_own(self) -> None:
        """The own book is shown as it is: raised, repeated, cleared, dismissed (JB-72, JB-74)."""
        self.book.raise_entry("engines:crashed:e", engine="e")
        self.book.raise_entry("engines:crashed:e", engine="e")
        self.assertEqual([each.count for each in self.view.entries()], [2])
        self.book.dismiss("engines:crashed:e")
        self.assertEqual(self.shown(), [])
        self.book.raise_entry("engines:crashed:e", engine="e")
        self.book.clear("engines:crashed:e")
        self.assertEqual(self.told(), [("e", True), ("e", True), ("e", False)])
        self.book.raise_entry("engines:crashed:e", engine="e")
        self.assertEqual(self.shown(), [("a", "e")])

    def test_own_before_it_began(self) -> None:
        """What was raised before it began is shown."""
        self.view.stopService()
        self.book.raise_entry("engines:crashed:e", engine="e")
        self.view.startService()
        self.assertEqual(self.told(), [("e", True)])

    def test_own_that_age(self) -> None:
        """An event is shown for a day (JB-74)."""
        self.book.raise_entry("supervision:stall")
        self.clock.advance(AGE_MS / 1000 + 1)
        self.assertEqual(self.shown(), [])
        self.assertEqual(self.told(), [("stall", True), ("stall", False)])

    def test_taken_back(self) -> None:
        """What another node clears is gone (JB-75)."""
        self.tell(B, put(entry(1)))
        self.tell(B, put(entry(1)))
        self.tell(B, gone(entry(1)))
        self.tell(B, gone(entry(2)))
        self.assertEqual((self.shown(), self.told()), ([], [("1", True), ("1", False)]))

    def test_hidden(self) -> None:
        """A hidden entry is not shown on this node, however often it is raised, until it was cleared (JB-73)."""
        self.tell(B, put(entry(1)))
        self.tell(C, put(entry(1, node=C)))
        self.view.hide(B, entry(1).id)
        self.assertEqual(self.shown(), [("c", "1")])
        self.tell(B, put(entry(1, at=6)))
        self.assertEqual(self.shown(), [("c", "1")])
        self.assertRaises(NoSuchEntry, self.view.hide, B, entry(1).id)
        self.tell(B, put(entry(1, at=7, first_at=7)))
        self.assertEqual(self.shown(), [("b", "1"), ("c", "1")])
        self.view.hide(B, entry(1).id)
        self.tell(B, gone(entry(1)))
        self.tell(B, put(entry(1, at=7, first_at=7)))
        self.assertEqual(self.shown(), [("b", "1"), ("c", "1")])

    def test_own_hidden(self) -> None:
        """An own one can be hidden too, and goes on holding; nobody can hide what is not shown."""
        self.book.raise_entry("engines:crashed:e", engine="e")
        self.view.hide(A, "engines:crashed:e")
        self.assertEqual((self.shown(), len(self.book.entries())), ([], 1))
        self.assertRaises(NoSuchEntry, self.view.hide, A, "engines:crashed:f")
        self.assertRaises(NoSuchEntry, self.view.hide, C, "engines:crashed:e")

    def test_counted(self) -> None:
        """What holds and is out of sight is counted: dismissed, or hidden, of a node that is there (JB-74)."""
        self.book.raise_entry("engines:crashed:e", engine="e")
        self.view.dismiss("engines:crashed:e")
        self.tell(B, put(entry(1)))
        self.view.hide(B, entry(1).id)
        self.assertEqual((self.view.hidden, self.shown()), (2, []))
        self.tell(B, put(entry(1, at=7, first_at=7)))
        self.assertEqual((self.view.hidden, self.shown()), (1, [("b", "1")]))
        self.view.hide(B, entry(1).id)
        self.view.presence(B, "online", "offline")
        self.clock.advance(KEPT_SECONDS)
        self.assertEqual(self.view.hidden, 1)
        self.book.clear("engines:crashed:e")
        self.view.forget(B)
        self.assertEqual(self.view.hidden, 0)

    def test_offline(self) -> None:
        """Entries of a node that is offline are stale, and leave after 10 min; online again, they are back (JB-78)."""
        self.tell(B, put(entry(1)))
        self.view.presence(B, "online", "suspect")
        self.assertFalse(self.view.entries()[0].stale)
        self.view.presence(B, "suspect", "offline")
        self.clock.advance(KEPT_SECONDS - 1)
        self.assertTrue(self.view.entries()[0].stale)
        self.clock.advance(1)
        self.assertEqual(self.shown(), [])
        self.view.presence(B, "offline", "online")
        self.assertFalse(self.view.entries()[0].stale)
        self.assertEqual(self.told(), [("1", True), ("1", True), ("1", False), ("1", True)])
        self.view.presence(B, "online", "offline")
        self.view.presence(B, "offline", "online")
        self.clock.advance(KEPT_SECONDS)
        self.assertEqual(self.shown(), [("b", "1")])
        self.view.presence(C, "online", "offline")

    def test_removed_member(self) -> None:
        """Those of a node that is no member any more leave at once (JB-78)."""
        self.tell(B, put(entry(1)))
        self.view.presence(B, "online", "offline")
        self.view.forget(B)
        self.view.forget(B)
        self.assertEqual(self.shown(), [])
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.told()[-1], ("1", False))

    def test_stopped(self) -> None:
        """A stop waits for nothing."""
        self.tell(B, put(entry(1)))
        self.view.presence(B, "online", "offline")
        self.view.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_five_hundred(self) -> None:
        """Of the 500 entries of one node the worst 200 are shown; others come up as these are cleared (JB-77)."""
        many = [entry(n, ("error", "info")[n % 2], at=1000 - n) for n in range(500)]
        self.tell(B, Replaced(False, tuple(map(put, many))))
        shown = self.view.entries()
        self.assertEqual((len(shown), {each.severity for each in shown}), (LIMIT, {"error"}))
        self.assertEqual(len(self.told()), LIMIT)
        self.tell(B, gone(many[0]))
        self.assertEqual((len(self.view.entries()), self.told()), (LIMIT, [("0", False), ("400", True)]))

    def test_joined(self) -> None:
        """However many news come at once, they are looked at once; a stop or a removal waits for none of it."""
        for n in range(100):
            self.view.news(B, put(entry(0, at=n)))
        self.assertEqual(self.told(), [])
        self.clock.advance(JOIN_SECONDS)
        self.assertEqual((self.told(), self.view.entries()[0].at), ([("0", True)], 99))
        self.view.news(B, put(entry(0, at=100)))
        self.view.forget(B)
        self.view.news(C, put(entry(0, node=C)))
        self.view.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["put", "gone", "hide", "offline", "online", "wait", "forget"]), st.integers(0, 3)
            ),
            max_size=30,
        )
    )
    def test_any_order(self, steps: list[tuple[str, int]]) -> None:
        """Whatever happens, the changes tell all that is shown."""
        view = ErrorView(self.clock, A, self.book)
        told: dict[tuple[str, str], ServiceError] = {}

        def changed(change: ErrorChanged) -> None:
            key = (change.node, change.id)
            self.assertNotEqual(told.pop(key, None), change.entry)
            if change.entry is not None:
                told[key] = change.entry

        view.changed.subscribe(changed)
        for at, (what, n) in enumerate(steps):
            if what == "put":
                view.news(B, put(entry(n, at=at, first_at=at // 5)))
                self.clock.advance(JOIN_SECONDS)
            elif what == "gone":
                view.news(B, gone(entry(n)))
                self.clock.advance(JOIN_SECONDS)
            elif what == "hide" and (B, entry(n).id) in told:
                view.hide(B, entry(n).id)
            elif what in ("offline", "online"):
                view.presence(B, "suspect", "offline" if what == "offline" else "online")
            elif what == "wait":
                self.clock.advance(KEPT_SECONDS / 2)
            elif what == "forget":
                view.forget(B)
            self.assertCountEqual(view.entries(), told.values())
        view.stopService()


class PublishingTests(ErrorTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.book.raise_entry("engines:crashed:before", engine="before")
        self.feed = Feed(self.clock, "errors", A, "0", CODEC, 1000, GENERATION, self.now)
        self.publisher = ErrorPublisher(self.clock, self.book, self.feed)
        self.feed.startService()
        self.publisher.startService()
        self.reader = FeedReader("errors", A, CODEC)
        link = self.link = Link()
        link.deliver(self)
        self.feed.serve(B, link, None)

    def received(self, data: bytes) -> None:
        self.reader.read(data)

    def lost(self) -> None:
        """Never."""

    def read(self) -> set[str]:
        """What a follower has, by the last words of the ids."""
        self.clock.advance(0.1)
        self.clock.advance(0.1)
        self.link.pump()
        return {id.rpartition(":")[2] for id in self.reader.records}

    def test_as_shown(self) -> None:
        """What the book shows is published, and no more: from before, raised, cleared, dismissed (JB-73 to JB-75)."""
        self.assertEqual(self.read(), {"before"})
        self.book.raise_entry("engines:crashed:e", engine="e")
        self.book.raise_entry("routing:policy:p", name="p")
        self.assertEqual(self.read(), {"before", "e", "p"})
        self.book.clear("engines:crashed:before")
        self.book.dismiss("routing:policy:p")
        self.book.dismiss("engines:crashed:e")
        self.book.raise_entry("engines:crashed:e", engine="e")
        self.assertEqual(self.read(), set())

    def test_age(self) -> None:
        """An event leaves after a day, though nobody looks (JB-74)."""
        self.book.raise_entry("supervision:stall")
        self.assertEqual(self.read(), {"before", "stall"})
        self.clock.pump([EXPIRE_EVERY] * round(AGE_MS / 1000 / EXPIRE_EVERY + 1))
        self.assertEqual(self.read(), {"before"})

    def test_stopped(self) -> None:
        """A stop publishes no more, and leaves no timer of its own."""
        self.successResultOf(self.publisher.stopService())
        self.book.raise_entry("engines:crashed:e", engine="e")
        self.assertEqual(self.read(), {"before"})
        self.successResultOf(self.feed.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])
