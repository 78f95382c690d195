"""One engine: adopted, kept, probed, listed (engines page, Run state and Inventory)."""

from __future__ import annotations

import signal
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from pair.engines.facts import Answer, Found, Launch, LaunchOptions, ProbeRequest
from pair.engines.memory import RememberedModels
from pair.engines.processes import ChildRecord, Mark
from pair.engines.runner import Runner
from pair.interfaces import IEngineKind, IErrorBook
from pair.privacy import Secret
from pair.records.engines import EngineAddress, EngineStatus, Model
from pair.settings import EngineSettings
from pair.test.engines.toy import BASE, PROGRAM, STANDARD, Book, Host, Toy, charge


class RunnerCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.host = Host()
        self.wire, self.table, self.book, self.clock = (
            self.host.wire,
            self.host.table,
            self.host.book,
            self.host.clock,
        )
        self.changes = 0
        self.make()

    def make(self, settings: EngineSettings | None = None, **others: Any) -> None:
        """A new runner, not begun yet."""

        def changed() -> None:
            self.changes += 1

        self.runner = Runner(charge(settings, **others), self.host.around(), changed)

    def poll(self, times: int = 1) -> None:
        """What the service does every 5 s."""
        for _ in range(times):
            polling = Deferred.fromCoroutine(self.runner.poll())
            self.host.pass_time(5)
            self.successResultOf(polling)

    def begin(self) -> None:
        self.successResultOf(Deferred.fromCoroutine(self.runner.begin()))

    def keep(self) -> None:
        """An engine that is to run, installed, and started."""
        self.runner.located([PROGRAM])
        self.runner.desire("on")
        self.wire.toy(BASE)
        self.host.pass_time(1)

    @property
    def status(self) -> EngineStatus:
        return self.runner.inventory().status

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.runner.inventory().models]


