"""What engines leave behind for the next start (EN-23, EN-79)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from pair.engines.memory import RememberedModels, StoredMemory
from pair.engines.processes import ChildRecord, Mark
from pair.records.engines import LoadedInstance, Model
from pair.test.turns import open_store

if TYPE_CHECKING:
    import sqlite3


class StoredMemoryTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.store, self.turns = open_store(self)
        self.memory = StoredMemory(self.store)

    def test_child(self) -> None:
        """The record of a child is kept, replaced and forgotten."""
        self.assertIsNone(self.memory.child("toy"))
        for executable in (None, "/opt/toy"):
            record = ChildRecord("toy", 7100, "boot", Mark(5, 1.25, executable))
            self.turns.wait(self.memory.keep_child(record))
            self.assertEqual(self.memory.child("toy"), record)
        self.turns.wait(self.memory.forget_child("toy"))
        self.assertIsNone(self.memory.child("toy"))

    def test_models(self) -> None:
        """The list is kept with its time, without the engine's own entries."""
        model = Model(
            id="a", engine="toy", facade="ollama", loaded=(LoadedInstance("a"),), listed=msgspec.Raw(b'{"b":  1}')
        )
        self.assertIsNone(self.memory.models("toy"))
        self.turns.wait(self.memory.keep_models("toy", [model], 7))
        remembered = self.memory.models("toy")
        self.assertEqual(remembered, RememberedModels(7, (msgspec.structs.replace(model, listed=None),)))

    def test_older_shape(self) -> None:
        """A row that cannot be read is as if it was never kept."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO engine_children VALUES ('toy', '[]')")
            connection.execute("INSERT INTO engine_models VALUES ('toy', 1, '7')")

        self.turns.wait(self.store.write(work))
        self.assertIsNone(self.memory.child("toy"))
        self.assertIsNone(self.memory.models("toy"))
