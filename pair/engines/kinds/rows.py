"""Reading what engines list: one bad field spoils no row, one bad row no list. Pure.

An array that is missing, null or of another type, and one without a usable
row, tell nothing and are never taken for an empty list (EN-79).
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Raw

from pair.engines.facts import Answer, Listing

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from pair.records.engines import Model

MODELS_MAX = 1800
ID_BYTES_MAX = 200
LISTED_BYTES_MAX = 4096

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

_SCALES = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}

_CAPABILITIES = ("chat", "completion", "embedding", "vision", "tools", "thinking")

T = TypeVar("T")


def decoded(answer: Answer | None, type: type[T]) -> T | None:
    """The body of a 200 answer as ``type``; None where there is none or it is something else."""
    if answer is None or answer.status != 200:
        return None
    return decode(answer.body, type)


def decode(data: bytes | Raw, type: type[T]) -> T | None:
    """``data`` as ``type``, or None."""
    try:
        return msgspec.json.decode(data, type=type)
    except (msgspec.DecodeError, RecursionError):
        return None


def listing(rows: list[Raw], read: Callable[[Raw], Model | None], *, loaded_known: bool) -> Listing | None:
    """``rows`` as models, each read by ``read`` (None: the row is not usable); the first of two with one id counts.

    Returns:
        None where there are rows and none of them is usable.
    """
    models: dict[str, Model] = {}
    dropped = 0
    for row in rows:
        model = read(row)
        if model is None:
            continue
        if not fits(model.id):
            dropped += 1
        elif model.id not in models:
            models[model.id] = model
    if rows and not models:
        return None
    kept = tuple(models.values())[:MODELS_MAX]
    return Listing(kept, loaded_known=loaded_known, dropped=dropped + len(models) - len(kept))


def fits(id: str) -> bool:
    """Whether ``id`` may be a model's: 1 to 200 bytes of UTF-8 without control characters (EN-83)."""
    return 0 < len(id.encode()) <= ID_BYTES_MAX and _CONTROL.search(id) is None


def listed(row: Raw) -> Raw | None:
    """``row`` to be kept beside its model, or None if it is over 4 KiB (EN-83).

    It is decoded as a whole once, since the fields that a kind does not read
    are not looked at otherwise and others will have to.
    """
    data = bytes(row)
    return Raw(data) if len(data) <= LISTED_BYTES_MAX and decode(data, object) is not None else None


def text(value: object) -> str | None:
    """``value`` if it is a text that says something."""
    return value if isinstance(value, str) and value else None


def count(value: object) -> int | None:
    """``value`` if it is a whole number from 0 on."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def mapping(value: object) -> dict[str, object]:
    """``value`` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def texts(value: object) -> Iterator[str]:
    """The texts in ``value`` if it is an array, else nothing."""
    return (each for each in value if isinstance(each, str)) if isinstance(value, list) else iter(())


def capabilities(words: Container[str]) -> tuple[str, ...]:
    """Of what an engine says of a model, the words that we know, in our order."""
    return tuple(each for each in _CAPABILITIES if each in words)


def parameters(value: object) -> int | None:
    """``4.3B``, ``270M`` and the like as a number."""
    if not isinstance(value, str) or value[-1:] not in _SCALES:
        return None
    try:
        number = float(value[:-1]) * _SCALES[value[-1]]
    except ValueError:
        return None
    return round(number) if 0 <= number < 10**18 else None


def instant(value: object) -> int | None:
    """An RFC 3339 time in epoch milliseconds; None where it is not one, or before 1970 (Go's zero time)."""
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        milliseconds = int(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return None
    return milliseconds if moment.tzinfo is not None and milliseconds >= 0 else None