class AdoptionTests(RunnerCase):
    def test_doubles(self) -> None:
        """The made-up kind and book are what they stand for (EN-2: nothing here knows a kind by name)."""
        verifyObject(IEngineKind, Toy())
        verifyObject(IErrorBook, Book())

    def test_absent(self) -> None:
        """Nothing found and nothing answers."""
        self.begin()
        self.assertEqual((self.status.state, self.runner.address, self.runner.alive), ("absent", None, False))

    def test_adopted(self) -> None:
        """What answers as the engine is adopted, probed and listed in one go (EN-9)."""
        self.wire.toy(STANDARD)
        self.begin()
        status = self.status
        self.assertEqual(
            (status.state, status.health, status.ownership, status.routable, status.version, status.slots),
            ("running", "ok", "adopted", True, "1.0", 3),
        )
        self.assertEqual((self.ids, status.models, status.loaded), (["alpha", "beta"], "known", "known"))
        self.assertEqual(self.runner.address, EngineAddress("127.0.0.1", STANDARD))
        self.assertEqual(self.table.sent, [])

    def test_list_before_verdict(self) -> None:
        """It is not routable before its models are known."""
        self.wire.toy(STANDARD)
        server = self.wire.servers[STANDARD]
        assert server is not None
        seen: list[tuple[str, bool]] = []

        def watched(request: ProbeRequest) -> Answer:
            seen.append((request.path, self.status.routable))
            return server(request)

        self.wire.servers[STANDARD] = watched
        self.begin()
        self.assertEqual(seen, [("/who", False), ("/health", False), ("/list", False)])
        self.assertTrue(self.status.routable)

    def test_found_by_a_guess(self) -> None:
        """It is adopted at a port where it may be, too; a stranger there is nobody's business."""
        self.make(guesses=[7050])
        self.wire.stranger(7050)
        self.begin()
        self.assertEqual(self.status.state, "absent")
        self.wire.toy(7050)
        self.poll()
        self.assertEqual(self.status.state, "running")

    def test_configured_elsewhere(self) -> None:
        """Where its own files say that it listens it is found, and at one address is asked once (EN-9)."""
        here, there = (EngineAddress("127.0.0.1", port) for port in (STANDARD, 7070))
        self.runner.located([], [there, here])
        self.begin()
        self.assertEqual([port for port, _ in self.wire.asked], [STANDARD, 7070])
        self.wire.toy(7070)
        self.poll()
        self.assertEqual((self.status.state, self.runner.address), ("running", there))

    def test_stranger_where_configured(self) -> None:
        """Somebody else there keeps no place of ours."""
        self.runner.located([], [EngineAddress("127.0.0.1", 7070)])
        self.wire.stranger(7070)
        self.begin()
        self.assertEqual(self.status.state, "absent")

    def test_occupied(self) -> None:
        """Its port answers and is something else; freed, it is free (EN-11)."""
        self.wire.stranger(STANDARD)
        self.begin()
        self.assertEqual(self.status.state, "occupied")
        del self.wire.servers[STANDARD]
        self.poll()
        self.assertEqual(self.status.state, "absent")

    def test_unclear(self) -> None:
        """No answer in time is no statement: the last state stays (EN-11)."""
        self.wire.servers[STANDARD] = None
        self.begin()
        self.assertEqual(self.status.state, "absent")

    def test_gone_after_three_refusals(self) -> None:
        """Adopted and gone: three refusals 100 ms apart, no entry left behind (EN-38)."""
        self.wire.toy(STANDARD)
        self.begin()
        self.wire.asked.clear()
        del self.wire.servers[STANDARD]
        self.poll()
        self.assertEqual(self.status.state, "absent")
        self.assertEqual(len(self.wire.asked), 3)
        self.assertEqual((self.book.raised, self.ids, self.status.routable), ([], ["alpha", "beta"], False))

    def test_one_refusal(self) -> None:
        """One refusal alone is not the end of it, but nobody should wait for it meanwhile (EN-32)."""
        self.wire.toy(STANDARD)
        self.begin()
        server = self.wire.servers.pop(STANDARD)
        polling = Deferred.fromCoroutine(self.runner.poll())
        self.assertEqual((self.runner.state, self.runner.alive), ("running", False))
        self.wire.servers[STANDARD] = server
        self.host.pass_time(1)
        self.successResultOf(polling)
        self.assertEqual(self.status.state, "running")

    def test_appears_later(self) -> None:
        """An engine that appears is adopted within one poll and leaves no entry behind (EN-38)."""
        self.begin()
        self.clock.advance(60)
        self.wire.toy(STANDARD)
        self.poll()
        self.assertEqual((self.status.routable, self.book.raised), (True, []))

    def test_own_ports(self) -> None:
        """A port of ours is never asked (EN-10)."""
        self.host.own_ports = frozenset({STANDARD})
        self.wire.toy(STANDARD)
        self.begin()
        self.assertEqual((self.wire.asked, self.status.state), ([], "absent"))

    def test_off(self) -> None:
        """Mode ``off``: not looked for (EN-14)."""
        self.make(EngineSettings(mode="off"))
        self.wire.toy(STANDARD)
        self.begin()
        self.runner.located([PROGRAM])
        self.poll()
        self.assertEqual((self.wire.asked, self.status.state, self.status.desired), ([], "stopped", "off"))

    def test_detached(self) -> None:
        """Switched off while it is adopted: out of routing, the process untouched; on again: used again (EN-19)."""
        self.wire.toy(STANDARD)
        self.begin()
        self.runner.desire("off")
        self.poll()
        self.assertEqual((self.status.state, self.status.routable, self.table.sent), ("detached", False, []))
        self.runner.desire("on")
        self.poll()
        self.assertEqual((self.status.state, self.status.routable), ("running", True))

    def test_another_version(self) -> None:
        """An engine that was replaced under our eyes is seen at the next detection."""
        self.wire.toy(STANDARD)
        self.begin()
        self.wire.toy(STANDARD, version="2.0")
        self.runner.located([])
        self.assertEqual(self.status.version, "2.0")
        self.wire.stranger(STANDARD)
        self.runner.located([])
        self.assertEqual(self.status.state, "occupied")

    def test_required(self) -> None:
        """Mode ``on`` and nothing is found: an entry, until something is."""
        self.make(EngineSettings(mode="on"), required=True)
        self.runner.located([Found("/x", "package", missing="Get it.")])
        self.assertEqual(self.book.held["missing"]["detail"], "Get it.")
        self.assertEqual(self.status.detail, "Get it.")
        self.wire.toy(STANDARD)
        self.poll()
        self.assertEqual(self.book.held, {})


