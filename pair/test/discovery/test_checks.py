"""Rounds of checks."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.discovery.checks import AT_ONCE, Aim, Checked, Checks
from pair.records.asking import Answer
from pair.test.discovery.directing import A, B, FakeAsking, at, info


class ChecksTests(SynchronousTestCase):
    """Checks of nodes that are at their usual addresses (DS-56)."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.asking = FakeAsking(self.clock)
        self.aims: dict[str, Aim] = {}
        self.hands: dict[str, Deferred[bool]] = {}
        self.answers: list[Answer] = []
        self.silent: list[str] = []
        self.strangers: set[str] = set()
        self.checks = Checks(
            self.clock,
            self.asking,
            lambda key: self.aims[key] if key in self.aims else Aim(key, False, (at(key),), (at(key, 14322),)),
            lambda key: self.hands.get(key, succeed(False)),
            lambda answer, aim: self.answers.append(answer),
            self.silent.append,
            lambda key: key in self.strangers,
        )

    def check(self, key: str = A) -> Checked:
        """How a check ends that takes its time."""
        check = self.checks.ask(key)
        for _ in range(20):
            self.clock.advance(0.1)
        return self.successResultOf(check)

    def test_first_answer(self) -> None:
        """Node-info is asked first, and nothing after it answers."""
        self.asking.there[at(A)] = info(A)
        self.assertEqual(self.check(), Checked(A, "probe_ni"))
        self.assertEqual([each.place for each in self.answers], [at(A)])
        self.assertEqual((self.asking.knocked, self.silent), ([], []))

    def test_knock(self) -> None:
        """A connection to the inventory's port is an answer too, of a member with its proof only."""
        self.asking.open.add(at(A, 14322))
        self.assertEqual(self.check(), Checked(A, "probe_em"))
        self.assertEqual(self.silent, [A])
        self.aims[A] = Aim(A, True, (at(A),), (at(A, 14322),))
        self.assertEqual(self.check(), Checked(A, None))
        self.asking.proves[at(A, 14322)] = A
        self.assertEqual(self.check(), Checked(A, "probe_em"))

    def test_somebody_else(self) -> None:
        """Where another answers to be there, a connection is no answer; of a member its proof still is."""
        self.asking.there[at(A)] = info(B)
        self.asking.open.add(at(A, 14322))
        self.assertEqual(self.check(), Checked(A, None))
        self.aims[A] = Aim(A, True, (at(A),), (at(A, 14322),))
        self.asking.proves[at(A, 14322)] = A
        self.assertEqual(self.check(), Checked(A, "probe_em"))

    def test_by_hand(self) -> None:
        """What answers at an address that a person gave is an answer; where there is no other, none is asked."""
        self.aims["manual:x"] = Aim()
        self.hands["manual:x"] = succeed(True)
        self.assertEqual(self.check("manual:x"), Checked("manual:x", "probe_ni"))
        self.assertEqual(self.asking.asked, [])

    def test_at_once(self) -> None:
        """Eight nodes are checked at once, the others wait; for waiting nobody loses time."""
        self.asking.held = []
        keys = [f"{A[:-2]}{number:02x}" for number in range(16, 16 + AT_ONCE + 3)]
        checks = [self.checks.ask(key) for key in keys]
        self.assertEqual(len(self.asking.held), AT_ONCE)
        self.clock.advance(60)
        for number in range(len(keys)):
            self.asking.held[number].callback(Answer(info(keys[number]), at(keys[number])))
        self.assertEqual([self.successResultOf(each).answer for each in checks], ["probe_ni"] * len(keys))

    def test_strangers_apart(self) -> None:
        """However many strangers wait for their turn, a member does not wait for them."""
        self.asking.held = []
        self.strangers = {f"{A[:-2]}{number:02x}" for number in range(16, 16 + 200)}
        for key in sorted(self.strangers):
            self.checks.ask(key)
        self.assertEqual(len(self.asking.held), AT_ONCE)
        member = self.checks.ask(B)
        self.asking.held[AT_ONCE].callback(Answer(info(B), at(B)))
        self.assertEqual(self.successResultOf(member), Checked(B, "probe_ni"))

    def test_one_for_each(self) -> None:
        """Whoever asks for a node that is being checked gets the same answer."""
        self.asking.held = []
        first, second = self.checks.ask(A), self.checks.ask(A)
        (held,) = self.asking.held
        held.callback(Answer(info(A), at(A)))
        self.assertEqual(self.successResultOf(first), self.successResultOf(second))

    def test_rekeyed(self) -> None:
        """A check ends by the key that its node has by then."""
        hand: Deferred[bool] = Deferred()
        self.aims["manual:x"] = Aim()
        self.hands["manual:x"] = hand
        check = self.checks.ask("manual:x")
        self.checks.rekey("manual:x", A)
        again = self.checks.ask(A)
        hand.callback(True)
        self.assertEqual(self.successResultOf(check), Checked(A, "probe_ni"))
        self.assertEqual(self.successResultOf(again), Checked(A, "probe_ni"))
        self.assertEqual(self.asking.asked, [])

    def test_rekeyed_onto_another(self) -> None:
        """Two checks of what turns out to be one node both end."""
        self.asking.held = []
        hand: Deferred[bool] = Deferred()
        self.aims["manual:x"] = Aim()
        self.hands["manual:x"] = hand
        typed, heard = self.checks.ask("manual:x"), self.checks.ask(A)
        self.checks.rekey("manual:x", A)
        hand.callback(True)
        self.assertEqual(self.successResultOf(typed).key, A)
        self.assertNoResult(heard)
        self.asking.held[0].callback(Answer(info(A), at(A)))
        self.assertEqual(self.successResultOf(heard), Checked(A, "probe_ni"))

    def test_closed(self) -> None:
        """At the end all checks are cancelled, those that wait for their turn too, and nobody is left waiting."""
        self.asking.held = []
        checks = [self.checks.ask(f"{A[:-2]}{number:02x}") for number in range(16, 16 + AT_ONCE + 3)]
        self.checks.close()
        for each in checks:
            self.failureResultOf(each, CancelledError)
        self.assertEqual([each.called for each in self.asking.held], [True] * AT_ONCE)

    def test_fault(self) -> None:
        """A fault in a check is logged, and its node is checked again next time."""
        self.asking.held = []
        check = self.checks.ask(A)
        self.asking.held[0].errback(ZeroDivisionError())
        self.assertEqual(self.successResultOf(check), Checked(A, None))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.asking.held = None
        self.asking.there[at(A)] = info(A)
        self.assertEqual(self.check(), Checked(A, "probe_ni"))
