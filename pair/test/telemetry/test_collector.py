"""Tests of pair.telemetry.collector and polling: who is asked when, and what is told of it (DS-91 to DS-96)."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.addresses import Place
from pair.feeds.watch import FeedState
from pair.records.asking import Answer, AskFailed
from pair.records.nodes import NodeAdded, NodeChanged, NodeEntry, NodeRekeyed, NodeRemoved, PresenceChanged
from pair.records.telemetry import CompactTelemetry, Cpu, Gpu, GpuSample, Memory, NodeInfo, Sample
from pair.telemetry.collector import AT_ONCE, SAMPLES, Collector, Told
from pair.telemetry.reduce import decode

ME = "aaaaaaaa-0000-4000-8000-000000000001"
PEER = "bbbbbbbb-0000-4000-8000-000000000002"
OTHER = "cccccccc-0000-4000-8000-000000000003"
PLACE = Place("192.0.2.1", 14318)
EPOCH = 1_800_000_000_000


def entry(uuid: str | None = PEER, member: bool = True, key: str | None = None, **fields: Any) -> NodeEntry:
    relation = "member" if member else "stranger"
    given: dict[str, Any] = {"presence": "online", "relation": relation, "member": member} | fields
    return NodeEntry(key or uuid or "", uuid, "node", **given)


def info(uuid: str = PEER, busy: float | None = 50.0, age: int | None = 100, **fields: Any) -> NodeInfo:
    return NodeInfo(
        host_uuid=uuid,
        telemetry_valid=busy is not None,
        sample_age_ms=age,
        gpu_utilization_percent=busy,
        **fields,
    )


class Asked:
    """A question under way."""

    def __init__(self, node: str, at: float) -> None:
        self.node = node
        self.at = at
        self.given_up = False
        self.answer: Deferred[Answer] = Deferred(self._give_up)

    def _give_up(self, _: Deferred[Answer]) -> None:
        self.given_up = True


class CollectorCase(SynchronousTestCase):
    """A collector that runs; a test answers what it asks.

    Attributes:
        asked: Each question, the newest last.
        loads: What the scheduler was told of others.
        own_loads: What it was told of this node.
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.asked: list[Asked] = []
        self.told: list[Told] = []
        self.loads: list[CompactTelemetry] = []
        self.own_loads: list[CompactTelemetry] = []
        self.own = info(ME, 7.0, 300)
        self.jitter = 0.0
        self.collector = Collector(
            self.clock,
            ME,
            lambda: self.own,
            self.ask,
            lambda low, high: low + (high - low) * (self.jitter + 1) / 2,
            lambda: EPOCH + round(self.clock.seconds() * 1000),
        )
        self.collector.told.subscribe(lambda told: None if told.node == ME else self.told.append(told))
        self.collector.loads.subscribe(lambda it: (self.own_loads if it.uuid == ME else self.loads).append(it))
        self.collector.startService()
        self.addCleanup(self.collector.stopService)

    def ask(self, node: str) -> Deferred[Answer]:
        self.asked.append(Asked(node, self.clock.seconds()))
        return self.asked[-1].answer

    def add(self, given: NodeEntry | None = None) -> None:
        self.collector.node_event(NodeAdded(1, given or entry()))

    def change(self, new: NodeEntry, old: NodeEntry | None = None) -> None:
        self.collector.node_event(NodeChanged(2, new, old or entry()))

    def answer(self, told: NodeInfo | None = None, leaf: str | None = "sha256:aa") -> None:
        """Answer the newest question."""
        self.asked[-1].answer.callback(Answer(told or info(), PLACE, leaf))

    def miss(self) -> None:
        self.asked[-1].answer.errback(AskFailed("refused"))

    def run_until(self, at: float) -> None:
        """Let time pass in small steps, so that what is due in between happens in its time."""
        while self.clock.seconds() < at - 1e-9:
            self.clock.advance(min(0.125, at - self.clock.seconds()))

    @property
    def times(self) -> list[float]:
        """When it was asked."""
        return [each.at for each in self.asked]