class CredentialTests(RunnerCase):
    def test_by_url(self) -> None:
        """An engine by URL that asks for a token: ``needs_credential``, then ``ok``; the token is its alone (EN-5)."""
        self.make(EngineSettings(url=f"http://127.0.0.1:{STANDARD}", kind="toy"))
        self.wire.toy(STANDARD, who=401, health=401, list=401)
        self.begin()
        self.assertEqual(
            (self.status.state, self.status.health, self.status.routable), ("running", "needs_credential", False)
        )
        self.assertEqual(list(self.book.held), ["needs_credential"])
        self.runner.credential = Secret("open sesame")
        self.wire.toy(STANDARD)
        self.poll()
        self.assertEqual((self.status.routable, self.book.held), (True, {}))
        self.assertEqual(self.wire.credentials[-1], Secret("open sesame"))
        self.assertNotIn("sesame", repr(self.runner.inventory()))

    def test_stranger_behind_a_lock(self) -> None:
        """401 at a port that nobody told us of is somebody else's."""
        self.wire.toy(STANDARD, who=401)
        self.begin()
        self.assertEqual(self.status.state, "occupied")

    def test_remote_port_like_ours(self) -> None:
        """An engine on another machine may have a port number of ours."""
        self.make(EngineSettings(url="http://10.0.0.2:7000", remote=True, kind="toy"), host="10.0.0.2")
        self.host.own_ports = frozenset({STANDARD})
        self.wire.toy(STANDARD)
        self.begin()
        self.assertTrue(self.status.routable)

    def test_chosen_models(self) -> None:
        """With ``models`` set only these are offered."""
        self.make(EngineSettings(url="http://127.0.0.1:7000", kind="toy", models=("beta",)))
        self.wire.toy(STANDARD)
        self.begin()
        self.assertEqual(self.ids, ["beta"])


