"""What every part stands on: the state directory, the log, the store; opened first and closed last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.application.service import Service

from pair.logs import configure
from pair.store import Store
from pair.supervision.ordered import OrderedServices

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from pair.settings import Settings
    from pair.statedir import StateDirectory


class Ground(OrderedServices):
    """Each of the three is required: without it there is no node.

    Attributes:
        directory: the state directory, held by this process alone while this runs (OP-13, OP-14).
        logs: writes the log.
        store: open while this runs.
    """

    def __init__(self, reactor: Any, settings: Settings, directory: StateDirectory) -> None:
        super().__init__(reactor, settings.service.stop_deadline)
        self.directory = directory
        self.logs = configure(settings.log, directory.path / "logs", reactor.callFromThread)
        self.store = Store(directory.path / "pair.sqlite3", reactor)
        self.add("state directory", _Held(directory), required=True)
        self.add("log", self.logs, required=True)
        self.add("store", _Opened(self.store), required=True)


class _Held(Service):
    """The state directory, held by this process alone while it runs (OP-13, OP-14)."""

    def __init__(self, directory: StateDirectory) -> None:
        self._directory = directory

    def startService(self) -> None:
        """Make it, check it, lock it."""
        super().startService()
        self._directory.prepare()
        self._directory.lock()

    def stopService(self) -> None:
        """Let it go."""
        super().stopService()
        self._directory.unlock()


class _Opened(Service):
    """The store, open while this runs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def startService(self) -> None:
        """Open it, and bring it to our schema."""
        super().startService()
        self._store.open()

    def stopService(self) -> Deferred[None]:
        """Write what is queued, and close it."""
        super().stopService()
        return self._store.close()
