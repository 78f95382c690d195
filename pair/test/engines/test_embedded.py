"""The child program of the embedded engine (EN-106)."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from pair.engines import embedded
from pair.engines.facts import Found, LaunchOptions
from pair.engines.kinds.embedded import CHILD, CONTEXT, SLOTS, Embedded


class EmbeddedTests(SynchronousTestCase):
    def test_command_line(self) -> None:
        """It takes what its kind gives it."""
        launch = Embedded().launch(Found("/python", "package", model="/m.gguf"), 8081, LaunchOptions())
        self.assertEqual(launch.argv[:3], ("/python", "-m", CHILD))
        options = embedded.arguments(list(launch.argv[3:]))
        self.assertEqual((options.port, options.model, options.alias), (8081, Path("/m.gguf"), "smollm2:135m"))

    def test_lacking(self) -> None:
        """Nothing of it may be left out."""
        with redirect_stderr(io.StringIO()):
            self.assertRaises(SystemExit, embedded.arguments, ["--port", "1", "--model", "/m"])

    def test_same_values(self) -> None:
        """Context and slots are those that a ``llama-server`` would get in its place."""
        self.assertEqual((embedded.CONTEXT, embedded.SLOTS), (CONTEXT, SLOTS))
