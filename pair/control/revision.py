"""The number by which a reader sees that something changed (UI-25)."""

from __future__ import annotations

import secrets


class Revision:
    """Counts the changes of what the API shows.

    Attributes:
        generation: another one in each process, so that numbers of two runs are never compared.
        number: of changes so far.
    """

    def __init__(self, generation: str | None = None) -> None:
        self.generation = generation or secrets.token_hex(8)
        self.number = 0

    def bump(self, changed: object = None) -> None:
        """Something changed; a subscriber for any :class:`pair.events.Signal`."""
        self.number += 1