class KeepingTests(RunnerCase):
    def test_started(self) -> None:
        """Installed and wanted, it is started on the first free base port, and ready once it is identified."""
        self.host.held_ports = {BASE}
        self.runner.located([PROGRAM])
        self.assertEqual(self.status.state, "stopped")
        self.runner.desire("on")
        self.assertEqual((self.status.state, self.runner.address), ("starting", None))
        self.host.pass_time(2)
        self.wire.toy(BASE + 1)
        self.host.pass_time(0.5)
        status = self.status
        self.assertEqual(
            (status.state, status.ownership, status.health, status.path, status.found_by),
            ("running", "owned", "ok", PROGRAM.path, "path"),
        )
        self.assertEqual(self.runner.address, EngineAddress("127.0.0.1", BASE + 1))
        self.assertEqual(self.ids, ["alpha", "beta"])
        self.assertTrue(self.runner.alive)
        self.assertEqual(self.host.memory.children["toy"].port, BASE + 1)

    def test_chosen_port(self) -> None:
        """A port that the user chose is the one."""
        self.make(EngineSettings(port=7200))
        self.runner.located([PROGRAM])
        self.runner.desire("on")
        self.assertEqual(self.host.spawner.spawned[0][0][-1], "7200")

    def test_lacking(self) -> None:
        """What lacks its weights is ``absent``, says what is missing, and nothing is started (EN-107)."""
        self.runner.located([Found("/usr/bin/python", "package", missing="The weights are missing.")])
        self.runner.desire("on")
        self.poll()
        self.assertEqual((self.status.state, self.status.detail), ("absent", "The weights are missing."))
        self.assertEqual(self.host.spawner.spawned, [])
        self.runner.located([PROGRAM])
        self.assertEqual(self.status.state, "starting")

    def test_crash(self) -> None:
        """A killed child is started again, with an entry until it has been up for 60 s (EN-26, E19)."""
        self.keep()
        self.table.end(1000, signal.SIGKILL)
        self.assertEqual((self.status.state, self.status.routable, self.runner.alive), ("backoff", False, False))
        self.assertEqual(self.status.retry_at, self.host.now() + 1000)
        self.assertEqual(self.book.held["crashed"]["reason"], "signal 9")
        self.host.pass_time(2)
        self.assertEqual((self.status.state, list(self.book.held)), ("running", ["crashed"]))
        self.host.pass_time(60, 1)
        self.assertEqual(self.book.held, {})

    def test_budget(self) -> None:
        """Dying again and again it ends ``failed``, tried every 5 min, one entry (EN-26)."""
        self.keep()
        for pid in range(1000, 1006):
            self.table.end(pid, signal.SIGSEGV)
            self.host.pass_time(18)
        self.assertEqual((self.status.state, self.book.held["crashed"]["count"]), ("failed", 6))
        self.host.pass_time(300, 1)
        self.assertEqual(self.status.state, "running")

    def test_failed_start(self) -> None:
        """A start that fails raises an entry with the end of the output, which success clears (EN-25)."""
        self.runner.located([PROGRAM])
        self.runner.desire("on")
        self.host.spawner.protocols[0].childDataReceived(2, b"no such model\n")
        self.table.end(1000)
        self.assertEqual(
            self.book.held["start_failed"], {"engine": "toy", "reason": "exit code 0", "output": "no such model"}
        )
        self.assertEqual((self.status.state, self.status.detail), ("backoff", "exit code 0"))
        self.wire.toy(BASE)
        self.host.pass_time(2)
        self.assertEqual((self.status.state, self.book.held), ("running", {}))

    def test_never_ready(self) -> None:
        """A child that is not ready in time is ended and tried again (EN-25)."""
        self.runner.located([PROGRAM])
        self.runner.desire("on")
        self.host.pass_time(30.5)
        self.assertEqual(self.book.held["start_failed"]["reason"], "it was not ready within 30 s")
        self.assertEqual((self.status.state, self.table.marks), ("backoff", {}))

    def test_launch_that_breaks(self) -> None:
        """A start that breaks in our own hands is a failed start, too."""

        def broken(found: Found, port: int, options: LaunchOptions) -> Launch:
            raise ZeroDivisionError

        self.runner.charge.kind.launch = broken  # type: ignore[method-assign]
        self.runner.located([PROGRAM])
        self.runner.desire("on")
        self.flushLoggedErrors(ZeroDivisionError)
        self.host.pass_time(30.5)
        self.assertEqual((self.status.state, list(self.book.held)), ("backoff", ["start_failed"]))

    def test_no_port(self) -> None:
        """Without a free port it fails with words."""
        self.host.held_ports = set(range(BASE, BASE + 64))
        self.runner.located([PROGRAM])
        self.runner.desire("on")
        self.assertEqual(self.book.held["start_failed"]["reason"], "no port is free for it")

    def test_stop(self) -> None:
        """Switched off: out of routing at once, TERM, and ``stopped`` once the port is proven closed (EN-35)."""
        self.keep()
        self.host.tie(1000, BASE)
        self.runner.desire("off")
        self.assertEqual((self.status.state, self.status.routable), ("stopping", False))
        self.host.pass_time(0.3)
        self.assertEqual((self.status.state, self.host.memory.children, self.book.held), ("stopped", {}, {}))

    def test_drain(self) -> None:
        """It waits for the requests in flight, for the time that is set (EN-35)."""
        self.make(EngineSettings(drain_seconds=2.0))
        self.keep()
        self.host.in_flight = 1
        self.runner.desire("off")
        self.host.pass_time(1.8)
        self.assertEqual(self.table.sent, [])
        self.host.pass_time(0.5)
        self.assertEqual(len(self.table.sent), 1)

    def test_drained(self) -> None:
        """It does not wait for longer than there are any."""
        self.keep()
        self.host.in_flight = 1
        self.runner.desire("off")
        self.host.pass_time(1)
        self.host.in_flight = 0
        self.host.pass_time(0.2)
        self.assertEqual(len(self.table.sent), 1)

    def test_still_running(self) -> None:
        """While the port still answers it is not ``stopped``, and nobody else gets a signal (EN-36)."""
        self.keep()
        self.runner.desire("off")
        self.host.pass_time(10)
        self.poll()
        self.assertEqual((self.status.state, list(self.book.held)), ("failed", ["stop_failed"]))
        self.assertEqual(len(self.table.sent), 1)
        del self.wire.servers[BASE]
        self.poll()
        self.assertEqual((self.status.state, self.book.held), ("stopped", {}))

    def test_wedged(self) -> None:
        """Silent for 90 s with its process alive: one restart (EN-31)."""
        self.keep()
        self.wire.servers[BASE] = None
        self.host.tie(1000, BASE)
        self.poll(18)
        self.assertEqual((self.status.state, list(self.book.held)), ("running", ["unhealthy"]))
        self.poll(2)
        self.assertEqual((self.status.state, list(self.book.held)), ("starting", ["wedged"]))
        self.wire.toy(BASE)
        self.host.pass_time(1)
        self.assertEqual((self.status.state, len(self.host.spawner.spawned), self.book.held), ("running", 2, {}))

    def test_busy_is_not_wedged(self) -> None:
        """While bytes come from it a silent engine is ``busy``, routable, and left alone (EN-29)."""
        self.keep()
        self.wire.servers[BASE] = None
        for _ in range(60):
            self.runner.note_bytes()
            self.poll()
        self.assertEqual((self.status.health, self.status.routable, self.table.sent), ("busy", True, []))

    def test_close(self) -> None:
        """The service's stop: no drain, TERM, KILL after 3 s, no restart (EN-37)."""
        self.keep()
        self.table.deaf.add(1000)
        self.host.in_flight = 1
        del self.wire.servers[BASE]
        closing = Deferred.fromCoroutine(self.runner.close())
        self.host.pass_time(2.8)
        self.assertEqual(len(self.table.sent), 2)
        self.host.pass_time(1.2)
        self.successResultOf(closing)
        self.assertEqual((self.table.marks, self.clock.getDelayedCalls()), ({}, []))

    def test_close_in_backoff(self) -> None:
        """No timer outlives the stop."""
        self.keep()
        self.table.end(1000)
        self.successResultOf(Deferred.fromCoroutine(self.runner.close()))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_close_leaves_the_adopted(self) -> None:
        """What others started stays, and stays adopted to the last (EN-37)."""
        self.wire.toy(STANDARD)
        self.begin()
        self.successResultOf(Deferred.fromCoroutine(self.runner.close()))
        self.assertEqual((self.status.state, self.table.sent), ("running", []))

    def test_close_while_it_is_launched(self) -> None:
        """A child whose record is being stored when the stop comes is ended, too."""
        stored: Deferred[None] = Deferred()
        self.host.memory.keep_child = lambda record: stored  # type: ignore[method-assign]
        self.runner.located([PROGRAM])
        self.runner.desire("on")
        closing = Deferred.fromCoroutine(self.runner.close())
        self.assertNoResult(closing)
        stored.callback(None)
        self.host.pass_time(1)
        self.successResultOf(closing)
        self.assertEqual((self.table.marks, self.clock.getDelayedCalls()), ({}, []))


