"""How a command can fail, and the exit code of each way (UI-100). Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from pair.privacy import clean_text

_HERE = {
    "unauthorized": "The control token is not that of this service. Name its state directory by --state-dir, "
    "or the file that has the token by --token-file.",
}
"""What the service says to programs, as a person at the command line is told it; by code."""


class CommandError(Exception):
    """A command that cannot be done. ``code`` is for programs, ``body`` the JSON that tells of it."""

    exit_code = 1

    def __init__(self, code: str, message: str, body: bytes | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.body = body or msgspec.json.encode({"error": {"code": code, "message": message}})


class Failed(CommandError):  # noqa: N818 - with its base it is
    """It was refused, or went wrong."""

    @classmethod
    def refused(cls, status: int, body: bytes) -> Failed:
        """By the service, in the form of UI-23; or by something else that stands at that address."""
        try:
            error: Any = msgspec.json.decode(body)["error"]
            code, message = str(error["code"]), clean_text(str(error["message"]))
            message = _HERE.get(code, message)
            details = [f"{name} {value}" for name, value in dict(error.get("details") or {}).items()]
        except (msgspec.DecodeError, KeyError, TypeError, ValueError):
            return cls("bad_answer", f"What answers there is not PAIR: it says {status} and no more.")
        name = error.get("id")
        shown = f"{message} ({code}, {clean_text(str(name))})" if name else f"{message} ({code})"
        return cls(code, "; ".join([shown, *map(clean_text, details)]), body)


class Unreachable(CommandError):  # noqa: N818 - the same
    """The service is not running, or does not answer."""

    exit_code = 3

    def __init__(self, message: str) -> None:
        super().__init__("unreachable", message)
