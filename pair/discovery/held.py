"""Entries of the error book that stand as long as something holds, told once when it begins and once when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pair.interfaces import IErrorBook
    from pair.records.errors import Subject


class Held:
    """Knows which of its entries stand, so that what still holds is no news."""

    def __init__(self, errors: IErrorBook) -> None:
        """None does yet."""
        self._errors = errors
        self._standing: set[str] = set()

    def set(self, id: str, holds: bool, subject: Subject | None = None, **values: Any) -> None:
        """Whether ``id`` holds now; ``values`` fill the text of its declaration."""
        if holds and id not in self._standing:
            self._standing.add(id)
            self._errors.raise_entry(id, subject=subject, **values)
        elif not holds and id in self._standing:
            self._standing.discard(id)
            self._errors.clear(id)
