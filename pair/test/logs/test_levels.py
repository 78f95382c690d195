"""Tests of :mod:`pair.logs.levels` and :mod:`pair.logs.logger`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from twisted.logger import ILogObserver, LogLevel, LogPublisher
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from pair.logs.levels import Levels
from pair.logs.logger import Logger

if TYPE_CHECKING:
    from twisted.logger import LogEvent


class LevelsTests(SynchronousTestCase):
    def least(self, namespace: str) -> int:
        levels = Levels()
        levels.set("info", {"pair.proxy": "debug", "pair.proxy.relay": "error", "klein": "warn"})
        return levels.gate(namespace).least

    def test_longest_prefix(self) -> None:
        """The longest prefix of whole names decides; without one the level for all (OP-28)."""
        for namespace, rank in (
            ("pair.proxy", 0),
            ("pair.proxy.admission", 0),
            ("pair.proxy.relay", 3),
            ("pair.proxy.relay.Relay", 3),
            ("pair.proxying", 1),
            ("pair", 1),
            ("klein.app", 2),
            ("", 1),
        ):
            self.assertEqual(self.least(namespace), rank, namespace)

    def test_twisted_is_quiet(self) -> None:
        """Twisted's own lines begin at warn, unless a setting says else."""
        self.assertEqual(self.least("twisted.internet.protocol.Factory"), 2)
        levels = Levels()
        levels.set("info", {"twisted": "debug"})
        self.assertEqual(levels.gate("twisted.web").least, 0)

    def test_before_set(self) -> None:
        """Before the settings are known everything passes."""
        self.assertEqual(Levels().gate("pair.x").least, 0)

    def test_change_reaches_gates(self) -> None:
        """A change reaches the gates that are given out, so the next event obeys it (OP-28)."""
        levels = Levels()
        gate = levels.gate("pair.x")
        levels.set("error", {})
        self.assertEqual(gate.least, 3)
        levels.set("error", {"pair": "debug"})
        self.assertEqual(gate.least, 0)


class LoggerTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.events: list[LogEvent] = []
        self.levels = Levels()
        publisher = LogPublisher(cast(ILogObserver, self.events.append))
        self.log = Logger("pair.x", observer=publisher, levels=self.levels)

    def seen(self) -> list[str]:
        return [event["log_level"].name for event in self.events]

    def say_all(self) -> None:
        for say in (self.log.debug, self.log.info, self.log.warn, self.log.error, self.log.critical):
            say("{n} things", n=1)

    def test_suppressed(self) -> None:
        """Below the level of its namespace no event is made (OP-28)."""
        self.levels.set("warn", {})
        self.say_all()
        self.assertEqual(self.seen(), ["warn", "error", "critical"])

    def test_all(self) -> None:
        """At debug all are made, as Twisted's logger makes them."""
        self.levels.set("debug", {})
        self.say_all()
        self.assertEqual(len(self.events), 5)
        event = self.events[0]
        self.assertEqual((event["log_namespace"], event["log_format"], event["n"]), ("pair.x", "{n} things", 1))
        self.assertIs(event["log_logger"], self.log)

    def test_failure(self) -> None:
        """A failure goes the same way."""
        self.levels.set("error", {})
        self.log.failure("It broke.", Failure(ValueError()))
        self.log.failure("It broke a little.", Failure(ValueError()), level=LogLevel.warn)
        self.assertEqual([event["log_format"] for event in self.events], ["It broke."])

    def test_namespace(self) -> None:
        """Without a name it takes that of the module, or of the class of which it is an attribute."""

        class Thing:
            log = Logger()

        self.assertEqual((Logger().namespace, Thing.log.namespace), (__name__, f"{__name__}.Thing"))
        self.assertIs(type(Thing.log), Logger)
