"""What is wrong in the cluster, as this node shows it (JB-73, JB-77 to JB-79).

The entries of each node are its own: here they are shown or hidden, never
changed. It must not know how they travel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import nsmallest
from typing import TYPE_CHECKING

from twisted.application.service import Service

from pair.errors.book import LIMIT, RANK
from pair.events import Signal
from pair.feeds.reader import Changed, Replaced
from pair.records.errors import ErrorChanged, ShownError

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.interfaces import IDelayedCall, IReactorTime

    from pair.errors.book import ErrorBook
    from pair.feeds.reader import News
    from pair.records.errors import ServiceError
    from pair.records.nodes import Presence

KEPT_SECONDS = 600.0
"""For so long the entries of a node that is offline are still shown (JB-78)."""


JOIN_SECONDS = 0.05
"""From news of another node to what is shown: as much as comes meanwhile is looked at once, not for each entry."""


class NoSuchEntry(Exception):  # noqa: N818 - a fact, not a fault
    """No such entry is shown."""


@dataclass
class _Origin:
    """A node: its entries, by their ids; what is shown of them; whether it is there.

    ``gone``: it has been offline for too long. ``leaving`` makes it so;
    ``showing`` shows what is news of it.
    """

    name: str
    entries: dict[str, ServiceError] = field(default_factory=dict)
    shown: dict[str, ShownError] = field(default_factory=dict)
    offline: bool = False
    gone: bool = False
    leaving: IDelayedCall | None = None
    showing: IDelayedCall | None = None


class ErrorView(Service):
    """The book of this node and those of the others. It follows its own book while it runs.

    Attributes:
        changed: Emits each entry as it is shown, changed or shown no more.
    """

    def __init__(self, clock: IReactorTime, me: str, book: ErrorBook) -> None:
        """It knows of no other node.

        Args:
            clock: For what is kept of a node that is offline.
            me: UUID of this node.
            book: Its own.
        """
        self.changed: Signal[ErrorChanged] = Signal()
        self._clock = clock
        self._me = me
        self._book = book
        self._origins: dict[str, _Origin] = {}
        self._hidden: dict[tuple[str, str], int] = {}
        self._ends: tuple[Callable[[], None], ...] = ()

    def startService(self) -> None:
        """Show the own book, and follow it."""
        super().startService()
        own = self._origin(self._me)
        own.entries = {entry.id: entry for entry in self._book.entries()}
        self._show(own)
        self._ends = (self._book.changed.subscribe(self._own_changed), self._book.removed.subscribe(self._own_removed))

    def stopService(self) -> None:
        """Follow it no more, and wait for nothing."""
        super().stopService()
        for end in self._ends:
            end()
        for each in self._origins.values():
            self._stay(each)
            self._wait_no_more(each)

    def entries(self) -> tuple[ShownError, ...]:
        """What is shown: by severity, then the newest first, then by id (JB-79)."""
        self._book.expire()
        shown = (entry for each in self._origins.values() for entry in each.shown.values())
        return tuple(sorted(shown, key=_order))

    @property
    def hidden(self) -> int:
        """How many entries hold, and are not shown, for they were dismissed or hidden here."""
        return self._book.hidden + sum(self._is_hidden(*key) for key in self._hidden)

    def dismiss(self, id: str) -> None:
        """Dismiss an entry of this node (:meth:`pair.errors.book.ErrorBook.dismiss`)."""
        self._book.dismiss(id)

    def hide(self, node: str, id: str) -> None:
        """Show an entry no more on this node, until it is raised anew after a clear (JB-73).

        Raises:
            NoSuchEntry: None of that id is shown of that node.
        """
        known = self._origins.get(node)
        entry = None if known is None else known.shown.get(id)
        if known is None or entry is None:
            raise NoSuchEntry("No such error entry is shown.")
        self._hidden[node, id] = entry.first_at
        self._show(known)

    def news(self, origin: str, news: News[ServiceError]) -> None:
        """The feed of another node has brought something."""
        known = self._origin(origin)
        for change in news.changes if isinstance(news, Replaced) else (news,):
            if isinstance(change, Changed):
                known.entries[change.key] = change.record
            else:
                known.entries.pop(change.key, None)
        if known.showing is None:
            known.showing = self._clock.callLater(JOIN_SECONDS, self._show, known)

    def presence(self, uuid: str, old: Presence, new: Presence) -> None:
        """The directory declares a node to be there or not (JB-78)."""
        known = self._origins.get(uuid)
        if known is None or known.offline == (new == "offline"):
            return
        known.offline = not known.offline
        known.gone = False
        self._stay(known)
        if known.offline:
            known.leaving = self._clock.callLater(KEPT_SECONDS, self._leave, known)
        self._show(known)

    def forget(self, origin: str) -> None:
        """It is no member any more."""
        known = self._origins.get(origin)
        if known is not None:
            self._stay(known)
            known.entries = {}
            self._show(known)
            del self._origins[origin]

    def _is_hidden(self, node: str, id: str) -> bool:
        known = self._origins.get(node)
        entry = None if known is None or known.gone else known.entries.get(id)
        return entry is not None and self._hidden[node, id] == entry.first_at

    def _origin(self, name: str) -> _Origin:
        return self._origins.setdefault(name, _Origin(name))

    def _own_changed(self, entry: ServiceError) -> None:
        own = self._origin(self._me)
        own.entries[entry.id] = entry
        self._show(own)

    def _own_removed(self, id: str) -> None:
        own = self._origin(self._me)
        own.entries.pop(id, None)
        self._show(own)

    def _leave(self, known: _Origin) -> None:
        known.leaving = None
        known.gone = True
        self._show(known)

    def _stay(self, known: _Origin) -> None:
        if known.leaving is not None:
            known.leaving.cancel()
            known.leaving = None

    def _wait_no_more(self, known: _Origin) -> None:
        if known.showing is not None and known.showing.active():
            known.showing.cancel()
        known.showing = None

    def _show(self, known: _Origin) -> None:
        """Bring what is shown of a node up to date, and tell what has changed."""
        self._wait_no_more(known)
        name, before = known.name, known.shown
        self._hidden = {
            key: first_at for key, first_at in self._hidden.items() if key[0] != name or key[1] in known.entries
        }
        most = [] if known.gone else nsmallest(LIMIT, known.entries.values(), key=_order)
        known.shown = {
            entry.id: ShownError.of(entry, stale=known.offline)
            for entry in most
            if self._hidden.get((name, entry.id)) != entry.first_at
        }
        for id in before.keys() - known.shown.keys():
            self.changed.emit(ErrorChanged(name, id, None))
        for id, shown in known.shown.items():
            if before.get(id) != shown:
                self.changed.emit(ErrorChanged(name, id, shown))


def _order(entry: ServiceError) -> tuple[int, int, str, str]:
    return RANK[entry.severity], -entry.at, entry.id, entry.node
