"""Tests of :mod:`pair.logs.sinks`."""

from __future__ import annotations

import os
import resource
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from twisted.trial.unittest import SynchronousTestCase

from pair.logs.sinks import RotatingFile, Stream

if TYPE_CHECKING:
    from collections.abc import Iterable


class RotatingFileTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute() / "logs"
        self.file = self.sink()

    def sink(self, max_bytes: int = 10, keep: int = 3) -> RotatingFile:
        sink = RotatingFile(self.folder, max_bytes, keep)
        self.addCleanup(sink.reopen)
        return sink

    def contents(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.folder.iterdir()}

    def write(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.file.write([line.encode()])

    def test_born_private(self) -> None:
        """File and folder are the owner's alone from birth, whatever the umask (OP-31)."""
        self.addCleanup(os.umask, os.umask(0))
        self.write(["aaaa", "bbbb", "cccc"])
        self.assertEqual(stat.S_IMODE(self.folder.stat().st_mode), 0o700)
        self.assertEqual({stat.S_IMODE(path.stat().st_mode) for path in self.folder.iterdir()}, {0o600})

    def test_appends(self) -> None:
        """What is there from an earlier run stays."""
        self.write(["aaaa"])
        self.file = self.sink()
        self.write(["bbbb"])
        self.assertEqual(self.contents(), {"pair.jsonl": "aaaabbbb"})

    def test_rotated(self) -> None:
        """Exactly the size fits; beyond it a new file is begun, and the newest are kept (OP-31)."""
        self.write(["aaaaa", "aaaaa", "b", "ccccccccccc", "d", "eeeeeeeeee", "f"])
        self.assertEqual(
            self.contents(),
            {"pair.jsonl": "f", "pair.1.jsonl": "eeeeeeeeee", "pair.2.jsonl": "d", "pair.3.jsonl": "ccccccccccc"},
        )

    def test_fewer_kept(self) -> None:
        """With a smaller number to keep the older ones go, and no other file does."""
        self.write(["aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc", "dddddddddd"])
        (self.folder / "pair.old.jsonl").write_text("mine")
        self.file = self.sink(keep=1)
        self.write(["e"])
        self.assertEqual(self.contents(), {"pair.jsonl": "e", "pair.1.jsonl": "dddddddddd", "pair.old.jsonl": "mine"})

    def test_removed(self) -> None:
        """A file that was removed is made anew for the next line (OP-31)."""
        self.write(["a"])
        (self.folder / "pair.jsonl").unlink()
        self.write(["b"])
        self.assertEqual(self.contents(), {"pair.jsonl": "b"})

    def test_folder_removed(self) -> None:
        """So is its folder."""
        self.write(["a"])
        (self.folder / "pair.jsonl").unlink()
        self.folder.rmdir()
        self.write(["b"])
        self.assertEqual(self.contents(), {"pair.jsonl": "b"})

    def test_moved_away(self) -> None:
        """A file that another program moved away is left to it (OP-31)."""
        self.write(["a"])
        (self.folder / "pair.jsonl").rename(self.folder / "theirs")
        self.write(["b"])
        self.assertEqual(self.contents(), {"theirs": "a", "pair.jsonl": "b"})

    def test_half_a_line(self) -> None:
        """After a write that broke off in the middle the next line begins on a line of its own."""
        self.write([""])
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2, hard))
        try:
            self.assertRaises(OSError, self.file.write, [b"aaa\n"])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        self.write(["b\n", "c\n"])
        self.assertEqual(self.contents(), {"pair.jsonl": "aa\nb\nc\n"})


class StreamTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reader, self.writer = os.pipe()

    def test_closed(self) -> None:
        """A stream that was closed raises, and reopening it does nothing (OP-33)."""
        self.addCleanup(os.close, self.writer)
        os.close(self.reader)
        stream = Stream(self.writer)
        stream.reopen()
        self.assertRaises(OSError, stream.write, [b"a"])

    def test_made_non_blocking(self) -> None:
        """A descriptor that someone made non-blocking is written whole, when its reader takes it."""
        os.set_blocking(self.writer, False)
        data = b"x" * 1_000_000
        thread = threading.Thread(target=Stream(self.writer).write, args=([data],))
        thread.start()
        read = 0
        while read < len(data):
            read += len(os.read(self.reader, 100_000))
        thread.join()
        os.close(self.writer)
        os.close(self.reader)
        self.assertEqual(read, len(data))
