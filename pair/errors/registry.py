"""All conditions that any area declares, joined. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pair.records.errors import Condition


class Registry:
    """Finds the declaration behind an id.

    Raises:
        ValueError: two areas declare the same id.
    """

    def __init__(self, conditions: Iterable[Condition]) -> None:
        self._by_stem: dict[str, Condition] = {}
        for condition in conditions:
            if condition.stem in self._by_stem:
                raise ValueError(f"the condition {condition.stem} is declared twice")
            self._by_stem[condition.stem] = condition

    def find(self, id: str) -> Condition | None:
        """The condition of ``<area>:<condition>[:<subject>]``.

        None where nobody declared it, or where the id has a subject and the
        declaration has none, or the other way round.
        """
        area, _, rest = id.partition(":")
        name, colon, subject = rest.partition(":")
        condition = self._by_stem.get(f"{area}:{name}")
        if condition is None:
            return None
        wants_subject = condition.id != condition.stem
        return condition if wants_subject == bool(colon and subject) else None
