"""Figures and names as words for a person. Pure; a name of others loses what could play tricks on a terminal."""

from __future__ import annotations

from typing import Any

from pair.privacy import clean_text

NOTHING = "–"
"""Stands for what is not known or not there."""


def word(value: Any) -> str:
    """``value`` as one line of text."""
    return NOTHING if value in (None, "") else clean_text(str(value))


def note(value: str | None) -> str:
    """A remark, as long as it is; where there is none there is nothing to be missed."""
    return clean_text(value or "", 1000)


def short(node: str | None) -> str:
    """The first part of a UUID."""
    return word(node and node.partition("-")[0])


def size(octets: int | None) -> str:
    """``octets`` in the unit that gives the shortest figure."""
    if octets is None:
        return NOTHING
    amount = float(octets)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit in ("B", "KiB") else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def span(milliseconds: float | None) -> str:
    """A duration, in one unit or two."""
    if milliseconds is None:
        return NOTHING
    if milliseconds < 1000:
        return f"{max(0, milliseconds):.0f} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"


def ago(at: int | None, now: int) -> str:
    """How long ago ``at`` was, both in epoch milliseconds."""
    if at is None:
        return NOTHING
    return "now" if now - at < 1000 else f"{span(now - at)} ago"
