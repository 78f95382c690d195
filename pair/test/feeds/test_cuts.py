"""Feeds as a whole: a publisher, a follower, and a connection that breaks anywhere (JB-2 to JB-8, JB-24)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.feeds.follower import FeedFollower
from pair.feeds.reader import Changed, Removed, Replaced
from pair.test.feeds.links import CODEC, NEXT_GENERATION, A, B, Link, Network, Sheet, new_feed

if TYPE_CHECKING:
    from pair.feeds.reader import News


class Journal:
    """The table of a follower, made of nothing but its news; and each record that it was told of, in order."""

    def __init__(self) -> None:
        self.table: dict[str, Sheet] = {}
        self.told: list[Sheet | str] = []

    def note(self, news: News[Sheet]) -> None:
        for each in news.changes if isinstance(news, Replaced) else (news,):
            self._note(each)

    def _note(self, news: Changed[Sheet] | Removed[Sheet]) -> None:
        assert news.before == self.table.get(news.key), "a change is told of what was there"
        if isinstance(news, Changed):
            assert news.record != news.before, "a change is one"
            self.table[news.key] = news.record
            self.told.append(news.record)
        else:
            del self.table[news.key]
            self.told.append(news.key)


class Pair:
    """The feed of A, and B which follows it by connections that break after so many octets each."""

    def __init__(self, cuts: tuple[int, ...] = (), bites: int | None = None) -> None:
        self.clock = Clock()
        self.network = Network(self.clock, new_feed(self.clock))
        self.journal = Journal()
        self.cuts = list(cuts)

        def prepare(link: Link) -> None:
            link.cut_after = self.cuts.pop(0) if self.cuts else None
            link.bites = bites
            self.link = link

        self.network.prepare = prepare
        now = lambda: int(self.clock.seconds() * 1000)  # noqa: E731 - one line
        connect = self.network.connector(B)
        self.follower = FeedFollower(self.clock, connect, A, "sheets", "/s", CODEC, now, lambda *_: 1.0)
        self.follower.news.subscribe(self.journal.note)
        self.follower.startService()
        self.network.pump()

    def heal(self) -> None:
        """Nothing breaks or stalls any more."""
        self.cuts.clear()
        self.link.cut_after = None
        self.link.reading = True

    def settle(self) -> None:
        """Let as much time pass as any wait takes."""
        self.network.run(20, 0.5)

    def end(self) -> None:
        self.follower.stopService()
        self.network.feed.stopService()


def live_through(pair: Pair) -> list[Sheet | str]:
    """A life of A with all kinds of lines; each record is another, so none can be left out unseen.

    Returns:
        What there is to be told of it, in order.
    """
    told: list[Sheet | str] = []
    for n in range(4):
        sheet = Sheet(f"é{n}", n, text='"\\\n')
        pair.network.feed.put(sheet.id, sheet)
        told.append(sheet)
        pair.network.run(0.1)
    pair.network.run(5.0, 0.5)
    pair.network.feed.remove("é1")
    told.append("é1")
    pair.network.run(0.1)
    pair.network.feed.put("é0", Sheet("é0", 9))
    told.append(Sheet("é0", 9))
    pair.settle()
    return told


class CutTests(SynchronousTestCase):
    def run_life(self, cuts: tuple[int, ...] = (), bites: int | None = None) -> tuple[Pair, list[Sheet | str]]:
        pair = Pair(cuts, bites)
        self.addCleanup(pair.end)
        return pair, live_through(pair)

    def check(self, pair: Pair, told: list[Sheet | str]) -> None:
        """All was told once, in order, and the tables are equal.

        A record that was removed, or changed, while nobody was connected may
        have been told as that only.
        """
        journal = pair.journal
        self.assertEqual(journal.table, {"é0": Sheet("é0", 9), "é2": told[2], "é3": told[3]})
        self.assertEqual(dict(pair.follower.records), journal.table)
        self.assertEqual(pair.follower.state.state, "live")
        places = [told.index(each) for each in journal.told]
        self.assertEqual(places, sorted(set(places)))
        missed = {each.id for each in told if isinstance(each, Sheet) and each not in journal.told}
        self.assertLessEqual(missed, {"é0", "é1"})

    def test_cut_at_every_byte(self) -> None:
        """Cut at whatever byte of the stream, a follower resumes without a lost, doubled or reordered record."""
        whole, told = self.run_life()
        self.check(whole, told)
        self.assertEqual(whole.journal.told, told)
        size = whole.link.carried
        self.assertGreater(size, 700)
        for cut in range(size + 1):
            pair, told = self.run_life((cut,))
            self.check(pair, told)

    def test_cut_again_and_again(self) -> None:
        """It gets on also where each connection breaks, as long as each brings one line more."""
        for cut in range(330, 420):
            pair, told = self.run_life((cut,) * 4, bites=7)
            self.check(pair, told)

    def test_cut_before_the_end_of_a_snapshot(self) -> None:
        """A snapshot that breaks off at whatever byte leaves the table that was there, and the next one heals it."""
        for cut in range(0, 700, 3):
            pair = Pair((10_000, cut))
            self.addCleanup(pair.end)
            for key in "abc":
                pair.network.feed.put(key, Sheet(key))
            pair.network.run(1)
            before = dict(pair.follower.records)
            pair.network.feed.stopService()
            pair.network.feed = new_feed(pair.clock, NEXT_GENERATION)
            for key in "bcd":
                pair.network.feed.put(key, Sheet(key, 1))
            pair.network.run(0.6)
            after = {key: Sheet(key, 1) for key in "bcd"}
            self.assertIn(dict(pair.follower.records), (before, after))
            pair.settle()
            self.assertEqual(pair.journal.table, after)


_STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("abcdef"), st.integers(0, 3)),
    st.tuples(st.just("remove"), st.sampled_from("abcdef"), st.just(0)),
    st.tuples(st.just("wait"), st.just(""), st.integers(1, 40)),
    st.tuples(st.just("cut"), st.just(""), st.just(0)),
    st.tuples(st.just("stall"), st.just(""), st.just(0)),
    st.tuples(st.just("read"), st.just(""), st.just(0)),
    st.tuples(st.just("restart"), st.just(""), st.just(0)),
    st.tuples(st.just("flood"), st.sampled_from("abcdef"), st.just(0)),
)


class LifeTests(SynchronousTestCase):
    @given(
        st.lists(_STEPS, max_size=25),
        st.lists(st.integers(0, 900), max_size=4),
        st.sampled_from([None, 1, 50]),
    )
    def test_any_life(self, steps: list[tuple[str, str, int]], cuts: list[int], bites: int | None) -> None:
        """Any mix of put, removal, cut at any byte, stall, restart and overflow of the ring ends with equal tables,
        and each change that is told is one of what was there (JB-2 to JB-8, JB-16, JB-17, JB-24).
        """
        pair = Pair(tuple(cuts), bites)
        self.addCleanup(pair.end)
        model: dict[str, Sheet] = {}
        generations = 0
        for step, key, n in steps:
            feed = pair.network.feed
            if step == "put":
                model[key] = Sheet(key, n)
                feed.put(key, model[key])
            elif step == "remove":
                model.pop(key, None)
                feed.remove(key)
            elif step == "wait":
                pair.network.run(n / 20)
            elif step == "cut":
                pair.link.cut()
            elif step == "stall":
                pair.link.reading = False
            elif step == "read":
                pair.link.reading = True
            elif step == "flood":
                for each in range(5000):
                    feed.put(key, Sheet(key, each))
                model[key] = Sheet(key, 4999)
            else:
                feed.stopService()
                generations += 1
                pair.network.feed = new_feed(pair.clock, f"{generations:016x}")
                model.clear()
        pair.heal()
        pair.network.run(80, 0.5)
        self.assertEqual(pair.journal.table, model)
        self.assertEqual(dict(pair.follower.records), model)
        self.assertEqual(pair.follower.state.state, "live")
        pair.end()
