"""Tests of :mod:`pair.proxy.claim` (EN-42 to EN-50, PX-94, PX-95)."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.proxy.claim import Claim
from pair.proxy.listeners import Listeners, open_listeners
from pair.test.fakes import error_book
from pair.test.proxy.network import Ports

if TYPE_CHECKING:
    from pair.records.endpoints import BypassReason, Endpoint

WANTED, FIRST, SECOND = 11434, 14318, 14319
BYPASSED, TAKEN = "proxy:port_bypassed:ollama", "proxy:port_taken:ollama"


class ClaimTests(SynchronousTestCase):
    """The claim of the Ollama facade on its port, with two ports that may stand in."""

    def setUp(self) -> None:
        """A host on which nothing listens."""
        self.clock = Clock()
        self.ports = Ports()
        self.errors = error_book("n", lambda: int(self.clock.seconds() * 1000))
        self.reason: BypassReason = "foreign"
        self.seen: list[Endpoint] = []
        self.claim = self.make()

    def make(self, **values: Any) -> Claim:
        """A claim; ``values`` in place of what is usual."""
        usual = {"wanted": WANTED, "chosen": False, "takes_over": True}
        claim = Claim(
            self.clock,
            "ollama",
            bind=self.bind,
            stand_ins=lambda: iter((FIRST, SECOND)),
            holder=lambda port: self.reason,
            errors=self.errors,
            **(usual | values),
        )
        claim.changed.subscribe(self.seen.append)
        return claim

    def bind(self, port: int) -> Listeners:
        """All of one address."""
        return open_listeners(self.ports.listen, Factory(), ("0.0.0.0",), port)

    def assert_at(self, *ports: int) -> None:
        """We listen on just these."""
        self.assertEqual(sorted(port for port, _ in self.ports.numbers), sorted(ports))
        self.assertEqual(self.claim.ports, frozenset(ports))

    def entries(self) -> list[str]:
        """Of the book, by id."""
        return [each.id for each in self.errors.entries()]

    def test_free(self) -> None:
        """A port that is free is taken within the call."""
        self.assertEqual(self.claim.endpoint.state, "pending")
        self.claim.begin()
        self.assert_at(WANTED)
        endpoint = self.claim.endpoint
        self.assertEqual((endpoint.state, endpoint.port, endpoint.url), ("bound", WANTED, "http://127.0.0.1:11434"))
        self.assertEqual((self.entries(), self.seen), ([], [endpoint]))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_any_port(self) -> None:
        """Port 0 is what the kernel chooses."""
        self.claim = self.make(wanted=0)
        self.claim.begin()
        self.assertEqual((self.claim.endpoint.state, self.claim.endpoint.port), ("bound", Ports.CHOICE))

    def test_held(self) -> None:
        """E02: the first free port stands in, the endpoint says who is in the way, and an entry stands."""
        self.ports.hold(WANTED, FIRST)
        self.claim.begin()
        self.assert_at(SECOND)
        endpoint = self.claim.endpoint
        self.assertEqual((endpoint.state, endpoint.port, endpoint.reason), ("bypassed", SECOND, "foreign"))
        self.assertIn("another program", endpoint.detail or "")
        self.assertIn(str(SECOND), endpoint.detail or "")
        (entry,) = self.errors.entries()
        self.assertEqual((entry.id, entry.message, entry.subject.port), (BYPASSED, endpoint.detail, WANTED))

    def test_held_by_the_engine(self) -> None:
        """Who holds it is told."""
        self.reason = "engine"
        self.ports.hold(WANTED)
        self.claim.begin()
        self.assertEqual(self.claim.endpoint.reason, "engine")
        self.assertIn("the engine itself", self.claim.endpoint.detail or "")

    def test_denied(self) -> None:
        """E04: a port that the system reserves is stood in for as well, and the text says so."""
        self.ports.troubles[WANTED] = errno.EACCES
        self.claim.begin()
        self.assert_at(FIRST)
        self.assertEqual((self.claim.endpoint.state, self.entries()), ("bypassed", [BYPASSED]))
        self.assertIn("reserved range", self.errors.entries()[0].message)

    def test_retried_quietly(self) -> None:
        """While it is held it is tried every 5 s; nothing is told twice."""
        self.ports.hold(WANTED)
        self.claim.begin()
        self.clock.pump([5.0] * 10)
        self.assert_at(FIRST)
        self.assertEqual((len(self.seen), self.errors.entries()[0].count), (1, 1))

    def test_freed(self) -> None:
        """EN-50: within 5 s of its end it is ours; the stand-in accepts 60 s more."""
        self.ports.hold(WANTED)
        self.claim.begin()
        self.clock.advance(4)
        self.ports.free(WANTED)
        self.clock.advance(1)
        self.assert_at(WANTED, FIRST)
        self.assertEqual((self.claim.endpoint.state, self.claim.endpoint.port), ("bound", WANTED))
        self.assertEqual(self.entries(), [])
        self.clock.advance(59.9)
        self.assert_at(WANTED, FIRST)
        self.clock.advance(0.1)
        self.assert_at(WANTED)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_chosen_and_held(self) -> None:
        """EN-46: a port that a person chose is never stood in for: an entry, and it is tried again."""
        self.claim = self.make(chosen=True)
        self.ports.hold(WANTED)
        self.claim.begin()
        self.assert_at()
        self.assertEqual((self.claim.endpoint.state, self.claim.endpoint.url), ("failed", None))
        self.assertEqual(self.entries(), [TAKEN])
        self.assertIn("chosen in the settings", self.errors.entries()[0].message)
        self.ports.free(WANTED)
        self.clock.advance(5)
        self.assert_at(WANTED)
        self.assertEqual((self.claim.endpoint.state, self.entries()), ("bound", []))

    def test_nothing_free(self) -> None:
        """If no port stands in either, it has failed until one does."""
        self.ports.hold(WANTED, FIRST, SECOND)
        self.claim.begin()
        self.assertEqual((self.claim.endpoint.state, self.entries()), ("failed", [TAKEN]))
        self.ports.free(SECOND)
        self.clock.advance(5)
        self.assert_at(SECOND)
        self.assertEqual((self.claim.endpoint.state, self.entries()), ("bypassed", [BYPASSED]))

    def test_left_alone_by_the_setting(self) -> None:
        """EN-47: with ``takeover = "never"`` the port is not even tried, which is no trouble to report."""
        self.claim = self.make(takes_over=False)
        self.claim.begin()
        self.assert_at(FIRST)
        self.assertEqual((self.claim.endpoint.state, self.claim.endpoint.reason), ("bypassed", "setting"))
        self.clock.pump([5.0] * 5)
        self.assert_at(FIRST)
        self.assertEqual((self.entries(), len(self.seen)), ([], 1))

    def test_end_in_every_state(self) -> None:
        """The end closes all sockets and leaves no timer, wherever the claim is."""
        for holds, frees, chosen in [
            ((), (), False),
            ((WANTED,), (), False),
            ((WANTED,), (WANTED,), False),
            ((WANTED,), (), True),
            ((WANTED, FIRST, SECOND), (), False),
        ]:
            self.setUp()
            self.claim = self.make(chosen=chosen)
            self.ports.hold(*holds)
            self.claim.begin()
            for each in frees:
                self.ports.free(each)
                self.clock.advance(5)
            self.successResultOf(self.claim.end())
            self.assert_at()
            self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_end_before_the_beginning(self) -> None:
        """There is nothing to close, and it may end twice."""
        self.successResultOf(self.claim.end())
        self.claim.begin()
        self.successResultOf(self.claim.end())
        self.successResultOf(self.claim.end())
        self.assert_at()

    def test_subscriber_that_ends_it(self) -> None:
        """News of the state may lead to the end of the claim, from within."""
        self.claim.changed.subscribe(lambda endpoint: self.ended.append(self.claim.end()))
        self.ended: list[object] = []
        self.claim.begin()
        self.assertEqual(len(self.ended), 1)
        self.assert_at()
