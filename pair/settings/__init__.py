"""Settings: ``pair.toml``, environment, options and defaults as one tree of frozen structs (OP-7 to OP-11).

Pure, but for :mod:`pair.settings.files`. It knows what a value may be, not
what it is for.
"""

from pair.settings.files import check_files, read_file
from pair.settings.grammar import engine_address
from pair.settings.keys import Description, describe, example
from pair.settings.layers import Loaded, SettingsFile, Source, SourceName, load, variables
from pair.settings.problems import Problem, SettingsError
from pair.settings.structs import EngineSettings, Log, Proxy, Routing, Rule, Settings

__all__ = [
    "Description",
    "EngineSettings",
    "Loaded",
    "Log",
    "Problem",
    "Proxy",
    "Routing",
    "Rule",
    "Settings",
    "SettingsError",
    "SettingsFile",
    "Source",
    "SourceName",
    "check_files",
    "describe",
    "engine_address",
    "example",
    "load",
    "read_file",
    "variables",
]