class PollTests(CollectorCase):
    def test_at_once_and_again(self) -> None:
        """A new node is asked at once, and 2 s after each answer (DS-51, DS-93)."""
        self.add()
        self.assertEqual([(each.node, each.at) for each in self.asked], [(PEER, 0.0)])
        self.answer()
        self.run_until(2)
        self.answer()
        self.run_until(4)
        self.assertEqual(self.times, [0.0, 2.0, 4.0])

    def test_one_at_a_time(self) -> None:
        """While a question is under way there is no other, whatever happens; it has a time limit."""
        self.add()
        for _ in range(3):
            self.change(entry(ips=("192.0.2.9",)))
        self.run_until(2.9)
        self.assertEqual(self.times, [0.0])
        self.run_until(3)
        self.assertTrue(self.asked[0].given_up)
        self.run_until(7)
        self.assertEqual(self.times, [0.0, 7.0])
        self.run_until(8.5)
        self.assertTrue(self.asked[1].given_up)

    def test_back_off(self) -> None:
        """After failures it waits 4, 8, 16, 30 and 30 s; a success makes the wait 2 s again (DS-93)."""
        self.add()
        for wait in (4, 8, 16, 30, 30):
            at = self.clock.seconds()
            self.miss()
            self.run_until(at + wait)
            self.assertEqual(self.times[-1], at + wait)
        at = self.clock.seconds()
        self.answer()
        self.run_until(at + 2)
        self.miss()
        self.run_until(at + 6)
        self.assertEqual(self.times[-2:], [at + 2, at + 6])
        self.assertEqual(len(self.loads), 1)

    def test_strangers(self) -> None:
        """A stranger is asked every 10 s, and never sooner; one that a person has added is none (DS-93)."""
        self.add(entry(member=False))
        at = 0.0
        for wait, good in ((10, True), (10, False), (10, False), (16, False), (30, False), (30, False), (10, True)):
            self.answer() if good else self.miss()
            at += wait
            self.run_until(at)
            self.assertEqual(self.times[-1], at)
        self.change(entry(member=False, claims=("manual",)), entry(member=False))
        self.answer()
        self.run_until(at + 2)
        self.assertEqual(self.times[-1], at + 2)

    def test_jitter(self) -> None:
        """Each wait is up to a quarter of a second more or less (DS-93)."""
        self.add()
        for jitter, at in ((1.0, 2.25), (-1.0, 4.0)):
            self.jitter = jitter
            self.answer()
            self.run_until(at)
            self.assertEqual(self.times[-1], at)

    def test_strangers_apart(self) -> None:
        """However many strangers there are, and however silent, a member is asked as if there were none (DS-93)."""
        for number in range(256):
            self.add(entry(f"dddddddd-0000-4000-8000-{number:012}", member=False))
        self.assertEqual(len(self.asked), AT_ONCE)
        self.add(entry(OTHER))
        self.assertEqual(self.asked[-1].node, OTHER)

    def test_at_most_8(self) -> None:
        """So many are asked at once; who waits for a place has its whole time from then on (DS-51, DS-93)."""
        for number in range(AT_ONCE + 1):
            self.add(entry(f"dddddddd-0000-4000-8000-{number:012}"))
        self.assertEqual(len(self.asked), AT_ONCE)
        self.run_until(2.5)
        self.asked[0].answer.errback(AskFailed("refused"))
        self.assertEqual(len(self.asked), AT_ONCE + 1)
        last = self.asked[-1]
        self.run_until(5.4)
        self.assertFalse(last.given_up)
        self.run_until(5.5)
        self.assertTrue(last.given_up)

    def test_reasons_to_ask(self) -> None:
        """A node that is there again, or may be elsewhere, or is a member now, is asked at once (DS-51)."""
        self.add(entry(member=False))
        self.miss()
        was = entry(member=False)
        for at, new, asked in (
            (1.0, replace(was, presence="offline"), False),
            (10.0, was, True),
            (20.0, replace(was, ips=("192.0.2.9",)), True),
            (20.5, replace(was, name="another"), False),
            (21.0, was, False),
            (23.0, replace(was, member=True), True),
        ):
            self.run_until(at)
            self.change(new, was)
            was = new
            self.assertEqual(self.times[-1] == at, asked, at)
            if asked:
                self.miss()

    def test_reasons_without_end(self) -> None:
        """Records that name ever other addresses have a stranger asked no more often than each 10 s."""
        self.add(entry(member=False))
        self.miss()
        for number in range(100):
            self.run_until((number + 1) / 8)
            self.change(entry(member=False, ips=(f"192.0.2.{number}",)), entry(member=False))
            if not self.asked[-1].answer.called:
                self.miss()
        self.assertEqual(self.times, [0.0, 10.0])

    def test_woken(self) -> None:
        """After a sleep of this host all are asked at once (DS-27)."""
        self.add()
        self.miss()
        self.run_until(2)
        self.collector.nudge()
        self.assertEqual(self.times, [0.0, 2.0])

    def test_unknown_uuid(self) -> None:
        """Nobody is asked before it is known who is there; this node itself never is (DS-93)."""
        unknown = entry(None, False, "manual:192.0.2.1:14318")
        self.add(unknown)
        self.add(entry(ME, me=True))
        self.assertEqual(self.asked, [])
        self.collector.node_event(NodeRekeyed(3, unknown.key, PEER))
        self.change(entry(member=False, claims=("manual",)), unknown)
        self.collector.node_event(PresenceChanged(4, PEER, "offline", "online"))
        self.assertEqual(len(self.asked), 1)

    def test_removed(self) -> None:
        """Who is in the directory no more is asked no more, and what it still says is not taken (DS-52)."""
        self.add()
        self.collector.node_event(NodeRemoved(5, entry()))
        self.assertTrue(self.asked[0].given_up)
        self.run_until(60)
        self.assertEqual((len(self.asked), self.told, self.loads), (1, [], []))
        self.add()
        self.answer()
        self.collector.node_event(NodeRemoved(6, entry()))
        self.run_until(120)
        self.assertEqual(len(self.asked), 2)

    def test_removed_by_its_answer(self) -> None:
        """An answer may change so much that its node is not there any more."""
        self.collector.told.subscribe(lambda _: self.collector.node_event(NodeRemoved(5, entry())))
        self.add()
        self.answer()
        self.run_until(60)
        self.assertEqual(len(self.asked), 1)

    def test_stopped(self) -> None:
        """Stopped, it asks nobody; started again, all."""
        self.add()
        self.add(entry(OTHER))
        self.answer(info(OTHER))
        self.successResultOf(self.collector.stopService())
        self.assertTrue(self.asked[0].given_up)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.add(entry("dddddddd-0000-4000-8000-000000000004"))
        self.run_until(60)
        self.assertEqual(len(self.asked), 2)
        self.collector.startService()
        self.assertEqual([each.at for each in self.asked[2:]], [60.0] * 3)

    def test_failure_at_once(self) -> None:
        """An answer may be there, or fail, in the very turn of the question."""
        outcomes: list[Answer | Exception] = [
            AskFailed("unreachable"),
            Answer(info(), PLACE),
            ValueError("a mistake"),
        ]

        def ask(node: str) -> Deferred[Answer]:
            asked = Asked(node, self.clock.seconds())
            self.asked.append(asked)
            outcome = outcomes.pop(0)
            if isinstance(outcome, Answer):
                asked.answer.callback(outcome)
            else:
                asked.answer.errback(outcome)
            return asked.answer

        self.collector._ask = ask
        self.add()
        self.run_until(6)
        self.assertEqual(self.times, [0.0, 4.0, 6.0])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)


