"""A reactor thread for tests of parts that have a thread of their own, the store for one.

The test's thread is the reactor thread: it waits for what other threads ask
of it, so nothing polls and nothing sleeps.
"""

from __future__ import annotations

import queue
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.task import Clock

from pair.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from twisted.internet.defer import Deferred
    from twisted.trial.unittest import SynchronousTestCase

T = TypeVar("T")

PATIENCE = 30.0
"""After so many seconds without news from a thread a test fails instead of hanging."""


class Turns(Clock):
    """A clock whose ``callFromThread`` is served by :meth:`wait`."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: queue.Queue[Callable[[], object]] = queue.Queue()

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None:
        self._asked.put(lambda: callable(*args, **kwargs))

    def wait(self, deferred: Deferred[T]) -> None:
        """Run what threads ask for until ``deferred`` has fired."""
        fired = []

        def note(result: object) -> object:
            fired.append(True)
            return result

        deferred.addBoth(note)
        while not fired:
            self._asked.get(timeout=PATIENCE)()


def open_store(test: SynchronousTestCase, path: str | None = None) -> tuple[Store, Turns]:
    """An open store in the test's own folder, closed when the test ends, and the turns that serve it."""
    turns = Turns()
    store = Store(Path(path or test.mktemp()), turns)
    store.open()
    test.addCleanup(lambda: turns.wait(store.close()))
    return store, turns
