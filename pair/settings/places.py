"""Where the state and the settings of a node are, unless somebody says otherwise (operations page, Starting)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEM_CONFIG = Path("/etc/pair/pair.toml")


def state_directory(named: str | None, environ: Mapping[str, str]) -> Path:
    """Where all state is kept: as named, by ``PAIR_STATE_DIR``, or the user's own. Absolute."""
    named = named or environ.get("PAIR_STATE_DIR")
    return Path(named).absolute() if named else platformdirs.user_state_path("pair")


def config_file(named: str | None, environ: Mapping[str, str]) -> Path | None:
    """The settings file: as named or by ``PAIR_CONFIG``, there or not; else the user's, the system's, or none."""
    named = named or environ.get("PAIR_CONFIG")
    if named:
        return Path(named).absolute()
    usual = (platformdirs.user_config_path("pair") / "pair.toml", SYSTEM_CONFIG)
    return next((path for path in usual if path.exists()), None)