class FeedTests(CollectorCase):
    def live(self, state: str = "live") -> None:
        self.collector.feed_state(FeedState(PEER, "inventory", state))  # type: ignore[arg-type]

    def test_live(self) -> None:
        """While its feed is live a member is not asked; lost, it is asked within 2 s (DS-92)."""
        self.add()
        self.answer()
        self.live()
        self.run_until(60)
        self.change(entry(ips=("192.0.2.9",)))
        self.collector.nudge()
        self.assertEqual(len(self.asked), 1)
        self.live("stale")
        self.assertEqual(self.times, [0.0, 60.0])
        self.answer()
        self.live("stale")
        self.run_until(62)
        self.assertEqual(self.times, [0.0, 60.0, 62.0])

    def test_live_before(self) -> None:
        """It may be live before the directory tells of its node."""
        self.live()
        self.add()
        self.run_until(10)
        self.assertEqual(self.asked, [])

    def test_question_under_way(self) -> None:
        """A question under way is given up."""
        self.add()
        self.live()
        self.assertTrue(self.asked[0].given_up)

    def test_told(self) -> None:
        """What comes over the feed is told as what was asked for is, and is proven (DS-91)."""
        self.add()
        self.live()
        self.collector.fed(PEER, info(busy=80.0))
        self.assertEqual(self.told, [Told(PEER, info(busy=80.0), True)])
        self.assertEqual(self.loads, [CompactTelemetry(PEER, 80.0, True, 100, EPOCH, "feed")])
        self.collector.fed(OTHER, info(OTHER))
        self.collector.fed(ME, info(ME))
        self.assertEqual(len(self.loads), 1)

    def test_before_polls(self) -> None:
        """What came over the feed counts for 10 s before what is asked for (DS-95)."""
        self.add()
        self.answer(info(busy=1.0))
        self.run_until(1.9)
        self.collector.fed(PEER, info(busy=80.0))
        for at in range(2, 15, 2):
            self.run_until(at)
            self.answer(info(busy=1.0))
        sources = [(each.source, each.received_at - EPOCH) for each in self.loads]
        self.assertEqual(sources, [("poll", 0), ("feed", 1900), ("poll", 12000), ("poll", 14000)])
        self.assertEqual(len(self.told), 9)


