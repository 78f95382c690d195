"""A store whose process is killed: what was said to be written is there, and nothing by halves (AR-16)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from twisted.trial.unittest import SynchronousTestCase

from pair.test.turns import open_store

if TYPE_CHECKING:
    import sqlite3

WRITER = """
import sys
from pathlib import Path
from pair.store import Store
from pair.test.turns import Turns

turns = Turns()
store = Store(Path(sys.argv[1]), turns)
store.open()
first = store.read(lambda connection: connection.execute("SELECT count(*) FROM engine_children").fetchone()[0])

def both(number):
    def work(connection):
        connection.execute("INSERT INTO engine_children VALUES (?, '')", (str(number),))
        connection.execute("INSERT INTO engine_models VALUES (?, 0, zeroblob(9000))", (str(number),))
    return work

for number in range(first, first + 100_000):
    turns.wait(store.write(both(number)))
    print(number, flush=True)
"""


def counts(connection: sqlite3.Connection) -> tuple[int, int]:
    row = connection.execute("SELECT (SELECT count(*) FROM engine_children), (SELECT count(*) FROM engine_models)")
    children, models = row.fetchone()
    return children, models


class KilledTests(SynchronousTestCase):
    def test_killed_while_writing(self) -> None:
        """Killed at any moment, again and again: each write that was answered is whole, and none is there by half."""
        path = Path(self.mktemp()).absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        said = -1
        for number in (1, 7, 30, 3, 50):
            with subprocess.Popen(
                [sys.executable, "-c", WRITER, str(path)],
                stdout=subprocess.PIPE,
                text=True,
                env={"PYTHONPATH": os.pathsep.join(sys.path)},
            ) as child:
                assert child.stdout is not None
                for _ in range(number):
                    said = int(child.stdout.readline())
                child.kill()
                rest = child.stdout.read().split()
                said = int(rest[-1]) if rest else said
            self.assertEqual(child.returncode, -signal.SIGKILL)
            store, turns = open_store(self, str(path))
            children, models = store.read(counts)
            turns.wait(store.close())
            self.assertEqual(children, models)
            self.assertIn(children, (said + 1, said + 2))
