"""What is asked of this host (EN-5, EN-7)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from pair.engines import hostfacts
from pair.privacy import Secret


class GatherTests(SynchronousTestCase):
    def test_facts(self) -> None:
        """Modules that can be imported, the folders of PATH, and files as they are."""
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "program").touch(0o700)
        (folder / "text").touch(0o600)
        environment = {"PATH": f"{folder}{os.pathsep}{os.pathsep}/bin", "LOCALAPPDATA": "C:", "SECRET": "x"}
        facts = hostfacts.gather("/data", ["json", "no_such_module"], environment)
        self.assertEqual((facts.modules, facts.search_path), (frozenset({"json"}), (str(folder), "/bin")))
        self.assertEqual((facts.python, facts.data_dir), (sys.executable, "/data"))
        self.assertEqual(facts.environment, {"LOCALAPPDATA": "C:"})
        self.assertEqual(
            [facts.is_executable(str(folder / name)) for name in ("program", "text", "none", "")],
            [True, False, False, False],
        )
        self.assertEqual([facts.is_file(str(folder / "text")), facts.is_file(str(folder))], [True, False])

    def test_small_files(self) -> None:
        """What other programs' files say; of a long one no more than the beginning, of one that is no text nothing."""
        file = Path(self.mktemp())
        read = hostfacts.gather("/data", (), {}).read_text
        self.assertIsNone(read(str(file)))
        file.write_bytes(b"\xef\xbb\xbf/home/me\n")
        self.assertEqual(read(str(file)), "/home/me\n")
        file.write_bytes(b"x" * 100_000)
        self.assertEqual(read(str(file)), "x" * 65_536)
        file.write_bytes(b"\xff\xfe")
        self.assertIsNone(read(str(file)))


class CredentialTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.file = Path(self.mktemp())
        self.file.write_text(" sesame\n")
        self.file.chmod(0o600)

    def test_file(self) -> None:
        """Its text, trimmed."""
        self.assertEqual(hostfacts.read_credential(str(self.file), None, {}), Secret("sesame"))

    def test_file_of_others(self) -> None:
        """A file that others may read, is gone, or is no text is not used (EN-5)."""
        self.file.chmod(0o640)
        self.assertIsNone(hostfacts.read_credential(str(self.file), None, {}))
        self.assertIsNone(hostfacts.read_credential(f"{self.file}.not", None, {}))
        self.file.write_bytes(b"\xff")
        self.file.chmod(0o600)
        self.assertIsNone(hostfacts.read_credential(str(self.file), None, {}))

    def test_variable(self) -> None:
        """The value of the variable; unset or empty is none."""
        for environment, credential in (({"KEY": "sesame"}, Secret("sesame")), ({"KEY": " "}, None), ({}, None)):
            self.assertEqual(hostfacts.read_credential(None, "KEY", environment), credential)

    def test_neither(self) -> None:
        """Without a setting there is none."""
        self.assertIsNone(hostfacts.read_credential(None, None, {}))
