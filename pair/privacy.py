"""What may be shown: secrets, texts of others, names from the network (OP-34).

Pure. Whatever comes from a client, an engine or a peer passes through here
before it reaches a log line, a record or an answer of ours.
"""

from __future__ import annotations

import unicodedata
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import PurePath

_TEXT_LIMIT = 200

_KINDS = {
    "AlreadyRunning": "another instance runs on the state directory",
    "BrokenPipeError": "the connection broke",
    "CancelledError": "it was cancelled",
    "CannotListenError": "the port could not be bound",
    "ConnectError": "the connection could not be made",
    "ConnectionAborted": "the connection was broken off",
    "ConnectionAbortedError": "the connection was broken off",
    "ConnectionClosed": "the connection was closed",
    "ConnectionLost": "the connection broke",
    "ConnectionRefusedError": "the connection was refused",
    "ConnectionResetError": "the connection was reset",
    "DNSLookupError": "the name does not resolve",
    "DatabaseError": "the database refused",
    "DecodeError": "the text could not be decoded",
    "FileExistsError": "the file exists already",
    "FileNotFoundError": "the file does not exist",
    "JSONDecodeError": "the text could not be decoded",
    "OSError": "the operating system refused",
    "PermissionError": "access was denied",
    "PortDenied": "the system does not let PAIR listen there",
    "PortTaken": "another program has the port",
    "ProcessDone": "the process ended",
    "ProcessTerminated": "the process ended badly",
    "RecursionError": "the text is nested too deeply",
    "ResponseFailed": "the answer broke off",
    "ResponseNeverReceived": "no answer came",
    "SSLError": "the TLS connection failed",
    "StateError": "the state directory cannot be used",
    "TCPTimedOutError": "it took too long",
    "TimeoutError": "it took too long",
    "UnicodeError": "the text is not valid in its encoding",
    "UnknownHostError": "the name does not resolve",
    "gaierror": "the name does not resolve",
}
"""Names of exception classes, which stand for their subclasses too, and the text for all of the kind."""

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of controls, of format characters (those that turn the direction among them), and of line ends."""

_JOINERS = "\u200c\u200d"
"""Format characters that names need: Persian and Indic words, and most emoji of people."""


class Secret:
    """A value that never shows itself: its text, ``repr`` and format are ``***``."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value, for the one place that sends or compares it."""
        return self._value

    def __str__(self) -> str:
        return "***"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


def clean_text(text: str, limit: int = 256) -> str:
    """``text`` without control, bidirectional and other hidden characters.

    Args:
        text: from anywhere.
        limit: the most characters of the result, from 1 on; a longer one is cut and ends in ``…``.
    """
    if not text.isprintable():
        shown = (each for each in text if each in _JOINERS or unicodedata.category(each) not in _HIDDEN)
        text = "".join(islice(shown, limit + 1))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def path_text(path: PurePath) -> str:
    """``path`` as a text that any encoding takes: what is not UTF-8 in it is marked by U+FFFD."""
    return str(path).encode(errors="surrogateescape").decode(errors="replace")


def normalize_error(error: BaseException) -> str:
    """The type of ``error`` and a fixed text for its kind; never a word of its own (OP-34).

    Returns:
        One line of at most 200 characters.
    """
    names = [each.__name__ for each in type(error).__mro__]
    text = next((_KINDS[name] for name in names if name in _KINDS), "it failed")
    return f"{names[0]}: {text}"[:_TEXT_LIMIT]
