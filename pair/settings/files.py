"""The part of settings that looks at files: reading ``pair.toml``, and what other settings point at."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pair.settings.layers import Loaded, SettingsFile
from pair.settings.problems import Problem, SettingsError


def read_file(path: Path) -> SettingsFile:
    """The text of ``path``.

    Raises:
        SettingsError: It does not exist, cannot be read, is not UTF-8, or others can write to it (OP-4).
    """
    where = str(path)
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            data = file.read()
        text = data.decode()
    except OSError as error:
        raise SettingsError([Problem(where=where, message=error.strerror or "it cannot be read")]) from None
    except UnicodeDecodeError:
        raise SettingsError([Problem(where=where, message="it is not UTF-8")]) from None
    if mode & 0o022:
        message = f"others can write to it (mode {mode:04o}); chmod go-w {where}"
        raise SettingsError([Problem(where=where, message=message)])
    return SettingsFile(where, text)


def check_files(loaded: Loaded) -> None:
    """Look at the files that settings point at: a program must be executable, a credential the owner's alone.

    Raises:
        SettingsError: With all that was found.
    """
    problems = []
    for name, engine in loaded.settings.engines.items():
        if engine.binary is not None and not _is_program(Path(engine.binary)):
            problems.append(_problem(loaded, f"engines.{name}.binary", "it is no executable file"))
        if engine.credential_file is not None:
            fault = _credential_fault(Path(engine.credential_file))
            if fault:
                problems.append(_problem(loaded, f"engines.{name}.credential_file", fault))
    if problems:
        raise SettingsError(problems)


def _problem(loaded: Loaded, key: str, message: str) -> Problem:
    return Problem(where=loaded.source(key).where, key=key, message=message)


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _credential_fault(path: Path) -> str:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        return error.strerror or "it cannot be read"
    return f"it must be readable by its owner alone (mode 0600, and it has {mode:04o})" if mode & 0o077 else ""
