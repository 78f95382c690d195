"""The part of settings that looks at files: reading ``pair.toml``, and what other settings point at."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pair.privacy import path_text
from pair.settings.layers import Loaded, SettingsFile
from pair.settings.problems import Problem, SettingsError

LARGEST = 1 << 20
"""Bytes of a settings file."""


def read_file(path: Path) -> SettingsFile:
    """The text of ``path``.

    Raises:
        SettingsError: It does not exist, is no regular file, cannot be read, is too large or not UTF-8, or others can
            write to it (OP-4).
    """
    where = path_text(path)
    try:
        return SettingsFile(where, _text(path))
    except OSError as error:
        raise SettingsError([Problem(where=where, message=error.strerror or "it cannot be read")]) from None
    except UnicodeDecodeError:
        raise SettingsError([Problem(where=where, message="it is not UTF-8")]) from None
    except _Unfit as unfit:
        raise SettingsError([Problem(where=where, message=str(unfit))]) from None


class _Unfit(Exception):  # noqa: N818 - an answer within this module
    """The words for what a file is, or how it may not be."""


def _text(path: Path) -> str:
    # Without O_NONBLOCK a pipe would hold the start until somebody writes to it.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise _Unfit("it is no regular file")
        mode = stat.S_IMODE(status.st_mode)
        if mode & 0o022:
            raise _Unfit(f"others can write to it (mode {mode:04o}); chmod go-w {path_text(path)}")
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise _Unfit("it is larger than 1 MiB")
    return data.decode()


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
        status = path.stat()
    except OSError as error:
        return error.strerror or "it cannot be read"
    if not stat.S_ISREG(status.st_mode):
        return "it is no regular file"
    mode = stat.S_IMODE(status.st_mode)
    return f"it must be readable by its owner alone (mode 0600, and it has {mode:04o})" if mode & 0o077 else ""
