"""Codes: what the inviter shows and the joiner types (CL-32).

Pure. A code is carried in a ``Secret`` in its plain form: six digits, or twenty
hex digits in lower case.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from pair.privacy import Secret

if TYPE_CHECKING:
    from collections.abc import Callable

CodeKind = Literal["pin", "long"]

_FORMS = {"pin": re.compile("[0-9]{6}"), "long": re.compile("[0-9a-f]{20}")}
_GROUPS = {"pin": 3, "long": 5}


class CodeError(ValueError):
    """What was typed is no code of its kind. Quotes nothing of it."""


def draw_code(kind: CodeKind, below: Callable[[int], int]) -> Secret:
    """A new code: one of 10⁶ PINs, or of 2⁸⁰ long ones, each as likely as any other.

    Args:
        kind: Which.
        below: Gives a random number from 0 to its argument, that excluded: ``secrets.randbelow``.
    """
    if kind == "pin":
        return Secret(f"{below(10**6):06d}")
    return Secret(f"{below(2**80):020x}")


def parse_code(kind: CodeKind, typed: str) -> Secret:
    """The code that a person typed, with any spacing and in any case.

    Raises:
        CodeError: It has not the form of its kind. Nothing is spent by that.
    """
    plain = "".join(typed.split()).lower()
    if not _FORMS[kind].fullmatch(plain):
        raise CodeError("it is not six digits" if kind == "pin" else "it is not twenty hex digits")
    return Secret(plain)


def show_code(kind: CodeKind, code: Secret) -> str:
    """The code in groups, for the one place that shows it to a person."""
    plain, size = code.reveal(), _GROUPS[kind]
    return " ".join(plain[at : at + size] for at in range(0, len(plain), size))


def password(kind: CodeKind, code: Secret) -> bytes:
    """What the PAKE is given."""
    return f"{kind}:{code.reveal()}".encode("ascii")
