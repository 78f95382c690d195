"""The entries of this node: raised, repeated, cleared, dismissed (JB-70 to JB-79). Pure.

It must not know who raises an entry or who shows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zope.interface import implementer

from pair.events import Signal
from pair.interfaces import IErrorBook
from pair.privacy import clean_text
from pair.records.errors import Condition, ServiceError, Severity, Subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from pair.errors.registry import Registry

LIMIT = 200
"""Entries held at once (JB-77)."""

AGE_MS = 24 * 3600 * 1000
"""How long an entry of the kind ``age`` is kept (JB-74)."""

_SUBJECT_LIMIT = 128
RANK: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
"""The worst first (JB-79)."""

_OVERFLOW = "errors:overflow"
_UNREGISTERED = "internal:unregistered_error"


class NotDismissable(Exception):  # noqa: N818 - a fact, not a fault
    """No entry of that id can be dismissed; the text says why."""


@implementer(IErrorBook)
class ErrorBook:
    """Conditions that hold now, one entry per id.

    Args:
        node: UUID of this node, the origin of every entry.
        registry: the declarations.
        now: epoch milliseconds.
    """

    def __init__(self, node: str, registry: Registry, now: Callable[[], int]) -> None:
        self.changed: Signal[ServiceError] = Signal()
        self.removed: Signal[str] = Signal()
        self._node = node
        self._registry = registry
        self._now = now
        self._entries: dict[str, ServiceError] = {}
        self._hidden: set[str] = set()

    def raise_entry(self, id: str, *, subject: Subject | None = None, **values: Any) -> None:
        """See :class:`pair.interfaces.IErrorBook`. An undeclared id becomes an entry that says so (JB-70)."""
        condition = self._registry.find(id)
        if condition is None:
            id, subject, values = _UNREGISTERED, None, {}
            condition = self._registry.find(id)
            assert condition is not None, "the book's own conditions are always declared"
        now = self._now()
        before = self._entries.get(id)
        if before is None and not self._make_room(condition.severity):
            self._overflow()
            return
        entry = ServiceError(
            id=_bounded(id),
            node=self._node,
            severity=condition.severity,
            message=_text(condition, values),
            action=condition.action,
            cleared=condition.cleared,
            first_at=before.first_at if before else now,
            at=now,
            count=before.count + 1 if before else 1,
            seq=before.seq + 1 if before else 1,
            subject=subject or Subject(),
        )
        self._entries[entry.id] = entry
        if entry.id not in self._hidden:
            self.changed.emit(entry)

    def clear(self, id: str) -> None:
        """See :class:`pair.interfaces.IErrorBook`."""
        id = _bounded(id)
        self._hidden.discard(id)
        if self._entries.pop(id, None) is not None:
            self.removed.emit(id)

    def dismiss(self, id: str) -> None:
        """Take an entry from sight (JB-74).

        One of the kind ``auto`` still holds: it is hidden until it is raised
        anew after a clear.

        Raises:
            NotDismissable: there is no such entry.
        """
        entry = self._entries.get(id)
        if entry is None or id in self._hidden:
            raise NotDismissable("No such error entry is shown on this node.")
        if entry.cleared == "auto":
            self._hidden.add(id)
            self.removed.emit(id)
        else:
            self.clear(id)

    def entries(self) -> tuple[ServiceError, ...]:
        """What is shown: by severity, then the newest first, then id (JB-79)."""
        self.expire()
        shown = (entry for id, entry in self._entries.items() if id not in self._hidden)
        return tuple(sorted(shown, key=lambda each: (RANK[each.severity], -each.at, each.id)))

    @property
    def hidden(self) -> int:
        """How many entries hold, and are dismissed."""
        return len(self._hidden)

    def expire(self) -> None:
        """Drop the events that are too old (JB-74)."""
        oldest = self._now() - AGE_MS
        for id, entry in list(self._entries.items()):
            if entry.cleared == "age" and entry.at < oldest:
                self.clear(id)

    def _make_room(self, severity: Severity) -> bool:
        """Whether one more entry fits; ``info``, then ``warning``, oldest first, give way to worse (JB-77)."""
        if len(self._entries) < LIMIT:
            return True
        self.expire()
        if len(self._entries) < LIMIT:
            return True
        last = max(self._entries.values(), key=lambda each: (RANK[each.severity], -each.at, each.id))
        if RANK[last.severity] <= RANK[severity]:
            return False
        self.clear(last.id)
        return True

    def _overflow(self) -> None:
        if _OVERFLOW not in self._entries:
            last = max(self._entries.values(), key=lambda each: (RANK[each.severity], -each.at, each.id))
            self.clear(last.id)
            self.raise_entry(_OVERFLOW, limit=LIMIT)


def _bounded(id: str) -> str:
    area, _, rest = id.partition(":")
    name, colon, subject = rest.partition(":")
    return f"{area}:{name}{colon}{clean_text(subject, _SUBJECT_LIMIT)}"


def _text(condition: Condition, values: dict[str, Any]) -> str:
    shown = {name: clean_text(str(value)) for name, value in values.items()}
    return condition.text.format_map(shown)
