"""Tests of where state and settings are looked for."""

from __future__ import annotations

from pathlib import Path

import platformdirs
from twisted.trial.unittest import SynchronousTestCase

from pair.settings.places import config_file, state_directory


class PlacesTests(SynchronousTestCase):
    def test_state_directory(self) -> None:
        """It is the one named, else that of the environment, else the platform's; always absolute."""
        environ = {"PAIR_STATE_DIR": "/from/environment"}
        self.assertEqual(state_directory("/from/option", environ), Path("/from/option"))
        self.assertEqual(state_directory(None, environ), Path("/from/environment"))
        self.assertEqual(state_directory(None, {}), platformdirs.user_state_path("pair"))
        self.assertTrue(state_directory("here", {}).is_absolute())

    def test_config_file(self) -> None:
        """It is the one named, be it there or not, else that of the environment."""
        environ = {"PAIR_CONFIG": "/from/environment.toml"}
        self.assertEqual(config_file("/from/option.toml", environ), Path("/from/option.toml"))
        self.assertEqual(config_file(None, environ), Path("/from/environment.toml"))
