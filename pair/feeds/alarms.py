"""Raises and clears the conditions of feeds (JB-5, JB-23, JB-25, JB-27).

An entry is about a node, and a node has several feeds: it holds as long as one
of them says so.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pair.feeds.watch import FeedFinding
from pair.records.errors import Subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from pair.feeds.publisher import Feed
    from pair.interfaces import IErrorBook


class FeedAlarms:
    """One for all feeds, of this node and of others.

    Args:
        errors: Where the entries go.
        named: What a node (UUID) is called, for a person.
    """

    def __init__(self, errors: IErrorBook, named: Callable[[str], str]) -> None:
        self._errors = errors
        self._named = named
        self._feeds: dict[str, set[str]] = {}

    def found(self, finding: FeedFinding) -> None:
        """This is what is wrong with an origin, by one of its feeds, from now on."""
        origin = finding.origin
        self._judge(f"feeds:bad_peer:{origin}", finding, finding.bad_peer)
        self._judge(f"feeds:clock_skew:{origin}", finding, finding.skewed)

    def forget(self, origin: str, feed: str) -> None:
        """That feed of ``origin`` is not followed any more."""
        self.found(FeedFinding(origin, feed))

    def watch(self, feed: Feed[Any]) -> None:
        """Tell from now on while ``feed``, one of this node's own, has a record that is over its limit."""
        feed.over_limit.subscribe(partial(self._over, feed.feed))

    def _over(self, feed: str, over: bool) -> None:
        id = f"feeds:record_too_large:{feed}"
        if over:
            self._errors.raise_entry(id, feed=feed)
        else:
            self._errors.clear(id)

    def _judge(self, id: str, finding: FeedFinding, holds: bool) -> None:
        feeds = self._feeds.get(id, set())
        if holds == (finding.feed in feeds):
            return
        if holds:
            self._feeds[id] = feeds | {finding.feed}
            if not feeds:
                origin = finding.origin
                self._errors.raise_entry(id, subject=Subject(node=origin), name=self._named(origin))
        elif len(feeds) > 1:
            self._feeds[id] = feeds - {finding.feed}
        else:
            del self._feeds[id]
            self._errors.clear(id)
