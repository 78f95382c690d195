"""The plugin file (OP-2, OP-66)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from twisted.application.service import IServiceMaker
from twisted.plugin import getPlugins
from twisted.trial.unittest import SynchronousTestCase

import pair
from pair.tap import Options, makeService

NEW_MODULES = """
import sys
import twisted.application.service, twisted.plugin
before = set(sys.modules)
import twisted.plugins.pair_plugin
print(*sorted(set(sys.modules) - before))
"""


class PluginTests(SynchronousTestCase):
    """``twistd pair`` as Twisted finds it."""

    def test_found(self) -> None:
        """Twisted lists one ``pair``, which leads to our options and service."""
        (maker,) = [each for each in getPlugins(IServiceMaker) if each.tapname == "pair"]
        self.assertIs(maker.options, Options)
        self.assertIs(maker.makeService, makeService)

    def test_imports_nothing_heavy(self) -> None:
        """Importing the plugin imports nothing of ours and nothing of others beyond Twisted (OP-2)."""
        root = Path(pair.__file__).parent.parent
        found = subprocess.run(
            [sys.executable, "-c", NEW_MODULES], cwd=root, capture_output=True, text=True, check=True
        ).stdout.split()
        self.assertEqual(found, ["twisted.plugins", "twisted.plugins.pair_plugin"])
