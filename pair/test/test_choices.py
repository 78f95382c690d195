"""Tests of :mod:`pair.choices`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from pair.choices import Choices, SettingLocked, desired, drained, facade_port, routing_policy, selection
from pair.records.engines import Drain
from pair.settings import Loaded, load
from pair.test.turns import open_store

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

OLLAMA = desired("ollama")
PORT = facade_port("ollama")


class ChoicesTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.store, self.turns = open_store(self)

    def choices(self, loaded: Loaded | None = None) -> Choices:
        """Choices over the one store, as a start of the node makes them."""
        choices = Choices(self.store, loaded or load(), self.turns)
        choices.load()
        return choices

    def done(self, deferred: Deferred[None]) -> None:
        self.turns.wait(deferred)
        self.successResultOf(deferred)

    def test_nothing_chosen(self) -> None:
        """What nobody chose is None, which is not the same as off (EN-14)."""
        self.assertIsNone(self.choices().get(OLLAMA))

    def test_kept_over_a_start(self) -> None:
        """A choice holds at once, and at the next start."""
        first = self.choices()
        self.done(first.put(OLLAMA, "on"))
        self.assertEqual((first.get(OLLAMA), self.choices().get(OLLAMA)), ("on", "on"))

    def test_replaced_and_removed(self) -> None:
        """The last choice counts; one that is taken back is gone, and gone at the next start."""
        choices = self.choices()
        self.done(choices.put(OLLAMA, "on"))
        self.done(choices.put(OLLAMA, "off"))
        self.assertEqual(self.choices().get(OLLAMA), "off")
        self.done(choices.remove(OLLAMA))
        self.done(choices.remove(OLLAMA))
        self.assertEqual((choices.get(OLLAMA), self.choices().get(OLLAMA)), (None, None))

    def test_holds_when_on_disk(self) -> None:
        """A choice holds only once it is on the disk: a write that fails leaves the old one (OP-17)."""
        choices = self.choices()
        self.done(choices.put(OLLAMA, "on"))
        drop = self.store.write(lambda connection: connection.execute("DROP TABLE choices"))
        put = choices.put(OLLAMA, "off")
        self.assertEqual(choices.get(OLLAMA), "on")
        self.turns.wait(put)
        self.successResultOf(drop)
        self.failureResultOf(put)
        self.assertEqual(choices.get(OLLAMA), "on")

    def test_locked(self) -> None:
        """A choice against a setting is refused, naming where that is set (OP-7)."""
        choices = self.choices(load(environ={"PAIR_SET__PROXY__PORTS__OLLAMA": "9000"}))
        error = self.assertRaises(SettingLocked, choices.put, PORT, 9001)
        self.assertEqual(str(error), "proxy.ports.ollama is set by PAIR_SET__PROXY__PORTS__OLLAMA")
        self.assertRaises(SettingLocked, choices.remove, PORT)

    def test_locked_value_shows(self) -> None:
        """A stored choice under a lock stays without effect, and has effect again without the lock (OP-7)."""
        self.done(self.choices().put(PORT, 9001))
        locked = self.choices(load(["proxy.ports.ollama=9000"]))
        self.assertEqual((locked.get(PORT), self.choices().get(PORT)), (9000, 9001))

    def test_without_a_setting(self) -> None:
        """What no setting is about is never locked (RT-22, RT-27)."""
        choices = self.choices(load(["routing.policy=pressure"]))
        self.done(choices.put(selection("ollama"), "n1"))
        self.done(choices.put(drained(), Drain("paint")))
        again = self.choices()
        self.assertEqual((again.get(selection("ollama")), again.get(drained())), ("n1", Drain("paint")))
        self.assertEqual(again.effective(), load())
        self.assertRaises(SettingLocked, choices.put, routing_policy(), "pressure")

    def test_mode_locks(self) -> None:
        """``mode`` on or off in the settings beats the desired state; auto leaves it free (EN-14)."""
        self.done(self.choices().put(OLLAMA, "on"))
        off = self.choices(load(["engines.ollama.mode=off"]))
        self.assertEqual(off.get(OLLAMA), "off")
        self.assertRaises(SettingLocked, off.put, OLLAMA, "on")
        auto = self.choices(load(["engines.ollama.mode=auto"]))
        self.assertEqual(auto.get(OLLAMA), "on")
        self.done(auto.put(OLLAMA, "off"))

    def test_effective(self) -> None:
        """A stored facade port stands in the settings with its source; a locked one does not (PX-97)."""
        choices = self.choices()
        self.done(choices.put(PORT, 9001))
        self.done(choices.put(facade_port("lmstudio"), 9002))
        effective = self.choices(load(["proxy.ports.lmstudio=9003"])).effective()
        self.assertEqual(effective.settings.proxy.ports.ollama, 9001)
        self.assertEqual(effective.source("proxy.ports.ollama").name, "stored")
        self.assertEqual(effective.settings.proxy.ports.lmstudio, 9003)
        self.assertEqual(effective.source("proxy.ports.lmstudio").name, "option")

    def test_stored_by_a_newer_version(self) -> None:
        """A stored value of a type that this version does not know is as none, and stays stored."""
        self.done(self.choices().put(desired("ollama"), "on"))
        wait = self.store.write(lambda connection: connection.execute("""UPDATE choices SET value = '"maybe"'"""))
        self.turns.wait(wait)
        choices = self.choices()
        self.assertIsNone(choices.get(OLLAMA))
        self.assertEqual(choices.effective(), load())

    def test_damaged(self) -> None:
        """A stored value that is no JSON is left out with a warning that names its key; the others hold."""
        choices = self.choices()
        self.done(choices.put(OLLAMA, "on"))
        self.done(choices.put(PORT, 9001))
        for damaged in ("x'7b'", "''", "x'fffe'", "CAST(x'22ff22' AS TEXT)", f"x'{'5b' * 100_000}'"):
            self.alter(f"UPDATE choices SET value = {damaged} WHERE key = '{PORT.key}'")
            with capturedLogs() as seen:
                found = self.choices()
            self.assertIsNone(found.get(PORT))
            self.assertEqual((found.get(OLLAMA), found.effective()), ("on", load()), damaged)
            self.assertEqual([event["key"] for event in seen], [PORT.key])
            self.assertEqual(formatEvent(seen[0]).count(PORT.key), 1)

    def test_damaged_key(self) -> None:
        """So it is where the key is damaged."""
        self.alter("INSERT INTO choices VALUES (CAST(x'70ff' AS TEXT), '1', 0), (5, 'true', 0)")
        with capturedLogs() as seen:
            self.assertEqual(self.choices().effective(), load())
        self.assertEqual([event["key"] for event in seen], ["p\ufffd"])

    def alter(self, statement: str) -> None:
        """Change the store behind our back."""
        written = self.store.write(lambda connection: connection.execute(statement))
        self.turns.wait(written)
        self.successResultOf(written)