class TellingTests(CollectorCase):
    def test_poll(self) -> None:
        """The age is that of the sample when it was asked for, and the time that took (DS-94)."""
        self.add()
        self.clock.advance(0.25)
        self.answer()
        self.assertEqual(self.loads, [CompactTelemetry(PEER, 50.0, True, 350, EPOCH + 250, "poll")])
        self.assertEqual(self.told, [Told(PEER, info(), True, PLACE, "sha256:aa")])

    def test_plain(self) -> None:
        """An answer in the clear proves nothing."""
        self.add(entry(member=False))
        self.answer(leaf=None)
        self.assertEqual(self.told, [Told(PEER, info(), False, PLACE, None)])

    def test_another(self) -> None:
        """An answer that names another node is not taken (DS-52)."""
        self.add()
        self.answer(info(OTHER))
        self.assertEqual((self.told, self.loads), ([], []))

    def test_not_too_often(self) -> None:
        """One telling in 2 s for each node: then of the newest, with its age by then (DS-94)."""
        self.add()
        self.collector.feed_state(FeedState(PEER, "inventory", "live"))
        for at, busy in ((0.0, 10.0), (0.5, 20.0), (1.5, 30.0), (3.0, 40.0), (7.0, 50.0)):
            self.run_until(at)
            self.collector.fed(PEER, info(busy=busy))
        self.assertEqual(
            [(each.utilization_percent, each.sample_age_ms, each.received_at - EPOCH) for each in self.loads],
            [(10.0, 100, 0), (30.0, 600, 1500), (40.0, 600, 3000), (50.0, 100, 7000)],
        )

    def test_no_wait_for_ever(self) -> None:
        """One that had to wait for its time does not make all that follow wait as long (DS-94)."""
        self.add()
        self.collector.feed_state(FeedState(PEER, "inventory", "live"))
        for at, busy in ((0.0, 10.0), (1.0, 20.0), (3.0, 30.0), (5.0, 40.0)):
            self.run_until(at)
            self.collector.fed(PEER, info(busy=busy))
        self.assertEqual(
            [(each.utilization_percent, each.sample_age_ms) for each in self.loads],
            [(10.0, 100), (20.0, 1100), (30.0, 100), (40.0, 100)],
        )

    def test_a_little_early(self) -> None:
        """A sample that comes up to 0.25 s early is told as it comes, without a timer (DS-94)."""
        self.add()
        self.collector.feed_state(FeedState(PEER, "inventory", "live"))
        for at, busy in ((0.0, 10.0), (1.75, 20.0), (3.5, 30.0)):
            self.run_until(at)
            self.collector.fed(PEER, info(busy=busy))
        self.assertEqual(
            [(each.utilization_percent, each.received_at - EPOCH) for each in self.loads],
            [(10.0, 0), (20.0, 1750), (30.0, 3500)],
        )

    def test_failure(self) -> None:
        """A failure tells nothing: what was told gets old by itself (DS-94)."""
        self.add()
        self.miss()
        self.run_until(3)
        self.assertEqual((self.told, self.loads), ([], []))

    def test_bad_values(self) -> None:
        """What is no number between 0 and 100 is not valid; above counts as 100 (DS-95)."""
        for value, busy, valid in (
            ("NaN", None, False),
            ("true", None, False),
            ('"50"', None, False),
            ("-1", None, False),
            ("null", None, False),
            ("140", 100.0, True),
            ("0", 0.0, True),
        ):
            body = f'"hostUuid":"{PEER}","telemetryValid":true,"sampleAgeMs":5,"gpuUtilizationPercent":{value}'
            told = decode(b'{"v":1,%s}' % body.encode())
            self.add()
            if told is None:
                self.miss()
            else:
                self.answer(told)
                load = self.loads[-1]
                self.assertEqual((load.utilization_percent, load.valid), (busy, valid), value)
            self.collector.node_event(NodeRemoved(9, entry()))

    def test_self(self) -> None:
        """This node tells of itself every 2 s, whatever it has to say (DS-93, DS-94)."""
        self.run_until(1.875)
        self.own = info(ME, None, None)
        self.run_until(4.5)
        self.assertEqual(
            self.own_loads,
            [
                CompactTelemetry(ME, 7.0, True, 300, EPOCH, "self"),
                CompactTelemetry(ME, None, False, None, EPOCH + 2000, "self"),
                CompactTelemetry(ME, None, False, None, EPOCH + 4000, "self"),
            ],
        )


