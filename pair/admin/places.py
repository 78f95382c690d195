"""Where a service keeps what its clients need: the address in ``control.json``, the token in ``control.token``."""

from __future__ import annotations

import os
import re
import secrets
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from pair.admin.failures import Failed, Unreachable

if TYPE_CHECKING:
    from pathlib import Path

_TOKEN = re.compile(r"pair_ct_[A-Za-z0-9_-]+")
_ENOUGH = 4096
"""Characters that no file with a token has."""

START = "twistd -n pair"
IN_A_CHECKOUT = " (in a checkout: make run)"
"""What starts PAIR."""


class ControlFile(Struct, frozen=True, rename="camel"):
    """What ``control.json`` holds (UI-2)."""

    url: str
    pid: int
    version: str


def control_file(state: Path, start: str) -> ControlFile:
    """Where the running service is; ``start`` is the command that starts it.

    Raises:
        Unreachable: No service has said so (UI-102).
    """
    path = state / "control.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=ControlFile)
    except FileNotFoundError:
        raise Unreachable(f"PAIR is not running: there is no {path}. To start it: {start}") from None
    except PermissionError:
        raise Unreachable(
            f"It cannot be told where PAIR is: this user may not read {path}. Be the user that runs PAIR."
        ) from None
    except (OSError, msgspec.DecodeError):
        raise Unreachable(f"It cannot be told where PAIR is: {path} cannot be read.") from None


def token(path: Path) -> str:
    """The control token.

    Raises:
        Failed: It cannot be read, or the file holds something else.
    """
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            text = file.read(_ENOUGH).strip()
    except FileNotFoundError:
        raise Failed(
            "no_token",
            f"The control token cannot be read: there is no {path}. "
            "Which service is meant: --state-dir; another file: --token-file",
        ) from None
    except PermissionError:
        raise Failed(
            "no_token",
            f"The control token cannot be read: this user may not read {path}. Be the user that runs PAIR.",
        ) from None
    except OSError:
        raise Failed("no_token", f"The control token cannot be read: {path}") from None
    if _TOKEN.fullmatch(text) is None:
        raise Failed("no_token", f"There is no control token in {path}. One begins with pair_ct_.")
    return text


def rotate_token(state: Path) -> Path:
    """Replace the control token; the service takes the new one with the next request (UI-15).

    Returns:
        The file.

    Raises:
        Failed: It cannot be written.
    """
    path = state / "control.token"
    fresh = state / ".control.token.rotated"
    try:
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"pair_ct_{secrets.token_urlsafe(32)}\n")
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)
    except OSError:
        raise Failed("token_not_written", f"The control token cannot be replaced: {path}") from None
    return path