class TakeBackTests(RunnerCase):
    def setUp(self) -> None:
        super().setUp()
        self.table.marks[500] = Mark(500, 1.0, "/opt/toy")
        self.host.memory.children["toy"] = ChildRecord("toy", BASE, "boot-1", Mark(500, 1.0, "/opt/toy"))
        self.runner.located([PROGRAM])

    def test_taken_back(self) -> None:
        """After our own death the child is taken back as owned, and not started twice (EN-23)."""
        self.wire.toy(BASE)
        self.begin()
        self.runner.desire("on")
        self.assertEqual((self.status.state, self.status.ownership, self.status.routable), ("running", "owned", True))
        self.assertEqual((self.ids, self.host.spawner.spawned), (["alpha", "beta"], []))

    def test_watched(self) -> None:
        """Its end is noticed within a second, and it is started again."""
        self.wire.toy(BASE)
        self.begin()
        self.runner.desire("on")
        del self.table.marks[500]
        self.host.pass_time(1.1)
        self.assertEqual(self.status.state, "backoff")
        self.host.pass_time(2)
        self.assertEqual(self.status.state, "running")

    def test_unwanted(self) -> None:
        """Taken back and not wanted any more, it is stopped."""
        self.wire.toy(BASE)
        self.begin()
        self.host.tie(500, BASE)
        self.runner.desire("off")
        self.host.pass_time(0.3)
        self.assertEqual((self.status.state, self.table.marks), ("stopped", {}))

    def test_silent(self) -> None:
        """One whose port does not answer is ended, then started anew."""
        self.begin()
        self.assertEqual((self.table.marks, self.host.memory.children), ({}, {}))
        self.runner.desire("on")
        self.assertEqual(self.status.state, "starting")

    def test_not_ours(self) -> None:
        """A recycled pid is left alone, and its record dropped (EN-24)."""
        self.table.marks[500] = Mark(500, 9.0, "/opt/toy")
        self.wire.toy(BASE)
        self.begin()
        self.assertEqual((self.table.sent, self.host.memory.children, self.status.state), ([], {}, "stopped"))


