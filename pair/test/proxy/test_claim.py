"""Tests of :mod:`pair.proxy.claim` (EN-42 to EN-50, PX-94 to PX-97)."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from pair.engines.ports import Wish
from pair.hostports import Holder
from pair.proxy.claim import Claim, Host
from pair.proxy.facade import port_entries
from pair.proxy.listeners import Listeners, PortDenied, PortTaken, open_listeners
from pair.test.fakes import error_book
from pair.test.proxy.network import Ports

if TYPE_CHECKING:
    from pair.records.endpoints import Endpoint

WANTED, FIRST, SECOND, CHOSEN = 11434, 11435, 11436, 11500
BYPASSED, TAKEN = "proxy:port_bypassed:ollama", "proxy:port_taken:ollama"


class ClaimCase(SynchronousTestCase):
    """The claim of the Ollama facade on its port."""

    def setUp(self) -> None:
        """A host on which nothing listens, and where a dial finds us."""
        self.clock = Clock()
        self.ports = Ports()
        self.errors = error_book("n", lambda: int(self.clock.seconds() * 1000))
        self.engines: set[int] = set()
        self.reserved: set[int] = {WANTED}
        self.reaches: Deferred[bool] | bool = True
        self.dials: list[tuple[float, int]] = []
        self.program: Deferred[Holder | None] = succeed(None)
        self.asked: list[float] = []
        self.seen: list[Endpoint] = []
        self.claim = self.make()

    def make(self, port: int = WANTED, **values: Any) -> Claim:
        """A claim; ``values`` are of its wish."""
        claim = Claim(
            self.clock,
            "ollama",
            "ollama facade",
            self.wish(port, **values),
            self.bind,
            Host(self.engines.__contains__, self.program_at, lambda: self.reserved, self.reaches_us),
            self.errors,
            port_entries("ollama"),
        )
        claim.changed.subscribe(self.seen.append)
        return claim

    def wish(self, port: int = WANTED, **values: Any) -> Wish:
        """What the facade wishes."""
        return Wish(port, base=FIRST, **values)

    def program_at(self, port: int) -> Deferred[Holder | None]:
        """Who holds a port."""
        self.asked.append(self.clock.seconds())
        return self.program

    def reaches_us(self, listeners: Listeners) -> Deferred[bool]:
        """Dial."""
        self.dials.append((self.clock.seconds(), listeners.port))
        return succeed(self.reaches) if isinstance(self.reaches, bool) else self.reaches

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

    def end(self) -> None:
        """It ends, and nothing of it is left."""
        self.successResultOf(self.claim.end())
        self.assert_at()
        self.assertEqual((self.clock.getDelayedCalls(), self.entries()), ([], []))


class ClaimTests(ClaimCase):
    """Between its begin and its end."""

    def test_free(self) -> None:
        """A port that is free is taken within the call."""
        self.assertEqual(self.claim.endpoint.state, "pending")
        self.claim.begin()
        self.assert_at(WANTED)
        endpoint = self.claim.endpoint
        self.assertEqual((endpoint.state, endpoint.port, endpoint.url), ("bound", WANTED, "http://127.0.0.1:11434"))
        self.assertEqual((self.entries(), self.seen), ([], [endpoint]))
        self.assertIsNone(endpoint.detail)

    def test_any_port(self) -> None:
        """Port 0 is what the kernel chooses."""
        self.claim = self.make(0, chosen=True)
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
        self.engines.add(WANTED)
        self.ports.hold(WANTED)
        self.claim.begin()
        self.assertEqual(self.claim.endpoint.reason, "engine")
        self.assertIn("the engine itself", self.claim.endpoint.detail or "")
        self.assertEqual(self.asked, [])

    def test_denied(self) -> None:
        """E04: a port that the system reserves is stood in for as well, and the text says so."""
        self.ports.troubles[WANTED] = errno.EACCES
        self.claim.begin()
        self.assert_at(FIRST)
        self.assertEqual((self.claim.endpoint.state, self.entries()), ("bypassed", [BYPASSED]))
        self.assertIn("reserved range", self.errors.entries()[0].message)

    def test_logged(self) -> None:
        """Where it listens is a line of the log, and so is that and why it listens nowhere."""
        self.claim = self.make(CHOSEN, chosen=True)
        self.ports.hold(CHOSEN)
        with capturedLogs() as events:
            self.claim.begin()
            self.ports.free(CHOSEN)
            self.clock.advance(5)
        lines = [formatEvent(each) for each in events]
        self.assertIn(f"has no port. Port {CHOSEN} is held by another program", lines[0] or "")
        self.assertTrue((lines[1] or "").endswith(f"is bound, on port {CHOSEN}."))
        self.end()

    def test_foreign_address(self) -> None:
        """An address that this host lacks is told as that, whatever the port: no other one would do."""
        self.ports.troubles["0.0.0.0"] = errno.EADDRNOTAVAIL
        self.claim.begin()
        self.assert_at()
        self.assertEqual(self.claim.endpoint.state, "failed")
        self.assertEqual(self.claim.endpoint.detail, "0.0.0.0 is not an address of this machine (node.bind).")

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
        self.end()

    def test_chosen_and_held(self) -> None:
        """EN-46: a port that a person chose is never stood in for: an entry, and it is tried again."""
        self.claim = self.make(chosen=True)
        self.ports.hold(WANTED)
        self.claim.begin()
        self.assert_at()
        self.assertEqual((self.claim.endpoint.state, self.claim.endpoint.url), ("failed", None))
        self.assertEqual(self.entries(), [TAKEN])
        self.assertIn("was chosen", self.errors.entries()[0].message)
        self.ports.free(WANTED)
        self.clock.advance(5)
        self.assert_at(WANTED)
        self.assertEqual((self.claim.endpoint.state, self.entries()), ("bound", []))

    def test_nothing_free(self) -> None:
        """If no port stands in either, it has failed until one does."""
        self.ports.hold(WANTED, *range(FIRST, FIRST + 64))
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
            ((WANTED, *range(FIRST, FIRST + 64)), (), False),
        ]:
            self.setUp()
            self.claim = self.make(chosen=chosen)
            self.ports.hold(*holds)
            self.claim.begin()
            for each in frees:
                self.ports.free(each)
                self.clock.advance(5)
            self.end()

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
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_reserved_port(self) -> None:
        """EN-43: a reserved port stands in for none."""
        self.reserved.add(FIRST)
        self.ports.hold(WANTED)
        self.claim.begin()
        self.assert_at(SECOND)

    def test_look(self) -> None:
        """EN-50: when something changed on this host the port is tried at once, and then 5 s later as ever."""
        self.claim.look()
        self.ports.hold(WANTED)
        self.claim.begin()
        self.clock.advance(3)
        self.claim.look()
        self.assertEqual(self.claim.endpoint.state, "bypassed")
        self.ports.free(WANTED)
        self.clock.advance(4.9)
        self.assertEqual(self.claim.endpoint.state, "bypassed")
        self.claim.look()
        self.assertEqual(self.claim.endpoint.state, "bound")
        self.claim.look()
        self.assert_at(WANTED, FIRST)
        self.end()

    def test_reason_changes(self) -> None:
        """What was foreign may turn out to be an engine of ours, and the other way round."""
        self.ports.hold(WANTED)
        self.claim.begin()
        self.engines.add(WANTED)
        self.claim.look()
        self.assertEqual((self.claim.endpoint.reason, self.claim.endpoint.port), ("engine", FIRST))
        self.engines.clear()
        self.clock.advance(5)
        self.assertEqual((self.claim.endpoint.reason, self.claim.endpoint.port), ("foreign", FIRST))


class HolderTests(ClaimCase):
    """EN-49, EN-52: who is in the way is named."""

    def setUp(self) -> None:
        """Another program has the port."""
        super().setUp()
        self.program = Deferred()
        self.ports.hold(WANTED)
        self.claim.begin()

    def told(self, holder: Holder | None) -> str:
        """What is shown once that is known."""
        self.program.callback(holder)
        return self.claim.endpoint.detail or ""

    def test_named(self) -> None:
        """Name and pid stand in the detail and in the entry as soon as they are known."""
        self.assertIn("another program", self.claim.endpoint.detail or "")
        detail = self.told(Holder(812, "sshd", "root"))
        self.assertIn("held by sshd (pid 812, user root); once that stops, PAIR takes it", detail)
        self.assertIn("PAIR listens on port 11435", detail)
        self.assertEqual(self.errors.entries()[0].message, detail)
        self.assertEqual([each.state for each in self.seen], ["bypassed", "bypassed"])

    def test_not_known(self) -> None:
        """Where the system does not tell, nothing changes."""
        self.assertIn("another program", self.told(None))
        self.assertEqual(len(self.seen), 1)

    def test_asked_once_a_minute(self) -> None:
        """A look at all sockets of the host is not for every try; a name stays until there is another."""
        self.told(Holder(812, "sshd", "root"))
        self.program = succeed(Holder(900, "nginx", "www"))
        self.clock.pump([5.0] * 11)
        self.assertIn("sshd", self.claim.endpoint.detail or "")
        self.clock.advance(5)
        self.assertIn("nginx", self.claim.endpoint.detail or "")
        self.assertEqual(self.asked, [0.0, 60.0])

    def test_chosen(self) -> None:
        """Also for a port that a person chose."""
        self.program = Deferred()
        self.claim = self.make(chosen=True)
        self.claim.begin()
        self.assertIn("sshd", self.told(Holder(812, "sshd", "root")))
        self.assertEqual((self.claim.endpoint.state, self.entries()), ("failed", [TAKEN]))

    def test_forgotten(self) -> None:
        """The next one in the way is another."""
        self.told(Holder(812, "sshd", "root"))
        self.ports.free(WANTED)
        self.clock.advance(5)
        self.assertIsNone(self.claim.endpoint.detail)
        self.end()
        self.ports.hold(WANTED)
        self.program = Deferred()
        self.claim.begin()
        self.assertIn("another program", self.claim.endpoint.detail or "")

    def test_answer_that_comes_too_late(self) -> None:
        """Once the port is ours, or the claim has ended, nobody cares."""
        self.ports.free(WANTED)
        self.clock.advance(5)
        self.program.callback(Holder(812, "sshd", "root"))
        self.assertEqual((self.claim.endpoint.state, self.claim.endpoint.detail), ("bound", None))
        self.end()

    def test_held_by_ourselves(self) -> None:
        """A port of another part of PAIR is told as that: waiting for it is of no use."""
        detail = self.told(Holder(os.getpid(), "twistd", "me"))
        self.assertIn("Port 11434 is needed by another part of PAIR: choose another one.", detail)

    def test_end_while_asking(self) -> None:
        """The end waits for no answer."""
        self.end()
        self.program.callback(None)

    def test_question_that_fails(self) -> None:
        """It is logged; the port is tried on."""
        self.program.errback(OSError())
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.ports.free(WANTED)
        self.clock.advance(5)
        self.assertEqual(self.claim.endpoint.state, "bound")


class ShadowTests(ClaimCase):
    """EN-48: a port that is ours by bind, and at which clients reach another program."""

    def begin(self) -> None:
        """It begins, and dials."""
        self.claim.begin()
        self.clock.advance(0)

    def test_looks(self) -> None:
        """It dials itself after it has bound, and every 30 s."""
        self.begin()
        self.clock.pump([10.0] * 7)
        self.assertEqual(self.dials, [(0.0, WANTED), (30.0, WANTED), (60.0, WANTED)])
        self.assertEqual(len(self.seen), 1)
        self.end()

    def test_shadowed(self) -> None:
        """It keeps its sockets, stands in, and says so."""
        self.reaches = False
        self.begin()
        self.assert_at(WANTED, FIRST)
        endpoint = self.claim.endpoint
        self.assertEqual((endpoint.state, endpoint.reason, endpoint.port), ("bypassed", "shadowed", FIRST))
        self.assertIn("answers on port 11434 in PAIR's place", endpoint.detail or "")
        self.assertEqual(self.entries(), [BYPASSED])
        self.clock.advance(1000)
        self.assert_at(WANTED, FIRST)
        self.end()

    def test_no_more(self) -> None:
        """It looks every 5 s, and is bound again when it is reached; the stand-in lingers."""
        self.reaches = False
        self.begin()
        self.clock.pump([5.0, 5.0])
        self.assertEqual([at for at, _ in self.dials], [0.0, 5.0, 10.0])
        self.assertEqual(len(self.seen), 2)
        self.reaches = True
        self.clock.advance(5)
        self.assertEqual((self.claim.endpoint.state, self.claim.endpoint.port), ("bound", WANTED))
        self.assertEqual(self.entries(), [])
        self.assert_at(WANTED, FIRST)
        self.clock.advance(60)
        self.assert_at(WANTED)
        self.end()

    def test_look(self) -> None:
        """When something changed on this host it dials at once."""
        self.reaches = False
        self.begin()
        self.reaches = True
        self.claim.look()
        self.clock.advance(0)
        self.assertEqual(self.claim.endpoint.state, "bound")
        self.end()

    def test_chosen(self) -> None:
        """EN-46: nothing stands in for a chosen port, whoever answers there."""
        self.claim = self.make(chosen=True)
        self.reaches = False
        self.begin()
        self.assert_at(WANTED)
        self.assertEqual((self.claim.endpoint.state, self.claim.endpoint.port), ("bypassed", WANTED))
        self.end()

    def test_end_while_dialling(self) -> None:
        """The end waits for no answer."""
        self.reaches = dialling = Deferred[bool]()
        self.begin()
        self.end()
        dialling.callback(False)
        self.assertEqual(self.claim.endpoint.state, "bound")

    def test_dial_that_fails(self) -> None:
        """It is logged, and changes nothing."""
        self.reaches = fail(RuntimeError())
        self.begin()
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertEqual(self.claim.endpoint.state, "bound")
        self.end()


class MoveTests(ClaimCase):
    """PX-96: a person sends the facade to another port."""

    def setUp(self) -> None:
        """It has its own."""
        super().setUp()
        self.kept: list[Deferred[None]] = []

    def move(self, port: int = CHOSEN) -> Deferred[None]:
        """Begin a move."""
        return Deferred.fromCoroutine(self.claim.move(self.wish(port, chosen=True), self.keep))

    def keep(self) -> Deferred[None]:
        """The store."""
        self.kept.append(Deferred())
        return self.kept[-1]

    def test_moved(self) -> None:
        """Bound, then stored, then shown; the old port accepts for 60 s more."""
        self.claim.begin()
        moved = self.move()
        self.assert_at(WANTED, CHOSEN)
        self.assertEqual(self.claim.endpoint.port, WANTED)
        self.kept[0].callback(None)
        self.successResultOf(moved)
        endpoint = self.claim.endpoint
        self.assertEqual((endpoint.state, endpoint.wanted_port, endpoint.port), ("bound", CHOSEN, CHOSEN))
        self.clock.advance(59.9)
        self.assert_at(WANTED, CHOSEN)
        self.clock.advance(0.1)
        self.assert_at(CHOSEN)
        self.assertEqual({port for _, port in self.dials}, {CHOSEN})
        self.end()

    def test_not_to_be_had(self) -> None:
        """A port that is held or denied: nothing is stored, the old one stays."""
        self.claim.begin()
        for number, error in ((errno.EADDRINUSE, PortTaken), (errno.EACCES, PortDenied)):
            self.ports.troubles[CHOSEN] = number
            self.failureResultOf(self.move(), error)
        self.assertEqual((self.kept, len(self.seen)), ([], 1))
        self.clock.advance(100)
        self.assert_at(WANTED)

    def test_store_that_fails(self) -> None:
        """Nor has anything changed then."""
        self.claim.begin()
        moved = self.move()
        self.kept[0].errback(OSError())
        self.failureResultOf(moved, OSError)
        self.assert_at(WANTED)
        self.assertEqual((self.claim.endpoint.port, len(self.seen)), (WANTED, 1))
        self.clock.advance(100)
        self.assert_at(WANTED)

    def test_to_the_stand_in(self) -> None:
        """A stand-in may become the chosen port; nothing is opened or closed."""
        self.ports.hold(WANTED)
        self.claim.begin()
        moved = self.move(FIRST)
        self.kept[0].callback(None)
        self.successResultOf(moved)
        self.assertEqual((self.claim.endpoint.state, self.claim.endpoint.port), ("bound", FIRST))
        self.assertEqual(self.entries(), [])
        self.clock.advance(100)
        self.assert_at(FIRST)
        self.end()

    def test_to_where_it_is(self) -> None:
        """Its own port may be chosen as well."""
        self.claim.begin()
        moved = self.move(WANTED)
        self.kept[0].callback(None)
        self.successResultOf(moved)
        self.clock.advance(100)
        self.assert_at(WANTED)
        self.end()

    def test_and_back(self) -> None:
        """A port that still lingers is kept again; if that is not stored it goes on to linger."""
        self.claim.begin()
        for port in (CHOSEN, WANTED):
            moved = self.move(port)
            self.kept[-1].callback(None)
            self.successResultOf(moved)
        self.assertEqual(self.claim.endpoint.port, WANTED)
        moved = self.move(CHOSEN)
        self.kept[-1].errback(OSError())
        self.failureResultOf(moved, OSError)
        self.assert_at(WANTED, CHOSEN)
        self.clock.advance(60)
        self.assert_at(WANTED)
        self.end()

    def test_from_every_state(self) -> None:
        """Wherever the claim is, a port that is free is bound."""
        for holds, chosen, reaches in [
            ((WANTED,), False, True),
            ((WANTED,), True, True),
            ((), False, False),
            ((), True, False),
        ]:
            self.setUp()
            self.reaches = reaches
            self.claim = self.make(chosen=chosen)
            self.ports.hold(*holds)
            self.claim.begin()
            self.clock.advance(0)
            self.reaches = True
            moved = self.move()
            self.kept[0].callback(None)
            self.successResultOf(moved)
            self.assertEqual((self.claim.endpoint.state, self.claim.endpoint.port), ("bound", CHOSEN))
            self.clock.advance(60)
            self.assert_at(CHOSEN)
            self.end()

    def test_end_meanwhile(self) -> None:
        """A claim that has ended listens nowhere, and begins where it was sent."""
        self.claim.begin()
        moved = self.move()
        self.end()
        self.kept[0].callback(None)
        self.successResultOf(moved)
        self.assert_at()
        self.claim.begin()
        self.assert_at(CHOSEN)
        self.end()

    def test_default_again(self) -> None:
        """PX-97: without a choice the default is sought, and the chosen one lingers."""
        self.claim = self.make(CHOSEN, chosen=True)
        self.claim.begin()
        self.claim.wish(self.wish())
        self.assertEqual((self.claim.endpoint.state, self.claim.endpoint.port), ("bound", WANTED))
        self.assert_at(WANTED, CHOSEN)
        self.clock.advance(60)
        self.assert_at(WANTED)
        self.end()

    def test_default_that_is_held(self) -> None:
        """If the default is held, the port that was chosen stands in for it."""
        self.claim = self.make(CHOSEN, chosen=True)
        self.ports.hold(WANTED)
        self.claim.begin()
        self.claim.wish(self.wish())
        self.assertEqual((self.claim.endpoint.state, self.claim.endpoint.port), ("bypassed", CHOSEN))
        self.clock.advance(100)
        self.assert_at(CHOSEN)
        self.end()
