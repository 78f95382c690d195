"""Tests of :mod:`pair.logs.service` and :mod:`pair.logs.writer`, with their real threads."""

from __future__ import annotations

import json
import os
import queue
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twisted.logger import ILogObserver, LogLevel, LogPublisher
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from pair.logs import Logger, configure, observer
from pair.logs.backlog import Backlog
from pair.logs.levels import Levels
from pair.logs.service import LogService, Observer
from pair.logs.writer import LineWriter
from pair.settings import Log
from pair.statedir import StateError
from pair.test.turns import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Pipe:
    """A descriptor to write to, and all that was written to it."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()

    def close_reader(self) -> None:
        os.close(self._reader)

    def text(self) -> str:
        """What was written; ends the pipe."""
        os.close(self.writer)
        with os.fdopen(self._reader) as reader:
            return reader.read()


class LogServiceTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.levels = Levels()
        self.stdout = Pipe()
        self.stderr = Pipe()
        self.observer = Observer(self.stderr.writer)
        self.publisher = LogPublisher(self.observer)
        self.log = self.logger("pair.x")

    def logger(self, namespace: str) -> Logger:
        return Logger(namespace, observer=self.publisher, levels=self.levels)

    def make(self, **settings: Any) -> LogService:
        self.turns: queue.Queue[Callable[[], None]] = queue.Queue()
        return LogService(Log(**settings), self.folder, self.observer, self.levels, self.stdout.writer, self.turns.put)

    def start(self, **settings: Any) -> LogService:
        service = self.make(**settings)
        service.startService()
        self.addCleanup(lambda: service.running and service.stopService())
        return service

    def stop(self, service: LogService) -> None:
        self.successResultOf(service.stopService())

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "pair.jsonl").read_text().splitlines()]

    def texts(self) -> list[str]:
        return [line["text"] for line in self.lines()]

    def test_both(self) -> None:
        """A line goes to the file as JSON and to standard output as text, and is there once stopped (OP-27)."""
        service = self.start()
        self.log.info("Hello {name}.", name="you")
        self.stop(service)
        (line,) = self.lines()
        self.assertEqual((line["text"], line["name"], line["component"]), ("Hello you.", "you", "pair.x"))
        self.assertIn("info  pair.x: Hello you.\n", self.stdout.text())
        self.assertEqual(self.stderr.text(), "")

    def test_stdout_forms(self) -> None:
        """Standard output has JSON or nothing where the setting says so."""
        service = self.start(stdout="json")
        self.log.info("Hello.")
        self.stop(service)
        self.assertEqual(self.stdout.text(), (self.folder / "pair.jsonl").read_text())
        self.stdout = Pipe()
        service = self.start(stdout="off")
        self.log.info("Hello.")
        self.stop(service)
        self.assertEqual(self.stdout.text(), "")

    def test_no_file(self) -> None:
        """No file is made where the setting says so."""
        service = self.start(file=False)
        self.log.info("Hello.")
        service.reopen()
        self.stop(service)
        self.assertFalse(self.folder.exists())

    def test_levels(self) -> None:
        """Levels hold for our loggers, and for those of libraries at the observer (OP-28)."""
        service = self.start(level="warn", levels={"pair.y": "debug"})
        for namespace in ("pair.x", "pair.y", "klein"):
            for logger in (self.logger(namespace), Logger(namespace, observer=self.publisher, levels=Levels())):
                logger.info("{where}", where=namespace)
        self.levels.set("info", {})
        self.log.info("now")
        self.stop(service)
        self.assertEqual(self.texts(), ["pair.y", "pair.y", "now"])

    def test_early(self) -> None:
        """Before the start lines are plain on standard error, and in the file when it is there, each once."""
        self.log.info("Early.")
        self.log.debug("Quiet.")
        self.logger("twisted.x").info("Theirs.")
        self.logger("twisted.x").error("Bad.")
        service = self.start()
        self.log.info("Later.")
        self.stop(service)
        self.assertEqual(self.texts(), ["Early.", "Bad.", "Later."])
        self.assertRegex(self.stderr.text(), r"\A.* pair\.x: Early\.\n.* twisted\.x: Bad\.\n\Z")
        self.assertNotIn("Early", self.stdout.text())

    def test_after(self) -> None:
        """After the stop lines are plain on standard error again, and a closed one does no harm (OP-33)."""
        self.stop(self.start())
        self.log.info("Late.")
        self.assertIn("pair.x: Late.\n", self.stderr.text())
        self.log.info("Later.")
        Observer(None)({"log_namespace": "pair.x"})

    def test_repeats(self) -> None:
        """A warning that repeats is written once, other levels each time (OP-32)."""
        service = self.start()
        for _ in range(3):
            self.log.warn("Slow {engine}.", engine="a")
            self.log.info("Tick.")
        self.stop(service)
        self.assertEqual(self.texts(), ["Slow a.", "Tick.", "Tick.", "Tick."])

    def test_left_out_is_told(self) -> None:
        """The next one after a minute tells how many were left out (OP-32)."""
        service = self.start()
        for at in (0.0, 1.0, 2.0, 60.0):
            self.publisher(
                {"log_namespace": "pair.x", "log_format": "Slow.", "log_level": LogLevel.warn, "log_time": at}
            )
        self.stop(service)
        self.assertEqual(self.texts(), ["Slow.", "Slow. (left out since the last: 2)"])

    def test_closed_stdout(self) -> None:
        """A closed standard output ends what goes there, and nothing else (OP-33)."""
        service = self.start()
        self.stdout.close_reader()
        for number in range(200):
            self.log.info("Line {number}.", number=number)
        self.stop(service)
        self.assertEqual(len(self.texts()), 200)

    def test_unhandled(self) -> None:
        """Errors that nobody handled are counted, written or not (OP-36)."""
        service = self.start(file=False, stdout="off")
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            self.log.failure("It broke.")
        self.log.error("Not that.")
        self.assertEqual(service.unhandled, 1)

    def test_reopen(self) -> None:
        """After a SIGHUP the file is opened anew, and nothing is lost."""
        service = self.start()
        self.log.info("One.")
        service.reopen()
        self.log.info("Two.")
        self.stop(service)
        self.assertEqual(self.texts(), ["One.", "Two."])

    def test_unwritable(self) -> None:
        """A file that cannot be written stops the start, which names it; the stop that follows is orderly (OP-17)."""

        def in_folder(make: Callable[[Path], object]) -> Callable[[Path], object]:
            def made(folder: Path) -> None:
                folder.mkdir()
                make(folder / "pair.jsonl")

            return made

        for block, culprit in (
            (Path.touch, ""),
            (lambda folder: folder.symlink_to("nowhere"), ""),
            (in_folder(lambda file: file.symlink_to("no/where")), "pair.jsonl"),
            (in_folder(Path.mkdir), "pair.jsonl"),
            (in_folder(os.mkfifo), "pair.jsonl"),
        ):
            self.folder = Path(self.mktemp()).absolute()
            block(self.folder)
            service = self.make()
            error = self.assertRaises(StateError, service.startService)
            self.assertEqual(error.path, self.folder / culprit)
            self.stop(service)

    def test_fails_and_works_again(self) -> None:
        """A file that cannot be written any more is told, once, and so is that it can again (OP-17)."""
        service = self.start()
        told: list[bool] = []
        service.writable_changed.subscribe(told.append)
        self.log.info("One.")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.touch()
        for _ in range(3):
            self.log.info("Lost.")
        self.turns.get(timeout=PATIENCE)()
        self.assertEqual((told, service.writable), ([False], False))
        self.folder.unlink()
        self.log.info("Two.")
        self.turns.get(timeout=PATIENCE)()
        self.assertEqual((told, service.writable, self.turns.empty()), ([False, True], True, True))
        self.stop(service)
        self.assertIn("Two.", self.texts())

    def test_for_twistd(self) -> None:
        """``observer`` is what ``twistd --logger`` calls, always the same, and ``configure`` opens nothing (OP-2)."""
        verifyObject(ILogObserver, observer())
        self.assertIs(observer(), observer())
        configure(Log(), self.folder, self.fail)
        self.assertFalse(self.folder.exists())


class SlowSink:
    """A sink that takes its first lines only when it is let, and fails for as long as it is told."""

    def __init__(self, failures: int = 0) -> None:
        self.begun = threading.Event()
        self.let = threading.Event()
        self.lines: list[bytes] = []
        self.failures = failures
        self.reopened = 0

    def write(self, lines: Sequence[bytes]) -> None:
        self.begun.set()
        self.let.wait(PATIENCE)
        if self.failures:
            self.failures -= 1
            raise OSError
        self.lines += lines

    def reopen(self) -> None:
        self.reopened += 1


class LineWriterTests(SynchronousTestCase):
    def writer(self, sink: SlowSink, *, retry: bool = True) -> LineWriter:
        writer = LineWriter("test", sink, lambda count: b"%d lost" % count, Backlog(lines=3), retry=retry)
        writer.start()
        return writer

    def test_slow_sink(self) -> None:
        """While the sink is slow lines wait, the least important are dropped, and their number is written (OP-30)."""
        sink = SlowSink()
        writer = self.writer(sink)
        writer.put(1, b"first")
        self.assertTrue(sink.begun.wait(PATIENCE))
        for rank, line in ((2, b"warn"), (0, b"a"), (0, b"b"), (3, b"error"), (1, b"info")):
            writer.put(rank, line)
        sink.let.set()
        writer.close(PATIENCE)
        self.assertEqual(sink.lines, [b"first", b"2 lost", b"warn", b"error", b"info"])

    def test_fault_that_passes(self) -> None:
        """Lines that could not be written are counted, and told when it works again."""
        sink = SlowSink(failures=1)
        writer = self.writer(sink)
        writer.put(1, b"first")
        self.assertTrue(sink.begun.wait(PATIENCE))
        writer.put(1, b"second")
        sink.let.set()
        writer.close(PATIENCE)
        self.assertEqual((sink.lines, writer.ended), ([b"1 lost", b"second"], False))

    def test_fault_that_stays(self) -> None:
        """A sink that is given up after its first fault takes nothing more (OP-33)."""
        sink = SlowSink(failures=1)
        sink.let.set()
        writer = self.writer(sink, retry=False)
        writer.put(1, b"first")
        writer.close(PATIENCE)
        writer.put(1, b"second")
        self.assertEqual((sink.lines, writer.ended), ([], True))

    def test_close_waits_no_longer(self) -> None:
        """A sink that hangs holds the stop for the time given, and no longer (OP-30)."""
        sink = SlowSink()
        writer = self.writer(sink)
        writer.put(1, b"first")
        self.assertTrue(sink.begun.wait(PATIENCE))
        writer.close(0.01)
        self.assertEqual(sink.lines, [])
        sink.let.set()
        writer.close(PATIENCE)
        self.assertEqual(sink.lines, [b"first"])

    def test_reopened(self) -> None:
        """The sink is let go before the next line after a call to do so, and at the end."""
        sink = SlowSink()
        sink.let.set()
        writer = self.writer(sink)
        writer.reopen()
        writer.put(1, b"first")
        writer.close(PATIENCE)
        self.assertEqual((sink.reopened, sink.lines), (2, [b"first"]))
