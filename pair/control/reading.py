"""The query and the body of a request as the table has them (UI-12). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct

from pair.surfaces.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

S = TypeVar("S", bound=Struct)

_PLACE = re.compile(r" - at `\$\.?([^`]*)`$")
_UNKNOWN = re.compile(r"(?:unknown|missing required) field `([^`]*)`")


def read_query(arguments: Mapping[bytes, list[bytes]], wanted: type[S]) -> S:
    """The query as ``wanted``.

    Raises:
        Refused: It has what ``wanted`` has not, a value that it does not allow, or the same name twice (JB-58).
    """
    values = {}
    for name, given in arguments.items():
        if len(given) > 1:
            raise invalid(name.decode("utf-8", "replace"), "It may be given once.")
        values[name.decode("utf-8", "replace")] = given[0].decode("utf-8", "replace")
    try:
        return msgspec.convert(values, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(_path(error), "It is not known here, or it has a value that is not allowed.") from None


def read_body(data: bytes, wanted: type[S]) -> S:
    """The body as ``wanted``; no body at all is an empty object.

    Raises:
        Refused: It is not JSON, or does not fit (UI-12).
    """
    try:
        return msgspec.json.decode(data or b"{}", type=wanted)
    except msgspec.ValidationError as error:
        message = "The body has a field that is not known here or of a wrong type, or lacks one."
        raise Refused(400, "bad_request", message, path=_path(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refused(400, "bad_request", "The body is not one JSON value.", path="") from None


def invalid(path: str, message: str) -> Refused:
    """The refusal of a value, with the place where it stands."""
    return Refused(422, "invalid_value", message, path=path)


def _path(error: msgspec.ValidationError) -> str:
    """The field of which ``error`` tells, as a dotted path."""
    text = str(error)
    place, unknown = _PLACE.search(text), _UNKNOWN.search(text)
    return ".".join(found[1] for found in (place, unknown) if found is not None)
