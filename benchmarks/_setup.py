"""Gets the tools of the benchmarks into ``benchmarks/.env``: our C programs, nginx, HAProxy, and Python environments.

Nothing here is a dependency of PAIR (QA-11). What cannot be had is
:class:`Unavailable`, with the reason; what was got once is used again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
ENV = HERE / ".env"


class Unavailable(Exception):  # noqa: N818 - a fact, not a fault
    """A tool that cannot be had here; its text says why."""


def program(name: str) -> Path:
    """One of our C programs (``engine``, ``load``), compiled anew when its source is newer.

    Raises:
        Unavailable: There is no C compiler, or it refuses.
    """
    sources = [HERE / f"{name}.c", HERE / "wire.h"]
    made = ENV / name
    if not made.exists() or made.stat().st_mtime < max(each.stat().st_mtime for each in sources):
        ENV.mkdir(exist_ok=True)
        _run("cc", "-O2", "-Wall", "-Wextra", "-o", str(made), str(sources[0]))
    return made


def debian(name: str, *libraries: str) -> tuple[Path, dict[str, str]]:
    """A program of Debian's, and the environment in which it runs.

    One that is installed is used; else its package is fetched and unpacked, so
    that no service of it ever runs.

    Args:
        name: of the program and of its package.
        libraries: packages that it needs and that a bare system lacks.

    Raises:
        Unavailable: It is neither installed nor to be had from apt.
    """
    installed = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if installed:
        return Path(installed), {}
    root = ENV / "debian"
    binary = root / "usr/sbin" / name
    if not binary.exists():
        packages = ENV / "packages"
        packages.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            _run("apt-get", "-q", "update")
        _run("apt-get", "-q", "download", name, *libraries, folder=packages)
        for each in packages.glob("*.deb"):
            _run("dpkg-deb", "--extract", str(each), str(root))
    return binary, {"LD_LIBRARY_PATH": ":".join(map(str, root.glob("usr/lib/*-linux-gnu")))}


def environment(name: str, *requirements: str) -> Path:
    """The folder of the programs of a Python environment that has ``requirements``.

    Raises:
        Unavailable: They cannot be installed.
    """
    folder = ENV / name
    stamp = folder / "requirements"
    wanted = "\n".join(requirements)
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        pip = (str(folder / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check")
        _run(*pip, "install", "--only-binary", ":all:", *requirements)
        stamp.write_text(wanted)
    return folder / "bin"


def _run(*command: str, folder: Path = HERE) -> None:
    print(f"Setting up: {' '.join(command)[:100]}", file=sys.stderr)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from None
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Unavailable(f"{command[0]} failed: {lines[-1][:200] if lines else done.returncode}")
