"""Children: start, output, end (EN-22 to EN-24, EN-35, EN-72)."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from pair.engines.children import Child, ChildLost, child_environment
from pair.engines.facts import Launch
from pair.engines.processes import ChildRecord, Mark
from pair.engines.rings import LINE_BYTES, LINES, RING_BYTES, OutputRing
from pair.test.engines.toy import SHIM, Host

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

TERM, KILL = int(signal.SIGTERM), int(signal.SIGKILL)
LAUNCH = Launch(("/opt/toy/bin/toy", "--port", "7100"), {"TOY_KEY": "sesame"})


class ChildrenTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.host = Host()
        self.table = self.host.table

    def begin(self, coroutine: Coroutine[Deferred[Any], Any, Any]) -> Deferred[Any]:
        return Deferred.fromCoroutine(coroutine)

    def start(self) -> Child:
        child: Child = self.successResultOf(self.begin(self.host.children.start("toy", 7100, LAUNCH)))
        return child

    def test_through_the_shim(self) -> None:
        """The program is started by the shim, which needs nothing but the standard library (EN-22)."""
        self.start()
        args, _ = self.host.spawner.spawned[0]
        self.assertEqual((args[1:3], args[4:]), (["-I", "-S"], list(LAUNCH.argv)))
        self.assertTrue(args[3].endswith("spawnling.py"))

    def test_record_before_go(self) -> None:
        """The shim gets its byte only once the record is stored (EN-23)."""
        stored: Deferred[None] = Deferred()
        self.host.memory.keep_child = lambda record: stored  # type: ignore[method-assign]
        starting = self.begin(self.host.children.start("toy", 7100, LAUNCH))
        transport = self.host.spawner.transports[0]
        self.assertEqual((transport.written, transport.closed), (b"", False))
        stored.callback(None)
        self.assertEqual((transport.written, transport.closed), (b"\n", True))
        record = self.successResultOf(starting).record
        self.assertEqual(record, ChildRecord("toy", 7100, "boot-1", Mark(1000, 1000.0)))

    def test_no_record_no_go(self) -> None:
        """Where the record cannot be stored the shim is told to give up."""
        self.host.memory.broken = True
        child = self.start()
        transport = self.host.spawner.transports[0]
        self.assertEqual((transport.written, transport.closed), (b"", True))
        self.assertIn("could not be stored", child.ring.lines()[0].text)
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)

    def test_lost_at_once(self) -> None:
        """A process that is gone before it is looked at is no child."""
        self.table.look = lambda pid: None  # type: ignore[method-assign]
        self.failureResultOf(self.begin(self.host.children.start("toy", 7100, LAUNCH)), ChildLost)

    def test_output(self) -> None:
        """What it writes is in its ring, without the home folder (EN-75, EN-77)."""
        child = self.start()
        protocol = self.host.spawner.protocols[0]
        protocol.childDataReceived(1, b"of /home/me/x\nhalf ")
        protocol.childDataReceived(2, b"oops\n")
        protocol.childDataReceived(1, b"done")
        self.table.end(1000)
        self.assertEqual(
            [(each.stream, each.text) for each in child.ring.lines()],
            [
                ("stdout", "of ~/x"),
                ("stderr", "oops"),
                ("stdout", "half done"),
                ("pair", "ended: exit code 0"),
            ],
        )

    def test_end(self) -> None:
        """Who waits for the end is told the manner of it, also when it comes too late."""
        child = self.start()
        ending = child.when_ended()
        self.table.end(1000, KILL)
        self.assertEqual(self.successResultOf(ending), "signal 9")
        self.assertEqual(self.successResultOf(child.when_ended()), "signal 9")
        self.assertFalse(child.running)
        self.assertEqual(self.host.clock.getDelayedCalls(), [])

    def test_stop(self) -> None:
        """TERM to the group, and that is all where it is obeyed (EN-35)."""
        child = self.start()
        stopping = self.begin(child.stop(5.0))
        self.assertTrue(self.successResultOf(stopping))
        self.assertEqual(self.table.sent, [(1000, TERM, True)])

    def test_deaf(self) -> None:
        """What ignores TERM gets KILL after the grace, not before (EN-35)."""
        child = self.start()
        self.table.deaf.add(1000)
        stopping = self.begin(child.stop(5.0))
        self.host.pass_time(4.8)
        self.assertEqual(self.table.sent, [(1000, TERM, True)])
        self.host.pass_time(0.5)
        self.assertEqual(self.table.sent[1:], [(1000, KILL, True)])
        self.assertTrue(self.successResultOf(stopping))

    def test_kin_outside_the_group(self) -> None:
        """A descendant that left the group is waited for, then killed by itself; a recycled pid is not (EN-24)."""
        child = self.start()
        for pid in (2000, 2001):
            self.table.marks[pid] = Mark(pid, 1.0)
        self.table.kin[1000] = (2000, 2001)
        stopping = self.begin(child.stop(1.0))
        self.table.marks[2001] = Mark(2001, 99.0)
        self.host.pass_time(1.5)
        self.assertTrue(self.successResultOf(stopping))
        self.assertEqual(self.table.sent, [(1000, TERM, True), (2000, KILL, False)])

    def test_immortal(self) -> None:
        """What outlives KILL is told as such."""
        child = self.start()
        self.table.immortal.add(1000)
        stopping = self.begin(child.stop(1.0))
        self.host.pass_time(2.5)
        self.assertFalse(self.successResultOf(stopping))

    def test_executable(self) -> None:
        """The record gets the executable that the process shows once it is ready (EN-23)."""
        child = self.start()
        self.assertIsNone(child.record.mark.executable)
        self.assertEqual(child.identify().mark.executable, SHIM)

    def test_take_back(self) -> None:
        """A process that matches pid, birth, boot and executable is taken back; any difference and it is not ours."""
        self.table.marks[1000] = Mark(1000, 1.0, "/opt/toy")
        for boot, mark, ours in (
            ("boot-1", Mark(1000, 1.0, "/opt/toy"), True),
            ("boot-1", Mark(1000, 1.0), True),
            ("boot-0", Mark(1000, 1.0, "/opt/toy"), False),
            ("boot-1", Mark(1000, 2.0, "/opt/toy"), False),
            ("boot-1", Mark(1000, 1.0, "/bin/sh"), False),
            ("boot-1", Mark(1001, 1.0, "/opt/toy"), False),
        ):
            child = self.host.children.take_back(ChildRecord("toy", 7100, boot, mark))
            self.assertEqual(child is not None, ours, (boot, mark))

    def test_watch_of_the_taken_back(self) -> None:
        """It is looked at once a second; a recycled pid is its end, and gets no signal (EN-23, EN-24)."""
        self.table.marks[1000] = Mark(1000, 1.0)
        child = self.host.children.take_back(ChildRecord("toy", 7100, "boot-1", Mark(1000, 1.0)))
        assert child is not None
        self.host.clock.advance(1)
        self.assertTrue(child.running)
        self.table.marks[1000] = Mark(1000, 50.0)
        self.host.clock.advance(1)
        self.assertFalse(child.running)
        self.successResultOf(self.begin(child.stop(5.0)))
        self.assertEqual((self.table.sent, self.host.clock.getDelayedCalls()), ([], []))

    def test_stop_of_the_taken_back(self) -> None:
        """Its end is noticed at once, and the watch over it ends."""
        self.table.marks[1000] = Mark(1000, 1.0)
        child = self.host.children.take_back(ChildRecord("toy", 7100, "boot-1", Mark(1000, 1.0)))
        assert child is not None
        self.assertTrue(self.successResultOf(self.begin(child.stop(5.0))))
        self.assertEqual((child.running, self.host.clock.getDelayedCalls()), (False, []))


class EnvironmentTests(SynchronousTestCase):
    def test_environment(self) -> None:
        """Ours without what is meant for us alone, with the kind's on top (EN-72)."""
        ours = {
            "PATH": "/bin",
            "OLLAMA_MODELS": "/m",
            "PAIR_STATE_DIR": "/s",
            "NOTIFY_SOCKET": "/n",
            "WATCHDOG_USEC": "1",
            "LISTEN_FDS": "1",
            "OLLAMA_HOST": "elsewhere",
        }
        self.assertEqual(
            child_environment(ours, {"OLLAMA_HOST": "127.0.0.1:11435"}),
            {"PATH": "/bin", "OLLAMA_MODELS": "/m", "OLLAMA_HOST": "127.0.0.1:11435"},
        )


class OutputRingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.ring = OutputRing(lambda: 5, "/home/me/")

    def test_follow(self) -> None:
        """Sequence numbers count from 1, so that a reader asks for what is new."""
        self.ring.feed("stdout", b"one\r\ntwo\n")
        self.ring.note("three")
        self.assertEqual(
            [(each.seq, each.at, each.text) for each in self.ring.lines(1)], [(2, 5, "two"), (3, 5, "three")]
        )

    def test_bounds(self) -> None:
        """2,000 lines, 1 MiB, 8 KiB a line (EN-77)."""
        self.ring.feed("stdout", b"x\n" * (LINES + 5))
        self.assertEqual((len(self.ring.lines()), self.ring.lines()[0].seq), (LINES, 6))
        self.ring.feed("stdout", (b"y" * 10_000 + b"\n") * 200)
        self.assertEqual({len(each.text) for each in self.ring.lines()[-100:]}, {LINE_BYTES})
        self.assertLessEqual(sum(len(each.text) for each in self.ring.lines()), RING_BYTES)

    def test_endless_line(self) -> None:
        """A line that never ends is held to its bound, too."""
        for _ in range(10):
            self.ring.feed("stdout", b"z" * LINE_BYTES)
        self.ring.ended()
        self.assertEqual([len(each.text) for each in self.ring.lines()], [LINE_BYTES])

    def test_redaction(self) -> None:
        """The home folder is not shown, nor what is no text (EN-75)."""
        self.ring.feed("stderr", b"/home/me /home/me/x\xff\n")
        self.assertEqual(self.ring.lines()[0].text, "~ ~/x\N{REPLACEMENT CHARACTER}")

    def test_end(self) -> None:
        """The end of the output for an entry: one line, cut in front, without our own notes."""
        self.ring.feed("stderr", b"first\n\nlast\n")
        self.ring.note("ended")
        self.assertEqual((self.ring.end(), self.ring.end(4)), ("first / last", "last"))