class HistoryTests(CollectorCase):
    def test_samples(self) -> None:
        """What each was busy with is kept, the oldest first (DS-96)."""
        gpu = Gpu("GPU-1", 0, "nvidia", utilization_percent=62, vram_used_bytes=4)
        busy = info(cpu=Cpu(utilization_percent=12.5), memory=Memory(9, 6, 3), gpus=(gpu,))
        self.add()
        self.answer(busy)
        self.run_until(2)
        self.answer()
        self.assertEqual(
            self.collector.history(PEER, 60_000),
            (Sample(EPOCH, 12.5, 6, (GpuSample("GPU-1", 62, 4),)), Sample(EPOCH + 2000)),
        )
        self.assertEqual(self.collector.history(PEER, 1000), (Sample(EPOCH + 2000),))
        self.assertEqual(len(self.collector.history(ME, 60_000)), 2)
        self.assertEqual(self.collector.history(OTHER, 60_000), ())

    def test_bounded(self) -> None:
        """So many are kept, and with their node they are dropped (DS-96)."""
        self.add()
        self.collector.feed_state(FeedState(PEER, "inventory", "live"))
        for _ in range(SAMPLES + 5):
            self.collector.fed(PEER, info())
            self.clock.advance(2)
        self.assertEqual(len(self.collector.history(PEER, 10_000_000)), SAMPLES)
        self.assertEqual(len(self.collector.history(PEER, 900_000)), 449)
        self.collector.node_event(NodeRemoved(9, entry()))
        self.assertEqual(self.collector.history(PEER, 10_000_000), ())