class ListTests(RunnerCase):
    def setUp(self) -> None:
        super().setUp()
        self.wire.toy(STANDARD)
        self.begin()

    def test_asked_once(self) -> None:
        """A question that serves two purposes is asked once a poll."""
        self.wire.asked.clear()
        self.poll()
        self.assertEqual([path for _, path in self.wire.asked], ["/health", "/list"])

    def test_nothing_new(self) -> None:
        """A poll that brings nothing new changes nothing and writes nothing."""
        changes, writes = self.changes, self.host.memory.writes
        self.poll(5)
        self.assertEqual((self.changes, self.host.memory.writes), (changes, writes))

    def test_new_list(self) -> None:
        """A change of the list is told, numbered and remembered (EN-79)."""
        changes = self.changes
        self.wire.toy(STANDARD, "gamma")
        self.poll()
        self.assertEqual((self.ids, self.runner.inventory().revision, self.changes), (["gamma"], 2, changes + 1))
        self.assertEqual([each.id for each in self.host.memory.lists["toy"].models], ["gamma"])

    def test_loads_nothing(self) -> None:
        """An engine that loads nothing for a request is told apart from its kind, as soon as it changes (RT-8)."""
        self.assertEqual(self.runner.dialect, Toy.dialect)
        changes = self.changes
        self.wire.toy(STANDARD, "alpha beta* -")
        self.poll()
        self.assertEqual((self.runner.dialect.eligible, self.changes), ("loaded", changes + 1))
        self.wire.toy(STANDARD)
        self.poll()
        self.assertEqual((self.runner.dialect, self.changes), (Toy.dialect, changes + 2))

    def test_useless_answer(self) -> None:
        """500, ``null`` or silence is never "empty": what was known is kept as ``stale`` (EN-79)."""

        def null(request: Any) -> Answer:
            return Answer(200, {}, b"toy 1" if request.path == "/who" else b"null")

        for break_it in (
            lambda: self.wire.toy(STANDARD, list=500),
            lambda: self.wire.servers.update({STANDARD: null}),
            lambda: self.wire.servers.update({STANDARD: None}),
        ):
            break_it()
            self.poll()
            self.assertEqual((self.ids, self.status.models, self.status.loaded), (["alpha", "beta"], "stale", "stale"))
            self.wire.toy(STANDARD)
            self.poll()
            self.assertEqual(self.status.models, "known")

    def test_missing(self) -> None:
        """A model that the engine denied is hidden at once, and its list read again within 1 s (EN-80)."""
        self.wire.toy(STANDARD, "beta*")
        self.runner.note_missing("alpha")
        self.runner.note_missing("alpha")
        self.assertEqual((self.ids, self.runner.inventory().revision), (["beta"], 1))
        self.wire.asked.clear()
        self.host.pass_time(1)
        self.assertEqual((self.wire.asked, self.runner.inventory().revision), ([(STANDARD, "/list")], 2))

    def test_refresh(self) -> None:
        """A refresh reads now, and does not fail when that does."""
        self.wire.toy(STANDARD, "gamma")
        self.successResultOf(self.runner.refresh())
        self.assertEqual(self.ids, ["gamma"])
        del self.wire.servers[STANDARD]
        self.successResultOf(self.runner.refresh())
        self.assertEqual(self.status.models, "stale")

    def test_remembered(self) -> None:
        """A stopped engine's models are known after our restart, without making it an owner (EN-79)."""
        del self.wire.servers[STANDARD]
        self.host.memory.lists["toy"] = RememberedModels(3, (Model(id="old", engine="toy", facade="lmstudio"),))
        self.make()
        self.begin()
        self.assertEqual(
            (self.ids, self.status.models, self.status.models_at, self.status.routable), (["old"], "stale", 3, False)
        )

    def test_degraded(self) -> None:
        """Three failed answers in a row: ``degraded``, with an entry, and still used; one good one ends it (EN-30)."""
        for _ in range(3):
            self.runner.note_outcome(False)
        self.assertEqual((self.status.health, self.status.routable), ("degraded", True))
        self.assertEqual(self.book.held["degraded"]["count"], 3)
        self.runner.note_outcome(True)
        self.assertEqual((self.status.health, self.book.held), ("ok", {}))

    def test_unhealthy(self) -> None:
        """Failing for 30 s: out of routing, with one entry until it answers (EN-29)."""
        self.wire.toy(STANDARD, health=500)
        self.poll(8)
        self.assertEqual((self.status.health, self.status.routable), ("unhealthy", False))
        self.assertEqual(self.book.raised, ["unhealthy"])
        self.wire.toy(STANDARD)
        self.poll()
        self.assertEqual((self.status.routable, self.book.held), (True, {}))

    def test_loading(self) -> None:
        """A server that says 503 loads a model: ``busy``, and its old list is kept (EN-29)."""
        self.wire.toy(STANDARD, health=503)
        self.poll()
        self.assertEqual((self.status.health, self.status.routable, self.ids), ("busy", True, ["alpha", "beta"]))

    def test_facade_on_its_port(self) -> None:
        """An engine at a port of ours is not routed to (Routable)."""
        self.host.own_ports = frozenset({STANDARD})
        self.assertFalse(self.status.routable)

    def test_facade_that_took_its_port(self) -> None:
        """By the next poll an adopted engine whose port is ours has left it; it is found where it moved to (EN-51)."""
        self.make(guesses=[7050])
        self.begin()
        self.host.own_ports = frozenset({STANDARD})
        self.wire.asked.clear()
        self.poll()
        self.assertEqual((self.status.state, self.runner.address), ("absent", None))
        self.assertNotIn(STANDARD, [port for port, _ in self.wire.asked])
        self.wire.toy(7050)
        self.poll()
        self.assertEqual((self.status.state, self.status.routable), ("running", True))

    def test_slots(self) -> None:
        """The setting comes before what the engine tells (EN-34)."""
        self.make(EngineSettings(slots=9))
        self.begin()
        self.assertEqual(self.status.slots, 9)
