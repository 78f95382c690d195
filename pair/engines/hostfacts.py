"""What is asked of this host when engines are looked for. It blocks: it is for a thread (EN-7)."""

from __future__ import annotations

import importlib
import importlib.util
import os
import socket
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pair.engines.facts import HostFacts
from pair.privacy import Secret

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_FOLDERS = ("LOCALAPPDATA", "ProgramFiles")
"""Variables of Windows that name folders."""

_SMALL = 64 * 1024
"""Characters of another program's file that are read."""


def gather(data_dir: str, modules: Collection[str], environment: Mapping[str, str]) -> HostFacts:
    """The facts of this host.

    Args:
        data_dir: ``node.data_dir``.
        modules: top-level modules to look for; none is imported.
        environment: ours.
    """
    importlib.invalidate_caches()  # a package may have been installed since the last time
    return HostFacts(
        platform=sys.platform,
        home=home(),
        search_path=tuple(each for each in environment.get("PATH", "").split(os.pathsep) if each),
        data_dir=data_dir,
        python=sys.executable,
        modules=frozenset(each for each in modules if importlib.util.find_spec(each) is not None),
        is_executable=_is_executable,
        is_file=os.path.isfile,
        real_path=os.path.realpath,
        read_text=_small_text,
        environment={name: environment[name] for name in _FOLDERS if name in environment},
    )


def home() -> str:
    """The home folder; empty where there is none to tell."""
    try:
        return str(Path.home())
    except RuntimeError:
        return ""


def port_is_free(port: int) -> bool:
    """Whether an engine could listen on 127.0.0.1 at ``port`` now."""
    with socket.socket() as probe:
        # As servers do, lest connections that linger from the engine before it hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def read_credential(file: str | None, variable: str | None, environment: Mapping[str, str]) -> Secret | None:
    """The bearer token of an engine by URL (EN-5).

    Returns:
        None where none is set, it is empty, or its file cannot be read or is readable by others.
    """
    if variable is not None:
        value = environment.get(variable, "")
    elif file is not None:
        value = _private_text(Path(file).expanduser())
    else:
        value = ""
    return Secret(value.strip()) if value.strip() else None


def _private_text(path: Path) -> str:
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            return ""
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _small_text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read(_SMALL)
    except (OSError, UnicodeDecodeError):
        return None


def _is_executable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
