"""Where the programs of engines are looked for (engines page, Detection). Pure.

The table is data; what is on this host comes in as
:class:`~pair.engines.facts.HostFacts`. Nothing here reads a disk or starts a
program, and nothing here asks a service manager.
"""

from __future__ import annotations

import ntpath
import posixpath
from typing import TYPE_CHECKING

from msgspec import Struct

from pair.engines.facts import Found, HostFacts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pair.records.engines import FoundBy

PATH = "PATH"
"""In a row: the folders of the search path."""
SCRIPTS = "SCRIPTS"
"""In a row: the scripts folder of the environment that runs us."""


class Program(Struct, frozen=True):
    """One program and, by platform, the folders where it may be, from first to last.

    ``~`` is the home folder, ``%NAME%`` a variable of the environment.
    """

    name: str
    folders: dict[str, tuple[str, ...]]


OLLAMA = Program(
    "ollama",
    {
        "linux": (
            PATH,
            "/usr/local/bin",
            "/usr/bin",
            "/opt/ollama/bin",
            "/snap/bin",
            "~/.local/bin",
            "/home/linuxbrew/.linuxbrew/bin",
            "~/.nix-profile/bin",
            "/run/current-system/sw/bin",
        ),
        "darwin": (
            "/Applications/Ollama.app/Contents/Resources",
            "~/Applications/Ollama.app/Contents/Resources",
            PATH,
            "/opt/homebrew/bin",
            "/usr/local/bin",
            "/opt/local/bin",
        ),
        "win32": (
            r"%LOCALAPPDATA%\Programs\Ollama",
            r"%ProgramFiles%\Ollama",
            PATH,
            r"~\scoop\apps\ollama\current",
        ),
    },
)

LMS = Program(
    "lms",
    {
        "linux": ("~/.lmstudio/bin", "~/.cache/lm-studio/bin", PATH),
        "darwin": ("~/.lmstudio/bin", "~/.cache/lm-studio/bin", PATH),
        "win32": (r"~\.lmstudio\bin", PATH),
    },
)

LLAMA_SERVER = Program(
    "llama-server",
    {
        "linux": (
            PATH,
            "/usr/local/bin",
            "/usr/bin",
            "~/.local/bin",
            "/home/linuxbrew/.linuxbrew/bin",
            SCRIPTS,
        ),
        "darwin": (
            PATH,
            "/usr/local/bin",
            "/usr/bin",
            "~/.local/bin",
            "/opt/homebrew/bin",
            SCRIPTS,
        ),
        "win32": (PATH, r"%LOCALAPPDATA%\Microsoft\WinGet\Links"),
    },
)


def locate(program: Program, facts: HostFacts) -> tuple[Found, ...]:
    """All hits on this host, best first: the setting, then the table's row (EN-6).

    Two paths of one program count once. A platform without a row has only the setting.
    """
    seen: set[str] = set()
    found: list[Found] = []
    for path, by in _candidates(program, facts):
        if not facts.is_executable(path):
            continue
        real = facts.real_path(path)
        if real not in seen:
            seen.add(real)
            found.append(Found(path, by))
    return tuple(found)


def _candidates(program: Program, facts: HostFacts) -> Iterator[tuple[str, FoundBy]]:
    windows = facts.platform == "win32"
    paths = ntpath if windows else posixpath
    file = f"{program.name}.exe" if windows else program.name
    if facts.binary is not None:
        yield facts.binary, "setting"
    for place in program.folders.get(facts.platform, ()):
        if place == PATH:
            for folder in facts.search_path:
                if paths.isabs(folder):  # a relative entry means another program in another folder
                    yield paths.join(folder, file), "path"
        elif place == SCRIPTS:
            yield paths.join(paths.dirname(facts.python), file), "known"
        else:
            known = _expanded(place, facts)
            if known is not None:
                yield paths.join(known, file), "app" if ".app/" in place else "known"


def _expanded(place: str, facts: HostFacts) -> str | None:
    """``place`` with the home folder or the variable filled in; None where there is none."""
    if place.startswith("~"):
        return facts.home + place[1:] if facts.home else None
    if place.startswith("%"):
        name, _, rest = place[1:].partition("%")
        value = facts.environment.get(name)
        return None if value is None else value + rest
    return place
