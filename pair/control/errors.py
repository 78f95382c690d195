"""What the API says of error entries, and does to them for people (UI-47)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pair.control.views import Collection
from pair.errors.book import NotDismissable
from pair.errors.view import NoSuchEntry
from pair.records.errors import ServiceError, ShownError
from pair.surfaces.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pair.control.sources import Errors


class ErrorList(Collection, frozen=True):
    """``GET /errors``; ``hidden`` more hold, and were dismissed, or hidden on this node (UI-47)."""

    errors: tuple[ShownError, ...]
    hidden: int


class Dismissed(Struct, frozen=True):
    """The answer to a dismissal."""

    dismissed: str


class Hidden(Struct, frozen=True):
    """The answer to a hiding: what is out of sight on this node, and on no other."""

    node: str
    hidden: str


def shown(entries: Sequence[ServiceError]) -> tuple[ShownError, ...]:
    """``entries`` with what a list says of each."""
    return tuple(each if isinstance(each, ShownError) else ShownError.of(each) for each in entries)


def dismissed(errors: Errors, node: str, id: str, me: str) -> Dismissed:
    """It, out of sight (JB-74).

    Raises:
        Refused: There is none, or it is another node's (JB-73).
    """
    if node != me:
        if not any((each.node, each.id) == (node, id) for each in errors.entries()):
            raise _none()
        message = "Only the node that raised it can dismiss it. Do it there, or hide it here: pair-admin error hide."
        raise Refused(409, "not_origin", message, node=node)
    try:
        errors.dismiss(id)
    except NotDismissable:
        raise _none() from None
    return Dismissed(id)


def hidden(hide: Callable[[str, str], object], node: str, id: str) -> Hidden:
    """It, out of sight on this node.

    Raises:
        Refused: There is none.
    """
    try:
        hide(node, id)
    except NoSuchEntry:
        raise _none() from None
    return Hidden(node, id)


def _none() -> Refused:
    return Refused(404, "no_such_error", "No such error entry is shown on this node.")
