"""Candidates are raced: one begins after the other, and the first that is the right one wins (DS-37)."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.protocols.dial import AT_ONCE, STAGGER_SECONDS, RaceLostError, race


class MissedError(Exception):
    pass


class RaceTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.begun: dict[str, Deferred[str]] = {}
        self.given_up: list[str] = []

    def attempt(self, name: str) -> Deferred[str]:
        self.begun[name] = Deferred(lambda _: self.given_up.append(name))
        return self.begun[name]

    def race(self, names: str) -> Deferred[str]:
        return race(self.clock, names, self.attempt, lambda error: isinstance(error, MissedError))

    def assert_over(self) -> None:
        self.assertEqual(self.clock.getDelayedCalls(), [])
        begun = set(self.begun)
        self.clock.advance(60)
        self.assertEqual(set(self.begun), begun)

    def test_first_at_once(self) -> None:
        """One that succeeds before the next begins is alone."""
        racing = self.race("abc")
        self.assertEqual(list(self.begun), ["a"])
        self.begun["a"].callback("won")
        self.assertEqual(self.successResultOf(racing), "won")
        self.assertEqual((list(self.begun), self.given_up), (["a"], []))
        self.assert_over()

    def test_staggered(self) -> None:
        """The next begins 300 ms after the one before it, and at most four are under way."""
        self.race("abcdef")
        for count in range(1, AT_ONCE):
            self.assertEqual(len(self.begun), count)
            self.clock.advance(STAGGER_SECONDS)
        self.clock.advance(10)
        self.assertEqual(list(self.begun), list("abcd"))
        self.begun["b"].errback(MissedError())
        self.assertEqual(list(self.begun), list("abcde"))
        self.clock.advance(10)
        self.assertEqual(list(self.begun), list("abcde"))

    def test_winner(self) -> None:
        """The first that succeeds wins, whichever began first; the others are given up."""
        racing = self.race("abcd")
        self.clock.advance(STAGGER_SECONDS)
        self.clock.advance(STAGGER_SECONDS)
        self.begun["b"].callback("b")
        self.assertEqual(self.successResultOf(racing), "b")
        self.assertEqual(self.given_up, ["a", "c"])
        self.assert_over()

    def test_miss_begins_the_next(self) -> None:
        """After one that fails the next does not wait, and the one after that has its full interval."""
        racing = self.race("abc")
        self.clock.advance(0.2)
        self.begun["a"].errback(MissedError())
        self.assertEqual(list(self.begun), ["a", "b"])
        self.clock.advance(0.2)
        self.assertEqual(list(self.begun), ["a", "b"])
        self.clock.advance(0.1)
        self.assertEqual(list(self.begun), ["a", "b", "c"])
        self.begun["c"].callback("c")
        self.assertEqual(self.successResultOf(racing), "c")

    def test_lost(self) -> None:
        """Where all fail, all their failures are told."""
        racing, misses = self.race("ab"), [MissedError(), MissedError()]
        self.begun["a"].errback(misses[0])
        self.assertNoResult(racing)
        self.begun["b"].errback(misses[1])
        self.assertEqual(self.failureResultOf(racing, RaceLostError).value.misses, tuple(misses))
        self.assert_over()

    def test_nobody(self) -> None:
        """A race of none is lost."""
        self.assertEqual(self.failureResultOf(self.race(""), RaceLostError).value.misses, ())

    def test_at_once(self) -> None:
        """So it is with those that succeed or fail in the very turn in which they begin."""
        outcomes = {"a": fail(MissedError()), "b": fail(MissedError()), "c": succeed("c"), "d": Deferred[str]()}
        racing = race(self.clock, "abcd", lambda name: outcomes[name], lambda error: isinstance(error, MissedError))
        self.assertEqual(self.successResultOf(racing), "c")
        self.assert_over()
        racing = race(self.clock, "ab", lambda _: fail(MissedError()), lambda error: isinstance(error, MissedError))
        self.assertEqual(len(self.failureResultOf(racing, RaceLostError).value.misses), 2)
        self.assert_over()

    def test_other_failure(self) -> None:
        """A failure that is not of one candidate alone ends it."""
        racing = self.race("abc")
        self.clock.advance(STAGGER_SECONDS)
        self.begun["b"].errback(ValueError())
        self.failureResultOf(racing, ValueError)
        self.assertEqual(self.given_up, ["a"])
        self.assert_over()

    def test_cancelled(self) -> None:
        """Given up, nothing of it goes on."""
        racing = self.race("abc")
        self.clock.advance(STAGGER_SECONDS)
        racing.cancel()
        self.failureResultOf(racing, CancelledError)
        self.assertEqual(self.given_up, ["a", "b"])
        self.assert_over()
