"""``twistd pair``: options, and the service made from them (OP-1 to OP-5).

Here settings are validated and objects are built. The lock, the store,
threads and sockets wait for the start of the service: ``twistd`` may fork in
between.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from twisted.python import usage

from pair.privacy import path_text
from pair.settings import Loaded, SettingsError, check_files, load, read_file, variables
from pair.settings.places import config_file, state_directory
from pair.statedir import AlreadyRunning, StateError
from pair.supervision.process import ExitCode, NodeProcess

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from twisted.application.service import IService


class Options(usage.Options):
    """The options behind ``twistd pair``."""

    synopsis = "[options]"
    longdesc = (
        "One local endpoint in front of every machine of yours that can run language models. Run it as: twistd -n pair"
    )
    optFlags = [["check", None, "Validate the settings, print what is found, and exit."]]  # noqa: RUF012
    optParameters = [  # noqa: RUF012
        ["state-dir", None, None, "The directory of all state (PAIR_STATE_DIR)."],
        ["config", None, None, "The settings file (PAIR_CONFIG)."],
        ["log-level", None, None, "Short for --set log.level=LEVEL (PAIR_LOG_LEVEL)."],
    ]

    def __init__(self) -> None:
        super().__init__()
        self["set"] = []
        self["bind"] = []

    def opt_set(self, assignment: str) -> None:
        """One setting, as KEY=VALUE; may be repeated (PAIR_SET__SECTION__KEY)."""
        self["set"].append(assignment)

    def opt_bind(self, address: str) -> None:
        """An address to listen at; may be repeated. Short for --set node.bind=[...]."""
        self["bind"].append(address)

    def parseArgs(self, *words: str) -> None:
        """Take options alone.

        Raises:
            usage.UsageError: There is something else.
        """
        if words:
            raise usage.UsageError(f"{' '.join(words)}: only options are taken; a setting is given as --set KEY=VALUE")

    def postOptions(self) -> None:
        """Set what twistd must do differently for us (OP-2)."""
        if self.parent is None:
            return
        if self.parent["pidfile"] == "twistd.pid":
            self.parent["pidfile"] = ""  # else one is left in the current folder; our lock does its work
        self.parent["logger"] = "pair.logs.observer"
        if sys.platform == "linux" and "twisted.internet.reactor" not in sys.modules:  # else --reactor named one
            from pair.protocols.reactor import install

            install()


def settings(options: Options, environ: Mapping[str, str], **known: Collection[str]) -> Loaded:
    """The settings from options, environment and file.

    Args:
        options: as parsed.
        environ: the environment.
        known: the names of ``kinds`` and ``policies``, where others than ours are known.

    Raises:
        SettingsError: They are not valid (exit 78).
    """
    path = config_file(options["config"], environ)
    assignments = list(options["set"])
    if options["bind"]:
        assignments.append(f"node.bind={json.dumps(options['bind'])}")
    if options["log-level"]:
        assignments.append(f"log.level={options['log-level']}")
    loaded = load(assignments, environ, None if path is None else read_file(path), **known)
    check_files(loaded)
    return loaded


def makeService(options: Options) -> IService:
    """The service that twistd runs. Nothing is opened yet.

    Raises:
        SystemExit: With 78 when the settings are not valid; with 0 after ``--check``.
    """
    from twisted.internet import reactor

    from pair.included import Extensions
    from pair.node import build_node

    extensions = Extensions.find()
    kinds = [each.name for each in extensions.kinds.members]
    policies = [each.name for each in extensions.policies.members]
    try:
        loaded = settings(options, os.environ, kinds=kinds, policies=policies)
        node = build_node(loaded, extensions, state_directory(options["state-dir"], os.environ), reactor)
    except SettingsError as error:
        print(f"{error}\npair: the settings are not valid; correct them, then start again", file=sys.stderr)
        raise SystemExit(ExitCode.SETTINGS) from None
    if options["check"]:
        path = config_file(options["config"], os.environ)
        read = f"file: {'none' if path is None else path_text(path)}"
        if names := variables(os.environ):
            read += f"; environment: {', '.join(names)}"
        print(f"pair: the settings are valid ({read})")
        raise SystemExit(ExitCode.ORDERLY)
    return NodeProcess(
        node,
        reactor,
        {StateError: ExitCode.STATE, AlreadyRunning: ExitCode.ANOTHER_RUNS, SettingsError: ExitCode.SETTINGS},
    )
