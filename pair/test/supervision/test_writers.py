"""Writers that hang (OP-50)."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from pair.supervision.writers import WriterWatch
from pair.test.supervision.doubles import Entries


class Disk:
    """A writer of which the test says for how long it has been busy."""

    busy_seconds = 0.0


class WriterWatchTests(SynchronousTestCase):
    """Two writers, looked at every second."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.errors = Entries()
        self.store, self.log = Disk(), Disk()
        self.watch = WriterWatch(self.clock, {"store": self.store, "log": self.log}, self.errors)
        self.watch.startService()

    def test_busy_is_not_stalled(self) -> None:
        """A writer may be at one item for 20 s."""
        self.store.busy_seconds = 20.0
        self.clock.advance(1)
        self.assertEqual((self.watch.stalled, self.errors.calls), ((), []))

    def test_stalled(self) -> None:
        """One that needs longer is an entry, raised once, and named for ``/readyz`` (OP-50)."""
        self.store.busy_seconds = 20.1
        self.clock.pump([1, 1, 1])
        self.assertEqual(self.watch.stalled, ("store",))
        self.assertEqual(self.errors.calls, ["raise supervision:writer_stalled:store"])

    def test_goes_on(self) -> None:
        """The entry leaves when the item is done."""
        self.log.busy_seconds = 30.0
        self.clock.advance(1)
        self.log.busy_seconds = 0.0
        self.clock.advance(1)
        self.assertEqual((self.watch.stalled, self.errors.held), ((), {}))
