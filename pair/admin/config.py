"""``config check``: what the service would say of the settings (OP-8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pair.settings import Problem, SettingsError, check_files, load, read_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Verdict(Struct, frozen=True):
    """``file`` is None where there is no settings file."""

    valid: bool
    file: str | None
    problems: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        name = self.file or "no settings file"
        return "\n".join([*map(str, self.problems), f"{name}: {'valid' if self.valid else 'not valid'}"])


def check(path: Path | None, environ: Mapping[str, str]) -> Verdict:
    """The verdict on the file at ``path`` together with ``environ``."""
    name = None if path is None else str(path)
    try:
        check_files(load((), environ, None if path is None else read_file(path)))
    except SettingsError as error:
        return Verdict(False, name, error.problems)
    return Verdict(True, name)
