"""Options and the service made from them (OP-1 to OP-5)."""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path

from twisted.application.service import IService
from twisted.python import usage
from twisted.trial.unittest import SynchronousTestCase

from pair import tap
from pair.settings import SettingsError


def parsed(*arguments: str) -> tap.Options:
    options = tap.Options()
    options.parseOptions(list(arguments))
    return options


class OptionsTests(SynchronousTestCase):
    """What is typed behind ``twistd pair``."""

    def with_parent(self, **given: str) -> usage.Options:
        """The options of twistd, with those of ours beneath."""
        parent = usage.Options()
        parent.update({"pidfile": "twistd.pid", "logger": None, **given})
        options = tap.Options()
        options.parent = parent
        options.parseOptions([])
        return parent

    def test_no_option_is_needed(self) -> None:
        """Everything has a default (OP-1)."""
        loaded = tap.settings(parsed("--config", self.empty_config()), {})
        self.assertEqual(loaded.sources, {})

    def test_pidfile(self) -> None:
        """No pid file is left in the current folder, except where one is asked for (OP-2)."""
        self.assertEqual(self.with_parent()["pidfile"], "")
        self.assertEqual(self.with_parent(pidfile="/run/pair.pid")["pidfile"], "/run/pair.pid")

    def test_options_alone(self) -> None:
        """A word that is no option is wrong usage, and named."""
        refused = self.assertRaises(usage.UsageError, parsed, "start")
        self.assertIn("start: only options are taken", str(refused))

    def test_logger(self) -> None:
        """The log is our own (OP-2)."""
        self.assertEqual(self.with_parent()["logger"], "pair.logs.observer")

    def test_settings(self) -> None:
        """``--set`` may be repeated; ``--bind`` and ``--log-level`` are short for settings."""
        options = parsed(
            *("--config", self.empty_config()),
            *("--set", "proxy.ports.ollama=0", "--set", "node.name=den"),
            *("--bind", "127.0.0.1", "--bind", "::1"),
            *("--log-level", "debug"),
        )
        settings = tap.settings(options, {}).settings
        self.assertEqual(settings.proxy.ports.ollama, 0)
        self.assertEqual(settings.node.name, "den")
        self.assertEqual(settings.node.bind, ("127.0.0.1", "::1"))
        self.assertEqual(settings.log.level, "debug")

    def test_environment(self) -> None:
        """Settings come from the environment too, and an option goes before it (OP-7)."""
        environ = {"PAIR_SET__NODE__NAME": "attic", "PAIR_LOG_LEVEL": "warn", "PAIR_OTHER": "x"}
        options = parsed("--config", self.empty_config(), "--set", "node.name=den")
        settings = tap.settings(options, environ).settings
        self.assertEqual((settings.node.name, settings.log.level), ("den", "warn"))

    def test_named_file_must_exist(self) -> None:
        """A settings file that is named and not there is an error (OP-4)."""
        with self.assertRaises(SettingsError):
            tap.settings(parsed("--config", "/no/such/pair.toml"), {})

    def empty_config(self) -> str:
        """A settings file, so that the one of whoever runs the tests is not read."""
        path = Path(self.mktemp())
        path.touch(mode=0o600)
        return str(path)


class MakeServiceTests(SynchronousTestCase):
    """The service, built from options."""

    def setUp(self) -> None:
        self.out, self.err = StringIO(), StringIO()
        self.patch(sys, "stdout", self.out)
        self.patch(sys, "stderr", self.err)
        self.config = Path(self.mktemp())
        self.config.touch(mode=0o600)
        self.state = Path(self.mktemp())

    def make(self, *arguments: str) -> IService:
        return tap.makeService(parsed("--config", str(self.config), "--state-dir", str(self.state), *arguments))

    def test_opens_nothing(self) -> None:
        """A service is built, and not even its state directory is made (OP-2)."""
        self.assertTrue(IService.providedBy(self.make()))
        self.assertFalse(self.state.exists())

    def test_bad_settings(self) -> None:
        """Bad settings are told, all of them, and end the process with 78 (OP-3, OP-9)."""
        with self.assertRaises(SystemExit) as raised:
            self.make("--set", "node.nome=den", "--set", "proxy.ports.ollama=-1")
        self.assertEqual(raised.exception.code, 78)
        *problems, last = self.err.getvalue().splitlines()
        self.assertEqual(len(problems), 2)
        self.assertIn("node.name", problems[0])
        self.assertEqual(last, "pair: the settings are not valid; correct them, then start again")

    def test_check(self) -> None:
        """``--check`` validates, says so, and ends with 0."""
        with self.assertRaises(SystemExit) as raised:
            self.make("--check")
        self.assertEqual(raised.exception.code, 0)
        self.assertEqual(self.out.getvalue(), f"pair: the settings are valid (file: {self.config.absolute()})\n")
        self.assertFalse(self.state.exists())

    def test_check_finds(self) -> None:
        """``--check`` prints what it finds, and ends with 78."""
        with self.assertRaises(SystemExit) as raised:
            self.make("--check", "--set", "log.level=loud")
        self.assertEqual(raised.exception.code, 78)
        self.assertIn("log.level", self.err.getvalue())
