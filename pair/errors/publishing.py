"""Tells the other nodes what is wrong on this one (JB-73, JB-75)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.application.service import Service

from pair.supervision.repeating import Repeating

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.defer import Deferred
    from twisted.internet.interfaces import IReactorTime

    from pair.errors.book import ErrorBook
    from pair.feeds.publisher import Feed
    from pair.records.errors import ServiceError

EXPIRE_EVERY = 60.0
"""Seconds between two looks for events that are too old."""


class ErrorPublisher(Service):
    """Keeps a feed equal to what the book shows.

    Args:
        clock: For the age of events.
        book: Of this node.
        feed: Where it is published.
    """

    def __init__(self, clock: IReactorTime, book: ErrorBook, feed: Feed[ServiceError]) -> None:
        self._book = book
        self._feed = feed
        self._expiring = Repeating(clock, EXPIRE_EVERY, book.expire, "The expiry of error entries")
        self._ends: tuple[Callable[[], None], ...] = ()

    def startService(self) -> None:
        """Publish what holds, and what comes."""
        super().startService()
        for entry in self._book.entries():
            self._put(entry)
        self._ends = (self._book.changed.subscribe(self._put), self._book.removed.subscribe(self._feed.remove))
        self._expiring.startService()

    def stopService(self) -> Deferred[None]:
        """Publish no more."""
        super().stopService()
        for end in self._ends:
            end()
        return self._expiring.stopService()

    def _put(self, entry: ServiceError) -> None:
        self._feed.put(entry.id, entry)
