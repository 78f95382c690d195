"""``config check``: what the service would say of the settings (OP-8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pair.privacy import clean_text, path_text
from pair.settings import Problem, SettingsError, check_files, load, read_file, variables

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Verdict(Struct, frozen=True):
    """``file`` is None where there is no settings file; ``environment`` are the variables that were read."""

    valid: bool
    file: str | None
    environment: tuple[str, ...]
    problems: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        read = self.file or "no settings file"
        if self.environment:
            read += f", and {', '.join(self.environment)} of the environment"
        return "\n".join([*map(str, self.problems), f"{read}: {'valid' if self.valid else 'not valid'}"])


def check(path: Path | None, environ: Mapping[str, str]) -> Verdict:
    """The verdict on the file at ``path`` together with ``environ``."""
    name = None if path is None else path_text(path)
    read = tuple(map(clean_text, variables(environ)))
    try:
        check_files(load((), environ, None if path is None else read_file(path)))
    except SettingsError as error:
        return Verdict(False, name, read, error.problems)
    return Verdict(True, name, read)
