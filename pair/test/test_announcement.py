"""Tests of :mod:`pair.announcement`."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from pair.announcement import Announcement
from pair.events import Signal
from pair.supervision.notify import SystemdNotifier


class Manager(SystemdNotifier):
    """What the service manager was told."""

    def __init__(self) -> None:
        super().__init__(Clock(), {}, 1)
        self.told: list[tuple[str, str]] = []

    def ready(self, status: str) -> None:
        """READY."""
        self.told.append(("ready", status))

    def status(self, status: str) -> None:
        """STATUS."""
        self.told.append(("status", status))


class AnnouncementTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reasons: list[str] = []
        self.manager = Manager()
        self.news: Signal[None] = Signal()
        self.announcement = Announcement(
            "1.0", lambda: self.reasons, lambda: "ollama bound on 11434", self.manager, [self.news]
        )
        logs = capturedLogs()
        self.events = logs.__enter__()
        self.addCleanup(logs.__exit__, None, None, None)

    def lines(self) -> list[str]:
        return [f"{event['log_level'].name} {formatEvent(event)}" for event in self.events]

    def test_ready_at_once(self) -> None:
        """A node that lacks nothing is announced when its start is over, and only then (OP-47)."""
        self.news.emit(None)
        self.assertEqual((self.lines(), self.manager.told), ([], []))
        self.announcement.begin()
        self.assertEqual(self.lines(), ["info PAIR 1.0 is ready: ollama bound on 11434."])
        self.assertEqual(self.manager.told, [("ready", "ollama bound on 11434")])

    def test_ready_later(self) -> None:
        """One that is not ready says why, and is announced once, when no reason is left (OP-43, OP-47)."""
        self.reasons = ["facade_ollama_failed", "store_read_only"]
        self.announcement.begin()
        self.assertEqual(
            self.lines(),
            ["warn PAIR 1.0 has started, and is not ready: facade_ollama_failed, store_read_only."],
        )
        self.assertEqual(self.manager.told, [("status", "not ready: facade_ollama_failed, store_read_only")])
        self.reasons.pop()
        self.news.emit(None)
        self.assertEqual(len(self.events), 1)
        for reasons in ([], ["store_read_only"], []):
            self.reasons = reasons
            self.news.emit(None)
        self.assertEqual(self.lines()[1:], ["info PAIR 1.0 is ready: ollama bound on 11434."])
        self.assertEqual(self.manager.told[1:], [("ready", "ollama bound on 11434")])
