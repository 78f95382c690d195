"""Tests of :mod:`pair.settings.files`."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from pair.settings import SettingsError, SettingsFile, check_files, load, read_file


class FilesTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        self.folder.mkdir()

    def file(self, mode: int, data: bytes = b"") -> Path:
        path = self.folder / "file"
        path.write_bytes(data)
        path.chmod(mode)
        return path


class ReadTests(FilesTestCase):
    def refused(self, path: Path) -> str:
        return str(self.assertRaises(SettingsError, read_file, path))

    def test_read(self) -> None:
        """The text comes with the path, and others may read the file."""
        path = self.file(0o644, "[node]\nname = 'ä'".encode())
        self.assertEqual(read_file(path), SettingsFile(str(path), "[node]\nname = 'ä'"))

    def test_others_can_write(self) -> None:
        """A file that others can write to is refused, with the mode and the cure (OP-4)."""
        for mode in (0o664, 0o646, 0o602):
            path = self.file(mode)
            self.assertEqual(
                self.refused(path), f"{path}: others can write to it (mode {mode:04o}); chmod go-w {path}"
            )

    def test_missing(self) -> None:
        """A file that is not there is told with its path (OP-4)."""
        self.assertEqual(self.refused(self.folder / "no"), f"{self.folder / 'no'}: No such file or directory")

    def test_no_regular_file(self) -> None:
        """Nothing but a regular file is read: others may never end, or never begin (OP-4)."""
        pipe = self.folder / "pipe"
        os.mkfifo(pipe, 0o600)
        for path in (pipe, Path("/dev/zero")):
            self.assertEqual(self.refused(path), f"{path}: it is no regular file")
        self.assertEqual(self.refused(self.folder), f"{self.folder}: Is a directory")

    def test_too_large(self) -> None:
        """A file of a MiB is read, a larger one is refused (OP-4)."""
        self.assertEqual(len(read_file(self.file(0o600, b"#" * (1 << 20))).text), 1 << 20)
        self.assertIn("larger than 1 MiB", self.refused(self.file(0o600, b"#" * ((1 << 20) + 1))))

    def test_strange_path(self) -> None:
        """A path that is not UTF-8 can be shown (OP-9)."""
        path = self.folder / os.fsdecode(b"a\xffb")
        path.touch(0o600)
        self.assertEqual(read_file(path).path, f"{self.folder}/a\ufffdb")
        path.chmod(0o666)
        self.assertIn("a\ufffdb: others can write", self.refused(path))

    def test_no_utf8(self) -> None:
        """A file that is not UTF-8 is told."""
        self.assertIn("it is not UTF-8", self.refused(self.file(0o600, b"\xff")))

    def test_not_readable(self) -> None:
        """A file that we may not read is told."""
        if not os.geteuid():
            raise SkipTest("root reads everything")
        self.assertIn("Permission denied", self.refused(self.file(0o200)))


class CheckTests(FilesTestCase):
    def check(self, key: str, path: Path) -> list[str]:
        loaded = load(
            [
                "engines.nas.url=http://127.0.0.1",
                "engines.nas.kind=ollama",
                f"{key}={path}",
            ]
        )
        try:
            check_files(loaded)
        except SettingsError as error:
            return [f"{problem.where} {problem.key}: {problem.message}" for problem in error.problems]
        return []

    def test_binary(self) -> None:
        """A program is a file that can be run (OP-9)."""
        key = "engines.ollama.binary"
        self.assertEqual(self.check(key, self.file(0o755)), [])
        for path in (self.file(0o644), self.folder, self.folder / "no"):
            self.assertEqual(self.check(key, path), [f"--set {key}: it is no executable file"])

    def test_credential(self) -> None:
        """A credential is the owner's alone."""
        key = "engines.nas.credential_file"
        self.assertEqual(self.check(key, self.file(0o600)), [])
        self.assertEqual(self.check(key, self.file(0o400)), [])
        self.assertIn("it has 0640", self.check(key, self.file(0o640))[0])
        self.assertEqual(self.check(key, self.folder / "no"), [f"--set {key}: No such file or directory"])
        self.folder.chmod(0o700)
        self.assertEqual(self.check(key, self.folder), [f"--set {key}: it is no regular file"])

    def test_nothing(self) -> None:
        """With nothing to look at nothing is wrong."""
        check_files(load())
