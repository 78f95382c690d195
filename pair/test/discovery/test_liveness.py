"""Who is alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.trial.unittest import SynchronousTestCase

from pair.discovery.liveness import Check, Liveness, Lost, Turned

if TYPE_CHECKING:
    from collections.abc import Collection

    from pair.discovery.liveness import Action
    from pair.records.nodes import EvidenceKind

SUSPECT = Turned("a", "online", "suspect")
BACK = Turned("a", "suspect", "online")
OFFLINE = Turned("a", "suspect", "offline")


class LivenessCase(SynchronousTestCase):
    """Nodes ``a``, ``b``, …, of which ``b`` is heard in each scan, unless nobody is."""

    def setUp(self) -> None:
        self.liveness = Liveness()
        self.now = 0.0
        self.checks = 0
        self.answer: EvidenceKind | None = None
        self.did: list[Action] = []

    def meet(self, key: str = "a", *, announced: bool = True, lasting: bool = False) -> None:
        self.take(self.liveness.keep(key, announced, lasting, self.now))

    def take(self, actions: Collection[Action]) -> None:
        """Note what is to be done, and answer checks of ``a`` at once; others always answer."""
        for action in actions:
            self.did.append(action)
            if isinstance(action, Check):
                answer = self.answer if action.node == "a" else "probe_ni"
                self.take(self.liveness.checked(action.node, answer, self.now))

    def pass_time(self, seconds: float) -> None:
        """Let time pass between scans; what is due on the way is done."""
        end = self.now + seconds
        while (due := self.liveness.next_due) is not None and due <= end:
            self.now = max(self.now, due)
            self.take(self.liveness.due(self.now))
        self.now = end

    def scan(self, times: int = 1, *heard: str) -> None:
        """So many scans, each of them 5 s after what was before; ``heard`` are heard just before it."""
        for _ in range(times):
            self.pass_time(5.0)
            for each in heard:
                self.take(self.liveness.heard(each, self.now))
            self.take(self.liveness.scan(self.now).actions)

    @property
    def of_a(self) -> list[Action]:
        """What was to be done for ``a``, and forget it."""
        did, self.did = [each for each in self.did if each.node == "a"], []
        return did


class MissTests(LivenessCase):
    """Misses and rounds (DS-55 to DS-57)."""

    def test_two_misses(self) -> None:
        """Up to two misses have no effect, and a sighting wipes them out (DS-55)."""
        self.meet()
        for _ in range(5):
            self.scan(2, "b")
            self.scan(1, "a", "b")
        self.assertEqual(self.of_a, [])

    def test_third_miss(self) -> None:
        """The third puts it in doubt, and it is checked in each scan until it answers (DS-56)."""
        self.meet()
        self.scan(1, "a")
        answers: tuple[EvidenceKind, ...] = ("probe_ni", "probe_em")
        for answer in answers:
            self.answer = None
            self.scan(3, "b")
            self.assertEqual(self.of_a, [SUSPECT, Check("a")])
            self.answer = answer
            self.scan(1, "b")
            self.assertEqual(self.of_a, [Check("a"), BACK])
            self.assertEqual(self.liveness.presence("a"), "online")

    def test_stranger_gone(self) -> None:
        """After two silent rounds a node that only multicast knew is known no more (DS-57)."""
        self.meet()
        self.scan(4, "b")
        self.scan(1, "b")
        self.assertEqual(self.of_a, [SUSPECT, Check("a"), Check("a"), Lost("a")])
        self.assertIsNone(self.liveness.sign("a"))
        self.assertEqual(self.now, 25.0)

    def test_member_offline(self) -> None:
        """A member or manual node loses its multicast claim, and is offline (DS-41, DS-57)."""
        self.meet(lasting=True)
        self.take(self.liveness.note("a", "inbound", self.now))
        self.scan(4, "b")
        self.assertEqual(self.of_a[-2:], [Lost("a"), OFFLINE])
        self.assertEqual(self.liveness.presence("a"), "offline")

    def test_no_multicast(self) -> None:
        """A member that multicast never knew is missed when its evidence is too old, like any other."""
        self.meet(announced=False, lasting=True)
        self.take(self.liveness.note("a", "telemetry", self.now))
        self.assertEqual(self.of_a, [Check("a"), Turned("a", "offline", "online")])
        self.scan(3, "b")
        self.assertEqual(self.of_a, [SUSPECT, Check("a")])
        self.scan(1, "b")
        self.assertEqual(self.of_a, [Check("a"), OFFLINE])

    def test_evidence(self) -> None:
        """Each kind of evidence wipes out misses, and keeps a node as long as it counts, and no longer (section 9)."""
        windows: dict[EvidenceKind, int] = {"feed": 12, "inference": 60, "telemetry": 10, "inbound": 10}
        for kind, seconds in windows.items():
            self.setUp()
            self.meet()
            self.take(self.liveness.note("a", kind, self.now))
            charged = max(4, (seconds + 4) // 5)
            self.scan(charged - 1, "b")
            self.assertEqual(self.of_a, [], kind)
            self.scan(1, "b")
            self.assertEqual(self.of_a, [SUSPECT, Check("a")], kind)

    def test_inference(self) -> None:
        """Bytes of an answer 40 s ago keep a node that nothing else tells of (test 10)."""
        self.meet()
        self.take(self.liveness.note("a", "inference", self.now))
        self.scan(8, "b")
        self.assertEqual(self.liveness.presence("a"), "online")
        self.take(self.liveness.doubt("a"))
        self.scan(1, "b")
        self.assertEqual(self.of_a, [SUSPECT, BACK])

    def test_answer_on_the_way(self) -> None:
        """A check that is silent counts for nothing if the node showed itself meanwhile (DS-57)."""
        self.meet()
        self.scan(3, "b")
        self.liveness.note("a", "feed", self.now)
        self.liveness.doubt("a")
        self.did.clear()
        actions = self.liveness.scan(self.now + 1).actions
        self.assertEqual(actions, (Check("a"),))
        self.liveness.note("a", "inbound", self.now + 2)
        self.liveness.doubt("a")
        self.assertEqual(self.liveness.checked("a", None, self.now + 3), [])
        self.assertEqual(self.liveness.scan(self.now + 20).actions, (Check("a"),))
        self.assertEqual(self.liveness.checked("a", None, self.now + 22), [])

    def test_one_check_at_a_time(self) -> None:
        """A node that is being checked is not checked again (DS-56)."""
        self.meet()
        for _ in range(4):
            self.now += 5
            actions = self.liveness.scan(self.now).actions
        self.assertEqual(actions, (SUSPECT, Check("a")))
        self.assertEqual(self.liveness.scan(self.now + 5).actions, ())

    def test_feed_closed(self) -> None:
        """When its last feed closes a node is in doubt at once, and checked in the next scans."""
        self.meet(lasting=True)
        self.take(self.liveness.note("a", "feed", self.now))
        self.did.clear()
        self.take(self.liveness.doubt("a"))
        self.scan(2, "b")
        self.assertEqual(self.of_a, [SUSPECT, Check("a"), Check("a"), Lost("a"), OFFLINE])
        self.assertEqual(self.now, 10.0)

    def test_evidence_before_the_doubt(self) -> None:
        """What a node showed just before its last feed closed does not keep it from being checked."""
        self.meet(lasting=True)
        kinds: tuple[EvidenceKind, ...] = ("telemetry", "inbound", "feed")
        for kind in kinds:
            self.take(self.liveness.note("a", kind, self.now))
        self.did.clear()
        self.take(self.liveness.doubt("a"))
        self.scan(2, "b")
        self.assertEqual(self.of_a, [SUSPECT, Check("a"), Check("a"), Lost("a"), OFFLINE])

    def test_record_of_a_dead_member(self) -> None:
        """A record, which anybody can send, has a member in doubt checked; it does not show that it is there."""
        self.meet(lasting=True)
        self.take(self.liveness.note("a", "feed", self.now))
        self.did.clear()
        self.pass_time(3.0)
        self.take(self.liveness.doubt("a"))
        self.take(self.liveness.heard("a", self.now))
        self.assertEqual(self.of_a, [SUSPECT, Check("a")])
        self.take(self.liveness.heard("a", self.now))
        self.assertEqual(self.of_a, [], "not sooner than 2 s after the last")
        self.scan(1, "a", "b")
        self.assertEqual(self.of_a[:3], [Check("a"), Lost("a"), OFFLINE])
        self.assertEqual(self.liveness.presence("a"), "offline")

    def test_record_without_proof(self) -> None:
        """A member that proves nothing for 30 s is checked, though its record is heard in each scan (DS-55)."""
        self.meet(lasting=True)
        self.take(self.liveness.note("a", "inbound", self.now))
        self.did.clear()
        self.scan(7, "a", "b")
        self.assertEqual(self.of_a, [])
        self.answer = "probe_ni"
        self.scan(1, "a", "b")
        self.assertEqual(self.of_a, [SUSPECT, Check("a"), BACK])
        self.scan(5, "a", "b")
        self.assertEqual(self.of_a, [])

    def test_port_that_accepts(self) -> None:
        """A stranger of which nothing is heard but that a port accepts is not asked for ever (DS-56)."""
        self.meet()
        self.answer = "probe_em"
        self.scan(23, "b")
        self.assertEqual(self.liveness.presence("a"), "online")
        self.scan(5, "b")
        self.assertEqual(self.of_a[-1], Lost("a"))
        self.assertIsNone(self.liveness.sign("a"))


class ScanTests(LivenessCase):
    """Questions, and scans that hear nobody (DS-54, DS-59)."""

    def asks(self, *heard: str) -> bool:
        self.now += 5
        for each in heard:
            self.liveness.heard(each, self.now - 4.9)
        return self.liveness.scan(self.now).ask

    def test_nobody_known(self) -> None:
        """As long as no node is known, each scan asks."""
        self.assertTrue(all(self.asks() for _ in range(10)))

    def test_quiet(self) -> None:
        """While all are heard nothing is asked, but every 30 s (DS-54)."""
        self.meet("a")
        self.meet("b")
        self.assertTrue(self.asks("a"))
        self.assertEqual([self.asks("a", "b") for _ in range(12)], [False] * 5 + [True] + [False] * 5 + [True])
        self.assertTrue(self.asks("a"))

    def test_lost_everyone(self) -> None:
        """Six scans in a row that hear nobody charge nobody; the seventh does (DS-59)."""
        for each in "abcd":
            self.meet(each)
        self.scan(1, *"abc")
        self.did.clear()
        self.scan(6)
        self.scan(2)
        self.assertEqual(self.did, [])
        self.scan(1)
        self.assertEqual(len([each for each in self.did if isinstance(each, Turned)]), 4 + 3)

    def test_one_of_two(self) -> None:
        """Of one node alone it is not known whether it or this host is cut off: it is missed."""
        self.meet()
        self.scan(4)
        self.assertEqual(self.of_a, [SUSPECT, Check("a")])

    def test_after_a_change(self) -> None:
        """After a wake or a change of interfaces two scans charge nothing (DS-59)."""
        for shaken in (self.liveness.moved, self.liveness.woken):
            self.meet()
            self.scan(1, "a")
            shaken(self.now)
            self.scan(4, "b")
            self.assertEqual(self.of_a, [])
            self.scan(1, "b")
            self.assertEqual(self.of_a, [SUSPECT, Check("a")])
            self.take(self.liveness.heard("a", self.now))
            self.did.clear()

    def test_wake(self) -> None:
        """A wake wipes out the misses before it (DS-27)."""
        self.meet()
        self.scan(2, "b")
        self.liveness.woken(self.now)
        self.scan(4, "b")
        self.assertEqual(self.of_a, [])


class GoodbyeTests(LivenessCase):
    """Goodbyes, true and false (DS-61)."""

    def goodbye(self) -> None:
        self.take(self.liveness.goodbye("a", self.now))

    def test_true(self) -> None:
        """Both rounds silent: gone, the second of them 2 s after the first."""
        self.meet()
        self.goodbye()
        self.assertEqual(self.of_a, [SUSPECT, Check("a")])
        self.pass_time(1.9)
        self.assertEqual(self.of_a, [])
        self.pass_time(0.1)
        self.assertEqual(self.of_a, [Check("a"), Lost("a")])

    def test_slow_checks(self) -> None:
        """With checks that take their full 2 s it is gone in less than 5 s."""
        self.meet()
        self.liveness.goodbye("a", 1.0)
        self.assertEqual(self.liveness.checked("a", None, 3.0), [])
        self.assertEqual(self.liveness.due(3.0), [Check("a")])
        self.assertEqual(self.liveness.scan(4.0).actions, ())
        self.assertEqual(self.liveness.checked("a", None, 5.0), [Lost("a")])

    def test_forged(self) -> None:
        """Any answer: it stays, and was a candidate for requests all the time."""
        self.answer = "probe_ni"
        self.meet()
        self.goodbye()
        self.assertEqual(self.of_a, [SUSPECT, Check("a"), BACK])
        self.pass_time(5.0)
        self.assertEqual(self.of_a, [])

    def test_overtaken_request(self) -> None:
        """What it asked of us before it went may be told after its goodbye, and belies nothing."""
        self.meet()
        self.goodbye()
        self.take(self.liveness.note("a", "inbound", self.now))
        self.pass_time(2.0)
        self.assertEqual(self.of_a, [SUSPECT, Check("a"), Check("a"), Lost("a")])

    def test_older_evidence(self) -> None:
        """What was seen before a goodbye does not belie it; what comes after it does."""
        self.meet()
        self.take(self.liveness.note("a", "inference", self.now))
        self.goodbye()
        self.pass_time(2.0)
        self.assertEqual(self.of_a[-1], Lost("a"))
        for sign in ("note", "heard"):
            self.meet()
            self.pass_time(3.0)
            self.goodbye()
            self.pass_time(1.0)
            alive = (
                self.liveness.note("a", "inference", self.now)
                if sign == "note"
                else self.liveness.heard("a", self.now)
            )
            self.assertEqual(alive, [BACK])
            self.pass_time(5.0)
            self.assertEqual(self.of_a[-1:], [Check("a")])
            self.liveness.keep("a", False, False, self.now)

    def test_flood(self) -> None:
        """A flood of them is checked once in 2 s."""
        self.answer = "probe_ni"
        self.meet()
        for _ in range(1000):
            self.goodbye()
            self.now += 0.01
        self.assertEqual(self.of_a.count(Check("a")), 5)

    def test_member(self) -> None:
        """A member that says goodbye is offline, and only its record is gone."""
        self.meet(lasting=True)
        self.take(self.liveness.note("a", "inbound", self.now))
        self.goodbye()
        self.pass_time(2.0)
        self.assertEqual(self.of_a[-2:], [Lost("a"), OFFLINE])

    def test_offline(self) -> None:
        """Of one that is offline only the record goes."""
        self.meet(lasting=True)
        self.goodbye()
        self.assertEqual(self.of_a, [Check("a"), Lost("a")])


class OfflineTests(LivenessCase):
    """Waits (DS-62)."""

    def checked_at(self, seconds: float) -> list[float]:
        """When it is checked from now on."""
        start, found = self.now, []
        while (due := self.liveness.next_due) is not None and due <= start + seconds:
            self.now = due
            self.take(self.liveness.due(due))
            found.append(due - start)
        self.now = start + seconds
        return found

    def test_waits(self) -> None:
        """At once, then after 2, 4, 8, 16 and each time 30 s."""
        self.meet(announced=False, lasting=True)
        self.assertEqual(self.did, [Check("a")])
        self.assertEqual(self.checked_at(95), [2, 6, 14, 30, 60, 90])

    def test_reset(self) -> None:
        """A sighting, a wake, a change of interfaces and a new address begin them anew, with a check at once."""
        self.meet(announced=False, lasting=True)
        for reset in (self.liveness.moved, self.liveness.woken, self.heard, self.found):
            self.checked_at(105)
            self.did.clear()
            self.take(reset(self.now))
            self.assertEqual(self.did, [Check("a")])
            self.assertEqual(self.checked_at(20), [2, 6, 14])

    def heard(self, now: float) -> list[Action]:
        return self.liveness.heard("a", now)

    def found(self, now: float) -> list[Action]:
        return self.liveness.found("a", now)

    def test_sighting_proves_nothing(self) -> None:
        """A record does not bring an offline node back, and a flood of them checks it once in 2 s."""
        self.meet(announced=False, lasting=True)
        self.pass_time(100.0)
        self.did.clear()
        for _ in range(1000):
            self.take(self.liveness.heard("a", self.now))
            self.pass_time(0.01)
        self.assertEqual(set(self.did), {Check("a")})
        self.assertLessEqual(len(self.did), 6)
        self.assertEqual(self.liveness.presence("a"), "offline")

    def test_back(self) -> None:
        """An answer, a feed or a request of its own brings it back (D17)."""
        kinds: tuple[EvidenceKind, ...] = ("feed", "inference", "telemetry", "inbound")
        for kind in kinds:
            self.setUp()
            self.meet(announced=False, lasting=True)
            self.take(self.liveness.note("a", kind, self.now))
            self.assertEqual(self.of_a[-1], Turned("a", "offline", "online"))
            self.assertIsNone(self.liveness.next_due)

    def test_blocked(self) -> None:
        """A member without multicast whose port is blocked for a minute is back within one wait (test 13)."""
        self.answer = "probe_ni"
        self.meet(announced=False, lasting=True)
        self.assertEqual(self.of_a[-1], Turned("a", "offline", "online"))
        self.answer = None
        self.scan(12)
        self.assertEqual(self.liveness.presence("a"), "offline")
        self.answer = "probe_ni"
        self.pass_time(30.0)
        self.assertEqual(self.liveness.presence("a"), "online")

    def test_stale_record(self) -> None:
        """The record of an offline node goes when it is heard no more."""
        self.meet(lasting=True)
        self.scan(3, "b")
        self.assertIn(Lost("a"), self.of_a)


class KeepTests(LivenessCase):
    """Which nodes there are."""

    def test_forget(self) -> None:
        """Without a claim it is known no more, and what came of a check of it means nothing."""
        self.meet(lasting=True)
        self.liveness.keep("a", False, False, 1.0)
        self.assertEqual(self.liveness.checked("a", "probe_ni", 1.0), [])
        self.assertEqual(self.liveness.note("a", "feed", 1.0), [])
        self.assertEqual(self.liveness.presence("a"), "offline")

    def test_member_no_more(self) -> None:
        """An offline member that was removed, and that multicast tells of, is a stranger like others."""
        self.meet(lasting=True)
        self.take(self.liveness.keep("a", True, False, self.now))
        self.assertEqual(self.of_a[-1], Turned("a", "offline", "online"))
        self.scan(4, "b")
        self.scan(1, "b")
        self.assertIn(Lost("a"), self.of_a)

    def test_rekey(self) -> None:
        """A manual node keeps its presence under its UUID (DS-74)."""
        actions = self.liveness.keep("manual:rack:1", False, True, 0.0)
        self.assertEqual(actions, [Check("manual:rack:1")])
        self.liveness.rekey("manual:rack:1", "a")
        self.assertEqual(self.liveness.checked("a", "probe_ni", 1.0), [Turned("a", "offline", "online")])
        self.assertEqual(self.liveness.presence("manual:rack:1"), "offline")

    def test_sign(self) -> None:
        """The last sign of life, and the last that proved who it was (DS-63)."""
        self.meet()
        self.liveness.note("a", "telemetry", 3.0)
        self.liveness.heard("a", 4.0)
        sign = self.liveness.sign("a")
        assert sign is not None
        self.assertEqual((sign.kind, sign.at, sign.proven_at), ("mdns", 4.0, 3.0))
